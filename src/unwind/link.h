/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Code of processors that put return addresses in a link register: the values of
 * its registers, as far as they follow from a function's first instruction on;
 * from an instruction ahead to the return; and, where an interrupt handler
 * restores registers and returns, emulated. The processor's decoder says what an
 * instruction does in a few operations.
 */

#include "unwind/walk.h"

/* More than there are DWARF numbers of registers: one may stand for zero. */
#define LINK_REGISTERS 33

/* Functions with frames beyond this are not followed, bytes. */
#define FRAME_MAX (1 << 20)

/* Operations of one instruction, at most. */
#define LINK_OPS 3

enum link_kind {
	LINK_OTHER,  /* rd has a value that is not told */
	LINK_ADDI,   /* rd = rs1 + imm; moves as well */
	LINK_ADDIW,  /* ... in 32 bits, sign-extended */
	LINK_ADD,    /* rd = rs1 + rs2 */
	LINK_SUB,    /* rd = rs1 - rs2 */
	LINK_SLLI,   /* rd = rs1 << imm */
	LINK_CONST,  /* rd = imm */
	LINK_INSERT, /* rd = rd, with imm in its quarter of the number rs2 */
	LINK_AUIPC,  /* rd = pc + imm: with a jump by it, a call or jump to a fixed address */
	LINK_LOAD,   /* rd = the 8 bytes at rs1 + imm */
	LINK_STORE,  /* the 8 bytes at rs1 + imm = rs2 */
	LINK_JUMP,   /* to pc + imm, return address to rd */
	LINK_JALR,   /* to rs1 + imm, return address to rd */
	LINK_BRANCH, /* to pc + imm, or on */
	LINK_READ,   /* rd = the control register `imm` */
	LINK_WRITE,  /* the control register `imm` = rs1, rd = what it was */
	LINK_XRET,   /* returns from a handler */
	LINK_STOP,   /* a trap, or no instruction at all */
	LINK_BEGIN,  /* stands where functions begin, and does nothing */
};

struct link_op {
	uint8_t op;   /* enum link_kind */
	uint8_t size; /* of the instruction, bytes */
	uint8_t rd, rs1, rs2;
	int64_t imm;
};

/* A number, or a register's, as an instruction has it: in pieces. */
struct link_number {
	uint8_t sign; /* bits of a signed number; 0: it has no sign */
	uint8_t plus; /* what is to be added */
	uint8_t zero; /* this value is one more: the register that is always 0; 0: none is */
	uint8_t up,
		down; /* negative unless bit `up` of the instruction is set, or if `down` is; 0: neither */
	struct {
		uint8_t from, bits, to; /* lowest bits: in the instruction, in the number */
	} piece[8];
};

/* In place of a number or a register: entry n - LINK_FIELD of the processor's numbers. */
#define LINK_FIELD 64

/* An instruction, if these bits of it are so. */
struct link_shape {
	uint32_t mask, bits;
	uint8_t op, imm, rd, rs1, rs2; /* as in struct link_op, constants or fields */
};

/* Decodes by the first of the shapes that fits: the last one fits all. Sets all but the size. */
void link_decode(const struct link_shape *shapes, const struct link_number *numbers, uint32_t insn,
		 struct link_op *out);

/*
 * Takes apart a load or store at rs1 + imm of one register, or of two, if `second` is not NULL, whose
 * imm counts from the first one's: before or after it rs1 may move by imm. Returns the number of operations.
 */
unsigned link_access(struct link_op op[LINK_OPS], const struct link_op *second, bool before,
		     bool moves);

/* Words that a handler may have stored on its way. */
#define HANDLER_STORES 40

struct handler_value {
	uint64_t is;
	bool known;
};

/* An interrupt handler that is emulated; unknown values stay unknown. */
struct handler_run {
	struct walk *walk;
	struct handler_value x[LINK_REGISTERS]; /* by DWARF number */
	struct handler_value pc, status,
		other_sp; /* what the return restores, and another stack's (RISC-V: xscratch) */
	struct {
		uint64_t va;
		struct handler_value value;
	} store[HANDLER_STORES];
	unsigned n;
};

struct link_code {
	/* `n` bytes of code; returns the number of operations, 0 if they do not hold the instruction. */
	unsigned (*decode)(const uint8_t *bytes, size_t n, struct link_op op[LINK_OPS]);
	uint8_t unit; /* instructions are multiples of it, bytes */
	uint8_t zero; /* the register that is always 0 */
	uint8_t other_ra; /* calls of compilers' own helpers put return addresses there, or RULE_NO_REGISTER */
	bool ra_stays; /* a call or a move leaves open whether the caller's address is in register ra */
	uint32_t call_changes; /* bit n: a call may change register n */
	uint32_t
		kept; /* bit n: a function keeps register n, may hold its own stack pointer there */
	/* A control register of handlers; NULL: it does not matter. */
	struct handler_value *(*control)(struct handler_run *run, int64_t number);
	/* A register in which handlers give away their frame's address, and get it back; or RULE_NO_REGISTER. */
	uint8_t frame;
	/* Has the call before this return address given it away? */
	bool (*gives_frame)(struct code_reader *reader, uint64_t ret);
};

/* Functions of struct unwind_isa. */
enum flow_result link_follow(const struct flow_query *query, struct code_reader *reader,
			     struct rule *out);
enum paths_end link_find_return(const struct flow_query *query, struct code_reader *reader,
				struct rule *out);
bool link_begins_stack(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
bool link_sets_up_frame(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
bool link_makes_frame(const struct unwind_isa *isa, const uint8_t *bytes, size_t n);
bool link_call_before(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, uint64_t ret,
		      struct call *out);

/* As unwind_isa.handler; *trap is left alone. */
bool handler_returns(const struct unwind_isa *isa, struct code_reader *reader, uint64_t pc,
		     uint64_t end, struct row *trap);

/* What processors with struct link_code have alike. */
#define LINK_ISA                                                                                 \
	.address = UINT64_MAX, .link = true, .call_before = link_call_before,                    \
	.begins_stack = link_begins_stack, .marking = 64, .sets_up_frame = link_sets_up_frame,   \
	.makes_frame = link_makes_frame, .follow = link_follow, .find_return = link_find_return, \
	.handler = handler_returns, .link_code = &link_code, .interrupted = interrupted

/* Emulates the code from the walk's frame to the return. False: it has none. */
bool handler_run(struct handler_run *run, struct walk *walk);

/*
 * Ends the walk, if no missing word was the reason: where what a handler restores is not known,
 * frame records would leave out the interrupted function.
 */
enum found handler_end(struct walk *walk, enum unwind_end why);

/* Goes to the interrupted code, or ends the walk as broken if that cannot be. */
enum found handler_leave(const struct handler_run *run, struct handler_value sp, uint8_t *trust);
