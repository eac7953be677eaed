/* SPDX-License-Identifier: BSD-3-Clause */

/* Where a unikernel's threads are: addresses by its symbols, offsets by its DWARF. */

#include <dwarf.h>
#include <gelf.h>
#include <string.h>

#include "base/owned.h"
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
struct member {
	const char *structure, *name; /* NULL: the system has no such member */
	uint32_t usual;		      /* offset in versions that are known */
	bool is_optional;	      /* there in some configurations alone */
};

/* A symbol, and what it is called in other versions; NULL: there is none. */
struct symbol_name {
	const char *name, *other;
	bool is_optional; /* as above */
};

/* A system, as its files show it. */
struct known {
	uint16_t machine, machine_too; /* e_machine; offsets are those of 64 bits */
	const char *head, *starter;    /* symbols; NULL: it has none */
	struct symbol_name current, variables[TASK_VARIABLES];
	const char *switches[THREAD_SWITCHES];
	struct member members[THREAD_MEMBERS];
};

#define TASK "tskTaskControlBlock"

static const struct known known[UNIKERNELS] = {
	/* lib/uksched, lib/ukschedcoop; usual: 0.17, and a year before and after */
	[UNIKERNEL_UNIKRAFT] =
		{.machine = EM_X86_64,
		 .machine_too = EM_386,
		 .head = "uk_sched_head",
		 .current = {"__uk_sched_thread_current", NULL, false},
		 .switches = {"schedcoop_schedule", "ukarch_ctx_switch"},
		 .members = {[MEMBER_IP] = {"uk_thread", "ctx.ip", 0, false},
			     [MEMBER_SP] = {"uk_thread", "ctx.sp", 8, false},
			     [MEMBER_LINK] = {"uk_thread", "thread_list", 192, false},
			     [MEMBER_FLAGS] = {"uk_thread", "flags", 64, false},
			     [MEMBER_NAME] = {"uk_thread", "name", 184, false},
			     [MEMBER_STACK] = {"uk_thread", "_mem.stack", 96, false},
			     [MEMBER_SCHEDULER] = {"uk_thread", "sched", 80, false},
			     [MEMBER_CPU_TIME] = {"uk_thread", "exec_time", 176, false},
			     [SCHEDULER_LIST] = {"uk_sched", "thread_list", 72, false},
			     [SCHEDULER_NEXT] = {"uk_sched", "next", 136, false},
			     [SCHEDULER_IDLE] = {"schedcoop", "idle", 176, false}}},
	/* include/sched.h; usual: since 2013. There are files that say they are of 32 bits. */
	[UNIKERNEL_MINIOS] = {.machine = EM_X86_64,
			      .machine_too = EM_386,
			      .head = "thread_list",
			      .starter = "thread_starter",
			      .switches = {"schedule", "__arch_switch_threads"},
			      .members = {[MEMBER_IP] = {"thread", "ip", 24, false},
					  [MEMBER_SP] = {"thread", "sp", 16, false},
					  [MEMBER_LINK] = {"thread", "thread_list", 32, false},
					  [MEMBER_FLAGS] = {"thread", "flags", 48, false},
					  [MEMBER_NAME] = {"thread", "name", 0, false},
					  [MEMBER_STACK] = {"thread", "stack", 8, false}}},
	/* tasks.c, include/list.h; usual: V10 and V11 without checks of their lists, for one CPU */
	[UNIKERNEL_FREERTOS] =
		{.machine = EM_AARCH64,
		 .machine_too = EM_AARCH64,
		 .head = "pxReadyTasksLists",
		 .current = {"pxCurrentTCB", "pxCurrentTCBs", false},
		 .variables = {[TASKS_DELAYED] = {"pxDelayedTaskList", NULL, false},
			       [TASKS_OVERFLOW] = {"pxOverflowDelayedTaskList", NULL, false},
			       [TASKS_PENDING] = {"xPendingReadyList", NULL, false},
			       [TASKS_SUSPENDED] = {"xSuspendedTaskList", NULL, true},
			       [TASKS_ENDED] = {"xTasksWaitingTermination", NULL, true},
			       [TASKS_COUNT] = {"uxCurrentNumberOfTasks", NULL, false},
			       [TASKS_IDLE] = {"xIdleTaskHandle", "xIdleTaskHandles", true}},
		 .switches = {"vTaskSwitchContext"},
		 .members = {[MEMBER_SP] = {TASK, "pxTopOfStack", 0, false},
			     [MEMBER_LINK] = {TASK, "xStateListItem", 8, false},
			     [MEMBER_NAME] = {TASK, "pcTaskName", 104, false},
			     [MEMBER_STACK] = {TASK, "pxStack", 96, false},
			     [MEMBER_CPU_TIME] = {TASK, "ulRunTimeCounter", 0, true},
			     [MEMBER_EVENT] = {TASK, "xEventListItem", 48, false},
			     [MEMBER_PRIORITY] = {TASK, "uxPriority", 88, false},
			     [MEMBER_STACK_END] = {TASK, "pxEndOfStack", 0, true},
			     [MEMBER_NUMBER] = {TASK, "uxTCBNumber", 0, true},
			     [MEMBER_NOTIFIED] = {TASK, "ulNotifiedValue", 0, true},
			     [MEMBER_NOTIFICATION] = {TASK, "ucNotifyState", 0, true},
			     [ITEM_NEXT] = {"xLIST_ITEM", "pxNext", 8, false},
			     [ITEM_OWNER] = {"xLIST_ITEM", "pvOwner", 24, false},
			     [LIST_END] = {"xLIST", "xListEnd", 16, false}}},
};

