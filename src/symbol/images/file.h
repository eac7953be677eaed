/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * One file of struct images, and where its contents come from: it is parsed, here
 * or in a sandbox; or its symbols were kept from an earlier run; or servers have
 * what it lacks.
 */

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
 * left alone. `hex` holds 2 * BUILD_ID_MAX + 1 (symbol/images/code.h).
 */
void image_file_build_id(const char *path, char *hex, bool *lacks);

/* As kernel_image_packs_linux (symbol/kernel/kernel.h), found out in a process without rights. */
bool image_file_packs_linux(const char *path);

/*
 * Finds where threads are, if the ELF file at `path` is a unikernel whose threads can be told, by its symbols
 * and its DWARF, or that of its separate debug file. out->system is UNIKERNEL_NONE if it is another file, or a
 * version that is not known and without DWARF.
 */
void thread_layout_load(const char *path, struct thread_layout *out);

/* True if it could be one that thread_layout_load has told. */
bool thread_layout_is_sound(const struct thread_layout *layout);

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

/*
 * Tables of symbols by build id, kept from one run to the next, below
 * XDG_CACHE_HOME (or ~/.cache): a file that was given once names later
 * recordings of the same code, when it is not at hand or not given. Its
 * contents are checked as if anybody could have written them. The only error is
 * a lack of memory: an unusable cache counts as empty.
 */

/*
 * Keeps the symbols of an ELF file with a build id, if they are not kept yet;
 * it is parsed in a sandbox. Before rights are given up.
 */
void symbol_cache_keep(const char *path);

/* Preopens the cache (base/preopen.h), for symbol_cache_load. */
struct error *symbol_cache_preopen(void);

/*
 * Fills in an empty `file`, whose code and note have addresses but no bytes.
 * The caller frees its contents in any case. False if the cache has no good
 * file.
 */
bool symbol_cache_load(const char *build_id, struct image_file *file);

/*
 * Debugging information from servers that the user has set up
 * (DEBUGINFOD_URLS), for a file that has none and no separate debug file here.
 */

/* For -V: "asks debuginfod" or why not. */
extern const char debuginfod_feature[];

/*
 * To be called while all rights are there, as it goes to the network: finds
 * out the build id of `path`, in a process without rights, and opens what the
 * servers have for it ahead (base/preopen.h) under the name that
 * base/debug_file.h looks for. Nothing is an error but the lack of memory: a
 * server that does not answer, or does not know the file, is as none. Does
 * nothing if DEBUGINFOD_URLS is not set.
 */
struct error *debuginfod_preopen(const char *path);
