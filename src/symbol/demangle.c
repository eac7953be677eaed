/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/demangle.h"

#include <stdlib.h>
#include <string.h>

/* "_Zname@@VERSION": what stands behind the name is not part of it, and is kept. */
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
