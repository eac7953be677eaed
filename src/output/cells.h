/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_CELLS_H
#define UNIPROF_OUTPUT_CELLS_H

/* Text on terminals: how it is marked, and how much room it takes. */

#include <stddef.h>

enum style { STYLE_PLAIN, STYLE_HEAD, STYLE_WARNING, STYLE_HOT, STYLE_WARM, STYLE_DIM, STYLES };

/* The style of a share of all (0 to 1), as perf marks what is hot. */
enum style style_of_share(double share);

/*
 * Cells that a cleaned text takes (symbol/clean.h): one for Latin, Greek,
 * Cyrillic and their neighbours, two for all others, which is never too few.
 */
size_t cells_of(const char *text, size_t len);

/* Bytes of the text that fit into so many cells. */
size_t cells_fit(const char *text, size_t len, size_t cells);

#endif
