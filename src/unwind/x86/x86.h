/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Code of x86 tells of callers by the effects of its instructions, by its flow, and
 * by calls, stubs, handlers and returns ahead.
 */

#include "arch/x86/x86.h"
#include "unwind/isa.h"
#include "unwind/tables/unwind_table.h"

/* Opcodes of the first map (SDM vol. 2, appendix A). */
enum { X86_MOV_TO = 0x89, X86_MOV_FROM = 0x8b, X86_LEA = 0x8d, X86_RET = 0xc3 };

/* Effect of an instruction on the stack pointer, the frame pointer and the flow of control. */

enum x86_op {
	X86_OTHER,    /* nothing of interest */
	X86_PUSH,     /* one word; `reg` or [base + value], or neither */
	X86_POP,      /* one word into `reg` (X86_NO_REG: elsewhere) */
	X86_PUSH_ALL, /* eight words, bp the third from the last; 32-bit code alone */
	X86_POP_ALL,  /* undoes that */
	X86_SET_SP,   /* sp = base + value; base X86_SP: moved by value */
	X86_COPY_SP,  /* reg = sp + value; reg is never X86_SP */
	X86_LOSE,     /* `reg` (X86_SP or X86_BP) changes; value 1: it is replaced altogether */
	X86_ENTER,    /* pushes bp, sets it up, then moves sp down by value */
	X86_LEAVE,    /* undoes that */
	X86_CALL,     /* to `value` */
	X86_CALL_INDIRECT, /* to wherever a register or memory says */
	X86_BRANCH,	   /* to `value`, or on */
	X86_JUMP,	   /* to `value` */
	X86_JUMP_INDIRECT,
	X86_STOP, /* control does not come past it: ret, iret, ud2, int3 */
};

struct x86_effect {
	enum x86_op op;
	uint8_t reg, base;
	int64_t value; /* jump and call targets: virtual addresses */
};

/* The effect of `insn`, which stands at `va`. */
struct x86_effect x86_effect(const struct x86_insn *insn, uint64_t va, unsigned word);

bool x86_is_call(const struct x86_effect *effect);

/* Where an instruction goes on. */
enum path x86_path(const struct x86_insn *insn, const struct x86_effect *effect);

/* Is it a call of the next instruction, at `next`, by which 32-bit code reads its own address? */
bool x86_asks_where_it_is(const struct x86_effect *effect, uint64_t next, unsigned word);

/* True for instructions that fill the space between functions. */
bool x86_is_padding(const struct x86_insn *insn);

/*
 * Does another function begin here, behind a call? Without symbols nothing else
 * shows that the call never returns. `framed`: the frame pointer is set up.
 */
bool x86_begins_function(const struct x86_insn *insn, const struct x86_effect *effect, bool framed,
			 unsigned word);

/*
 * Effects of a function on the stack and the frame pointer at one of its
 * instructions; and how each instruction changes them.
 */

/* Depth or offset that is not known. */
#define X86_LOST INT32_MIN

/* All in bytes; "slot" is where the return address is. */
struct x86_state {
	int32_t depth;	  /* slot = sp + depth, or X86_LOST; negative: already popped */
	int32_t fp_at;	  /* slot = fp + fp_at; 0: fp is no frame pointer here */
	int32_t saved_at; /* the caller's fp is stored at slot - saved_at; 0: it is still in fp */
	bool fp_lost;	  /* ... or it is neither */
	bool entry; /* the code took over a stack or frame pointer without keeping the old one */
	/*
	 * A realigned stack: slot holds a copy of the return address. The true
	 * slot's address + word is stored at slot - origin_at, if that is not 0.
	 */
	bool copied;
	int32_t origin_at;
	uint8_t origin_reg; /* it is in this register, while nothing else is known */

	int32_t probe_depth; /* depth at which a stack probing loop ends; 0: none */
};

/*
 * Finds where a function keeps its return address and its caller's frame
 * pointer at one of its instructions, by following its code from the first
 * instruction to that one: pushes, pops, constants added to the stack pointer,
 * frame set-up and tear-down. So entry, exit, frameless leaves and code that
 * has no frame pointer at all need no rule of their own.
 */

enum flow_result x86_flow(const struct flow_query *query, struct code_reader *reader,
			  struct x86_state *out);

#define X86_CALL_MAX  9	 /* the longest call, bytes: prefix, REX, FF, ModRM, SIB, displacement */
#define X86_STUB_SLOT 32 /* the hypercall page has one stub in each of its slots, bytes */

/* `n` bytes of code that end right before address `ret`; false if no call ends there. */
bool x86_call_before(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, uint64_t ret,
		     struct call *out);

/*
 * True if this slot of X86_STUB_SLOT bytes holds a stub as Xen writes them into
 * a guest's hypercall page.
 */
bool x86_is_hypercall_stub(const uint8_t *slot, unsigned word);

/*
 * Follows the code from query->addr on, along its branches, to a return to the caller.
 * Where one was reached `out` says from which word it returns, and where the frame pointer is restored from.
 */
enum paths_end x86_find_return(const struct flow_query *query, struct code_reader *reader,
			       struct rule *out);

/* From a register's number in instructions to that in DWARF. */
uint8_t x86_dwarf_number(uint8_t reg, unsigned word);

/*
 * Handlers of interrupts and exceptions, which hardly ever have tables, end by
 * returning to the interrupted code: with iret, or on Xen PV through the
 * hypercall page's stub for it. Following a handler's code ahead to there finds
 * the frame on the stack through which it will return.
 *
 * Makes `trap` a ROW_TRAP for `va`, and is true, if the code there leads to an iret without a
 * return before; else its kind is ROW_NONE. `end` is the function's, 0if not known.
 */
bool x86_find_trap(const struct unwind_isa *isa, struct code_reader *reader, uint64_t va,
		   uint64_t end, struct row *trap);
