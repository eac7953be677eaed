/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"

#include "guest.h"
#include "xen.h"

#define NS_PER_S UINT64_C(1000000000)

/* A tick in nanoseconds, as a number with so many bits behind the point: counters go at 4 MHz and more. */
#define FRACTION 24
static uint32_t tick_ns;

/* Xen's system time at the moment when the counter was 0. */
static uint64_t origin_ns;

static uint64_t counted_ns(void)
{
	const uint64_t count = ticks();

	return ((count >> 32) * tick_ns << (32 - FRACTION)) +
	       ((count & UINT32_MAX) * tick_ns >> FRACTION);
}

void clock_set(uint64_t system_time_ns)
{
	uint64_t value = NS_PER_S << FRACTION;

	divide(&value, ticks_per_second());
	tick_ns = (uint32_t)value;
	origin_ns = system_time_ns - counted_ns();
}

uint64_t xen_clock_ns(const struct shared_info *shared)
{
	return origin_ns + counted_ns();
}
