/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGES_WIRE_H
#define UNIPROF_SYMBOL_IMAGES_WIRE_H

/*
 * Sends parsed image files through a pipe between two processes of the same
 * program. The receiver trusts nothing: whatever comes, it gets a table that is
 * safe to search, or an error.
 */

#include <stdio.h>

#include "symbol/images/images.h"

/*
 * Sends the parsed file, or `err`, which it frees. Write errors show when the
 * caller closes `out`.
 */
void image_wire_send(struct error *err, const struct image_file *file, FILE *out);

/*
 * Fills in the parsed file; or returns the error that was sent, or ERR_FAILED for nonsense, and for
 * a file of more than `max` bytes.
 */
struct error *image_wire_receive(FILE *in, uint64_t max, struct image_file *file);

#endif
