/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/demangle.h"

#include <stddef.h>

const char demangle_feature[] = "demangles OCaml only";

char *demangle_by_library(const char *name)
{
	return NULL;
}
