/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_MODULES_H
#define UNIPROF_SYMBOL_KERNEL_MODULES_H

/*
 * The modules of a Linux kernel of 64 bits, from the guest's memory: the kernel
 * has a list of them, each with a table of its symbols, and on x86 with ORC.
 * Where all that is in its structures differs from kernel to kernel; its BTF tells.
 */

#include "symbol/guest_memory.h"
#include "symbol/kernel/kallsyms.h"
#include "symbol/names/symbols.h"
#include "unwind/tables/orc.h"

/* Bytes from the beginning of struct module, and of what it leads to. */
struct module_layout {
	uint32_t state, list, name;
	uint32_t text, text_size; /* the address of its code, bytes */
	uint32_t kallsyms;	  /* the address of a struct mod_kallsyms */
	bool has_orc;
	uint32_t num_orcs, orc_unwind_ip, orc_unwind;
	uint32_t symtab, num_symtab, strtab; /* of struct mod_kallsyms */
};

/* What is needed to read them, again and again: more may be loaded. */
struct kernel_modules {
	uint64_t list;	 /* of all; 0: this kernel has no modules, or no BTF */
	uint64_t lowest; /* none has code below */
	struct module_layout layout;
	enum orc_layout orc;
};

struct error *kernel_modules_find(const struct guest_memory *memory, const struct kallsyms *names,
				  enum orc_layout orc, uint64_t lowest, struct kernel_modules *out);

/* The longest name of a module (MODULE_NAME_LEN), with brackets around it: "[ext4]". */
#define MODULE_NAME_MAX 58

struct kernel_module {
	char name[MODULE_NAME_MAX + 1];
	struct symbols *symbols; /* by the guest's addresses */
	struct rows *rows;	 /* by the guest's addresses; NULL: none */
};

/*
 * Hands each module of whose code, from `start` to `end`, nothing is known yet
 * to `take`, which owns what it is given and may end this by an error. Of a
 * guest that has too many modules, or too large ones, some are left out.
 */
struct error *kernel_modules_read(const struct guest_memory *memory,
				  const struct kernel_modules *modules, void *ctx,
				  bool (*known)(void *ctx, uint64_t start, uint64_t end),
				  struct error *(*take)(void *ctx, struct kernel_module *module));

#endif
