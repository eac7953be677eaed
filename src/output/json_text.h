/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_JSON_TEXT_H
#define UNIPROF_OUTPUT_JSON_TEXT_H

/* JSON that is written as it goes, for files too large to be built in memory. */

#include <stdio.h>

/*
 * A string, in quotes. The text must be cleaned (symbol/clean.h). Characters
 * that mean something to HTML are escaped, too: these files end up in pages.
 */
void json_put_text(const char *text, FILE *out);

/* Nanoseconds as a number of milliseconds, all digits kept. */
void json_put_ms(unsigned long long ns, FILE *out);

#endif
