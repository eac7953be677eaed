/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_SCREEN_H
#define UNIPROF_TOP_SCREEN_H

/* A terminal as a screen with keys, by ncurses. */

#include "top/draw.h"

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
