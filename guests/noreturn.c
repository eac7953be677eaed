/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of functions that do not come back end the calling functions: main's return address, and
 * those that noreturn-calls.S sees to, stand in padding or on the first instruction of another
 * function. endless calls function_1 and function_3, which spin 1 : 3 times. Ends after `seconds`
 * (option, 60). Expected shares: function_1 0.25, function_3 0.75.
 */
#include "guest.h"

#define SPINS 10000

enum { ENDLESS, FUNCTION_1, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"endless", 1, 0}, {"function_1", 0, 0}, {"function_3", 0, 0}};

/* In assembly: calls a function that calls endless. */
void into_padding(void) __attribute__((noreturn));
void endless(void) __attribute__((noreturn));

VISIBLE void function_1(void)
{
	spin(SPINS);
}

VISIBLE void function_3(void)
{
	for (unsigned int i = 0; i < 3; i++)
		spin(SPINS);
}

VISIBLE void endless(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	while (clock_ns() < end) {
		TIMED(&truth[FUNCTION_1], function_1());
		TIMED(&truth[FUNCTION_3], function_3());
	}
	truth[ENDLESS].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	shut_down(ENDING_POWEROFF);
}

int main(void)
{
	print("noreturn: for ever\n");
	into_padding();
}
