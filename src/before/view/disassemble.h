/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_DISASSEMBLE_H
#define UNIPROF_OUTPUT_DISASSEMBLE_H

/*
 * Code as text. The build chooses between libcapstone and none; the library is
 * loaded when it is asked for, so that who only samples does not carry it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest instruction of x86 (Intel SDM vol. 2, section 2.3.11). */
#define CODE_LINE_BYTES 15

struct code_line {
	uint64_t va;
	uint8_t len;
	uint8_t bytes[CODE_LINE_BYTES];
	bool here;	 /* the instruction that comes next */
	uint64_t target; /* where it calls or jumps to; 0: nowhere, or not told */
	char text[120];	 /* "": no disassembler, or no instruction */
};

struct disassembler;

/* To be called while libraries may still be loaded. NULL: there is none. */
struct disassembler *disassembler_open(void);
void disassembler_close(struct disassembler *disassembler);

/*
 * Instructions of x86-64 (word 8) or x86-32 (4) one after the other, until
 * something is none, `len` bytes are through or `room` lines full; returns how
 * many. No disassembler, no lines.
 */
size_t disassemble(struct disassembler *disassembler, unsigned word, uint64_t va,
		   const uint8_t *bytes, size_t len, struct code_line *lines, size_t room);

/* For `uniprof -V`. */
extern const char disassembler_feature[];

#endif
