/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_GDB_LAYOUT_H
#define UNIPROF_TARGET_GDB_LAYOUT_H

/*
 * Layout of the stub's registers, as its target.xml describes it: those in its answer to "g", with
 * their offsets, and those that have to be asked for one by one. A further instruction set is a
 * `struct gdb_machine` in layout.c.
 */

#include "arch/arch.h"
#include "target/gdb/client.h"

#define GDB_REGISTERS_MAX 40

/* One instruction set, in the words of the stub. */
struct gdb_machine {
	const char *name; /* <architecture> */
	const struct arch *arch;
	/* Names of the registers, the most important first, up to NULL; "a|b": one of these. */
	const char *const *registers;
	unsigned needed; /* of these so many must be there */
	uint64_t system; /* bit n: stubs of programs, and of some monitors, lack registers[n] */
	/*
	 * Converts values in the order of `registers`; 0 for those that are missing. `plain`: those
	 * of `system` are not all there. False: these cannot be right.
	 */
	bool (*take)(const uint64_t *value, bool plain, struct regs *to);
};

struct gdb_register {
	uint16_t at;	 /* byte in the answer to "g" */
	uint16_t size;	 /* bytes; 0: there is no such register */
	uint16_t number; /* for asking for it alone */
};

struct gdb_layout {
	const struct gdb_machine *machine; /* NULL: not known */
	struct gdb_register at[GDB_REGISTERS_MAX];
	bool plain;	 /* no system registers: how addresses are translated is not known */
	size_t together; /* bytes in the answer to "g" */
};

/* Behind the last register that was described: the next byte, the next number. */
struct gdb_cursor {
	size_t byte, number;
};

/* Adds the registers that an XML text describes. Any text does no harm. */
void gdb_layout_add(struct gdb_layout *layout, const char *xml, struct gdb_cursor *cursor);

/*
 * Asks the stub for all of it. ERR_GUEST if its instruction set is none of those
 * above; what may be missing of system registers is up to the caller.
 */
struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout);

/* Adds to a batch what asks for the registers. */
void gdb_layout_request(const struct gdb_layout *layout, struct gdb *gdb);

/* Takes the answers to that; false if they are too short, or cannot be right. */
bool gdb_layout_take(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs);

#endif
