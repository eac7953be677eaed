/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SESSION_H
#define UNIPROF_CMD_SESSION_H

/* What `record` and `run` share: their options, and recording an open target into a file. */

#include <getopt.h>

#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"
#include "capture/sampler.h"
#include "target/target.h"

struct session_options {
	struct sampler_options sampler;
	const char *output;	 /* recording; NULL: named after the guest */
	struct image_args files; /* of -s; none: the guest's own image, if known */
	const char *snapshot;	 /* replay file to write beside; NULL: none */
	const char *via;	 /* the way to read the guest; NULL: the cheapest that works */
	bool always_pause;
	bool print_missed;
	bool verbose;
	bool quiet;
	bool keep_rights;
	bool screen;  /* its terminal is used as a screen */
	bool several; /* guests at once: no line of progress is theirs alone */
	/* ... and go into this one recording in the end; NULL: each has its own. */
	const char *together;
};

#define SESSION_SHORT_OPTIONS "F:T:o:s:Mvq"

/* For the getopt_long table of the verb: NAME, argument, NULL, value. */
#define SESSION_LONG_OPTIONS                                                                       \
	{"frequency", required_argument, NULL, 'F'}, {"time", required_argument, NULL, 'T'},       \
		{"output", required_argument, NULL, 'o'},                                          \
		{"symbols", required_argument, NULL, 's'},                                         \
		{"debug-dir", required_argument, NULL, SESSION_DEBUG_DIR},                         \
		{"missed-deadlines", no_argument, NULL, 'M'}, {"verbose", no_argument, NULL, 'v'}, \
		{"quiet", no_argument, NULL, 'q'},                                                 \
		{"max-frames", required_argument, NULL, SESSION_MAX_FRAMES},                       \
		{"max-stack", required_argument, NULL, SESSION_MAX_STACK},                         \
		{"max-memory", required_argument, NULL, SESSION_MAX_MEMORY},                       \
		{"max-overhead", required_argument, NULL, SESSION_MAX_OVERHEAD},                   \
		{"max-pause", required_argument, NULL, SESSION_MAX_PAUSE},                         \
		{"unwind", required_argument, NULL, SESSION_UNWIND},                               \
		{"no-jitter", no_argument, NULL, SESSION_NO_JITTER},                               \
		{"always-pause", no_argument, NULL, SESSION_ALWAYS_PAUSE},                         \
		{"via", required_argument, NULL, SESSION_VIA},                                     \
	{                                                                                          \
		"no-sandbox", no_argument, NULL, SESSION_NO_SANDBOX                                \
	}

enum {
	SESSION_MAX_FRAMES = LONG_ONLY,
	SESSION_MAX_STACK,
	SESSION_MAX_MEMORY,
	SESSION_MAX_OVERHEAD,
	SESSION_MAX_PAUSE,
	SESSION_UNWIND,
	SESSION_NO_JITTER,
	SESSION_NO_SANDBOX,
	SESSION_ALWAYS_PAUSE,
	SESSION_VIA,
	SESSION_DEBUG_DIR,
	SESSION_NEXT, /* the first value that a verb may use for its own */
};

/* The lines on these options for a verb's help. */
#define SESSION_HELP                                                                               \
	"  -F, --frequency N     samples per second, 0.1 to 10000 (default 101)\n"                 \
	"  -T, --time T          how long: seconds, or 500ms, 2m, 1h (default: until Ctrl-C or\n"  \
	"                        the guest's end)\n"                                               \
	"  -s, --symbols FILE    names of functions: the guest's ELF, nm -n, kallsyms or\n"        \
	"                        System.map (default: the file that the guest was started "        \
	"from);\n"                                                                                 \
	"                        more than one if need be; FILE@0xADDRESS tells where its code "   \
	"is\n"                                                                                     \
	"      --debug-dir DIR   where debug files are that were taken out of those that follow\n" \
	"  -M, --missed-deadlines  print each deadline that was missed\n"                          \
	"      --max-frames N    frames of a stack that are kept (default 4096)\n"                 \
	"      --max-stack SIZE  bytes of a stack that are copied (default 256k)\n"                \
	"      --max-memory SIZE what different stacks may take of memory (default 64M)\n"         \
	"      --max-overhead P  pause the guest for at most P percent of the time, by sampling\n" \
	"                        less often when need be\n"                                        \
	"      --max-pause T     hold the guest no longer than T (50us, ...) in one piece; give\n" \
	"                        stacks up instead\n"                                              \
	"      --unwind HOW      how to find callers: auto (default), fp, cfi, scan\n"             \
	"      --always-pause    stop the guest for each sample, even where it could be read\n"    \
	"                        without that\n"                                                   \
	"      --via WAY         read the guest that way (`uniprof list --ways` names them), "     \
	"not\n"                                                                                    \
	"                        the cheapest that works\n"                                        \
	"      --no-jitter       sample strictly periodically\n"                                   \
	"      --no-sandbox      keep root's rights, and filter no system calls (for debugging)\n" \
	"  -v, --verbose         say what is done;  -q, --quiet: no progress, no summary\n"

void session_defaults(struct session_options *options);

/* Takes one option; *known is false if it is none of the shared ones. */
struct error *session_option(struct session_options *options, int option, const char *value,
			     bool *known);

/*
 * Opens what recording needs beside the guest, and gives up all rights.
 * Outputs are opened by the caller (base/ahead.h), who knows them.
 */
struct error *session_confine(const struct target *target, const struct session_options *options);

/*
 * Records until the time is over, a signal comes or the guest ends. `path` is
 * the recording, written from the first sample on: an image that is not what
 * runs in the guest leaves it as it was, or empty if it is new. The images that
 * were found are handed out in *images if it is not NULL, after errors as
 * well. Prints progress and a summary. Errors are about recording itself; how
 * it ended is in the result.
 */
struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result,
			     struct images **images);

/*
 * Loads the files that the user named, or else the guest's own image if it
 * can be. *images is never NULL after success, but may hold nothing.
 */
struct error *session_load_images(const struct target *target,
				  const struct session_options *options, struct images **images);

/* For settle_new: tells warnings, and everything if verbose. ctx is a session_options. */
void session_note(void *ctx, bool warning, const char *text);

/* "GUEST.uniprof"; the name is made harmless. The caller frees it. */
char *session_default_path(const struct target *target, const char *ending);

#endif
