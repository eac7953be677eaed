/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SESSION_H
#define UNIPROF_CMD_SESSION_H

/* What `record` and `run` share: their options, and recording an open target into a file. */

#include <getopt.h>

#include "cmd/cmd.h"
#include "sample/sampler.h"
#include "target/target.h"

struct session_options {
	struct sampler_options sampler;
	const char *output;   /* recording; NULL: named after the guest */
	const char *symbols;  /* ELF, nm or kallsyms file; NULL: the guest's own image, if known */
	const char *snapshot; /* replay file to write beside; NULL: none */
	bool print_missed;
	bool verbose;
	bool quiet;
};

#define SESSION_SHORT_OPTIONS "F:T:o:s:Mvq"

/* For the getopt_long table of the verb: NAME, argument, NULL, value. */
#define SESSION_LONG_OPTIONS                                                                       \
	{"frequency", required_argument, NULL, 'F'}, {"time", required_argument, NULL, 'T'},       \
		{"output", required_argument, NULL, 'o'},                                          \
		{"symbols", required_argument, NULL, 's'},                                         \
		{"missed-deadlines", no_argument, NULL, 'M'}, {"verbose", no_argument, NULL, 'v'}, \
		{"quiet", no_argument, NULL, 'q'},                                                 \
		{"max-frames", required_argument, NULL, SESSION_MAX_FRAMES},                       \
		{"max-stack", required_argument, NULL, SESSION_MAX_STACK},                         \
	{                                                                                          \
		"no-jitter", no_argument, NULL, SESSION_NO_JITTER                                  \
	}

enum {
	SESSION_MAX_FRAMES = LONG_ONLY,
	SESSION_MAX_STACK,
	SESSION_MAX_OVERHEAD,
	SESSION_NO_JITTER,
	SESSION_NEXT, /* the first value that a verb may use for its own */
};

/* The lines on these options for a verb's help. */
#define SESSION_HELP                                                                               \
	"  -F, --frequency N     samples per second, 0.1 to 10000 (default 101)\n"                 \
	"  -T, --time T          how long: seconds, or 500ms, 2m, 1h (default: until Ctrl-C or\n"  \
	"                        the guest's end)\n"                                               \
	"  -s, --symbols FILE    names of functions: the guest's ELF, nm -n, kallsyms or\n"        \
	"                        System.map (default: the file that the guest was started from)\n" \
	"  -M, --missed-deadlines  print each deadline that was missed\n"                          \
	"      --max-frames N    frames of a stack that are kept (default 4096)\n"                 \
	"      --max-stack SIZE  bytes of a stack that are copied (default 256k)\n"                \
	"      --max-overhead P  pause the guest for at most P percent of the time, by sampling\n" \
	"                        less often when need be\n"                                        \
	"      --no-jitter       sample strictly periodically\n"                                   \
	"  -v, --verbose         say what is done;  -q, --quiet: no progress, no summary\n"

void session_defaults(struct session_options *options);

/* Takes one option; *known is false if it is none of the shared ones. */
struct error *session_option(struct session_options *options, int option, const char *value,
			     bool *known);

/*
 * Records until the time is over, a signal comes or the guest ends. `path` is
 * the recording. Prints progress and a summary. Errors are about recording
 * itself; how it ended is in the result.
 */
struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result);

/*
 * *symbols is NULL if the guest's own image gives none; those that the user
 * named must load.
 */
struct error *session_load_symbols(const struct target *target,
				   const struct session_options *options, struct symbols **symbols);

/* "GUEST.uniprof"; the name is made harmless. The caller frees it. */
char *session_default_path(const struct target *target, const char *ending);

#endif
