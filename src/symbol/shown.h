/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_SHOWN_H
#define UNIPROF_SYMBOL_SHOWN_H

/*
 * Names as people see them: demangled (symbol/demangle.h) and cleaned
 * (symbol/clean.h), each kept once. Private to src/symbol.
 */

#include <stdbool.h>

#include "base/error.h"

struct shown;

struct error *shown_new(struct shown **out);
void shown_free(struct shown *shown);

/* Cleaned. Equal strings are the same pointer, which is good until shown_free. */
struct error *shown_text(struct shown *shown, const char *text, const char **out);

/*
 * The same for strings that stay where they are, and what they are, for as
 * long as `shown` lives: these are remembered by their addresses.
 */
struct error *shown_lasting(struct shown *shown, const char *text, const char **out);

/* The name of a function, which lasts as well, cleaned, and demangled besides. */
struct error *shown_function(struct shown *shown, const char *name, const char **cleaned,
			     const char **demangled);

#endif
