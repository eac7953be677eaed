/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_OUTPUT_H
#define UNIPROF_OUTPUT_OUTPUT_H

/*
 * One file a format. To add one: write `const struct output_format
 * output_NAME` in a file of its own and list it in formats.c.
 *
 * A writer writes to `out` and checks nothing but memory: the caller looks
 * at ferror() and fclose() and reports what they say (ERR_OUTPUT).
 */

#include <stdio.h>

#include "profile/profile.h"
#include "symbol/namer.h"

struct output_job {
	const char *path;	       /* the recording, for formats that need samples in order */
	const struct profile *profile; /* loaded from it with `filter` */
	const struct profile_filter *filter;
	struct namer *namer;
};

struct output_format {
	const char *name;   /* as in --format=NAME */
	const char *ending; /* chosen when the output file ends so: ".folded" */
	struct error *(*write)(const struct output_job *job, FILE *out);
};

extern const struct output_format output_folded; /* stack by stack, root first, with counts */
extern const struct output_format output_raw;	 /* the classic trace, one stack a sample */
extern const struct output_format output_pprof;	 /* profile.proto, for go tool pprof */
extern const struct output_format output_speedscope;
extern const struct output_format output_firefox;     /* Firefox Profiler, processed */
extern const struct output_format output_perf_script; /* the text of perf script */
extern const struct output_format output_perf_data;   /* for perf report, with no names in it */
extern const struct output_format output_callgrind;
extern const struct output_format output_chrome; /* a time line, also for Perfetto */

/* By name, or by the ending of a file name; NULL if there is none. */
const struct output_format *output_format_by_name(const char *name);
const struct output_format *output_format_by_ending(const char *path);
/* For help texts: format i, NULL behind the last. */
const struct output_format *output_format_at(size_t i);

#endif
