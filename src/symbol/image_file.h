/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGE_FILE_H
#define UNIPROF_SYMBOL_IMAGE_FILE_H

/* One file of struct images: everything that is parsed of it. */

#include "symbol/images/images.h"

/* Fills in an empty `file`; what is in it after an error is freed all the same. */
struct error *image_file_load(const struct image_spec *spec, struct image_file *file);

/* The part of it that is no parsing. */
struct error *image_file_name(const struct image_spec *spec, struct image_file *file);

/* `file` may be NULL. */
void image_file_free(struct image_file *file);

#endif
