/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_CMD_H
#define UNIPROF_CMD_CMD_H

/*
 * A verb is one short file with one `const struct verb`, listed in uniprof.c.
 * Verbs are the only ones that print: results to stdout, the rest to stderr.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct verb {
	const char *name;
	const char *summary; /* one line for the list of verbs */
	const char *help;    /* the whole text of --help */
	/* argv[0] is the verb. On success sets *status to the exit code, if it is not 0. */
	struct error *(*run)(int argc, char **argv, int *status);
};

extern const struct verb verb_record, verb_run, verb_top, verb_report, verb_flamegraph, verb_diff,
	verb_export, verb_merge, verb_list, verb_stack;

/* The command line of 2017: no verb, OUTFILE and DOMID. */
extern const struct verb verb_classic;

/* What a long option without a short one is numbered from. */
#define LONG_ONLY 256

/* "uniprof: TEXT" to stderr, where progress may stand. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);

/* The error of a verb whose arguments are wrong, with a hint at its --help. */
struct error *usage_error(const struct verb *verb, const char *format, ...)
	PRINTF_LIKE(2, 3) MUST_CHECK;

/*
 * Set by SIGINT, SIGTERM and SIGHUP once catch_signals was called; system
 * calls are then interrupted, and a second signal ends the program at once.
 */
const volatile sig_atomic_t *catch_signals(void);

/* The number of the signal that was caught, 0 if none. */
int caught_signal(void);

/* Opens a result file for writing ("-": stdout). */
struct error *open_output(const char *path, FILE **out);

/*
 * Closes it (stdout is flushed), so that a full disk is noticed. Removes what
 * is incomplete (or, without the right to, empties it) unless it went to stdout. Pass the error of writing, if any.
 */
struct error *close_output(const char *path, FILE *out, struct error *err);

#endif
