/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_ARCH_DISASSEMBLE_H
#define UNIPROF_ARCH_DISASSEMBLE_H

/*
 * Code as text. The build chooses between libcapstone and none; the library is
 * loaded on first use, so that pure sampling does not carry it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "base/sample_types.h"

/* The longest instruction of x86 (Intel SDM vol. 2, section 2.3.11). */
#define CODE_LINE_BYTES 15

struct code_line {
	uint64_t va;
	uint8_t len;
	uint8_t bytes[CODE_LINE_BYTES];
	bool here;	 /* the instruction that comes next */
	uint64_t target; /* x86: where it calls or jumps to; 0: nowhere, or not told */
	char text[120];	 /* "": no disassembler, or no instruction */
};

struct disassembler;

/* Loads the library: call it before rights are dropped. NULL: there is none. */
struct disassembler *disassembler_open(void);
void disassembler_close(struct disassembler *disassembler);

/*
 * Instructions as the code runs that has these registers, one after the other,
 * until something is none, the code ends or `room` lines are full; returns
 * how many. No disassembler, or none for that instruction set: no lines.
 */
size_t disassemble(struct disassembler *disassembler, const struct regs *regs,
		   const struct window *code, struct code_line *lines, size_t room);

/* For `uniprof -V`. */
extern const char disassembler_feature[];

#endif
