/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KERNEL_MEMORY_H
#define UNIPROF_SYMBOL_KERNEL_MEMORY_H

/*
 * A Linux kernel of 64 bits as it is in a guest's memory: its names (kallsyms)
 * and, on x86, its unwind tables (ORC). No file is needed for it, it cannot be
 * the wrong one, and where the kernel has moved to (KASLR) is known at once.
 */

#include "arch/arch.h"
#include "symbol/kernel/guest_memory.h"
#include "symbol/kernel/tables.h"
#include "symbol/names/symbols.h"
#include "unwind/tables/orc.h"
#include "unwind/tables/unwind_table.h"

/* Address ranges of Linux's code on one kind of machine. */
struct kernel_space {
	uint64_t lowest, behind; /* the kernel */
	uint64_t modules;	 /* its modules are nowhere below */
	uint32_t align;		 /* of each part that is mapped, bytes */
	bool anywhere;		 /* too wide to be searched: it is around its code that runs */
};

/* NULL: no kernel is searched for in the memory of such a vCPU. */
const struct kernel_space *kernel_space(const struct regs *regs);

/*
 * Searches the memory that one vCPU sees for a kernel's own table of symbols,
 * when it is in kernel mode at `pc`; *out is NULL if there is none.
 */
struct error *kernel_names_find(const struct guest_memory *memory, const struct kernel_space *space,
				uint64_t pc, struct kallsyms **out);

/*
 * Its modules: the kernel has a list of them, each with a table of its symbols, and on x86 with ORC.
 * Where all that is in its structures differs from kernel to kernel; its BTF tells.
 */

/* Offsets in struct module, and in the structs that it points to, bytes. */
struct module_layout {
	uint32_t state, list, name;
	uint32_t text, text_size; /* the address of its code, bytes */
	uint32_t kallsyms;	  /* the address of a struct mod_kallsyms */
	bool has_orc;
	uint32_t num_orcs, orc_unwind_ip, orc_unwind;
	uint32_t symtab, num_symtab, strtab; /* of struct mod_kallsyms */
};

/* Addresses needed to read the modules, again and again: more may be loaded. */
struct kernel_modules {
	uint64_t list;	 /* of all; 0: this kernel has no modules, or no BTF */
	uint64_t lowest; /* none has code below */
	struct module_layout layout;
	enum orc_layout orc;
};

/* The longest name of a module (MODULE_NAME_LEN), with brackets around it: "[ext4]". */
#define MODULE_NAME_MAX 58

struct kernel_module {
	char name[MODULE_NAME_MAX + 1];
	struct symbols *symbols;    /* by the guest's addresses */
	struct unwind_table *table; /* by the guest's addresses; NULL: none */
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

/* A table of symbols in memory (Elf64_Sym). */
struct symbols_place {
	uint64_t symbols, strings; /* addresses */
	uint32_t n;
	uint64_t start, end; /* of code, as the symbols tell addresses */
	bool typed;	     /* only those that are functions, of a known size */
};

/* *out is NULL if it cannot be read, is too large, or has no function there. */
struct error *symbols_read(const struct guest_memory *memory, const struct symbols_place *at,
			   struct symbols **out);

struct kernel_memory {
	uint64_t start, end;	 /* of its code, including the part that it frees after the start */
	struct symbols *symbols; /* by the guest's addresses, with the build id if there is one */
	struct unwind_table *table; /* by the guest's addresses; NULL: none */
	struct kernel_modules modules;
	struct kallsyms *names; /* of all of the kernel, also of its data */
};

/*
 * Searches the memory that one vCPU sees for a kernel, when it is in kernel
 * mode at `pc`. *found says whether there is one; then the caller owns what
 * *out points to. Its modules are not read yet. The budget of `memory` bounds
 * the search for its names; once they are found, more steps are added to read
 * the rest.
 */
struct error *kernel_memory_find(const struct guest_memory *memory,
				 const struct kernel_space *space, uint64_t pc,
				 struct kernel_memory *out, bool *found);

#endif
