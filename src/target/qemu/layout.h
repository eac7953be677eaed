/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_LAYOUT_H
#define UNIPROF_TARGET_QEMU_LAYOUT_H

/* Where registers are in the stub's answer to "g", as its target.xml tells. */

#include "arch/x86_regs.h"
#include "target/qemu/gdb.h"

struct gdb_register {
	uint16_t at;   /* byte in the answer */
	uint16_t size; /* bytes; 0: there is no such register */
};

/* Those that are needed: gp by the processors' own numbers. */
struct gdb_layout {
	struct gdb_register gp[16];
	struct gdb_register rip, eflags, cs, ss, cr0, cr3, cr4, efer;
};

/*
 * Adds the registers that an XML text describes; `next` is the byte behind
 * those before it. Any text does no harm. Returns the byte behind its last.
 */
size_t gdb_layout_add(struct gdb_layout *layout, const char *xml, size_t next);

/* Asks the stub for all of it. ERR_GUEST if it is no x86 guest. */
struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout);

/* Takes the registers out of the last answer. False if it is too short, or they cannot be these. */
bool gdb_layout_take(const struct gdb *gdb, const struct gdb_layout *layout, struct x86_regs *regs);

#endif
