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
#include "symbol/kernel/kallsyms.h"
#include "symbol/kernel/modules.h"
#include "symbol/names/symbols.h"
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
