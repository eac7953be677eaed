/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Finds source lines of a file's code by asking a process of its own that reads
 * the file's DWARF (index.c). That process holds nothing but files that
 * were opened ahead and two pipes, and its CPU time is bounded: a damaged file
 * costs lines, not the profile. Its answers are checked.
 */

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sample_types.h"
#include "symbol/images/images.h"
#include "symbol/names/table.h"

struct source_answer {
	uint32_t n;	/* frames, innermost first; 0: nothing is known */
	uint64_t start; /* start of the last function's code at the address; 0: not known */
	struct source_frame frame[SOURCE_DEPTH];
};

struct source;

/*
 * *out is NULL when the file has no DWARF, or another build id (in hex; "":
 * none) than it had. Errors are those of making a process.
 */
struct error *source_open(const char *path, const char *build_id, struct source **out);
void source_close(struct source *source);

/* Addresses that are sent at once: in hundreds they are cheapest. */
#define SOURCE_BATCH 512

/*
 * Asks for `n` addresses of the file; `take` is called for each of them, in
 * order. Strings are good until source_close. False when the process has died,
 * is too slow or talks nonsense: nothing more will come from it.
 */
typedef struct error *source_taker(void *ctx, size_t i, const struct source_answer *answer);
struct error *source_ask(struct source *source, const uint64_t *addr, size_t n, source_taker *take,
			 void *ctx, bool *alive);

/* The process to ask for source lines, for each image file; private to src/symbol. */

struct sources;

struct error *sources_new(struct sources **out);
void sources_free(struct sources *sources);

/* As source_ask. Where nothing is known `take` is not called. */
struct error *sources_ask(struct sources *sources, const struct image_file *file,
			  const uint64_t *addr, size_t n, source_taker *take, void *ctx);

/* A sentence on the files whose reader died, or NULL. */
const char *sources_trouble(const struct sources *sources);

/*
 * Finds the source functions at an address of a file, by the DWARF in it or in
 * its separate debug file: those that were inlined there, and the one that they
 * were inlined into. All addresses are the file's.
 *
 * Compilation units are indexed one at a time, when first asked for; a second
 * question about the same unit is two binary searches. libdw reads whatever
 * the file has: this belongs into a process of its own.
 */

struct source_index;

/*
 * *out is NULL if there is no DWARF. `build_id`: the one that the file must
 * have, in hex; "": any.
 */
struct error *source_index_open(const char *path, const char *build_id, struct source_index **out);
/*
 * Innermost first; the strings are as the file has them and belong to the
 * index. Nothing is known of the address if `n` is 0 afterwards. Where the
 * file tells of a line, but of no function, there is one frame without.
 * Returns the directory that relative names of files are in, or NULL.
 */
const char *source_index_find(struct source_index *index, uint64_t addr,
			      struct source_answer *answer);

/* The debugging information of a file: its own, or that of its separate debug file. */
struct dwarf_file {
	int fd;		/* -1: none is open */
	char *unpacked; /* what the ELF file is in, if it was packed */
	Elf *elf;
	Dwarf *dwarf; /* NULL: none */
};

/* The build id of an ELF file in lower-case hex, "" if it has none; `hex` holds 2 * BUILD_ID_MAX + 1. */
void elf_build_id(Elf *elf, char *hex);

/* False if there is no DWARF. `build_id`: the one that the file must have, in hex; "": any. */
bool dwarf_file_open(const char *path, const char *build_id, struct dwarf_file *file);

/*
 * Is it an ELF file with a build id and without debugging information, and has
 * it no separate debug file here? `hex` is its build id, "" if it has none, and holds 2 * BUILD_ID_MAX + 1.
 */
bool dwarf_file_lacks(const char *path, char *hex);

/*
 * The name of a function, also of one that was inlined; NULL: it has none. The linkage name if there is one: it can
 * be demangled, and says most.
 */
const char *dwarf_function_name(Dwarf_Die *die);

/*
 * Would libdw find nothing but regular files where it looks for the file that a split unit names? It opens
 * whatever is there, and waits for the writer of a FIFO. `directory` is the unit's; NULL: it has none.
 */
bool dwarf_split_is_regular(const struct dwarf_file *file, const char *directory, const char *name);

/* Also after it could not be opened, and for one that is all zeros. */
void dwarf_file_close(struct dwarf_file *file);

/*
 * Adds functions from debugging information to the list, for files whose table of symbols has been thinned out:
 * names and bounds of subprograms, and the bounds of units, where labels of assembly code end at the latest. Reads
 * the file at `path` or its separate debug file. Names point into *strings, `len` bytes, to which they are appended;
 * the list's names are moved along. Adds nothing if there is no debugging information; damaged parts are left out.
 * Takes a bounded time.
 */
struct error *dwarf_functions(const char *path, struct symbol_candidates *list, char **strings,
			      size_t len);

/*
 * Lines of the sources themselves, for people to read, where the files are here.
 * Debugging information names them and is not believed: a text that is passed on
 * takes files below a directory that the user gives, and no others.
 */

struct source_texts;

struct source_text_options {
	const char *
		directory; /* where sources are: the end of a path is looked for below; NULL: nowhere */
	bool only_directory; /* not where the compiler saw them */
};

/* NULL: no memory. */
struct source_texts *source_texts_new(const struct source_text_options *options);
void source_texts_free(struct source_texts *texts);

/*
 * Line `number` (from 1) of a source, sanitized, which the caller frees; NULL: it is
 * not here. `path` must outlive the texts.
 */
char *source_texts_line(struct source_texts *texts, const char *path, uint32_t number);

/* The file that the lines are from; NULL: none is here. */
const char *source_texts_file(struct source_texts *texts, const char *path);
