/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_BTF_H
#define UNIPROF_SYMBOL_KERNEL_BTF_H

/*
 * Offsets of members in a kernel's structures, from the BTF that it carries in
 * its own memory (Documentation/bpf/btf.rst). The bytes are a guest's: nonsense
 * in them is not found.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "symbol/kernel/guest_memory.h"
#include "symbol/kernel/kallsyms.h"

struct btf;

/* Borrows the bytes; *out is NULL if they are no BTF. */
struct error *btf_open(const uint8_t *bytes, size_t len, struct btf **out);

/* Reads the BTF of a kernel in a guest's memory; *out is NULL if it has none. */
struct error *btf_read(const struct guest_memory *memory, const struct kallsyms *names,
		       struct btf **out);

void btf_free(struct btf *btf);

/*
 * The bytes from the beginning of a structure to a member of it, of one of its
 * members ("arch.num_orcs"), or of the first of several ("mem.base"); false
 * if there is no such structure or member.
 */
bool btf_offset(const struct btf *btf, const char *structure, const char *member, uint32_t *offset);

#endif
