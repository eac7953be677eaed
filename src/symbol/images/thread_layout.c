/* SPDX-License-Identifier: BSD-3-Clause */

/* Where a unikernel's threads are: addresses by its symbols, offsets by its DWARF. */

#include <dwarf.h>
#include <gelf.h>
#include <string.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/images/file.h"
#include "symbol/source/source.h"

/* Entries of DWARF that one search for a structure reads at most; the largest unikernels have some 100,000. */
#define ENTRIES_MAX (1u << 22)
/* Parts of a member's name: "_mem.stack" has two. */
#define PARTS_MAX 4
/* Members that one structure has at most. */
#define MEMBERS_MAX 4096u

/* The member of a structure that one of enum thread_member is. */
struct member_name {
	const char *structure, *member;
};

/* A system, as its files show it. */
struct known {
	const char *head, *current, *starter; /* symbols; NULL: it has none */
	const char *switches[THREAD_SWITCHES];
	struct member_name name[THREAD_MEMBERS]; /* a structure of NULL: it has no such member */
	uint32_t usual[THREAD_MEMBERS]; /* offsets for x86-64, of versions that are known */
};

static const struct known known[UNIKERNELS] = {
	/* lib/uksched, lib/ukschedcoop; usual: 0.17, and a year before and after */
	[UNIKERNEL_UNIKRAFT] =
		{.head = "uk_sched_head",
		 .current = "__uk_sched_thread_current",
		 .switches = {"schedcoop_schedule", "ukarch_ctx_switch"},
		 .name = {[MEMBER_IP] = {"uk_thread", "ctx.ip"},
			  [MEMBER_SP] = {"uk_thread", "ctx.sp"},
			  [MEMBER_LINK] = {"uk_thread", "thread_list"},
			  [MEMBER_FLAGS] = {"uk_thread", "flags"},
			  [MEMBER_NAME] = {"uk_thread", "name"},
			  [MEMBER_STACK] = {"uk_thread", "_mem.stack"},
			  [MEMBER_SCHEDULER] = {"uk_thread", "sched"},
			  [MEMBER_CPU_TIME] = {"uk_thread", "exec_time"},
			  [SCHEDULER_LIST] = {"uk_sched", "thread_list"},
			  [SCHEDULER_NEXT] = {"uk_sched", "next"},
			  [SCHEDULER_IDLE] = {"schedcoop", "idle"}},
		 .usual = {[MEMBER_IP] = 0,
			   [MEMBER_SP] = 8,
			   [MEMBER_LINK] = 192,
			   [MEMBER_FLAGS] = 64,
			   [MEMBER_NAME] = 184,
			   [MEMBER_STACK] = 96,
			   [MEMBER_SCHEDULER] = 80,
			   [MEMBER_CPU_TIME] = 176,
			   [SCHEDULER_LIST] = 72,
			   [SCHEDULER_NEXT] = 136,
			   [SCHEDULER_IDLE] = 176}},
	/* include/sched.h; usual: since 2013 */
	[UNIKERNEL_MINIOS] = {.head = "thread_list",
			      .starter = "thread_starter",
			      .switches = {"schedule", "__arch_switch_threads"},
			      .name = {[MEMBER_IP] = {"thread", "ip"},
				       [MEMBER_SP] = {"thread", "sp"},
				       [MEMBER_LINK] = {"thread", "thread_list"},
				       [MEMBER_FLAGS] = {"thread", "flags"},
				       [MEMBER_NAME] = {"thread", "name"},
				       [MEMBER_STACK] = {"thread", "stack"}},
			      .usual = {[MEMBER_IP] = 24,
					[MEMBER_SP] = 16,
					[MEMBER_LINK] = 32,
					[MEMBER_FLAGS] = 48,
					[MEMBER_NAME] = 0,
					[MEMBER_STACK] = 8}},
};

/* Symbols of one system that were found. */
struct found {
	uint64_t head, current, current_size, starter;
	uint64_t switches[THREAD_SWITCHES];
};

static void note(const struct known *system, const char *name, const GElf_Sym *symbol,
		 struct found *found)
{
	if (!strcmp(name, system->head))
		found->head = symbol->st_value;
	else if (system->current && !strcmp(name, system->current)) {
		found->current = symbol->st_value;
		found->current_size = symbol->st_size;
	} else if (system->starter && !strcmp(name, system->starter))
		found->starter = symbol->st_value;
	for (size_t i = 0; i < THREAD_SWITCHES; i++)
		if (!strcmp(name, system->switches[i]))
			found->switches[i] = symbol->st_value;
}

/* False: the file has no table of symbols. */
static bool read_symbols(Elf *elf, struct found found[UNIKERNELS])
{
	Elf_Scn *section = NULL;
	Elf_Data *data = NULL;
	GElf_Shdr shdr;
	GElf_Sym symbol;
	const char *name;

	while (!data && (section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &shdr) && shdr.sh_type == SHT_SYMTAB)
			data = elf_getdata(section, NULL);
	for (int i = 0; data && gelf_getsym(data, i, &symbol); i++) {
		if (symbol.st_shndx == SHN_UNDEF ||
		    !(name = elf_strptr(elf, shdr.sh_link, symbol.st_name)))
			continue;
		for (size_t k = UNIKERNEL_NONE + 1; k < UNIKERNELS; k++)
			note(&known[k], name, &symbol, &found[k]);
	}
	return data;
}

