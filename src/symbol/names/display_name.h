/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/owned.h"

/*
 * Sanitizing: names that cannot break the text around them. Names come from symbol files
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

/*
 * Decodes one character (RFC 3629: shortest form, no surrogates, nothing above
 * U+10FFFF). Returns its length in bytes, 0 if there is none.
 */
size_t utf8_decode(const unsigned char *s, size_t left, uint32_t *c);

/* Bytes that a cleaned name of `len` bytes can need, its NUL included. */
#define SANITIZE_ROOM(len) (3 * (len) + 2)

/* Writes the cleaned name and a NUL to `out`; returns its length. */
size_t sanitize_name(const char *name, size_t len, char *out);

/* Bytes of the cleaned text's first characters, as many as are no more than `max` bytes. */
size_t sanitize_cut(const char *text, size_t max);

/* In memory of its own, which the caller frees; NULL when there is none. */
char *sanitize_new(const char *name);

/* Writes text that a guest or a file chose: control bytes could do anything to a terminal. Of none, nothing. */
void sanitize_print(const char *text, FILE *out);

/*
 * Names as they are in the source, from names as compilers write them into
 * files: of C++ (Itanium ABI), Rust (legacy and v0), D, and OCaml. Go's need
 * none. What takes much time or room to print stays as it is: names can be
 * made so that they grow beyond all bounds.
 */

/* For -V: "demangles C++, Rust, D, OCaml". */
extern const char demangle_feature[];

/* In memory of its own, which the caller frees; NULL: it is no such name, or there is no memory. */
char *demangle(const char *name);

/* Private to src/symbol: of all but OCaml; a build without libiberty knows none of them. */
char *demangle_by_library(const char *name);

/* Names as people see them: demangled and sanitized, each kept once. */
struct display_names;

/* display_names_free is due, also after an error. */
struct error *display_names_new(struct display_names **out);
void display_names_free(struct display_names *names);

/* Cleaned. Equal strings are the same pointer, which is good until display_names_free. */
struct error *display_names_text(struct display_names *names, const char *text, const char **out);

/*
 * As display_names_text, for strings that neither move nor change as long as `names`
 * lives: these are remembered by their addresses.
 */
struct error *display_names_lasting(struct display_names *names, const char *text,
				    const char **out);

/* The name of a function, which lasts as well, cleaned, and demangled besides. */
struct error *display_names_function(struct display_names *names, const char *name,
				     const char **cleaned, const char **demangled);

/*
 * Names as people say them: no return type, no arguments, of types the last name
 * alone, long template arguments cut in the middle, no default ones, no hashes and
 * stamps. "arguments": they stay, shortened. In memory of its own, which the caller
 * frees; NULL: the full name is short, or there is no memory. Not longer than `full`,
 * a demangled name.
 */
char *name_shorten(const char *full, bool arguments);

/*
 * The names of one view: those whose short forms are equal get arguments, or stay
 * full. Of names that are added after the first call of short_names_get, earlier
 * answers know nothing. NULL for `names` stands for full names.
 */
struct short_names;

struct error *short_names_new(struct short_names **out);
void short_names_free(struct short_names *names);
OWNED_POINTER(short_names)
struct error *short_names_add(struct short_names *names, const char *full, size_t len);

/* Of `full`, which may be new, with `*len` bytes; sets *len to those of the answer, valid until short_names_free. */
const char *short_names_get(struct short_names *names, const char *full, size_t *len);
