/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_LOAD_IMAGES_H
#define UNIPROF_CMD_LOAD_IMAGES_H

#include "cmd/shared/image_args.h"
#include "profile/profile.h"

/*
 * The images for a recording: those that the user names, put where the
 * recording says that the same file (by its build id) was. ERR_INPUT for a
 * file that the recording knows by another build id. Without any, and if the
 * recording carries no names, the files that it tells of, as far as they still
 * are the same. *doubt is a sentence if some were taken on trust, else NULL;
 * the caller frees it.
 */
struct error *load_images(const struct image_args *args, const struct profile *profile,
			  struct images **out, char **doubt);

#endif
