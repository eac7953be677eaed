/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_X86_TRAP_H
#define UNIPROF_UNWIND_X86_TRAP_H

/*
 * Handlers of interrupts and exceptions, which hardly ever have tables, end
 * by returning to what was interrupted: with iret, or on Xen PV through the
 * hypercall page's stub for it. Following the code forwards, from where a
 * handler stands to there, says where on the stack the frame is that it will
 * return by.
 */

#include "unwind/tables/unwind_table.h"
#include "unwind/x86_flow.h"

/*
 * `row` is a ROW_TRAP for the place `va` if what comes next there ends in an
 * iret without a return before; else its kind is ROW_NONE. `end` is the
 * function's, 0 if not known. *steps is reduced by the instructions that were
 * looked at.
 */
void x86_trap_ahead(struct code_reader *reader, uint64_t va, uint64_t end, unsigned word,
		    unsigned *steps, struct row *row);

/* The words that the processor or Xen pushes first (SDM vol. 3, 6.14; Xen public/arch-x86). */
struct x86_iret {
	uint64_t pc, cs, flags;
};

/* Can this be such a frame? */
bool x86_is_iret(const struct x86_iret *frame);

#endif
