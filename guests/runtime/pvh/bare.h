/* SPDX-License-Identifier: BSD-3-Clause */
/* The PVH image's machine when no Xen is below it: QEMU's pc or q35. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <xen/xen.h>
#include <xen/io/console.h>

#include "guest.h"

/* Writes the ring's contents to COM1. */
void bare_drain(struct xencons_interface *ring);
/* From the ACPI timer; must be called every four seconds to see it wrap. */
uint64_t bare_clock_ns(void);
/* Halts until then; spins in a 32-bit guest. */
void bare_sleep_until(uint64_t deadline_ns);
/* As platform_start_vcpu; false when no such CPU comes up. */
bool bare_start_vcpu(unsigned int vcpu, void *stack_top);
/*
 * Ends QEMU by isa-debug-exit at port 0xf4 if it is there (exit status 1, after
 * a crash 7), else by ACPI.
 */
void bare_power_off(enum ending ending) __attribute__((noreturn));
