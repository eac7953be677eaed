/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Options as rows of tables. From a verb's rows come the parsing of its
 * command line, its --help, the list of options in its man page and the
 * completions of shells (manual.c), so that they cannot disagree.
 *
 * To add an option: one row in the table of its verb (or of what verbs share:
 * session.h, load.h), with a field in that table's struct. The row's `take` is
 * one of those below, or a function of the verb's own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct option_row;

/* Parses `value` (NULL: none was given) into `options`, the struct of the row's table. ERR_USAGE. */
typedef struct error *option_take(const struct option_row *row, const char *value, void *options);

struct option_row {
	const char *name;     /* the long form, without its dashes */
	const char *argument; /* how help calls it; "[WAY]": may be left out; NULL: takes none */
	char brief;	      /* 0: none */
	option_take *take;
	size_t at;	      /* offset of the option's field, bytes */
	uint64_t least, most; /* bounds of a number */
	const char *
		text; /* for --help and man page, in lower case and without a full stop; NULL: an alias */
	const char *more;   /* further sentences of the man page, in mdoc(7); NULL: none */
	const char *values; /* completions: words, or OPTION_FILE or OPTION_DIRECTORY; NULL: none */
	bool repeats;	    /* each further value is one more, also in a file */
};

#define OPTION_FILE	 "<file>"
#define OPTION_DIRECTORY "<directory>"

/* Rows that end with an empty one, and where their struct is in that of the verb. */
struct option_group {
	const struct option_row *rows;
	size_t at; /* bytes */
};

struct verb;

/*
 * Takes the options of a command line into `options`, the verb's struct, which
 * holds the defaults; argv[0] is the verb. *first is the index of the first
 * argument that is no option.
 */
struct error *options_parse(const struct verb *verb, int argc, char **argv, void *options,
			    int *first) MUST_CHECK;

/* The same for a verb of one argument. `lacks` says so where there is none, or another. */
struct error *options_parse_one(const struct verb *verb, int argc, char **argv, void *options,
				const char *lacks, const char **argument) MUST_CHECK;

/* Options that a file may set, at most. */
#define OPTIONS_MAX 64

/* A file of options, "NAME = VALUE" a line; "yes" and "no" for those without a value, "#" begins a comment line. */
struct option_file {
	const char *path; /* for messages */
	char *rest; /* contents that are not taken yet; changed, and to stay as long as the options */
	unsigned line;		      /* the last that was taken */
	unsigned set_in[OPTIONS_MAX]; /* line; 0: not set yet */
};

/*
 * Takes the file's next line that sets an option of one of the groups; *more is
 * false at its end. An error, "PATH:LINE: TEXT", is about that line: further
 * ones can be taken. ERR_USAGE.
 */
struct error *option_file_next(struct option_file *file, const struct option_group *groups,
			       void *options, bool *more) MUST_CHECK;

/* The line that set this option; 0: none. */
unsigned option_file_line(const struct option_file *file, const struct option_group *groups,
			  const char *name);

/* The option's name in messages: "-F", "--max-stack". */
struct option_name {
	char text[32];
};
struct option_name option_name(const struct option_row *row);

/* ERR_USAGE: "--max-stack 7: TEXT". */
struct error *option_error(const struct option_row *row, const char *value, const char *format, ...)
	PRINTF_LIKE(3, 4) MUST_CHECK;

/* The index of `value` among the words of row->values; -1: it is none of them. */
int option_word(const struct option_row *row, const char *value);

/* A whole number within bounds; `option` is its name in messages. */
struct error *option_count(const char *option, const char *text, uint64_t min, uint64_t max,
			   uint64_t *value);

/* Fields: bool; const char *; uint64_t, in bounds; uint32_t, in bounds. */
option_take take_true, take_text, take_count, take_count32;

/* Fields: uint64_t and uint32_t of bytes ("4096", "64k", "1M"), in bounds. */
option_take take_bytes, take_bytes32;

/* Fields: uint64_t of ns ("10", "0.5", "500ms", "2m", at most ten years); the second also takes 0. */
option_take take_duration, take_moment;

/*
 * A moment of the wall clock, in seconds since the epoch: "2026-11-21T14:00",
 * "2026-11-21", "14:00:30", "today", "yesterday", in local time, or in UTC with
 * a Z behind it. A time without a day is the first after `after_s`; with 0,
 * the last that is over. False: it is none.
 */
bool option_wall_clock(const char *text, int64_t after_s, int64_t *unix_s);

/* Fields: double of 0 to 1 ("1", "0.5%"); double of samples per second. */
option_take take_percent, take_rate;

/* Field: an enum; the words of row->values are its values from row->least on. */
option_take take_word;

/* The alias of no field: a directory for debug files; counts for the files that follow. */
option_take take_debug_dir, take_sysroot;

/* Texts that are made of the rows (manual.c). All end at `out`'s errors, which its owner sees. */

/* The verb's --help. */
void manual_write_help(const struct verb *verb, FILE *out);

/* A file of the verb's settings, all of them commented out. */
void manual_write_settings(const struct verb *verb, FILE *out);

/* The verb's options as a list in mdoc(7), for its man page. */
void manual_write_options(const struct verb *verb, FILE *out);

/* Completions of all verbs for "bash", "zsh" or "fish"; false: there is no such shell. */
bool manual_write_completions(const char *shell, const struct verb *const *verbs, size_t n,
			      FILE *out);
