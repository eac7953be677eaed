/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_X86_H
#define UNIPROF_UNWIND_X86_X86_H

/* What x86 code says of callers, beside its flow: calls, stubs, handlers and returns ahead. */

#include "unwind/isa.h"
#include "unwind/tables/unwind_table.h"
#include "unwind/x86/flow.h"

#define X86_CALL_MAX  9	 /* the longest call, bytes: prefix, REX, FF, ModRM, SIB, displacement */
#define X86_STUB_SLOT 32 /* the hypercall page has one stub in each of its slots, bytes */

/* `n` bytes of code that end right before address `ret`; false if no call ends there. */
bool x86_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word, struct call *out);

/*
 * True if this slot of X86_STUB_SLOT bytes holds a stub as Xen writes them into
 * a guest's hypercall page.
 */
bool x86_is_hypercall_stub(const uint8_t *slot, unsigned word);

/*
 * Follows the code from `va` on, along its branches, to a return to the caller.
 * True if one was reached; `out` then says from which word it returns, and
 * where the frame pointer is restored from. *steps is reduced by the
 * instructions that were followed.
 */
bool x86_find_return(struct code_reader *reader, uint64_t va, enum frame_kind kind, void *scratch,
		     unsigned *steps, struct rule *out);

/*
 * Handlers of interrupts and exceptions, which hardly ever have tables, end by
 * returning to the interrupted code: with iret, or on Xen PV through the
 * hypercall page's stub for it. Following a handler's code ahead to there finds
 * the frame on the stack through which it will return.
 *
 * Makes `trap` a ROW_TRAP for `va`, and is true, if the code there leads to an iret without a
 * return before; else its kind is ROW_NONE. `end` is the function's, 0 if not
 * known. *steps is reduced by the instructions that were followed.
 */
bool x86_find_trap(struct code_reader *reader, uint64_t va, uint64_t end, unsigned *steps,
		   struct row *trap);

/* The words that the processor or Xen pushes first (SDM vol. 3, 6.14; Xen public/arch-x86). */
struct x86_iret {
	uint64_t pc, cs, flags;
};

/* Can this be such a frame? */
bool x86_is_iret(const struct x86_iret *frame);

#endif
