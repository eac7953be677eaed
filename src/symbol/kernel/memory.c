/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "symbol/images/code.h"
#include "symbol/names/table.h"
#include "unwind/tables/cfi.h"

/* Size of a kernel, from its first byte to the end of its data, at most. */
#define KERNEL_SIZE_MAX (128u << 20)

/* Usual size of the code, which comes first: it is searched last. */
#define CODE_USUAL (12u << 20)

#define NOTES_MAX 4096u

/* Steps to read a kernel once its names are found: twice what Debian's 6.1 takes. */
#define FOUND_STEPS (1ull << 28)
/* Steps to make a row of the unwind tables. */
#define ROW_STEPS 64u

/* Documentation/arch/x86/x86_64/mm.rst; the alignment is CONFIG_PHYSICAL_ALIGN. */
static const struct kernel_space x86_64 = {
	.lowest = 0xffffffff80000000,
	.behind = 0xffffffffc0000000,
	.modules = 0xffffffffc0000000,
	.align = 2u << 20,
};

/*
 * Documentation/arch/arm64/memory.rst: addresses that TTBR1 translates, from
 * the lowest that 48 bits reach. The alignment is SEGMENT_ALIGN (asm/memory.h);
 * the start code lies behind the names and is unmapped later.
 */
static const struct kernel_space arm64 = {
	.lowest = 0xffff000000000000,
	.behind = 0xfffffffffff00000,
	.modules = 0xffff000000000000,
	.align = 64u << 10,
	.anywhere = true,
};

const struct kernel_space *kernel_space(const struct regs *regs)
{
	static const struct kernel_space *const spaces[ISAS] = {
		[ISA_X86] = &x86_64, [ISA_ARM] = &arm64};

	return regs->word == 8 ? spaces[regs->isa] : NULL;
}

static bool is_there(const struct guest_memory *memory, uint64_t va)
{
	uint8_t byte;

	return guest_memory_get(memory, va, &byte, 1);
}

/* The memory around `pc`, or where kernels are. */
static void find_range(const struct guest_memory *memory, const struct kernel_space *space,
		       uint64_t pc, uint64_t *start, uint64_t *end)
{
	const uint64_t at = pc & ~(uint64_t)(space->align - 1);

	*start = space->anywhere ? at : space->lowest;
	*end = space->anywhere ? at : space->behind;
	while (*start > space->lowest && at - *start < KERNEL_SIZE_MAX &&
	       is_there(memory, *start - space->align))
		*start -= space->align;
	while (*end < space->behind && *end - at < KERNEL_SIZE_MAX && is_there(memory, *end))
		*end += space->align;
}

/* The first stretch of memory where a kernel may be, from *start on, all below `behind`. */
static bool next_stretch(const struct guest_memory *memory, uint64_t align, uint64_t behind,
			 uint64_t *start, uint64_t *end)
{
	while (*start < behind && !is_there(memory, *start))
		*start += align;
	*end = *start;
	while (*end < behind && *end - *start < KERNEL_SIZE_MAX && is_there(memory, *end))
		*end += align;
	return *start < behind;
}

struct error *kernel_names_find(const struct guest_memory *memory, const struct kernel_space *space,
				uint64_t pc, struct kallsyms **out)
{
	uint64_t start, end, behind;
	struct error *err = NULL;

	*out = NULL;
	find_range(memory, space, pc, &start, &behind);
	for (; next_stretch(memory, space->align, behind, &start, &end) && !err && !*out;
	     start = end + space->align) {
		uint64_t middle = end - start > CODE_USUAL ? start + CODE_USUAL : start;

		err = kallsyms_find(memory, middle, end, out);
		if (!err && !*out)
			err = kallsyms_find(memory, start, middle, out);
	}
	return err;
}

/* The caller frees it; NULL if it cannot be read. */
static uint8_t *get_all(const struct guest_memory *memory, uint64_t va, size_t len)
{
	uint8_t *bytes = budget_over(memory->budget) ? NULL : malloc(len);

	if (bytes && guest_memory_get(memory, va, bytes, len))
		return bytes;
	free(bytes);
	return NULL;
}

