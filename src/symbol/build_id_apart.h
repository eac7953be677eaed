/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_BUILD_ID_APART_H
#define UNIPROF_SYMBOL_BUILD_ID_APART_H

#include <stdbool.h>

/*
 * The build id of an ELF file in lower-case hex, "" if there is none, found
 * out in a process without rights; and whether the file lacks debugging
 * information, and has no separate debug file here. What is no regular file is
 * left alone. `hex` holds
 * 2 * CODE_BUILD_ID_MAX + 1 (symbol/elf_code.h).
 */
void build_id_apart(const char *path, char *hex, bool *lacks);

#endif
