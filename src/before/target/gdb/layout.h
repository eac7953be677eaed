/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_LAYOUT_H
#define UNIPROF_TARGET_QEMU_LAYOUT_H

/*
 * How the stub tells registers, as its target.xml says: those that are in its
 * answer to "g", and where, and those that have to be asked for one by one.
 */

#include "arch/arch.h"
#include "target/gdb/client.h"

#define GDB_REGISTERS_MAX 40

/* One instruction set, in the words of the stub. */
struct gdb_machine {
	const char *name; /* <architecture> */
	const struct arch *arch;
	/* What its registers are called, the most important first, up to NULL; "a|b": one of these. */
	const char *const *registers;
	unsigned needed; /* of these so many must be there */
	/* By number in `registers`; 0 for what there is not. False: these cannot be right. */
	bool (*take)(const uint64_t *value, struct regs *to);
};

extern const struct gdb_machine gdb_x86_64, gdb_i386, gdb_aarch64, gdb_arm;

struct gdb_register {
	uint16_t at;	 /* byte in the answer to "g" */
	uint16_t size;	 /* bytes; 0: there is no such register */
	uint16_t number; /* for asking for it alone */
};

struct gdb_layout {
	const struct gdb_machine *machine; /* NULL: not known */
	struct gdb_register at[GDB_REGISTERS_MAX];
	size_t together; /* bytes in the answer to "g" */
};

/* Behind the last register that was described: the next byte, the next number. */
struct gdb_place {
	size_t byte, number;
};

/* Adds the registers that an XML text describes. Any text does no harm. */
void gdb_layout_add(struct gdb_layout *layout, const char *xml, struct gdb_place *place);

/* Asks the stub for all of it. ERR_GUEST if its instruction set is none of those above. */
struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout);

/* Adds to a batch what asks for the registers. */
void gdb_layout_request(const struct gdb_layout *layout, struct gdb *gdb);

/* Takes the answers to that; false if they are too short, or cannot be right. */
bool gdb_layout_take(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs);

#endif
