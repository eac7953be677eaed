/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * app2, with a sampler inside (inside/uniprof_inside.h) that a timer calls 101 times a second;
 * shares as there. The sampler waits to be switched on from outside, or begins at once with the
 * word `inside=on`; with `inside=none` there is no timer. With `work=spin` it spins instead, and
 * tells how long that took.
 */
#include "guest.h"
#include "uniprof_inside.h"

#define PERIOD_NS (1000000000 / 101)
#define SPINS	  100000000

static uint8_t memory[UNIPROF_INSIDE_BYTES] __attribute__((aligned(UNIPROF_INSIDE_ALIGN)));
static struct uniprof_inside *ring;

VISIBLE void tick(void)
{
	const struct interrupted now = timer_interrupted();
	const struct uniprof_inside_regs regs = {.pc = now.pc,
						 .sp = now.sp,
						 .fp = now.fp,
						 .flags = now.flags,
						 .stack_end =
							 (uintptr_t)boot_stack + BOOT_STACK_BYTES};

	uniprof_inside_tick(ring, &regs);
}

static int work(void)
{
	const uint64_t from = cpu_time();

	if (!option_given("work=spin"))
		return workload();
	spin(SPINS);
	console_wait(true);
	print("spun for %llu ticks, %lu samples\n", (unsigned long long)(cpu_time() - from),
	      (unsigned long)ring->head);
	return 0;
}

/* The build renames app2's main, which guest.h declares. */
#undef main
int main(void)
{
	print("inside\n");
	ring = uniprof_inside_init(memory, sizeof(memory), 0, 0);
	uniprof_inside_switch(ring, option_given("inside=on"));
	if (option_given("inside=none"))
		return work();
	start_timer(PERIOD_NS, tick, NULL);
	work();
	stop_timer();
	return 0;
}
