/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_VIEW_SVG_FLAMEGRAPH_BOX_H
#define UNIPROF_VIEW_SVG_FLAMEGRAPH_BOX_H

/*
 * Text and numbers in XML. Names come from guests and files and may hold any
 * byte: characters that XML cannot hold, that cannot be seen or that would turn
 * the direction of writing are shown as \x1b, \u202e or \U000e0001 (bytes that
 * are no UTF-8 as \xff); the others are escaped, for content and between double
 * quotes alike.
 *
 * Lengths are in cells of a fixed-width font: one for Latin, Greek, Cyrillic
 * and their neighbours, two for everything from U+1100 on, which is never too
 * few.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "analysis/diff.h"
#include "analysis/name_code.h"

/* Writes `text` in at most `cells` cells; when that is not all of it, the last one is "…". */
void flamegraph_put_text(FILE *out, const char *text, size_t cells);

/* Writes a number with two decimals, whatever the locale; 0 for negative numbers and NaN. */
void flamegraph_put_fixed(FILE *out, double value);

/* Writes nanoseconds as seconds, "1.500 s", with 3 or 6 decimals, whatever the locale. */
void flamegraph_put_seconds(FILE *out, uint64_t ns, int decimals);

/* Writes 1234567 as 1,234,567. */
void flamegraph_put_count(FILE *out, uint64_t value);

/*
 * The colour of a function depends on its name alone, so that it is the same
 * in every picture: warm ones, or blue ones for time that was waited, all light
 * enough for black text (contrast of 6 to 1 and more); grey for addresses that have no name.
 */

/* 0xrrggbb */
uint32_t flamegraph_color(const char *name, bool unresolved, bool cold);

/* One hue for each text, a package or an image; light enough for black text, as those of kinds are. */
uint32_t flamegraph_text_color(const char *text, size_t len);
uint32_t flamegraph_kind_color(enum name_kind kind);

/* Of what has no name, or no image. */
#define FLAMEGRAPH_GREY 0xbebec2

/*
 * Colour and text of a box in a picture of differences. Red: more of the time
 * than before, blue: less, the stronger the larger the change is beside the box
 * itself. Changes that chance may have made are grey, however large.
 */

#define FLAMEGRAPH_CHANGE_LEGEND                                                        \
	"red: more of the time than before, blue: less, grey: no more than chance may " \
	"do; widths: half of each"

/* 0xrrggbb, light enough for black text. */
uint32_t flamegraph_change_color(const struct tree_change *change);

/* "12.00 % before, 15.00 % after: +3.00, may be chance" */
void flamegraph_put_change(FILE *out, const struct tree_change *change);

/* Attributes of the box: shares in percent, and whether the change is significant. */
void flamegraph_put_change_data(FILE *out, const struct tree_change *change);

#endif
