/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_PAPER_H
#define UNIPROF_CMD_PAPER_H

/* What text is written on: a terminal has a width and colours, a pipe has neither. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "output/cells.h"

enum color_mode { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* "auto", "always", "never"; ERR_USAGE. */
struct error *color_parse(const char *option, const char *text, enum color_mode *mode);

struct paper {
	FILE *out;
	bool colors;
	size_t width; /* cells of a line; 0: no limit */
};

/*
 * As standard output is now. COLOR_AUTO is colours if it is a terminal that
 * can show them, and NO_COLOR is not set (no-color.org).
 */
void paper_look(enum color_mode mode, struct paper *paper);

/* From now on, and back to plain. */
void paper_style(const struct paper *paper, enum style style);

/* Writes at most `cells` cells of it (0: all), with "…" at the end if there is more; returns how many. */
size_t paper_put(const struct paper *paper, const char *text, size_t len, size_t cells);

/* The same, but what does not fit is left out at the beginning: the end of a path tells more. */
size_t paper_put_end(const struct paper *paper, const char *text, size_t len, size_t cells);

#endif
