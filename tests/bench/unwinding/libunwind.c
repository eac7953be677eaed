/* SPDX-License-Identifier: BSD-3-Clause */
#include <err.h>
#include <libunwind-x86_64.h>
#include <stdlib.h>
#include <string.h>

#include "recorded.h"

/* .eh_frame_hdr (LSB 10.6.2): version, three encodings, .eh_frame, number of entries, the table. */
#define TABLE_AT 12

/* Exported by libunwind and used by others with memory of their own; in none of its headers. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip,
					      unw_dyn_info_t *table, unw_proc_info_t *info,
					      int need_info, void *arg);

struct unwind_walk {
	const struct recording *recording;
	const struct recorded *stack;
	unw_addr_space_t space;
};

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info,
			  int need_info, void *arg)
{
	const struct unwind_walk *walk = arg;
	const struct module *module = module_at(walk->recording, ip);
	const uint8_t *header;
	uint32_t entries;
	unw_dyn_info_t table = {.format = UNW_INFO_FORMAT_REMOTE_TABLE};

	if (!module || !module->eh_frame_hdr)
		return -UNW_ENOINFO;
	header = (const uint8_t *)(uintptr_t)module->eh_frame_hdr;
	memcpy(&entries, header + 8, sizeof(entries));
	table.start_ip = module->start;
	table.end_ip = module->end;
	table.u.rti.segbase = module->eh_frame_hdr;
	table.u.rti.table_data = module->eh_frame_hdr + TABLE_AT;
	table.u.rti.table_len = entries * 8 / sizeof(unw_word_t);
	return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, info, need_info, arg);
}

static void put_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg)
{
}

static int no_dyn_info(unw_addr_space_t space, unw_word_t *value, void *arg)
{
	return -UNW_ENOINFO;
}

static int access_memory(unw_addr_space_t space, unw_word_t va, unw_word_t *value, int write,
			 void *arg)
{
	const struct unwind_walk *walk = arg;

	return !write && recorded_read(walk->recording, walk->stack, va, value, sizeof(*value))
		       ? 0
		       : -UNW_EINVAL;
}

static int access_register(unw_addr_space_t space, unw_regnum_t reg, unw_word_t *value, int write,
			   void *arg)
{
	const struct unwind_walk *walk = arg;

	if (write || reg < 0 || reg > UNW_X86_64_RIP)
		return -UNW_EREADONLYREG;
	*value = walk->stack->gp[reg];
	return 0;
}

static int no_float(unw_addr_space_t space, unw_regnum_t reg, unw_fpreg_t *value, int write,
		    void *arg)
{
	return -UNW_EINVAL;
}

static int no_resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg)
{
	return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t space, unw_word_t ip, char *name, size_t len,
		   unw_word_t *offset, void *arg)
{
	return -UNW_EINVAL;
}

static unw_accessors_t accessors = {
	.find_proc_info = find_proc_info,
	.put_unwind_info = put_info,
	.get_dyn_info_list_addr = no_dyn_info,
	.access_mem = access_memory,
	.access_reg = access_register,
	.access_fpreg = no_float,
	.resume = no_resume,
	.get_proc_name = no_name,
};

static void *begin(const struct recording *recording)
{
	struct unwind_walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		err(1, "memory");
	walk->recording = recording;
	walk->space = unw_create_addr_space(&accessors, 0);
	if (!walk->space)
		errx(1, "libunwind: no address space");
	return walk;
}

static void end(void *self)
{
	struct unwind_walk *walk = self;

	unw_destroy_addr_space(walk->space);
	free(walk);
}

static void walk_stack(void *self, const struct recorded *stack, struct chain *chain)
{
	struct unwind_walk *walk = self;
	unw_cursor_t cursor;
	unw_word_t pc;

	walk->stack = stack;
	chain->n = 0;
	if (unw_init_remote(&cursor, walk->space, walk))
		return;
	do {
		if (unw_get_reg(&cursor, UNW_REG_IP, &pc) || !pc)
			return;
		chain->addr[chain->n++] = pc;
	} while (chain->n < FRAMES_MAX && unw_step(&cursor) > 0);
}

const struct contender contender_libunwind = {"libunwind", begin, walk_stack, end};