/* Reads a section, from __start_NAME to __stop_NAME, if it has `n` items of this size; 0: any number. */
static uint8_t *read_section(const struct guest_memory *memory, const struct kallsyms *names,
			     const char *name, size_t size, size_t *n, uint64_t *va)
{
	char start[64], stop[64];
	uint64_t end, len;

	snprintf(start, sizeof(start), "__start_%s", name);
	snprintf(stop, sizeof(stop), "__stop_%s", name);
	if (!kallsyms_address(names, start, va) || !kallsyms_address(names, stop, &end) ||
	    end <= *va)
		return NULL;
	len = end - *va;
	/* Up to a few bytes of padding. */
	if (len / size > ORC_RULES_MAX || (*n && len / size != *n))
		return NULL;
	*n = len / size;
	return get_all(memory, *va, *n * size);
}

static enum orc_layout find_layout(const struct kallsyms *names)
{
	uint64_t va;

	return kallsyms_address(names, "__start_orc_header", &va) ||
			       kallsyms_address(names, "orc_header", &va)
		       ? ORC_LINUX_6_4
		       : ORC_LINUX_4_14;
}

/* Makes no table if there are no bytes, or no steps. */
static struct error *make_rows(const struct guest_memory *memory, struct orc_tables *tables,
			       const uint8_t *addresses, const uint8_t *rules,
			       struct unwind_table **out)
{
	tables->addresses = addresses;
	tables->rules = rules;
	return addresses && rules && budget_spend(memory->budget, ROW_STEPS * (uint64_t)tables->n)
		       ? orc_table(tables, out)
		       : NULL;
}

static struct error *read_rows(const struct guest_memory *memory, const struct kallsyms *names,
			       enum orc_layout layout, struct unwind_table **out)
{
	struct orc_tables tables = {.layout = layout};
	FREED uint8_t *addresses = read_section(memory, names, "orc_unwind_ip", ORC_ADDRESS_SIZE,
						&tables.n, &tables.va);
	FREED uint8_t *rules = NULL;
	uint64_t va;

	if (addresses)
		rules = read_section(memory, names, "orc_unwind", ORC_RULE_SIZE, &tables.n, &va);
	return make_rows(memory, &tables, addresses, rules, out);
}

/* The build id is one of several notes. */
static void read_build_id(const struct guest_memory *memory, const struct kallsyms *names,
			  struct symbols *symbols)
{
	char hex[2 * BUILD_ID_MAX + 1] = "";
	uint64_t va;
	size_t n = 0;
	FREED uint8_t *notes = read_section(memory, names, "notes", 1, &n, &va);

	for (size_t at = 0; notes && n <= NOTES_MAX && at < n; at += 4)
		if (build_id_note(notes + at, n - at, hex))
			break;
	symbols_set_build_id(symbols, hex);
}

/*
 * Finds the kernel's code, including the part that is freed after the start.
 * Tables without data may have symbols of its code only.
 */
static bool find_code(const struct kallsyms *names, struct kernel_memory *out)
{
	uint64_t init;

	if (!kallsyms_address(names, "_text", &out->start) &&
	    !kallsyms_address(names, "_stext", &out->start))
		return false;
	if (!kallsyms_address(names, "_etext", &out->end))
		return false;
	if (kallsyms_address(names, "_einittext", &init) && init > out->end)
		out->end = init;
	return out->end > out->start && out->end - out->start < KERNEL_SIZE_MAX;
}

