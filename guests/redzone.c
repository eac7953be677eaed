/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hash_blocks (redzone-hash.S) keeps the stack pointer that it came with below its own, where only
 * its CFI finds it. main calls function_1 and function_3, these hash_blocks 1 : 3 times. Ends after
 * `seconds` (option, 60). Expected shares: function_1 0.25, function_3 0.75, hash_blocks over 0.9.
 */
#include "guest.h"

#define BLOCKS 10000

enum { MAIN, FUNCTION_1, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"function_1", 0, 0}, {"function_3", 0, 0}};

/* In assembly. */
void hash_blocks(uint64_t blocks);

VISIBLE void function_1(void)
{
	hash_blocks(BLOCKS);
}

VISIBLE void function_3(void)
{
	for (unsigned int i = 0; i < 3; i++)
		hash_blocks(BLOCKS);
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	print("redzone: the frame's address is below the stack pointer\n");
	while (clock_ns() < end) {
		TIMED(&truth[FUNCTION_1], function_1());
		TIMED(&truth[FUNCTION_3], function_3());
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
