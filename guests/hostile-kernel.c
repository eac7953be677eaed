/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel that is none: a true table of symbols (kallsyms), as Linux 5.10 has it, which leads to
 * types, modules and tables without end. All offsets are in the arena, which is the kernel's memory.
 */
#include "hostile.h"

#include "paging.h"

#define NAMES	    2304u
#define TABLE	    0x1000u
#define TYPES	    0x120000u
#define TYPES_SIZE  0x1000000u /* as the symbols say; there are fewer */
#define LIST	    0x60000u
#define MODULE	    0x61000u
#define MODULES	    16u
#define MODULE_SIZE 0x1000u

/* Members of one structure, and entries of a table, at most. */
#define MEMBERS_MOST 0xffffu
#define ENTRIES_MOST 0xffffffffu
/* What is still believed of a module: so many symbols, and rules for unwinding. */
#define SYMBOLS_BELIEVED 0x20000u
#define RULES_BELIEVED	 0x100000u

/* Kinds of types (Documentation/bpf/btf.rst). */
enum { INTEGER = 1, STRUCTURE = 4 };

static uint8_t *memory;

static void put(uint64_t value, unsigned int size)
{
	for (; size--; value >>= 8)
		*memory++ = (uint8_t)value;
}

static void put_text(const char *text)
{
	while (*text)
		*memory++ = (uint8_t)*text++;
}

static void align(void)
{
	while ((unsigned long)memory & 7)
		*memory++ = 0;
}

static unsigned int length(const char *text)
{
	unsigned int n = 0;

	while (text[n])
		n++;
	return n;
}

/* The last names, by address, with their types in front; the others are all "a". */
static const struct name {
	const char *text;
	uint32_t at;
} last[] = {
	{"T_text", 0xa000},
	{"T_etext", 0xb000},
	{"Dmodules", LIST},
	{"D__start_BTF", TYPES},
	{"D__stop_BTF", TYPES + TYPES_SIZE},
};

#define LAST (sizeof(last) / sizeof(last[0]))

static uint32_t address(unsigned int i)
{
	return i < NAMES - LAST ? 16 * i : last[i - (NAMES - LAST)].at;
}

static void put_names(uint32_t *markers)
{
	const uint8_t *first = memory;

	for (unsigned int i = 0; i < NAMES; i++) {
		const char *text = i < NAMES - LAST ? "Ta" : last[i - (NAMES - LAST)].text;

		if (i % 256 == 0)
			markers[i / 256] = (uint32_t)(memory - first);
		put(length(text), 1);
		put_text(text);
	}
	align();
}

/* Each character is a token of its own. */
static void put_tokens(void)
{
	for (unsigned int i = 0; i < 256; i++)
		put(i ? i : 'x', 2);
	for (unsigned int i = 0; i < 256; i++)
		put(2 * i, 2);
}

static void put_symbols(void)
{
	static uint32_t markers[NAMES / 256];

	memory = (uint8_t *)arena + TABLE;
	for (unsigned int i = 0; i < NAMES; i++)
		put(address(i), 4);
	put(KERNEL, 8);
	put(NAMES, 8);
	put_names(markers);
	for (unsigned int i = 0; i < NAMES / 256; i++)
		put(markers[i], 4);
	align();
	put_tokens();
}

static void put_type(uint32_t name, uint32_t kind, uint32_t members, uint32_t size)
{
	put(name, 4);
	put(kind << 24 | members, 4);
	put(size, 4);
}

static void put_member(uint32_t name, uint32_t type, uint32_t bytes)
{
	put(name, 4);
	put(type, 4);
	put(8 * bytes, 4);
}

static void put_header(uint32_t types, uint32_t strings)
{
	put(0xeb9f, 2);
	put(1, 2);
	put(24, 4);
	put(0, 4);
	put(types, 4);
	put(types, 4);
	put(strings, 4);
}

