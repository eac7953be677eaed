/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_CMD_H
#define UNIPROF_CMD_CMD_H

/*
 * A verb is one short file with one `const struct verb`, listed in uniprof.c.
 * Verbs are the only ones that print: results to stdout, the rest to stderr.
 */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cmd/shared/option.h"

/* Arguments that are no options, for the completions of shells. */
enum verb_takes { TAKES_NOTHING, TAKES_GUESTS, TAKES_FILES, TAKES_COMMAND };

struct verb {
	const char *name;
	const char *summary;   /* one line for the list of verbs */
	const char *arguments; /* "[options] GUEST..." */
	const char *about;     /* lines of --help */
	const struct option_group *options;
	const struct option_group *settings; /* those that a file may set; NULL: none */
	const char *closing;		     /* lines of --help behind the options; NULL: none */
	enum verb_takes takes;
	/* argv[0] is the verb. On success sets *status to the exit code, if it is not 0. */
	struct error *(*run)(int argc, char **argv, int *status);
};

extern const struct verb verb_record, verb_run, verb_top, verb_report, verb_flamegraph,
	verb_history, verb_diff, verb_export, verb_push, verb_merge, verb_list, verb_stack, verb_ps,
	verb_agent;

/* The command line of 2017: no verb, OUTFILE and DOMID. */
extern const struct verb verb_classic;

/* "uniprof: TEXT" to stderr, where progress may stand. */
void cmd_say(const char *format, ...) PRINTF_LIKE(1, 2);

/* The error of a verb whose arguments are wrong, with a hint at its --help. */
struct error *cmd_usage_error(const struct verb *verb, const char *format, ...)
	PRINTF_LIKE(2, 3) MUST_CHECK;

/*
 * Set by SIGINT, SIGTERM and SIGHUP once catch_signals was called; system
 * calls are then interrupted, and a second signal ends the program at once.
 */
const volatile sig_atomic_t *cmd_catch_signals(void);

/* The number of the signal that was caught, 0 if none. */
int cmd_caught_signal(void);

/* Reads a text file of less than `most` bytes, whole, with a 0 behind it; the caller frees it. ERR_INPUT. */
struct error *cmd_read_text(const char *path, size_t most, char **text);

/* Opens a result file for writing ("-" or NULL: stdout). */
struct error *cmd_open_output(const char *path, FILE **out);

/*
 * Closes the output (stdout is flushed), so that a full disk is noticed. Removes an incomplete file
 * (or, without the right to, empties it) unless it went to stdout. Pass the error of writing, if
 * any.
 */
struct error *cmd_close_output(const char *path, FILE *out, struct error *err);

/*
 * Drops the rights of a verb that reads recordings: after files are opened
 * (base/preopen.h), before anything is parsed that others wrote. Without
 * special rights nothing is dropped: for ordinary users these are ordinary files.
 */
void cmd_confine_reader(void);

/* Opens all of them, gives up all rights, and merges (import/import.h). */
struct error *merge_confined(char *const *paths, size_t n, const char *output);

#endif
