/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three functions that cost the same, called 1 : 3 : 6 times: 100,000, 300,000 and 600,000 calls at
 * scale=100. Each does one division, multiplication or addition and prints the result, a number
 * of six digits. Expected shares: function_1 0.10, function_2 0.30, function_3 0.60.
 */
#include "guest.h"

#define BLOCKS	      100000
#define DEFAULT_SCALE 100

enum { MAIN, FUNCTION_1, FUNCTION_2, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"main", 0, 0},
			    {"function_1", 0, 0},
			    {"function_2", 0, 0},
			    {"function_3", 0, 0}};

VISIBLE void function_1(unsigned long dividend, unsigned long divisor)
{
	print("function_1 %lu\n", dividend / divisor);
}

VISIBLE void function_2(unsigned long a, unsigned long b)
{
	print("function_2 %lu\n", a * b);
}

VISIBLE void function_3(unsigned long a, unsigned long b)
{
	print("function_3 %lu\n", a + b);
}

static inline void call(int row, unsigned long i)
{
	unsigned long number = 100000 + i % 800000;

	if (row == FUNCTION_1)
		TIMED(&truth[FUNCTION_1], function_1(7 * number, 7));
	else if (row == FUNCTION_2)
		TIMED(&truth[FUNCTION_2], function_2(number / 3, 3));
	else
		TIMED(&truth[FUNCTION_3], function_3(number, 5));
}

int main(void)
{
	/* Per block of ten calls. */
	static const unsigned int repeats[ROWS] = {0, 1, 3, 6};
	unsigned long blocks = BLOCKS * option_number("scale", DEFAULT_SCALE) / 100;
	/* In phases, the whole run is one block. */
	unsigned long block_size = option_given("order=phases") ? blocks : 1;
	uint64_t from = cpu_time();

	print("app1: %lu blocks of 1 + 3 + 6 calls\n", blocks);
	for (unsigned long done = 0; done < blocks; done += block_size)
		for (int row = FUNCTION_1; row < ROWS; row++)
			for (unsigned long i = 0; i < repeats[row] * block_size; i++)
				call(row, done + i);
	truth[MAIN].calls = 1;
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
