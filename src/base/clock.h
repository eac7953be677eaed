/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_S  1000000000ull
#define NS_PER_US 1000ull

static inline uint64_t clock_read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CLOCK_MONOTONIC in ns. */
static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/* Wall clock, ns since the epoch. */
static inline uint64_t clock_unix_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

/* CPU time that the calling thread has used, ns. */
static inline uint64_t clock_cpu_ns(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Sleeps until CLOCK_MONOTONIC shows `when_ns`; a signal may end it early. */
static inline void clock_sleep_until(uint64_t when_ns)
{
	const struct timespec ts = {(time_t)(when_ns / NS_PER_S), (long)(when_ns % NS_PER_S)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}
