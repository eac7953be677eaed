/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Copies the stack above a stack pointer, and the red zone below it, through
 * the guest's page tables. Runs while the guest is paused: only reads and
 * copies, at most `want` + RED_ZONE_MAX bytes and one walk for each page.
 */

#include "arch/arch.h"
#include "base/sample_types.h"
#include "threads/threads.h"

/*
 * Reads guest-virtual memory through the page tables, for code and the like.
 * Returns bytes read, fewer where there is no page or no frame at hand.
 */
size_t window_read(const struct arch *arch, const struct mmu *mmu, const struct physmem *mem,
		   uint64_t va, void *buf, size_t len);

/* Marks the first `below` bytes of `out` as the red zone; if it has fewer, no stack is left. */
void window_set_below(struct window *out, uint32_t below);

/*
 * Pages that earlier copies found, by the page where they began: a guest has
 * many stacks. Page tables are read anew each time; but if all that was read of
 * them reads the same, the pages are the same, and nothing has to be looked up.
 */
#define WINDOW_TRAIL_PAGES 12u
#define WINDOW_TRAIL_BITS  8 /* log 2 of the trails */
struct window_trails {
	const struct window_trail *last; /* that was left, or gone by; NULL: none */
	uint64_t uppers;		 /* the last number of upper tables */
	struct window_trail {
		unsigned pages; /* 0: nothing is known */
		bool ends;	/* behind the last there is no page */
		bool bare;	/* the red zone was on a page below that was not copied */
		uint8_t word;
		/*
		 * Trails of one number have the same mmu, and the same in their upper tables: what
		 * is compared for one holds for all. 0: no number.
		 */
		uint64_t upper;
		struct mmu mmu;
		uint64_t va; /* of the first page */
		const uint8_t *page[WINDOW_TRAIL_PAGES];
		struct xlate_log log;
	} trail[1u << WINDOW_TRAIL_BITS];
};

/* One copy: where from, where to, and what it lacked. */
struct window_copy {
	const struct arch *arch;
	const struct regs *regs;
	const struct physmem *mem;
	/*
	 * Copies go by a trail if one leads there, else leave one; NULL: they do
	 * not. The frames that mem gave the last time must still be where they
	 * were: when they may not be, the caller forgets all trails.
	 */
	struct window_trails *trails;
	uint8_t *buffer; /* of `want` bytes, and RED_ZONE_MAX for a stack */
	struct window *out;
	uint64_t gfn; /* after false: the frame that was not at hand */
	/* Private, zero at first: */
	struct window_trail *trail;
	/* Number of upper tables that were compared; for one pause, and the same registers. */
	uint64_t proven;
};

/*
 * Fills `out` with up to `want` bytes from regs->sp (aligned down to a word),
 * and out->below in front of them. Ends early, with out->cut false, where the
 * guest has no page. Returns false when frame copy->gfn is needed and not at
 * hand; `out` then holds what came before it, or all but the red zone.
 */
bool window_copy(struct window_copy *copy, uint32_t want);

/* Copies from any address, without a red zone: another stack that this one leads to. */
bool window_copy_at(struct window_copy *copy, uint64_t va, uint32_t want);

/*
 * Copies pieces of the thread that the vCPU runs; out->there tells whether it
 * could. Returns false when a frame is missing.
 */
bool window_copy_thread(struct window_copy *copy, const struct thread_request *request,
			struct thread_copy *out);

/* The address that the pointer to the thread is counted from; 0: it is not known. */
uint64_t window_thread_from(const struct regs *regs, const struct thread_request *request);

void window_forget_trails(struct window_trails *trails);
