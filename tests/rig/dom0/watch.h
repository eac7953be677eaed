/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Looks at a domain through libxenctrl, as a witness that shares no code with
 * uniprof. Programs that include this run in dom0 and end with status 2 when
 * they cannot do their work at all.
 */

#include <stdbool.h>
#include <stdint.h>

#define NEVER UINT64_MAX

struct watch;

struct watch *watch_open(uint32_t domid);

/* True if somebody has paused the domain. */
bool watch_paused(struct watch *watch);

/*
 * Waits until the domain is not paused, and then until it uses CPU time. Returns
 * how long after `since_ns` (CLOCK_MONOTONIC) the former was, in ns, but for what
 * dom0 stood still itself because the machine that emulates it did other things;
 * NEVER if the latter was not within `limit_ns`.
 */
uint64_t watch_runs(struct watch *watch, uint64_t since_ns, uint64_t limit_ns);

uint64_t now_ns(void);
void nap_us(uint64_t us);

/* A sentence on stderr, and status 2. */
void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...);
