/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls by Microsoft's convention, as in UEFI: the caller leaves room for arguments below the return
 * address. Behind another call, that room is made by what elsewhere begins a function. main calls
 * work, that function_1 and function_3, which spin 1 : 3 times. Ends after `seconds` (option, 60).
 * Expected shares: function_1 0.25, function_3 0.75.
 */
#include "guest.h"

#define SPINS 10000

enum { MAIN, FUNCTION_1, FUNCTION_3, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"function_1", 0, 0}, {"function_3", 0, 0}};

static uint64_t from;

VISIBLE void begin_time(void)
{
	from = cpu_time();
}

VISIBLE __attribute__((ms_abi)) void end_time(struct truth *row)
{
	row->ticks += cpu_time() - from;
	row->calls++;
}

VISIBLE __attribute__((ms_abi)) void function_1(void)
{
	spin(SPINS);
}

VISIBLE __attribute__((ms_abi)) void function_3(void)
{
	for (unsigned int i = 0; i < 3; i++)
		spin(SPINS);
}

VISIBLE void work(void)
{
	begin_time();
	function_1();
	end_time(&truth[FUNCTION_1]);
	begin_time();
	function_3();
	end_time(&truth[FUNCTION_3]);
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t start = cpu_time();

	print("shadow: room for arguments is made behind calls\n");
	while (clock_ns() < end)
		work();
	truth[MAIN].ticks = cpu_time() - start;
	print_truth(truth, ROWS);
	return 0;
}