/* The system that has all symbols which it needs. */
static enum unikernel choose(const struct found found[UNIKERNELS])
{
	for (size_t k = UNIKERNEL_NONE + 1; k < UNIKERNELS; k++)
		if (found[k].head && (!known[k].current || found[k].current) &&
		    (!known[k].starter || found[k].starter))
			return (enum unikernel)k;
	return UNIKERNEL_NONE;
}

static bool is_structure(Dwarf_Die *die, const char *name)
{
	const char *own = dwarf_tag(die) == DW_TAG_structure_type ? dwarf_diename(die) : NULL;

	return own && !strcmp(own, name) && !dwarf_hasattr(die, DW_AT_declaration);
}

static bool find_structure(Dwarf *dwarf, const char *name, Dwarf_Die *out)
{
	unsigned left = ENTRIES_MAX;
	Dwarf_CU *unit = NULL;
	Dwarf_Die top;

	while (left && !dwarf_get_units(dwarf, unit, &unit, NULL, NULL, &top, NULL)) {
		int none = dwarf_child(&top, out);

		for (left--; !none && left; none = dwarf_siblingof(out, out), left--)
			if (is_structure(out, name))
				return true;
	}
	return false;
}

/* Finds a member by the first `len` bytes of a name; the type's members follow. */
static bool find_member(Dwarf_Die *type, const char *name, size_t len, Dwarf_Die *out)
{
	int none = dwarf_child(type, out);

	for (unsigned i = 0; !none && i < MEMBERS_MAX; i++, none = dwarf_siblingof(out, out)) {
		const char *own = dwarf_tag(out) == DW_TAG_member ? dwarf_diename(out) : NULL;

		if (own && strlen(own) == len && !memcmp(own, name, len))
			return true;
	}
	return false;
}

static bool offset_of(Dwarf_Die structure, const char *path, uint32_t *offset)
{
	Dwarf_Attribute attr;
	Dwarf_Die member;
	Dwarf_Word at;

	*offset = 0;
	for (unsigned i = 0; i < PARTS_MAX; i++) {
		const size_t len = strcspn(path, ".");

		if (!find_member(&structure, path, len, &member) ||
		    dwarf_formudata(dwarf_attr(&member, DW_AT_data_member_location, &attr), &at) ||
		    at >= THREAD_LAYOUT_SPAN)
			return false;
		*offset += (uint32_t)at;
		if (!path[len])
			return true;
		path += len + 1;
		if (!dwarf_formref_die(dwarf_attr(&member, DW_AT_type, &attr), &structure) ||
		    dwarf_peel_type(&structure, &structure))
			return false;
	}
	return false;
}

/* False: the DWARF has not all of them. */
static bool read_types(Dwarf *dwarf, const struct known *system, uint32_t at[THREAD_MEMBERS])
{
	const char *have = NULL;
	Dwarf_Die structure;

	for (size_t i = 0; i < THREAD_MEMBERS; i++) {
		const struct member_name *name = &system->name[i];

		if (!name->structure)
			continue;
		if ((!have || strcmp(have, name->structure) != 0) &&
		    !find_structure(dwarf, name->structure, &structure))
			return false;
		have = name->structure;
		if (!offset_of(structure, name->member, &at[i]))
			return false;
	}
	return true;
}

/* Offsets of versions that are known are those of 64 bits; Mini-OS has them in files that say they are of 32. */
static bool is_usual(Elf *elf)
{
	GElf_Ehdr ehdr;

	return gelf_getehdr(elf, &ehdr) &&
	       (ehdr.e_machine == EM_X86_64 || ehdr.e_machine == EM_386);
}

static void fill(enum unikernel system, const struct found *found, Elf *elf, Dwarf *dwarf,
		 struct thread_layout *out)
{
	*out = (struct thread_layout){
		.system = system,
		.head = found->head,
		.current = found->current,
		.cpus = known[system].current ? found->current_size / 8 : 1,
		.starter = found->starter,
	};
	memcpy(out->switches, found->switches, sizeof(out->switches));
	out->typed = dwarf && read_types(dwarf, &known[system], out->at);
	if (!out->typed)
		memcpy(out->at, known[system].usual, sizeof(out->at));
	if (!is_usual(elf) || !thread_layout_is_sound(out))
		*out = (struct thread_layout){0};
}

bool thread_layout_is_sound(const struct thread_layout *layout)
{
	bool sound = layout->system < UNIKERNELS && layout->typed <= 1;

	if (layout->system == UNIKERNEL_NONE)
		return true;
	for (size_t i = 0; i < THREAD_MEMBERS; i++)
		sound = sound && layout->at[i] < THREAD_LAYOUT_SPAN;
	return sound && layout->cpus && layout->cpus <= THREAD_LAYOUT_CPUS;
}

void thread_layout_load(const char *path, struct thread_layout *out)
{
	struct found found[UNIKERNELS] = {0};
	struct dwarf_file file = {.fd = -1};
	enum unikernel system;
	int fd = open_to_read(path);
	Elf *elf;

	*out = (struct thread_layout){0};
	elf_version(EV_CURRENT);
	elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF) {
		const bool own = read_symbols(elf, found);
		const bool typed = (!own || choose(found)) && dwarf_file_open(path, "", &file);

		if (!own && typed)
			(void)read_symbols(file.elf, found);
		system = choose(found);
		if (system)
			fill(system, &found[system], elf, typed ? file.dwarf : NULL, out);
	}
	dwarf_file_close(&file);
	elf_end(elf);
	if (fd >= 0)
		close(fd);
}