static bool read_layout(const struct btf *btf, struct module_layout *at)
{
	const char *module = "module", *table = "mod_kallsyms";

	at->has_orc = btf_offset(btf, module, "arch.num_orcs", &at->num_orcs) &&
		      btf_offset(btf, module, "arch.orc_unwind_ip", &at->orc_unwind_ip) &&
		      btf_offset(btf, module, "arch.orc_unwind", &at->orc_unwind);
	return btf_offset(btf, module, "state", &at->state) &&
	       btf_offset(btf, module, "list", &at->list) &&
	       btf_offset(btf, module, "name", &at->name) &&
	       btf_offset(btf, module, "kallsyms", &at->kallsyms) &&
	       btf_offset(btf, table, "symtab", &at->symtab) &&
	       btf_offset(btf, table, "num_symtab", &at->num_symtab) &&
	       btf_offset(btf, table, "strtab", &at->strtab) &&
	       /* Since Linux 6.4 the code is the first of several kinds of memory. */
	       ((btf_offset(btf, module, "mem.base", &at->text) &&
		 btf_offset(btf, module, "mem.size", &at->text_size)) ||
		(btf_offset(btf, module, "core_layout.base", &at->text) &&
		 btf_offset(btf, module, "core_layout.text_size", &at->text_size)));
}

static struct error *find_modules(const struct guest_memory *memory, const struct kallsyms *names,
				  enum orc_layout orc, uint64_t lowest, struct kernel_modules *out)
{
	ENDED_BY(btf_end) struct btf *btf = NULL;
	uint64_t list;

	*out = (struct kernel_modules){.orc = orc, .lowest = lowest};
	if (kallsyms_address(names, "modules", &list))
		TRY(btf_read(memory, names, &btf));
	if (btf && read_layout(btf, &out->layout))
		out->list = list;
	return NULL;
}

static struct error *read_kernel(const struct guest_memory *memory,
				 const struct kernel_space *space, const struct kallsyms *names,
				 struct kernel_memory *out)
{
	const enum orc_layout layout = find_layout(names);

	TRY(kallsyms_symbols(names, "the guest's kernel", &out->symbols));
	TRY(read_rows(memory, names, layout, &out->table));
	TRY(find_modules(memory, names, layout, space->modules, &out->modules));
	read_build_id(memory, names, out->symbols);
	return NULL;
}

struct error *kernel_memory_find(const struct guest_memory *memory,
				 const struct kernel_space *space, uint64_t pc,
				 struct kernel_memory *out, bool *found)
{
	struct kallsyms *names;
	struct error *err = kernel_names_find(memory, space, pc, &names);

	*out = (struct kernel_memory){0};
	*found = false;
	if (memory->budget)
		memory->budget->left += FOUND_STEPS;
	if (!err && names && find_code(names, out)) {
		err = read_kernel(memory, space, names, out);
		/* A table without functions is no kernel's. */
		if (err && err->kind == ERR_INPUT) {
			error_free(err);
			err = NULL;
		}
		/*
		 * Without the parts that were left out for lack of steps, the
		 * others may be wrong.
		 */
		*found = !err && out->symbols && !budget_over(memory->budget);
		if (!*found) {
			symbols_free(out->symbols);
			unwind_table_free(out->table);
		}
	}
	if (*found)
		out->names = names;
	else
		kallsyms_free(names);
	return err;
}

/* Limits of one kernel, beyond any real one. */
#define MODULES_MAX 1024u
#define TEXT_MAX    (64u << 20)
#define SYMBOLS_MAX (1u << 17)
#define ORCS_MAX    (1u << 20)
#define STRINGS_MAX (8u << 20)
/* Bytes that are read of all modules together, or of one table alone, at most. */
#define READ_MAX      (32u << 20)
#define SYMBOLS_BYTES (8u << 20)

/* Steps for a symbol, which is sorted. */
#define SYMBOL_STEPS 128u

/* State of modules that are neither being loaded nor removed (include/linux/module.h). */
#define STATE_LIVE 0

struct modules_reader {
	const struct guest_memory *memory;
	const struct kernel_modules *modules;
	uint64_t left; /* bytes */
};

/* Reads an array of the module; NULL if it cannot be read. */
static uint8_t *get_array(struct modules_reader *reader, uint64_t va, size_t len)
{
	if (len > reader->left)
		return NULL;
	reader->left -= len;
	return get_all(reader->memory, va, len);
}

