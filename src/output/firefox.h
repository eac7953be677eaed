/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FIREFOX_H
#define UNIPROF_OUTPUT_FIREFOX_H

/*
 * The processed format of the Firefox Profiler (profiler.firefox.com), laid
 * out in src/types/profile.ts of github.com/firefox-devtools/profiler. It is
 * made of tables that are written column by column. Readers of later versions
 * bring this one up to date.
 */

#include "base/intern.h"
#include "format/location_table.h"

/* meta.preprocessedProfileVersion, and the version of Gecko's own format that belongs to it. */
#define FIREFOX_VERSION	      61
#define FIREFOX_GECKO_VERSION 34

struct firefox {
	const struct output_job *job;
	struct places *places;
	struct ids *strings; /* numbers of texts */
	const char **texts;  /* by number */
	struct ids *files;   /* numbers of source files */
	uint32_t *stack_of;  /* [stacks_count]: the entry of the stack table for a whole stack */
	uint32_t n_stacks;
	FILE *out;
};

/* Numbers all that the tables refer to. */
struct error *firefox_number(struct firefox *f);

/* "shared": all tables. */
void firefox_put_tables(struct firefox *f);

#endif
