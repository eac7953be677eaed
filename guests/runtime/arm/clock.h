/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>

/* Sets Xen's system time: on this architecture Xen does not tell it. */
void clock_set(uint64_t system_time_ns);
