/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A verb is one short file with one `const struct verb`, listed in uniprof.c.
 * Verbs are the only ones that print: results to stdout, the rest to stderr. Here
 * is what they do so with: messages, signals, files, the terminal.
 */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/owned.h"
#include "base/progress.h"
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

/* The terminal of a verb: the pager that its output goes through, and the line that tells of progress. */

/*
 * Sends output through $UNIPROF_PAGER, $PAGER or less. The pager is a process
 * of its own, forked before rights are given up (executing is no longer
 * possible then), which becomes the pager's program when the first text comes:
 * until then the terminal is ours, for progress and errors.
 *
 * From now on standard output leads to the pager. 0: there is none, as standard
 * output is no terminal, or the pager is "" or "cat".
 */
pid_t pager_start(void);

/*
 * Closes standard output and waits until the user has seen enough. An error of
 * writing, if passed, is dropped when the pager was left before the end.
 */
struct error *pager_finish(pid_t pager, struct error *err);

/*
 * Progress as a line on the terminal that standard error is: the stage, its
 * share that is done, and the time that is left. Work of less than a second
 * shows nothing, and there is nothing in pipes and files.
 */
struct progress_line {
	struct progress_sink progress;
	const char *who;  /* in front of the line */
	const char *what; /* the stage; NULL: none yet */
	bool terminal, visible;
	uint64_t first_ns, began_ns, told_ns; /* all of it, this stage, the last line */
	char text[256];
};

/* The struct must not be moved afterwards: pointers to `progress` are kept. */
void progress_line_init(struct progress_line *display, const char *who);

/* Puts the line for the time `now_ns` into display->text, "" if none is to be shown. */
void progress_line_update(struct progress_line *display, const char *what, uint64_t done,
			  uint64_t all, uint64_t now_ns);
