/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_LOAD_H
#define UNIPROF_CMD_LOAD_H

/* What the verbs that look at recordings share: options, loading, warnings. */

#include <getopt.h>

#include "cmd/cmd.h"
#include "output/tree.h"

struct load_options {
	const char *path;    /* the recording */
	const char *symbols; /* NULL: the names in the recording, or the image it tells of */
	const char *output;  /* NULL: the verb's default */
	struct profile_filter filter;
};

#define LOAD_SHORT_OPTIONS "o:s:"
#define LOAD_LONG_OPTIONS                                                                    \
	{"output", required_argument, NULL, 'o'}, {"symbols", required_argument, NULL, 's'}, \
		{"state", required_argument, NULL, LOAD_STATE},                              \
	{                                                                                    \
		"vcpu", required_argument, NULL, LOAD_VCPU                                   \
	}

enum { LOAD_STATE = LONG_ONLY, LOAD_VCPU, LOAD_NEXT };

#define LOAD_HELP                                                                          \
	"  -s, --symbols FILE    names of functions: ELF, nm -n, kallsyms or System.map\n" \
	"                        (default: the names that the recording carries)\n"        \
	"      --state LIST      running (the default), runnable, blocked, or all\n"       \
	"      --vcpu N          only this vCPU\n"

void load_defaults(struct load_options *options);
struct error *load_option(struct load_options *options, int option, const char *value, bool *known);

/* A recording with everything that belongs to it. */
struct loaded {
	struct profile *profile;
	struct symbols *symbols; /* may be NULL */
	struct namer *namer;
	char *warning; /* what a person must know before believing it; NULL: nothing */
};

struct error *load(const struct load_options *options, struct loaded *out);
void unload(struct loaded *loaded);

/* Share of the selected time in stacks whose leaf has no name, and that were cut short: 0 to 1. */
struct error *load_unresolved_share(const struct loaded *loaded, double *share);
double load_truncated_share(const struct profile *profile);

/* "xen:web (pv), 9970 samples at 997/s in 10.0 s"; the caller frees it. */
char *load_subtitle(const struct profile *profile);

#endif
