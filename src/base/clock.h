/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_CLOCK_H
#define UNIPROF_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S  1000000000ull
#define NS_PER_US 1000ull

/* CLOCK_MONOTONIC in ns. */
uint64_t clock_now_ns(void);

/* Wall clock, ns since the epoch. */
uint64_t clock_unix_ns(void);

/* CPU time that the calling thread has used, ns. */
uint64_t clock_cpu_ns(void);

/* Sleeps until CLOCK_MONOTONIC shows `when_ns`; a signal may end it early. */
void clock_sleep_until(uint64_t when_ns);

#endif
