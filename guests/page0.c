/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Zeroes and unmaps the page with the entry's code, of which only the file tells from then on: the
 * outermost return address of every stack leads there. On PV it is page 0. main calls function_1
 * and function_3 by turns, these spin 1 : 3 times. Ends after `seconds` (option, 60).
 * Expected shares: function_1 0.25, function_3 0.75.
 */
#include "guest.h"
#include "paging.h"
#include "platform.h"

#define PAGE  4096
#define SPINS 10000

enum { MAIN, FUNCTION_1, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"function_1", 0, 0}, {"function_3", 0, 0}};

VISIBLE void function_1(void)
{
	spin(SPINS);
}

VISIBLE void function_3(void)
{
	for (unsigned int i = 0; i < 3; i++)
		spin(SPINS);
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();
	unsigned long entry = (unsigned long)_start;

	/* The compiler must not know that page 0 is meant. */
	__asm__("" : "+r"(entry));
	paging_drop((void *)(entry & ~(PAGE - 1ul)));
	print("page0: without its entry's page\n");
	while (clock_ns() < end) {
		TIMED(&truth[FUNCTION_1], function_1());
		TIMED(&truth[FUNCTION_3], function_3());
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
