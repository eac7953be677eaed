/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine when no Xen is below the image: QEMU's virt. */
#pragma once

#include <stdint.h>

#include <xen/xen.h>
#include <xen/io/console.h>

/* Writes the ring's contents to the first serial port. */
void bare_drain(struct xencons_interface *ring);
/* Spins until then. */
void bare_sleep_until(uint64_t deadline_ns);
void bare_power_off(void) __attribute__((noreturn));
