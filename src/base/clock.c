/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_unix_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

uint64_t clock_cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void clock_sleep_until(uint64_t when_ns)
{
	const struct timespec ts = {(time_t)(when_ns / NS_PER_S), (long)(when_ns % NS_PER_S)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}
