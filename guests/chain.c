/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stack of exactly `frames` (option, 8; 5 to 160) under a spinning leaf, on each vCPU that works:
 * the first `busy` ones (option, all), the rest sleep. Ends after `seconds` (option, 60). Counts
 * pieces of work, vCPU by vCPU, so that what the guest gets done in a second can be measured. Each
 * 128 pieces, a vCPU that works sleeps for `idle_us` (option, 0).
 * Expected share of spin: 1.00.
 */
#include "guest.h"

#define DEFAULT_FRAMES 8
/* spin, and below link: main, guest_start and the entry; or worker, vcpu_start and vcpu_entry. */
#define OTHER_FRAMES 4
#define MAX_FRAMES   160
/* A piece of work is some tens of thousands of instructions. */
#define SPINS 10000
#define BATCH 128
/* Later than anything ends, and not negative for Xen. */
#define NEVER (1ull << 62)

struct truth truth[MAX_VCPUS] = {[0 ... MAX_VCPUS - 1] = {"spin", 0, 0}};

static unsigned long links;
static uint64_t end, idle_ns;

static void idle(unsigned int vcpu)
{
	uint64_t until;

	if (!idle_ns || truth[vcpu].calls % BATCH)
		return;
	until = clock_ns() + idle_ns;
	while (clock_ns() < until)
		sleep_until(until);
}

VISIBLE uint64_t link(unsigned long depth, unsigned int vcpu)
{
	if (depth > 1)
		return link(depth - 1, vcpu) + depth;
	while (vcpu || clock_ns() < end) {
		TIMED_BY(ticks, &truth[vcpu], spin(SPINS));
		idle(vcpu);
	}
	return 0;
}

VISIBLE void worker(unsigned int vcpu)
{
	link(links, vcpu);
}

VISIBLE void sleeper(unsigned int vcpu)
{
	(void)vcpu;
	for (;;)
		sleep_until(NEVER);
}

int main(void)
{
	unsigned long frames = option_number("frames", DEFAULT_FRAMES);
	unsigned long busy = option_number("busy", MAX_VCPUS);
	unsigned int running = 1;

	if (frames <= OTHER_FRAMES || frames > MAX_FRAMES)
		frames = DEFAULT_FRAMES;
	links = frames - OTHER_FRAMES;
	end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	idle_ns = option_number("idle_us", 0) * 1000ull;
	while (running < MAX_VCPUS && start_vcpu(running, running < busy ? worker : sleeper))
		running++;
	print("chain: %lu frames on %lu of %lu vCPUs\n", frames,
	      busy < running ? busy : (unsigned long)running, (unsigned long)running);
	if (busy)
		link(links, 0);
	while (clock_ns() < end)
		sleep_until(end);
	print_truth(truth, running);
	return 0;
}
