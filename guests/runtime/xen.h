/* SPDX-License-Identifier: BSD-3-Clause */
/* Xen's interface as all guests use it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <xen/xen.h>
#include <xen/event_channel.h>

#include "guest.h"

void xen_event_send(evtchn_port_t port);
void xen_yield(void);
/* The time of vCPU 0 of a domain whose TSCs run together. */
uint64_t xen_clock_ns(const struct shared_info *shared);
/* Asks Xen to keep vCPU 0's times of running and waiting where xen_cpu_ns finds them. */
void xen_watch_cpu_time(void);
/* The system time at which vCPU 0 got the CPU. */
uint64_t xen_running_since(void);
/* Nanoseconds that vCPU 0 has run. */
uint64_t xen_cpu_ns(const struct shared_info *shared);
/* Blocks until the deadline of xen_clock_ns, with events left masked. */
void xen_sleep_until(uint64_t deadline_ns);
void xen_shut_down(enum ending ending) __attribute__((noreturn));
/* context: argument of VCPUOP_initialise on this kind of guest. */
bool xen_start_vcpu(unsigned int vcpu, const void *context);
