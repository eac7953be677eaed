/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/memory.h"

#include <elf.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/kernel/kallsyms.h"
#include "symbol/names/table.h"
#include "unwind/tables/orc.h"

/* From its first byte to the end of its data, at most. */
#define KERNEL_SIZE_MAX (128u << 20)

/* The code comes first, and is this large in common kernels: what is searched last. */
#define CODE_USUAL (12u << 20)

#define NOTES_MAX 4096u

/* Documentation/arch/x86/x86_64/mm.rst; the alignment is CONFIG_PHYSICAL_ALIGN. */
static const struct kernel_space x86_64 = {
	.lowest = 0xffffffff80000000,
	.behind = 0xffffffffc0000000,
	.modules = 0xffffffffc0000000,
	.align = 2u << 20,
};

/*
 * Documentation/arch/arm64/memory.rst: what TTBR1 translates, from what 48 bits
 * reach on. The alignment is SEGMENT_ALIGN (asm/memory.h); what serves only to
 * start lies behind the names and is unmapped later.
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
	if (regs->word != 8)
		return NULL;
	return regs->isa == ISA_ARM ? &arm64 : &x86_64;
}

static bool is_there(const struct guest_memory *memory, uint64_t va)
{
	uint8_t byte;

	return memory->read(memory->ctx, va, &byte, 1) == 1;
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

static struct error *find_names(const struct guest_memory *memory, const struct kernel_space *space,
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

/* Reads what is between two symbols, if it consists of `n` items of this size; 0: of some. */
static uint8_t *read_between(const struct guest_memory *memory, const struct kallsyms *names,
			     const char *from, const char *to, size_t size, size_t *n, uint64_t *va)
{
	uint64_t end, len;
	uint8_t *bytes;

	if (!kallsyms_address(names, from, va) || !kallsyms_address(names, to, &end) || end <= *va)
		return NULL;
	len = end - *va;
	/* Up to a few bytes of padding. */
	if (len / size > ORC_RULES_MAX || (*n && len / size != *n))
		return NULL;
	*n = len / size;
	bytes = malloc(*n * size);
	if (bytes && memory->read(memory->ctx, *va, bytes, *n * size) != *n * size) {
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
			       enum orc_layout layout, struct rows **out)
{
	struct orc_tables tables = {.layout = layout};
	struct error *err = NULL;
	uint8_t *addresses, *rules;
	uint64_t va;

	addresses = read_between(memory, names, "__start_orc_unwind_ip", "__stop_orc_unwind_ip",
				 ORC_ADDRESS_SIZE, &tables.n, &tables.va);
	rules = addresses ? read_between(memory, names, "__start_orc_unwind", "__stop_orc_unwind",
					 ORC_RULE_SIZE, &tables.n, &va)
			  : NULL;
	tables.addresses = addresses;
	tables.rules = rules;
	if (rules)
		err = orc_rows(&tables, out);
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
	uint8_t *notes = read_between(memory, names, "__start_notes", "__stop_notes", 1, &n, &va);

	for (size_t at = 0; notes && n - at >= 16 && n <= NOTES_MAX; at += 4) {
		Elf64_Nhdr note;

		memcpy(&note, notes + at, sizeof(note));
		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU") ||
		    memcmp(notes + at + sizeof(note), "GNU", sizeof("GNU")) ||
		    note.n_descsz > BUILD_ID_MAX || note.n_descsz > n - at - 16)
			continue;
		for (size_t i = 0; i < note.n_descsz; i++)
			sprintf(hex + 2 * i, "%02x", notes[at + 16 + i]);
		break;
	}
	free(notes);
	symbols_set_build_id(symbols, hex);
}

/* Its code, with what only serves to start. Tables without data may know no more than its code. */
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

struct error *kernel_memory_find(const struct guest_memory *memory,
				 const struct kernel_space *space, uint64_t pc,
				 struct kernel_memory *out, bool *found)
{
	struct kallsyms *names;
	struct error *err = find_names(memory, space, pc, &names);
	enum orc_layout layout;

	*out = (struct kernel_memory){0};
	*found = false;
	if (err || !names || !find_code(names, out))
		goto done;
	layout = find_layout(names);
	err = kallsyms_symbols(names, "the guest's kernel", &out->symbols);
	if (!err)
		err = read_rows(memory, names, layout, &out->rows);
	if (!err)
		err = kernel_modules_find(memory, names, layout, space->modules, &out->modules);
	if (err) {
		symbols_free(out->symbols);
		rows_free(out->rows);
		goto done;
	}
	read_build_id(memory, names, out->symbols);
	*found = true;
done:
	kallsyms_free(names);
	return err;
}
