/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_WINDOW_H
#define UNIPROF_TARGET_WINDOW_H

/*
 * Copies the stack above a stack pointer through the guest's page tables.
 * Runs while the guest is paused: only reads and copies, at most `want`
 * bytes and one walk for each page.
 */

#include "arch/arch.h"
#include "unwind/unwind.h"

/*
 * Fills `out` with up to `want` bytes from regs->sp (aligned down to a word),
 * copied to `buffer`. Ends early, with out->cut false, where the guest has no
 * page. Returns false when frame *gfn is needed and not at hand; `out` then
 * holds what came before it.
 */
bool window_copy(const struct arch *arch, const struct regs *regs, uint32_t want,
		 const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn);

/* The same from any address: another stack that this one leads to. */
bool window_copy_at(const struct arch *arch, const struct regs *regs, uint64_t va, uint32_t want,
		    const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn);

#endif
