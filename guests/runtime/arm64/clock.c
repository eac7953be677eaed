/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"

#include "guest.h"
#include "xen.h"

/* Xen's system time at the moment when the counter was 0. */
static uint64_t origin_ns;

static uint64_t counted_ns(void)
{
	uint64_t hz, count = ticks();

	__asm__("mrs %0, cntfrq_el0" : "=r"(hz));
	return count / hz * 1000000000 + count % hz * 1000000000 / hz;
}

void clock_set(uint64_t system_time_ns)
{
	origin_ns = system_time_ns - counted_ns();
}

uint64_t xen_clock_ns(const struct shared_info *shared)
{
	return origin_ns + counted_ns();
}
