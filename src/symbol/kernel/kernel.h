/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Linux kernels: as they are packed in files, the tables that they carry of themselves, and how they lie in a guest's memory. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "base/error.h"
#include "base/owned.h"
#include "symbol/kernel/guest_memory.h"
#include "symbol/names/symbols.h"
#include "unwind/tables/cfi.h"
#include "unwind/tables/unwind_table.h"

/*
 * Kernels that are packed. An installed Linux kernel is a bzImage (vmlinuz), which
 * holds the kernel's ELF file in compressed form (Documentation/arch/x86/boot.rst).
 * Any other may be an ELF file that gzip packed: Xen's tools unpack it themselves.
 */

/* The bytes at the beginning of a file that kernel_image_is needs to see. */
#define KERNEL_IMAGE_HEAD 0x250

/* Do these bytes begin a bzImage with a payload? */
bool kernel_image_is(const void *head, size_t len);

/* True if there is a bzImage at `path`. */
bool kernel_image_at(const char *path);

/*
 * Is there a kernel for arm64 at `path` (Documentation/arch/arm64/booting.rst)?
 * It holds no ELF file.
 */
bool kernel_image_arm64_at(const char *path);

/* Do these bytes begin a bzImage with a payload, or an ELF file that gzip packed? */
bool kernel_image_has_elf(const void *head, size_t len);

/* True if there is an ELF file at `path` that gzip packed, and that is Linux for x86-64. */
bool kernel_image_packs_linux(const char *path);

/*
 * The ELF file inside one of the two; the caller frees *elf. ERR_INPUT when the
 * file is damaged or compressed in a way that is not known here.
 * `path` is for messages.
 */
struct error *kernel_image_unpack(const char *path, const void *file, size_t len, char **elf,
				  size_t *elf_len);

/* Unpacks what is at `path`; *elf is NULL when the file is something else. */
struct error *kernel_image_load(const char *path, char **elf, size_t *elf_len);

/* Tables that a Linux kernel carries of itself: of its symbols, and of its types. */

/*
 * Symbols (CONFIG_KALLSYMS): the table is in the read-only data of every kernel,
 * in a file or in a guest's memory. Nothing says where: it is known by its
 * contents. Laid out by scripts/kallsyms.c of Linux 4.20 and later, for 64-bit
 * little-endian machines.
 */

struct kallsyms;

/*
 * Searches the memory from `start` to `end` for the table; parts of the memory
 * may be missing. *out is NULL if there is none. The functions below spend from
 * the budget of `memory`, too.
 */
struct error *kallsyms_find(const struct guest_memory *memory, uint64_t start, uint64_t end,
			    struct kallsyms **out);
void kallsyms_free(struct kallsyms *kallsyms);
OWNED_POINTER(kallsyms)

/* The address of a symbol of any type; false if there is none of this name. */
bool kallsyms_address(const struct kallsyms *kallsyms, const char *name, uint64_t *address);

/* ... and where the next symbol begins; what the budget does not allow to be found is not there. */
bool kallsyms_range(const struct kallsyms *kallsyms, const char *name, uint64_t *start,
		    uint64_t *end);

/* The functions, by the addresses that the table has. `path` is for messages. */
struct error *kallsyms_symbols(const struct kallsyms *kallsyms, const char *path,
			       struct symbols **out);

/*
 * Offsets of members in a kernel's structures, from the BTF that it carries in
 * its own memory (Documentation/bpf/btf.rst). The bytes are a guest's: nonsense
 * in them is not found.
 */

struct btf;

/* Borrows the bytes; *out is NULL if they are no BTF. */
struct error *btf_open(const uint8_t *bytes, size_t len, struct btf **out);

/* Reads the BTF of a kernel in a guest's memory; *out is NULL if it has none. */
struct error *btf_read(const struct guest_memory *memory, const struct kallsyms *names,
		       struct btf **out);

void btf_free(struct btf *btf);
OWNED_POINTER(btf)

/*
 * The bytes from the beginning of a structure to a member of it, of one of its
 * members ("arch.num_orcs"), or of the first of several ("mem.base"); false
 * if there is no such structure or member.
 */
bool btf_offset(const struct btf *btf, const char *structure, const char *member, uint32_t *offset);

/* The bytes of a structure; false if there is none of that name. */
bool btf_size(const struct btf *btf, const char *structure, uint32_t *size);

/*
 * A Linux kernel of 64 bits as it is in a guest's memory: its names (kallsyms)
 * and, on x86, its unwind tables (ORC). No file is needed for it, it cannot be
 * the wrong one, and where the kernel has moved to (KASLR) is known at once.
 */

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
