/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FLAMEGRAPH_TEXT_H
#define UNIPROF_OUTPUT_FLAMEGRAPH_TEXT_H

/*
 * Text and numbers in XML. Names come from guests and files and may hold any
 * byte: what XML cannot hold, what cannot be seen and what would turn the
 * direction of writing is shown as \x1b, \u202e or \U000e0001 (bytes that are
 * no UTF-8 as \xff); the rest is escaped, so that it is good as content and
 * between double quotes alike.
 *
 * Lengths are in cells of a fixed-width font: one for Latin, Greek, Cyrillic
 * and their neighbours, two for everything from U+1100 on, which is never too
 * few.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes `text` in at most `cells` cells; when that is not all of it, the last one is "…". */
void flamegraph_put_text(FILE *out, const char *text, size_t cells);

/* Writes a number with two decimals, whatever the locale; 0 for what is negative or no number. */
void flamegraph_put_fixed(FILE *out, double value);

/* Writes 1234567 as 1,234,567. */
void flamegraph_put_count(FILE *out, uint64_t value);

#endif
