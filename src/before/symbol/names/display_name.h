/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_CLEAN_H
#define UNIPROF_SYMBOL_CLEAN_H

/*
 * Names that cannot break the text around them. Names come from symbol files
 * and recordings and may hold any byte; a cleaned name is valid UTF-8, not
 * empty, and stays on its line:
 *
 * - every byte that is not part of valid UTF-8, every control character (C0,
 *   C1, DEL), every line and paragraph separator, every character that changes
 *   the direction of text and what Unicode calls no characters (XML may not have
 *   them) becomes U+FFFD, the replacement character;
 * - every other kind of blank (no-break, em, ideographic, ...) becomes a blank:
 *   readers of text end words at them, some of one kind, some of all;
 * - blanks at both ends are removed;
 * - a name of which nothing is left becomes "-".
 *
 * Formats have more characters that they must escape themselves (';', '<').
 */

#include <stddef.h>
#include <stdio.h>

/* Bytes that a cleaned name of `len` bytes can need, its NUL included. */
#define CLEAN_ROOM(len) (3 * (len) + 2)

/* Writes the cleaned name and a NUL to `out`; returns its length. */
size_t clean_name(const char *name, size_t len, char *out);

/* Bytes of the cleaned text's first characters, as many as are no more than `max` bytes. */
size_t clean_cut(const char *text, size_t max);

/* In memory of its own, which the caller frees; NULL when there is none. */
char *clean_name_new(const char *name);

/* Writes text that a guest or a file chose: control bytes could do anything to a terminal. Of none, nothing. */
void put_clean(const char *text, FILE *out);

#endif
