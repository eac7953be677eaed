/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/memory.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/images/code.h"
#include "symbol/names/table.h"
#include "unwind/tables/orc.h"

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

	return guest_memory_read(memory, va, &byte, 1) == 1;
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

/* Reads a section, from __start_NAME to __stop_NAME, if it has `n` items of this size; 0: any number. */
static uint8_t *read_section(const struct guest_memory *memory, const struct kallsyms *names,
			     const char *name, size_t size, size_t *n, uint64_t *va)
{
	char start[64], stop[64];
	uint64_t end, len;
	uint8_t *bytes;

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
	if (budget_over(memory->budget))
		return NULL;
	bytes = malloc(*n * size);
	if (bytes && guest_memory_read(memory, *va, bytes, *n * size) != *n * size) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

static enum orc_layout find_layout(const struct kallsyms *names)
{
	uint64_t va;

	return kallsyms_address(names, "__start_orc_header", &va) ||
			       kallsyms_address(names, "orc_header", &va)
		       ? ORC_LINUX_6_4
		       : ORC_LINUX_4_14;
}

static struct error *read_rows(const struct guest_memory *memory, const struct kallsyms *names,
			       enum orc_layout layout, struct unwind_table **out)
{
	struct orc_tables tables = {.layout = layout};
	struct error *err = NULL;
	uint8_t *addresses, *rules;
	uint64_t va;

	addresses = read_section(memory, names, "orc_unwind_ip", ORC_ADDRESS_SIZE, &tables.n,
				 &tables.va);
	rules = addresses ? read_section(memory, names, "orc_unwind", ORC_RULE_SIZE, &tables.n, &va)
			  : NULL;
	tables.addresses = addresses;
	tables.rules = rules;
	if (rules && budget_spend(memory->budget, ROW_STEPS * (uint64_t)tables.n))
		err = orc_table(&tables, out);
	free(addresses);
	free(rules);
	return err;
}

/* The build id is one of several notes. */
static void read_build_id(const struct guest_memory *memory, const struct kallsyms *names,
			  struct symbols *symbols)
{
	char hex[2 * BUILD_ID_MAX + 1] = "";
	uint64_t va;
	size_t n = 0;
	uint8_t *notes = read_section(memory, names, "notes", 1, &n, &va);

	for (size_t at = 0; notes && n <= NOTES_MAX && at < n; at += 4)
		if (build_id_note(notes + at, n - at, hex))
			break;
	free(notes);
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

static struct error *read_kernel(const struct guest_memory *memory,
				 const struct kernel_space *space, const struct kallsyms *names,
				 struct kernel_memory *out)
{
	const enum orc_layout layout = find_layout(names);
	struct error *err = kallsyms_symbols(names, "the guest's kernel", &out->symbols);

	if (!err)
		err = read_rows(memory, names, layout, &out->table);
	if (!err)
		err = kernel_modules_find(memory, names, layout, space->modules, &out->modules);
	if (!err)
		read_build_id(memory, names, out->symbols);
	return err;
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
