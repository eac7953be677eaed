/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_DRAW_H
#define UNIPROF_TOP_DRAW_H

/* What the live view looks like: lines of marked text, composed before they are shown, and the screen that shows them. */

#include <stdbool.h>

#include "base/error.h"
#include "top/view.h"
#include "view/tty_writer.h"

struct text_buffer_piece {
	size_t line;
	size_t text, len; /* in the buffer's text */
	enum style style;
	bool chosen; /* the user's choice: as a bar */
};

struct text_buffer {
	char *text;
	size_t len, room;
	struct text_buffer_piece *pieces;
	size_t n, pieces_room;
	size_t line; /* that is being written */
	size_t width, height;
	size_t used; /* cells of it */
	bool chosen; /* pieces that are added now are */
	bool no_memory;
};

/* Empty again; lines get no longer than `width` (0: any), and there are at most `height`. */
void text_buffer_begin(struct text_buffer *buffer, size_t width, size_t height);
void text_buffer_free(struct text_buffer *buffer);

/* Composes a picture of the live view. */

struct top_picture {
	const struct live_view *view;
	const struct summary *summary;
	struct symbolizer *symbolizer;
	struct short_names *names; /* NULL: full names are wanted */
	const char *guest;	   /* clean: name of the guest */
	const char *clock;	   /* the time of day */
	const char *ended;	   /* why there is nothing more to see; NULL: there is */
	const char *warning;	   /* NULL: none */
	double rate_hz;
	bool keys; /* somebody can press any */
};

/* *rows is how many functions there is room for. */
struct error *top_draw(const struct top_picture *picture, struct text_buffer *buffer, size_t *rows);

/* A terminal as a screen with keys, by ncurses. */

/*
 * Loads the terminal's description, while files can still be opened. ERR_USAGE
 * when standard input and output are no terminal that can be used.
 */
struct error *screen_prepare(void);

/* Takes the terminal until screen_end, which may be called at any time. */
void screen_begin(void);
void screen_end(void);

/* Gives the terminal back as it was at screen_prepare, for a process that has outlived the screen's. */
void screen_rescue(void);

void screen_size(size_t *width, size_t *height);

/* The next key (a character, or enum view_key), 0 if none was pressed. */
int screen_key(void);

void screen_show(const struct text_buffer *buffer);

/* For `uniprof -V`. */
extern const char screen_feature[];

#endif
