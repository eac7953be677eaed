/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CAPTURE_IMAGE_LOCATOR_H
#define UNIPROF_CAPTURE_IMAGE_LOCATOR_H

/*
 * Locates images while a guest is sampled, and checks that they are the code
 * that runs. Searches at the first sample, and again later, ever more rarely
 * and only so often, as long as an image has not been found or the guest
 * executes code of none of them. The guest runs meanwhile. Each search has a
 * budget of steps, since the memory that it reads is the guest's.
 */

#include <signal.h>

#include "symbol/images/images.h"
#include "target/target.h"

struct image_locator;

struct image_locator_notes {
	void *ctx;
	/* A sentence for the user; `warning`: the profile is worth less than it could be. */
	void (*note)(void *ctx, bool warning, const char *text);
};

/* All must outlive it; `notes` may be NULL. */
struct error *image_locator_new(struct target *target, struct images *images,
				const struct image_locator_notes *notes,
				struct image_locator **out);
void image_locator_free(struct image_locator *locator);

/*
 * To be called with every sample, before it is unwound; hardly ever does more
 * than look at the time. Begins a search if there is something to be found. The
 * first ones are run to their end, unless *stop is set (NULL: never); later
 * ones for a millisecond, and then by image_locator_work. *took_ns: how long, 0 if it
 * did no more than look at the time. ERR_INPUT, naming file and guest, when a
 * file that the user gave is not what runs in the guest; other files are
 * dropped then.
 */
struct error *image_locator_sample(struct image_locator *locator, const struct sample *sample,
				   const volatile sig_atomic_t *stop, uint64_t *took_ns);

/* To be called before the first sample: the guest's threads are wanted, too. */
void image_locator_want_threads(struct image_locator *locator);

/* The guest's threads, once they are found; else NULL. */
const struct guest_threads *image_locator_threads(const struct image_locator *locator);

/* True while a search has begun and not ended. */
bool image_locator_busy(const struct image_locator *locator);

/* Continues the search that has begun until `until_ns` (CLOCK_MONOTONIC); errors like image_locator_sample. */
struct error *image_locator_work(struct image_locator *locator, uint64_t until_ns);

/*
 * The build id of a file that runs in the guest but is not at hand, in hex, and
 * the address of its note, if one was met; else NULL.
 */
const char *image_locator_seen(const struct image_locator *locator, uint64_t *note_va);

/*
 * Ends image location after the last sample: cancels a search that has not ended, and warns of
 * files that were not found or could not be checked. ERR_INPUT if none of the user's files was
 * found in a guest whose memory could be read.
 */
struct error *image_locator_end(struct image_locator *locator);

#endif
