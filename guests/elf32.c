/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 64-bit code in an ELF file of 32 bits for i386, with few symbols, the entry's without a size: the
 * names are in the debug information. main calls function_1, function_2 and function_3, which spin
 * 1 : 3 : 6 times. Ends after `seconds` (option, 60). Expected shares: 0.10, 0.30, 0.60.
 */
#include "guest.h"

#define SPINS 10000

enum { MAIN, FUNCTION_1, FUNCTION_2, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0},
			    {"function_1", 0, 0},
			    {"function_2", 0, 0},
			    {"function_3", 0, 0}};

#define FUNCTION_N(number, times)                        \
	VISIBLE void function_##number(void)             \
	{                                                \
		for (unsigned int i = 0; i < times; i++) \
			spin(SPINS);                     \
	}

FUNCTION_N(1, 1)
FUNCTION_N(2, 3)
FUNCTION_N(3, 6)

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	print("elf32: 64-bit code in an ELF file of 32 bits\n");
	while (clock_ns() < end) {
		TIMED(&truth[FUNCTION_1], function_1());
		TIMED(&truth[FUNCTION_2], function_2());
		TIMED(&truth[FUNCTION_3], function_3());
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
