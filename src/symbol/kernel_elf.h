/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_ELF_H
#define UNIPROF_SYMBOL_KERNEL_ELF_H

#include <libelf.h>

#include "symbol/names/symbols.h"

/*
 * The functions of a Linux kernel's ELF file that has no symbol table, as it
 * is inside of a vmlinuz: from kallsyms in its data. *out is NULL if there is
 * no such table.
 */
struct error *kernel_elf_symbols(const char *path, Elf *elf, struct symbols **out);

#endif
