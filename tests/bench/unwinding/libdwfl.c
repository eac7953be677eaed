/* SPDX-License-Identifier: BSD-3-Clause */
#include <elfutils/libdwfl.h>
#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "recorded.h"

struct dwfl_walk {
	const struct recording *recording;
	const struct recorded *stack;
	struct chain *chain;
	Dwfl *dwfl;
};

static int no_debug_file(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
			 const char *file, const char *link, GElf_Word crc, char **found)
{
	return -1;
}

static const Dwfl_Callbacks files = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = no_debug_file,
};

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread)
{
	if (*thread)
		return 0;
	*thread = arg;
	return 1;
}

static bool read_word(Dwfl *dwfl, Dwarf_Addr va, Dwarf_Word *value, void *arg)
{
	const struct dwfl_walk *walk = arg;

	return recorded_read(walk->recording, walk->stack, va, value, sizeof(*value));
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	const struct dwfl_walk *walk = arg;

	return dwfl_thread_state_registers(thread, 0, 17, walk->stack->gp);
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.memory_read = read_word,
	.set_initial_registers = set_registers,
};

static void *begin(const struct recording *recording)
{
	struct dwfl_walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		err(1, "memory");
	walk->recording = recording;
	walk->dwfl = dwfl_begin(&files);
	dwfl_report_begin(walk->dwfl);
	for (size_t i = 0; i < recording->n_modules; i++) {
		const struct module *module = &recording->module[i];

		if (!dwfl_report_elf(walk->dwfl, module->path, module->path, -1, module->bias,
				     false))
			errx(1, "%s: %s", module->path, dwfl_errmsg(-1));
	}
	dwfl_report_end(walk->dwfl, NULL, NULL);
	if (!dwfl_attach_state(walk->dwfl, NULL, 1, &threads, walk))
		errx(1, "%s", dwfl_errmsg(-1));
	return walk;
}

static void end(void *self)
{
	struct dwfl_walk *walk = self;

	dwfl_end(walk->dwfl);
	free(walk);
}

static int each_frame(Dwfl_Frame *frame, void *arg)
{
	struct chain *chain = ((struct dwfl_walk *)arg)->chain;
	Dwarf_Addr pc;

	if (!dwfl_frame_pc(frame, &pc, NULL))
		return DWARF_CB_ABORT;
	chain->addr[chain->n++] = pc;
	return chain->n < FRAMES_MAX ? DWARF_CB_OK : DWARF_CB_ABORT;
}

static void walk_stack(void *self, const struct recorded *stack, struct chain *chain)
{
	struct dwfl_walk *walk = self;

	walk->stack = stack;
	walk->chain = chain;
	chain->n = 0;
	dwfl_getthread_frames(walk->dwfl, 1, each_frame, walk);
}

const struct contender contender_libdwfl = {"libdwfl", begin, walk_stack, end};
