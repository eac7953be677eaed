/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

const char demangle_feature[] = "demangles C++, Rust, D, OCaml";

/* The longest name that comes out: that of docs/recording.md. */
#define PLAIN_MAX (64u << 10)

/* The library's room on the stack grows with the name. */
#define MANGLED_MAX (16u << 10)

/* Each reference back can double the work, in D; two in a row lead no deeper than one. */
#define D_REFERENCES_MAX 30

struct plain {
	char *text;
	size_t len, room;
	jmp_buf enough; /* the library has no other way to be told to stop, and holds no memory */
};

static void take(const char *text, size_t len, void *ctx)
{
	struct plain *plain = ctx;

	if (plain->room - plain->len <= len) {
		size_t room = 2 * plain->room + len + 256;
		char *bytes = room > PLAIN_MAX ? NULL : realloc(plain->text, room);

		if (!bytes)
			longjmp(plain->enough, 1);
		plain->text = bytes;
		plain->room = room;
	}
	memcpy(plain->text + plain->len, text, len);
	plain->len += len;
	plain->text[plain->len] = '\0';
}

typedef int demangler(const char *name, int options, demangle_callbackref take, void *ctx);

static char *collect(demangler *by, const char *name)
{
	struct plain *plain = calloc(1, sizeof(*plain));
	char *text = NULL;

	if (!plain)
		return NULL;
	if (!setjmp(plain->enough) && by(name, DMGL_PARAMS | DMGL_ANSI, take, plain)) {
		text = plain->text;
		plain->text = NULL;
	}
	free(plain->text);
	free(plain);
	return text;
}

static char *demangle_d(const char *name)
{
	size_t references = 0;
	const char *at;

	for (at = name; (at = strchr(at, 'Q')); at++)
		references++;
	return references > D_REFERENCES_MAX ? NULL : dlang_demangle(name, 0);
}

char *demangle_by_library(const char *name)
{
	char *plain;

	if (strnlen(name, MANGLED_MAX) == MANGLED_MAX)
		return NULL;
	if (name[1] == 'D')
		return demangle_d(name);
	if (name[1] != 'Z' && name[1] != 'R' && strncmp(name, "_GLOBAL_", 8))
		return NULL;
	plain = collect(rust_demangle_callback, name);
	return plain ? plain : collect(cplus_demangle_v3_callback, name);
}
