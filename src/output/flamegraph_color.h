/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_FLAMEGRAPH_COLOR_H
#define UNIPROF_OUTPUT_FLAMEGRAPH_COLOR_H

/*
 * The colour of a function depends on its name alone, so that it is the same
 * in every picture: warm ones, all light enough for black text (contrast of
 * 6 to 1 and more); grey for addresses that have no name.
 */

#include <stdbool.h>
#include <stdint.h>

/* 0xrrggbb */
uint32_t flamegraph_color(const char *name, bool unresolved);

#endif
