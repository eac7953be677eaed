/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every vCPU spins in a worker of its own over a shared helper: worker_0 on the boot vCPU, called
 * by main, worker_1 to worker_3 on the others. Ends after `seconds` (option, 60). On a vCPU's own
 * stacks its worker's share is 1.00; a worker of another vCPU never stands on them.
 */
#include "guest.h"

#define WORKERS 4
#define SPINS	200000

struct truth truth[WORKERS] = {{"worker_0", 0, 0},
			       {"worker_1", 0, 0},
			       {"worker_2", 0, 0},
			       {"worker_3", 0, 0}};

VISIBLE void shared_helper(unsigned int vcpu)
{
	TIMED_BY(ticks, &truth[vcpu], spin(SPINS));
}

VISIBLE void worker_0(uint64_t end)
{
	while (clock_ns() < end)
		shared_helper(0);
}

VISIBLE void worker_1(unsigned int vcpu)
{
	for (;;)
		shared_helper(vcpu);
}

VISIBLE void worker_2(unsigned int vcpu)
{
	for (;;)
		shared_helper(vcpu);
}

VISIBLE void worker_3(unsigned int vcpu)
{
	for (;;)
		shared_helper(vcpu);
}

int main(void)
{
	static void (*const workers[WORKERS])(unsigned int) = {NULL, worker_1, worker_2, worker_3};
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	unsigned int running = 1;

	while (running < WORKERS && start_vcpu(running, workers[running]))
		running++;
	print("vcpus: %lu workers\n", (unsigned long)running);
	worker_0(end);
	print_truth(truth, running);
	return 0;
}
