/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGES_FILE_H
#define UNIPROF_SYMBOL_IMAGES_FILE_H

/* One file of struct images: everything that is parsed of it. */

#include <stdbool.h>
#include <stdio.h>

#include "symbol/images/images.h"

/* Fills in an empty `file`; the caller frees its contents after an error, too. */
struct error *image_file_load(const struct image_spec *spec, struct image_file *file);

/* `file` may be NULL. */
void image_file_free(struct image_file *file);

/*
 * Like image_file_load, in a process that holds nothing but the files that
 * were opened ahead (base/preopen.h) and a pipe: neither rights nor handles. A
 * file that makes the parser crash is an error like others; what a parser that
 * was taken over can do is to tell wrong names and wrong code.
 */
struct error *image_file_load_sandboxed(const struct image_spec *spec, struct image_file *file);

/*
 * The build id of an ELF file in lower-case hex, "" if there is none, found
 * out in a process without rights; and whether the file lacks debugging
 * information, and has no separate debug file here. What is no regular file is
 * left alone. `hex` holds
 * 2 * BUILD_ID_MAX + 1 (symbol/images/code.h).
 */
void image_file_build_id(const char *path, char *hex, bool *lacks);

/*
 * Sends parsed image files through a pipe between two processes of the same
 * program. The receiver trusts nothing: whatever comes, it gets a table that is
 * safe to search, or an error.
 */

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
