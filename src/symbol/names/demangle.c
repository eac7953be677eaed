/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/demangle.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "caml"

/* The compiler's naming schemes, told by the separator between modules. */
enum scheme { BY_UNDERSCORES, BY_DOT, BY_DOLLAR };

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two hexadecimal digits at `at`: a byte; -1 if there are none. */
static int hex_byte(const char *at)
{
	int high = hex_digit(at[0]), low = high < 0 ? -1 : hex_digit(at[1]);

	return low < 0 ? -1 : high << 4 | low;
}

/* A dollar that begins no escape is a separator: then all of them are. */
static enum scheme scheme_of(const char *name)
{
	if (strchr(name, '.'))
		return BY_DOT;
	if (strstr(name, "$$"))
		return BY_DOLLAR;
	if (strstr(name, "__"))
		return BY_UNDERSCORES;
	for (const char *at = name; (at = strchr(at, '$')); at++)
		if (hex_byte(at + 1) < 0 || isalnum((unsigned char)hex_byte(at + 1)))
			return BY_DOLLAR;
	return BY_UNDERSCORES;
}

/* Takes one character of the source from `*in`. */
static char take(enum scheme scheme, const char **in)
{
	const char *at = *in;
	size_t escape = scheme == BY_DOLLAR ? 2 : 1;
	int byte;

	if (scheme == BY_UNDERSCORES && at[0] == '_' && at[1] == '_' && at[2]) {
		*in += 2;
		return '.';
	}
	byte = at[0] == '$' && (escape == 1 || at[1] == '$') ? hex_byte(at + escape) : -1;
	if (byte > 0) {
		*in += escape + 2;
		return (char)byte;
	}
	*in += 1;
	return scheme == BY_DOLLAR && at[0] == '$' ? '.' : at[0];
}

char *demangle_ocaml(const char *name)
{
	enum scheme scheme;
	char *plain;
	size_t n = 0;

	if (strncmp(name, PREFIX, strlen(PREFIX)) || name[4] < 'A' || name[4] > 'Z')
		return NULL;
	name += strlen(PREFIX);
	plain = malloc(strlen(name) + 1);
	if (!plain)
		return NULL;
	scheme = scheme_of(name);
	while (*name)
		plain[n++] = take(scheme, &name);
	plain[n] = '\0';
	return plain;
}

/* "_Zname@@VERSION": the version behind the name is not part of it, and is kept. */
static char *demangle_versioned(const char *name, const char *at)
{
	char *front = strndup(name, (size_t)(at - name));
	char *plain = front ? demangle_by_library(front) : NULL;
	char *both = plain ? malloc(strlen(plain) + strlen(at) + 1) : NULL;

	if (both)
		strcpy(stpcpy(both, plain), at);
	free(plain);
	free(front);
	return both;
}

char *demangle(const char *name)
{
	const char *at;

	if (name[0] == 'c')
		return demangle_ocaml(name);
	if (name[0] != '_')
		return NULL;
	at = strchr(name, '@');
	return at ? demangle_versioned(name, at) : demangle_by_library(name);
}