/* Reads from `va` on as far as there is memory, `len` bytes at most, and adds a NUL. */
static char *get_strings(struct modules_reader *reader, uint64_t va, size_t len, size_t *got)
{
	char *bytes = len <= reader->left ? malloc(len + 1) : NULL;

	for (*got = 0; bytes && *got < len;) {
		size_t want = GUEST_MEMORY_PAGE - (size_t)((va + *got) % GUEST_MEMORY_PAGE);
		size_t n;

		want = want < len - *got ? want : len - *got;
		n = guest_memory_read(reader->memory, va + *got, bytes + *got, want);
		*got += n;
		if (n != want)
			break;
	}
	reader->left -= *got;
	if (bytes)
		bytes[*got] = '\0';
	return bytes;
}

struct text {
	uint64_t start, end;
};

/* Kinds of symbols in code of known size; a thread's variables have small numbers, which are no addresses. */
static bool is_function(const Elf64_Sym *symbol)
{
	const unsigned type = ELF64_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_size &&
	       symbol->st_shndx != SHN_UNDEF;
}

static struct error *add_functions(const Elf64_Sym *symbol, const char *strings, size_t len,
				   const struct symbols_place *at, struct symbol_candidates *list)
{
	for (size_t i = 0; i < at->n; i++) {
		const uint64_t start = symbol[i].st_value;
		struct symbol_candidate one = {.start = start, .limit = at->end};

		if (start < at->start || start >= at->end || symbol[i].st_name >= len ||
		    !strings[symbol[i].st_name] || (at->typed && !is_function(&symbol[i])))
			continue;
		if (symbol[i].st_size <= at->end - start)
			one.size = symbol[i].st_size;
		one.name = strings + symbol[i].st_name;
		one.bind = ELF64_ST_BIND(symbol[i].st_info) == STB_GLOBAL ? BIND_GLOBAL
			   : ELF64_ST_BIND(symbol[i].st_info) == STB_WEAK ? BIND_WEAK
									  : BIND_LOCAL;
		one.untyped = ELF64_ST_TYPE(symbol[i].st_info) != STT_FUNC;
		TRY(symbol_candidates_add(list, &one));
	}
	return NULL;
}

/* The longest name, bytes: so many are read of the one that begins last (KSYM_NAME_LEN). */
#define NAME_MAX_LEN 512u

static size_t strings_end(const Elf64_Sym *symbol, size_t n)
{
	uint32_t last = 0;

	for (size_t i = 0; i < n; i++)
		if (symbol[i].st_name > last && symbol[i].st_name < STRINGS_MAX)
			last = symbol[i].st_name;
	return last + NAME_MAX_LEN;
}

static struct error *read_place(struct modules_reader *reader, const struct symbols_place *at,
				struct symbols **out)
{
	ENDED_BY(symbol_candidates_free) struct symbol_candidates list = {0};
	FREED Elf64_Sym *symbol = NULL;
	FREED char *strings = NULL;
	size_t len = 0;

	*out = NULL;
	if (!at->n || at->n > SYMBOLS_MAX)
		return NULL;
	symbol = (Elf64_Sym *)get_array(reader, at->symbols, at->n * sizeof(*symbol));
	if (symbol)
		strings = get_strings(reader, at->strings, strings_end(symbol, at->n), &len);
	if (strings && budget_spend(reader->memory->budget, (uint64_t)SYMBOL_STEPS * at->n))
		TRY(add_functions(symbol, strings, len, at, &list));
	return list.n ? symbols_build(&list, &strings, out) : NULL;
}

struct error *symbols_read(const struct guest_memory *memory, const struct symbols_place *at,
			   struct symbols **out)
{
	struct modules_reader reader = {.memory = memory, .left = SYMBOLS_BYTES};

	return read_place(&reader, at, out);
}

static struct error *read_symbols(struct modules_reader *reader, uint64_t table,
				  const struct text *text, struct symbols **out)
{
	const struct module_layout *at = &reader->modules->layout;
	struct symbols_place place = {.start = text->start, .end = text->end};

	*out = NULL;
	if (!guest_memory_get(reader->memory, table + at->symtab, &place.symbols, 8) ||
	    !guest_memory_get(reader->memory, table + at->num_symtab, &place.n, 4) ||
	    !guest_memory_get(reader->memory, table + at->strtab, &place.strings, 8))
		return NULL;
	return read_place(reader, &place, out);
}

