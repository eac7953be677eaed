/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The seam between the runtime and the machine. Each of pv/, pvh/, arm/ and riscv64/ implements the
 * functions below; code that does not depend on the machine is written once, on top of them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <xen/io/console.h>

#include "guest.h"

struct shared_info;

struct platform {
	const char *command_line;
	/* Never NULL after platform_init: shared with dom0, or the guest's own without Xen. */
	struct xencons_interface *console;
	uint32_t console_port; /* an event channel */
	/* NULL without Xen. */
	const struct shared_info *shared;
};

/* Set up once by platform_init, read-only afterwards. */
extern struct platform platform;

/*
 * Called first, by the entry code, with the boot protocol's argument (PV: start_info, PVH:
 * hvm_start_info, Arm and RISC-V: the device tree).
 */
void platform_init(const void *boot);

/* Tells the other end that the console ring holds bytes. */
void platform_notify_console(void);
/* Gives the CPU to the reader of the ring. */
void platform_yield(void);
uint64_t platform_clock_ns(void);
uint64_t platform_cpu_time(void);
void platform_sleep_until(uint64_t deadline_ns);
void platform_shut_down(enum ending ending) __attribute__((noreturn));
/* Lets a vCPU begin at vcpu_entry with this stack and its number as the argument. */
bool platform_start_vcpu(unsigned int vcpu, void *stack_top);

/* The code that the timer interrupts with, which calls timer_event: timer_entry, if not set before start_timer. */
extern void (*timer_handler)(void);
/* Lets it be called every so often; see start_timer. */
void platform_start_timer(uint64_t period_ns, void *stack_top);
void platform_stop_timer(void);
/* Takes the event that led to timer_event; false if it was not the timer's. */
bool platform_take_tick(void);

/* In assembly: the first code of the image, and that of every vCPU but the first. */
void _start(void);
void vcpu_entry(void);

/* Entry points from assembly into C. */
void guest_start(void) __attribute__((noreturn));
void vcpu_start(unsigned int vcpu) __attribute__((noreturn));
void timer_event(void);

extern const uint64_t *interrupted_frame;
extern uint64_t interrupted_fp;
