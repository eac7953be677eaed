/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_ELF_OFFSET_H
#define UNIPROF_SYMBOL_ELF_OFFSET_H

#include <stdint.h>

/* Where in an ELF file the byte is that is loaded to this address of the file; 0 if there is none, or no file. */
uint64_t elf_offset(const char *path, uint64_t va);

#endif
