/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FLAMEGRAPH_CHANGE_H
#define UNIPROF_OUTPUT_FLAMEGRAPH_CHANGE_H

/*
 * How a box looks in a picture of differences, and what it says. Red: more of
 * the time than before, blue: less, the stronger the larger the change is
 * beside the box itself. What chance may have done is grey, however large.
 */

#include <stdint.h>
#include <stdio.h>

#include "output/tree_pair.h"

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
