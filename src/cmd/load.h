/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_LOAD_H
#define UNIPROF_CMD_LOAD_H

/* What the verbs that look at recordings share: options, loading, warnings. */

#include <getopt.h>

#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"
#include "cmd/meter.h"
#include "analysis/tree.h"

struct load_options {
	const char *path;	 /* the recording */
	struct image_args files; /* none: the names in the recording, or the images it tells of */
	const char *output;	 /* NULL: the verb's default */
	struct profile_filter filter;
	bool state_given; /* --state was: else the filter has the default */
	struct namer_options naming;
	struct meter meter;		 /* what the filter tells of progress */
	bool vcpus[RECORDING_MAX_VCPUS]; /* of --vcpu; what the filter points to */
};

#define LOAD_SHORT_OPTIONS "o:s:"
#define LOAD_LONG_OPTIONS                                                                    \
	{"output", required_argument, NULL, 'o'}, {"symbols", required_argument, NULL, 's'}, \
		{"state", required_argument, NULL, LOAD_STATE},                              \
		{"debug-dir", required_argument, NULL, LOAD_DEBUG_DIR},                      \
		{"weight", required_argument, NULL, LOAD_WEIGHT},                            \
		{"no-inline", no_argument, NULL, LOAD_NO_INLINE},                            \
		{"no-demangle", no_argument, NULL, LOAD_NO_DEMANGLE},                        \
		{"from", required_argument, NULL, LOAD_FROM},                                \
		{"to", required_argument, NULL, LOAD_TO},                                    \
	{                                                                                    \
		"vcpu", required_argument, NULL, LOAD_VCPU                                   \
	}

enum {
	LOAD_STATE = LONG_ONLY,
	LOAD_VCPU,
	LOAD_WEIGHT,
	LOAD_NO_INLINE,
	LOAD_NO_DEMANGLE,
	LOAD_FROM,
	LOAD_TO,
	LOAD_DEBUG_DIR,
	LOAD_NEXT
};

#define LOAD_HELP                                                                                  \
	"  -s, --symbols FILE    names of functions: ELF, nm -n, kallsyms or System.map;\n"        \
	"                        more than one if need be, as FILE@0xADDRESS if moved\n"           \
	"                        (default: the names that the recording carries)\n"                \
	"      --debug-dir DIR   where debug files are that were taken out of those that follow\n" \
	"      --state LIST      running (the default), runnable, blocked, or all\n"               \
	"      --vcpu LIST       only these vCPUs: 0,2-3\n"                                        \
	"      --from T, --to T  only this stretch of the recording: 2.5 (seconds), 500ms, 1m\n"   \
	"      --weight WHAT     time (the default): a sample counts as the time that it stands\n" \
	"                        for; cpu: as the CPU time that the vCPU has used since the "      \
	"last\n"                                                                                   \
	"      --no-inline       count functions that were inlined as part of those around them\n" \
	"      --no-demangle     names as the compiler wrote them into the file\n"

void load_defaults(struct load_options *options);
struct error *load_option(struct load_options *options, int option, const char *value, bool *known);

/* A recording with everything that belongs to it. */
struct loaded {
	struct profile *profile;
	struct images *images;
	struct namer *namer;
	struct progress_sink *progress;
	char *warning; /* what a person must know before believing it; NULL: nothing */
};

/*
 * Opens recording, symbols and output ahead (base/ahead.h), and gives up all
 * rights: whoever is root looks at what others have recorded.
 */
struct error *load_confine(const struct load_options *options);

struct error *load(const struct load_options *options, struct loaded *out);
void unload(struct loaded *loaded);

/* Share of the selected time in stacks whose leaf has no name, and that were cut short: 0 to 1. */
struct error *load_unresolved_share(const struct loaded *loaded, double *share);
double load_truncated_share(const struct profile *profile);

/* "xen:web (pv), 9970 samples at 997/s in 10.0 s"; the caller frees it. */
char *load_subtitle(const struct profile *profile);

#endif
