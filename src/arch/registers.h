/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_REGISTERS_H
#define UNIPROF_ARCH_REGISTERS_H

/*
 * All registers of a vCPU, for a person to read: each with its name, flags
 * spelled out. Sampling has `struct regs`; this is for `uniprof stack`.
 */

#include "arch/arch.h"

/* A named bit, or field of bits, of a register. */
struct register_bit {
	uint8_t at;
	uint8_t width; /* 1: named when set; more: "NAME=value", unless it is 0 */
	const char *name;
};

struct register_bits {
	const struct register_bit *bit;
	size_t n;
};

enum register_group {
	REGISTER_GENERAL,
	REGISTER_CONTROL,
	REGISTER_DEBUG,
	REGISTER_SYSTEM, /* needed to enter the kernel: MSRs, or their PV counterparts */
	REGISTER_GROUPS
};

struct register_value {
	const char *name;
	uint64_t value;
	const struct register_bits *bits; /* NULL: a mere number */
	uint8_t group;
	uint8_t bytes; /* 4 or 8 */
};

struct register_segment {
	const char *name;
	uint32_t selector;
	bool has_selector; /* gdtr and idtr have none */
	bool has_base, has_limit, has_attributes;
	uint64_t base;
	uint32_t limit;
	uint16_t attributes; /* in a VMCB's format (AMD APM vol. 2, 15.5.1) */
};

#define REGISTERS_MAX 64
#define SEGMENTS_MAX  12

/* In the order in which they are shown. */
struct registers {
	size_t n, n_segments;
	struct register_value at[REGISTERS_MAX];
	struct register_segment segment[SEGMENTS_MAX];
};

/* Does nothing when there is no room. */
void registers_add(struct registers *registers, enum register_group group, const char *name,
		   unsigned bytes, uint64_t value, const struct register_bits *bits);
void registers_segment(struct registers *registers, const struct register_segment *segment);

/* "ZF PF IF IOPL=3", from the highest bit down; "" if none is set. */
#define REGISTER_BITS_TEXT 192
void register_bits_text(const struct register_bits *bits, uint64_t value,
			char text[REGISTER_BITS_TEXT]);

#endif