/* A structure whose many members have no names, and are itself. */
static void put_endless_type(void)
{
	memory = (uint8_t *)arena + TYPES;
	put_header(12 + 12 * MEMBERS_MOST, 8);
	put_type(1, STRUCTURE, MEMBERS_MOST, 8);
	for (unsigned int i = 0; i < MEMBERS_MOST; i++)
		put_member(0, 1, 0);
	put(0, 1);
	put_text("module");
	put(0, 1);
}

/* What is asked of a kernel's types, and no more; names by where they begin in the strings. */
static void put_module_types(void)
{
	static const char *const names[] = {"module",	 "state",	"list",
					    "name",	 "core_layout", "base",
					    "text_size", "kallsyms",	"mod_kallsyms",
					    "symtab",	 "num_symtab",	"strtab",
					    "arch",	 "num_orcs",	"orc_unwind_ip",
					    "orc_unwind"};
	uint32_t at[sizeof(names) / sizeof(names[0])], strings = 1;

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		at[i] = strings;
		strings += length(names[i]) + 1;
	}
	memory = (uint8_t *)arena + TYPES;
	put_header(16 + 4 * 12 + 14 * 12, strings);
	put_type(0, INTEGER, 0, 4);
	put(32, 4);
	put_type(at[8], STRUCTURE, 3, 24); /* 2 */
	put_member(at[9], 1, 0);
	put_member(at[10], 1, 8);
	put_member(at[11], 1, 16);
	put_type(at[4], STRUCTURE, 2, 16); /* 3 */
	put_member(at[5], 1, 0);
	put_member(at[6], 1, 8);
	put_type(at[12], STRUCTURE, 3, 24); /* 4 */
	put_member(at[13], 1, 0);
	put_member(at[14], 1, 8);
	put_member(at[15], 1, 16);
	put_type(at[0], STRUCTURE, 6, 200); /* 5 */
	put_member(at[1], 1, 0);
	put_member(at[2], 1, 8);
	put_member(at[3], 1, 24);
	put_member(at[4], 3, 80);
	put_member(at[7], 1, 96);
	put_member(at[12], 4, 104);
	put(0, 1);
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		put_text(names[i]);
		put(0, 1);
	}
}

/*
 * A list of modules that never comes back to its head: each has other code, of which nothing is
 * known, and tables as long as can be, or longer.
 */
static void put_modules(bool longer)
{
	memory = (uint8_t *)arena + LIST;
	put(KERNEL + MODULE + 8, 8);
	for (unsigned int i = 0; i < MODULES; i++) {
		const uint64_t self = KERNEL + MODULE + i * MODULE_SIZE;

		memory = (uint8_t *)arena + MODULE + i * MODULE_SIZE;
		put(0, 8);
		put(KERNEL + MODULE + (i + 1) % MODULES * MODULE_SIZE + 8, 8);
		put(0, 8);
		put_text("endless");
		memory = (uint8_t *)arena + MODULE + i * MODULE_SIZE + 80;
		put(0xffffffffc0000000ul + 0x100000 * i, 8);
		put(0x10000, 8);
		put(self + 0x200, 8);
		put(longer ? ENTRIES_MOST : RULES_BELIEVED, 8);
		put(KERNEL, 8);
		put(KERNEL, 8);
		memory = (uint8_t *)arena + MODULE + i * MODULE_SIZE + 0x200;
		put(KERNEL, 8);
		put(longer ? ENTRIES_MOST : SYMBOLS_BELIEVED, 8);
		put(KERNEL, 8);
	}
}

VISIBLE void set_types(struct scene *scene, unsigned int turn)
{
	if (turn < SPACES) {
		put_symbols();
		put_endless_type();
	}
	execute_there(scene, turn);
}

VISIBLE void set_modules(struct scene *scene, unsigned int turn)
{
	if (turn < SPACES) {
		put_symbols();
		put_module_types();
		put_modules(false);
	}
	execute_there(scene, turn);
}

VISIBLE void set_counts(struct scene *scene, unsigned int turn)
{
	if (turn < SPACES) {
		put_symbols();
		put_module_types();
		put_modules(true);
	}
	execute_there(scene, turn);
}
