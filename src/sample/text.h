/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_TEXT_H
#define UNIPROF_SAMPLE_TEXT_H

/*
 * The guest's code, for the unwinder: read from the running guest's memory,
 * page by page, and kept for a second, because code hardly ever changes.
 * Bounds of functions and unwind tables come from images, where there are any.
 */

#include "symbol/images/images.h"
#include "target/target.h"

struct text;

/* `images` may be NULL; both must outlive it. */
struct error *text_new(struct target *target, const struct images *images, struct text **out);
void text_free(struct text *text);

/*
 * Code as seen by a vCPU with these registers, valid until the next call. The
 * registers must stay while it is used. Forgets what is older than a second.
 */
const struct code *text_code(struct text *text, const struct regs *regs, uint64_t now_ns);

#endif
