/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main calls function_1 200,000 times and function_2 100,000 times at scale=100. function_1 calls
 * function_3, function_2 calls function_4 and function_5, and these print in loops of 10, 20 and
 * 10: the 100,000 : 200,000 : 100,000 of the original program, which as they stand would print
 * 5 * 10^10 lines. In units of one loop of ten, all calls of
 *	function_3 cost 200,000, function_4 200,000 and function_5 100,000,
 * so the expected shares are function_1 0.40 (all of it function_3's 0.40) and function_2 0.60
 * (function_4's 0.40 and function_5's 0.20).
 */
#include "guest.h"

#define BLOCKS	      100000
#define LOOP	      10
#define DEFAULT_SCALE 100

enum { MAIN, FUNCTION_1, FUNCTION_2, FUNCTION_3, FUNCTION_4, FUNCTION_5, ROWS };

struct truth truth[ROWS] = {{"main", 0, 0},	  {"function_1", 0, 0}, {"function_2", 0, 0},
			    {"function_3", 0, 0}, {"function_4", 0, 0}, {"function_5", 0, 0}};

VISIBLE void function_3(unsigned long number)
{
	for (unsigned int i = 0; i < LOOP; i++)
		print("function_3 %lu\n", number + i);
}

VISIBLE void function_4(unsigned long number)
{
	for (unsigned int i = 0; i < 2 * LOOP; i++)
		print("function_4 %lu\n", number + i);
}

VISIBLE void function_5(unsigned long number)
{
	for (unsigned int i = 0; i < LOOP; i++)
		print("function_5 %lu\n", number + i);
}

VISIBLE void function_1(unsigned long number)
{
	TIMED(&truth[FUNCTION_3], function_3(number));
}

VISIBLE void function_2(unsigned long number)
{
	TIMED(&truth[FUNCTION_4], function_4(number));
	TIMED(&truth[FUNCTION_5], function_5(number));
}

int main(void)
{
	unsigned long blocks = BLOCKS * option_number("scale", DEFAULT_SCALE) / 100;
	/* In phases, the whole run is one block. */
	unsigned long block_size = option_given("order=phases") ? blocks : 1;
	uint64_t from = cpu_time();

	print("app2: %lu blocks of 2 + 1 calls\n", blocks);
	for (unsigned long done = 0; done < blocks; done += block_size) {
		for (unsigned long i = 0; i < 2 * block_size; i++)
			TIMED(&truth[FUNCTION_1], function_1(100000 + (done + i) % 800000));
		for (unsigned long i = 0; i < block_size; i++)
			TIMED(&truth[FUNCTION_2], function_2(100000 + (done + i) % 800000));
	}
	truth[MAIN].calls = 1;
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
