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

/*
 * Reads guest-virtual memory through the page tables, for code and the like.
 * Returns bytes read, fewer where there is no page or no frame at hand.
 */
size_t window_read(const struct arch *arch, const struct mmu *mmu, const struct physmem *mem,
		   uint64_t va, void *buf, size_t len);

/*
 * How the last copy found its pages. Page tables are read anew each time; but
 * where all that was read of them reads the same, the pages are the same, and
 * nothing has to be looked up.
 */
#define WINDOW_TRAIL_PAGES 12u
struct window_trail {
	unsigned pages; /* 0: nothing is known */
	bool ends;	/* behind the last there is no page */
	uint8_t word;
	struct mmu mmu;
	uint64_t va; /* of the first page */
	const uint8_t *page[WINDOW_TRAIL_PAGES];
	struct xlate_log log;
};

/*
 * The same as window_copy, by the trail if that leads there, else leaving one.
 * The frames that mem gave the last time must still be where they were: when
 * they may not be, the caller sets trail->pages to 0.
 */
bool window_copy_again(const struct arch *arch, const struct regs *regs, uint32_t want,
		       const struct physmem *mem, struct window_trail *trail, uint8_t *buffer,
		       struct window *out, uint64_t *gfn);

#endif
