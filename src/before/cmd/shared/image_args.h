/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_IMAGE_ARGS_H
#define UNIPROF_CMD_IMAGE_ARGS_H

/* The files that -s, -e and -E name, as FILE or FILE@0xADDRESS, several of them if need be. */

#include "recording/recording.h"
#include "symbol/images/images.h"

#define IMAGE_ARGS_MAX 64

struct image_arg {
	const char *text; /* of the command line */
	bool names;	  /* frames get names from it; else it only helps to find callers */
};

struct image_args {
	struct image_arg at[IMAGE_ARGS_MAX];
	size_t n;
};

/*
 * Opens the file ahead (base/ahead.h). ERR_USAGE when there are too many, or an
 * address cannot be one.
 */
struct error *image_args_add(struct image_args *args, const char *text, bool names);

/* Loads them all, as given by the user, and adds them to `images` in order. */
struct error *image_args_load(const struct image_args *args, struct images *images);

/*
 * Where the images are, for a recording; and, if not NULL, a build id that was
 * seen in the guest. The strings are the images' own; free the list itself with
 * free(out->at).
 */
struct error *image_places(const struct images *images, const char *seen, uint64_t seen_va,
			   struct recorded_images *out);

/* Are these the same files in the same places? */
bool image_places_equal(const struct recorded_images *a, const struct recorded_images *b);

#endif
