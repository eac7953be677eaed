/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGE_WIRE_H
#define UNIPROF_SYMBOL_IMAGE_WIRE_H

/*
 * What was parsed of an image file, through a pipe between two processes of
 * the same program. The receiver trusts nothing: whatever comes, it gets a
 * table that is safe to search, or an error.
 */

#include <stdio.h>

#include "symbol/images/images.h"

/* Sends `err`, which it frees, or what was parsed. Whoever closes `out` sees whether it could. */
void image_wire_send(struct error *err, const struct image_file *file, FILE *out);

/* Fills in what was parsed; or the error that was sent, or ERR_FAILED for what makes no sense. */
struct error *image_wire_receive(FILE *in, struct image_file *file);

#endif