static struct error *read_module_rows(struct modules_reader *reader, uint64_t module,
				      struct unwind_table **out)
{
	const struct module_layout *at = &reader->modules->layout;
	struct orc_tables tables = {.layout = reader->modules->orc};
	FREED uint8_t *addresses = NULL;
	FREED uint8_t *rules = NULL;
	uint64_t va;
	uint32_t n;

	*out = NULL;
	if (!at->has_orc || !guest_memory_get(reader->memory, module + at->num_orcs, &n, 4) || !n ||
	    n > ORCS_MAX ||
	    !guest_memory_get(reader->memory, module + at->orc_unwind_ip, &tables.va, 8) ||
	    !guest_memory_get(reader->memory, module + at->orc_unwind, &va, 8))
		return NULL;
	addresses = get_array(reader, tables.va, (size_t)n * ORC_ADDRESS_SIZE);
	rules = get_array(reader, va, (size_t)n * ORC_RULE_SIZE);
	tables.n = n;
	return make_rows(reader->memory, &tables, addresses, rules, out);
}

/* The name is used as a file's: printable, without a path. */
static bool read_name(struct modules_reader *reader, uint64_t module,
		      char name[MODULE_NAME_MAX + 1])
{
	char text[MODULE_NAME_MAX - 2 + 1] = "";

	if (!guest_memory_get(reader->memory, module + reader->modules->layout.name, text,
			      sizeof(text) - 1))
		return false;
	for (char *c = text; *c; c++)
		if (*c <= ' ' || *c == 0x7f || *c == '/')
			return false;
	snprintf(name, MODULE_NAME_MAX + 1, "[%s]", text);
	return *text;
}

static bool read_text(struct modules_reader *reader, uint64_t module, struct text *text)
{
	const struct module_layout *at = &reader->modules->layout;
	uint32_t state, size;

	if (!guest_memory_get(reader->memory, module + at->state, &state, 4) ||
	    state != STATE_LIVE ||
	    !guest_memory_get(reader->memory, module + at->text, &text->start, 8) ||
	    !guest_memory_get(reader->memory, module + at->text_size, &size, 4))
		return false;
	text->end = text->start + size;
	return text->start >= reader->modules->lowest && size && size <= TEXT_MAX &&
	       text->end > text->start;
}

static struct error *read_module(struct modules_reader *reader, uint64_t at,
				 const struct text *text, struct kernel_module *module)
{
	struct error *err = NULL;
	uint64_t table;

	*module = (struct kernel_module){0};
	if (!read_name(reader, at, module->name) ||
	    !guest_memory_get(reader->memory, at + reader->modules->layout.kallsyms, &table, 8))
		return NULL;
	err = read_symbols(reader, table, text, &module->symbols);
	if (!err && module->symbols)
		err = read_module_rows(reader, at, &module->table);
	if (err)
		symbols_free(module->symbols);
	return err;
}

struct error *kernel_modules_read(const struct guest_memory *memory,
				  const struct kernel_modules *modules, void *ctx,
				  bool (*known)(void *ctx, uint64_t start, uint64_t end),
				  struct error *(*take)(void *ctx, struct kernel_module *module))
{
	struct modules_reader reader = {memory, modules, READ_MAX};
	struct error *err = NULL;
	uint64_t next = modules->list;

	for (unsigned i = 0; i < MODULES_MAX && next && !err && !budget_over(memory->budget); i++) {
		struct kernel_module module;
		uint64_t at;
		struct text text;

		/* The first word of a struct list_head leads to the next. */
		if (!guest_memory_get(memory, next, &next, 8) || next == modules->list)
			break;
		at = next - modules->layout.list;
		if (!read_text(&reader, at, &text) || known(ctx, text.start, text.end))
			continue;
		err = read_module(&reader, at, &text, &module);
		if (!err && module.symbols && budget_over(memory->budget)) {
			symbols_free(module.symbols);
			unwind_table_free(module.table);
		} else if (!err && module.symbols) {
			err = take(ctx, &module);
		}
	}
	return err;
}
