/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SAMPLE_SETTLE_H
#define UNIPROF_SAMPLE_SETTLE_H

/*
 * Finds out, while a guest is sampled, where in it the images are, and whether
 * they are what runs there. At the first sample, and later again, ever more
 * rarely and only so often, as long as an image has not been found or the
 * guest executes code of none of them. The guest runs meanwhile.
 */

#include "symbol/images/images.h"
#include "target/target.h"

struct settle;

struct settle_notes {
	void *ctx;
	/* A sentence for the user; `warning`: the profile is worth less than it could be. */
	void (*note)(void *ctx, bool warning, const char *text);
};

/* All must outlive it; `notes` may be NULL. */
struct error *settle_new(struct target *target, struct images *images,
			 const struct settle_notes *notes, struct settle **out);
void settle_free(struct settle *settle);

/*
 * To be called with every sample, before it is unwound; hardly ever does more
 * than look at the time. *took_ns: how long, 0 if it did no more. ERR_INPUT, naming file and guest, when a file that
 * the user gave is not what runs in the guest; other files are dropped then.
 */
struct error *settle_look(struct settle *settle, const struct sample *sample, uint64_t *took_ns);

/*
 * The build id of what runs in the guest, in hex, and where its note is, as far
 * as it was come across though no file for it was at hand; NULL if it was not.
 */
const char *settle_seen(const struct settle *settle, uint64_t *note_va);

/*
 * When all samples have been taken: what was never found, and what could not
 * be checked, is said. ERR_INPUT when nothing of what the user gave was found
 * in a guest whose memory could be read.
 */
struct error *settle_end(struct settle *settle);

#endif
