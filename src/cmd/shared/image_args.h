/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The files that -s, -e and -E name, as FILE or FILE@0xADDRESS, several of them if need be. */

#include "cmd/shared/option.h"
#include "profile/profile.h"
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
 * Preopens the file (base/preopen.h). ERR_USAGE when there are too many, or an
 * address cannot be one.
 */
struct error *image_args_add(struct image_args *args, const char *text, bool names);

/* Field: struct image_args, to which a file with names is added. */
option_take take_symbols;

/* Loads them all, as given by the user, and adds them to `images` in order. */
struct error *image_args_load(const struct image_args *args, struct images *images);

/*
 * Imported images tell which part of a file they are, not its address there
 * (by_offset): looks that up in files that are there.
 */
void load_addresses(struct recorded_images *images);

/*
 * The images for a recording: those that the user names, put where the
 * recording says that the same file (by its build id) was. ERR_INPUT for a
 * file that the recording knows by another build id. Without any, and if the
 * recording carries no names, the files that it tells of, as far as they still
 * are the same. Beside these, their copies below the user's directory
 * (base/preopen.h). *doubt is a sentence if some were taken on trust, else NULL;
 * the caller frees it.
 */
struct error *load_images(const struct image_args *args, const struct profile *profile,
			  struct images **out, char **doubt);