/* Symbols of one system that were found. */
struct found {
	struct thread_layout layout; /* addresses alone */
	uint64_t head_size, current_size, list_size;
};

static bool is_called(const struct symbol_name *symbol, const char *name)
{
	return (symbol->name && !strcmp(name, symbol->name)) ||
	       (symbol->other && !strcmp(name, symbol->other));
}

static void note(const struct known *system, const char *name, const GElf_Sym *symbol,
		 struct found *found)
{
	struct thread_layout *layout = &found->layout;

	if (!strcmp(name, system->head)) {
		layout->head = symbol->st_value;
		found->head_size = symbol->st_size;
	} else if (is_called(&system->current, name)) {
		layout->current = symbol->st_value;
		found->current_size = symbol->st_size;
	} else if (system->starter && !strcmp(name, system->starter))
		layout->starter = symbol->st_value;
	for (size_t i = 0; i < TASK_VARIABLES; i++)
		if (is_called(&system->variables[i], name)) {
			layout->variables[i] = symbol->st_value;
			if (i == TASKS_PENDING)
				found->list_size = symbol->st_size;
		}
	for (size_t i = 0; i < THREAD_SWITCHES; i++)
		if (system->switches[i] && !strcmp(name, system->switches[i]))
			layout->switches[i] = symbol->st_value;
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

static bool has_needed(const struct known *system, const struct thread_layout *found)
{
	bool has = found->head && (!system->current.name || found->current) &&
		   (!system->starter || found->starter);

	for (size_t i = 0; i < TASK_VARIABLES; i++)
		has = has && (!system->variables[i].name || system->variables[i].is_optional ||
			      found->variables[i]);
	return has;
}

/* The system that has all symbols which it needs. */
static enum unikernel choose(const struct found found[UNIKERNELS])
{
	for (size_t k = UNIKERNEL_NONE + 1; k < UNIKERNELS; k++)
		if (has_needed(&known[k], &found[k].layout))
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
		const struct member *member = &system->members[i];

		if (!member->structure)
			continue;
		if ((!have || strcmp(have, member->structure) != 0) &&
		    !find_structure(dwarf, member->structure, &structure))
			return false;
		have = member->structure;
		if (offset_of(structure, member->name, &at[i]))
			continue;
		if (!member->is_optional)
			return false;
		at[i] = 0;
	}
	return true;
}

static bool is_of(Elf *elf, const struct known *system)
{
	GElf_Ehdr ehdr;

	return gelf_getehdr(elf, &ehdr) &&
	       (ehdr.e_machine == system->machine || ehdr.e_machine == system->machine_too);
}

static void fill(enum unikernel system, const struct found *found, Elf *elf, Dwarf *dwarf,
		 struct thread_layout *out)
{
	*out = found->layout;
	out->system = system;
	out->cpus = known[system].current.name ? found->current_size / 8 : 1;
	if (found->list_size && found->list_size <= THREAD_LAYOUT_LIST &&
	    found->head_size / found->list_size <= THREAD_LAYOUT_PRIORITIES) {
		out->list_size = (uint32_t)found->list_size;
		out->priorities = (uint32_t)(found->head_size / found->list_size);
	}
	out->typed = dwarf && read_types(dwarf, &known[system], out->at);
	for (size_t i = 0; i < THREAD_MEMBERS && !out->typed; i++)
		out->at[i] = known[system].members[i].usual;
	if (!is_of(elf, &known[system]) || !thread_layout_is_sound(out))
		*out = (struct thread_layout){0};
}

/* Lists and items are as large as what is read of them. */
static bool has_lists(const struct thread_layout *layout)
{
	return layout->priorities && layout->priorities <= THREAD_LAYOUT_PRIORITIES &&
	       layout->list_size <= THREAD_LAYOUT_LIST &&
	       (uint64_t)layout->at[LIST_END] + layout->at[ITEM_NEXT] + 8 <= layout->list_size &&
	       layout->at[ITEM_NEXT] >= 8 && layout->at[ITEM_NEXT] + 16 <= THREAD_LAYOUT_LIST &&
	       layout->at[ITEM_OWNER] + 16 <= THREAD_LAYOUT_LIST;
}

bool thread_layout_is_sound(const struct thread_layout *layout)
{
	bool sound = layout->system < UNIKERNELS && layout->typed <= 1;

	if (layout->system == UNIKERNEL_NONE)
		return true;
	for (size_t i = 0; i < THREAD_MEMBERS; i++)
		sound = sound && layout->at[i] < THREAD_LAYOUT_SPAN;
	if (layout->system == UNIKERNEL_FREERTOS)
		sound = sound && has_lists(layout);
	return sound && layout->cpus && layout->cpus <= THREAD_LAYOUT_CPUS;
}

void thread_layout_load(const char *path, struct thread_layout *out)
{
	struct found found[UNIKERNELS] = {0};
	struct dwarf_file file = {.fd = -1};
	CLOSED const int fd = open_to_read(path);
	ENDED_BY(end_elf) Elf *elf = NULL;
	enum unikernel system;

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
}
