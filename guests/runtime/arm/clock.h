/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* Says what Xen's system time is now: on this architecture it tells nobody. */
void clock_set(uint64_t system_time_ns);

#endif
