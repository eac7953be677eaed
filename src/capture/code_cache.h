/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CAPTURE_CODE_CACHE_H
#define UNIPROF_CAPTURE_CODE_CACHE_H

/*
 * The guest's code, for the unwinder: read from the running guest's memory, page
 * by page, and kept for a second, because code hardly ever changes. If a page is
 * gone, or wiped to zeros, but a file that was compared with the guest has code
 * there, it is read from that file: return addresses still lead there, and their
 * calls were made when the page was as loaded (Unikraft unmaps the page with its
 * entry, and the call there, once it has started). A page with other contents is
 * read as it is. Bounds of functions and unwind tables come from images, where
 * there are any, and not where a program's image is meant and another program runs.
 */

#include "symbol/images/images.h"
#include "target/target.h"
#include "unwind/unwind.h"

struct code_cache;

/*
 * True if code at `va` is a program's on a vCPU with these registers: below a kernel, which has page
 * tables for each program. Code of a unikernel in the lower half is none.
 */
static inline bool is_program_code(const struct regs *regs, uint64_t va)
{
	return va < LOWER_HALF && regs->mmu.mode != MMU_OFF &&
	       (regs->user || regs->pc >= LOWER_HALF);
}

/* `images` may be NULL; both must outlive it. */
struct error *code_cache_new(struct target *target, const struct images *images,
			     struct code_cache **out);
void code_cache_free(struct code_cache *cache);

/*
 * Code as seen by a vCPU with these registers, valid until the next call. The
 * registers must stay while it is used. Forgets what is older than a second.
 */
const struct code *code_cache_for(struct code_cache *cache, const struct regs *regs,
				  uint64_t now_ns);

/* True if an image has the code at `va`, and no other program runs there in the address space of these registers. */
bool code_cache_knows(struct code_cache *cache, uint64_t va);

/*
 * Marks frames (FRAME_FOREIGN) where the image of a program is meant and the address space of these
 * registers has something else: its memory is compared with the file, now and then. Frames of
 * programs that are seen before a file was found are marked, too.
 */
void code_cache_mark_foreign(struct code_cache *cache, struct frame *frames, size_t n);

#endif
