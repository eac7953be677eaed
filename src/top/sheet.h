/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_SHEET_H
#define UNIPROF_TOP_SHEET_H

/* Lines of marked text, made before they are shown, on whatever. */

#include <stdbool.h>

#include "base/error.h"
#include "output/cells.h"

struct sheet_piece {
	size_t line;
	size_t text, len; /* in sheet.text */
	enum style style;
	bool chosen; /* the user's choice: as a bar */
};

struct sheet {
	char *text;
	size_t len, room;
	struct sheet_piece *pieces;
	size_t n, pieces_room;
	size_t line; /* that is being written */
	size_t width, height;
	size_t used; /* cells of it */
	bool chosen; /* pieces that are added now are */
	bool no_memory;
};

/* Empty again; lines get no longer than `width` (0: any), and there are at most `height`. */
void sheet_begin(struct sheet *sheet, size_t width, size_t height);
void sheet_free(struct sheet *sheet);

/* Adds to the line, cut off with "…" where it is full. Text must be clean (symbol/clean.h). */
void sheet_put(struct sheet *sheet, enum style style, const char *format, ...) PRINTF_LIKE(3, 4);

/* Ends the line. */
void sheet_end_line(struct sheet *sheet);

/* Lines that there still is room for. */
size_t sheet_left(const struct sheet *sheet);

#endif
