/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Text on terminals: how it is marked, and how much room it takes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum style { STYLE_PLAIN, STYLE_HEAD, STYLE_WARNING, STYLE_HOT, STYLE_WARM, STYLE_DIM, STYLES };

/* The style of a share of all (0 to 1): hot ones are marked as perf does. */
enum style tty_style_of_share(double share);

/*
 * Cells that a cleaned text takes (symbol/names/display_name.h): one for Latin, Greek,
 * Cyrillic and their neighbours, two for all others, which is never too few.
 */
size_t cells_of(const char *text, size_t len);

/* Bytes of the text that fit into so many cells. */
size_t cells_fit(const char *text, size_t len, size_t cells);

/* Output of text: a terminal has a width and colours, a pipe has neither. */

enum color_mode { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

struct tty_writer {
	FILE *out;
	bool colors;
	size_t width; /* cells of a line; 0: no limit */
};

/*
 * Describes standard output as it is now. COLOR_AUTO is colours if it is a terminal that
 * can show them, and NO_COLOR is not set (no-color.org).
 */
void tty_writer_init(enum color_mode mode, struct tty_writer *writer);

/* Sets the style of what follows; STYLE_PLAIN ends it. */
void tty_writer_style(const struct tty_writer *writer, enum style style);

/* "WARNING  TEXT", a line; the text may be anything. */
void tty_writer_warn(const struct tty_writer *writer, const char *text);

/* Writes at most `cells` cells of it (0: all), with "…" at the end if there is more; returns how many. */
size_t tty_writer_put(const struct tty_writer *writer, const char *text, size_t len, size_t cells);

/* Like tty_writer_put, but cuts off the beginning: the end of a path tells more. */
size_t tty_writer_put_end(const struct tty_writer *writer, const char *text, size_t len,
			  size_t cells);
