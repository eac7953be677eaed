/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/threads.h"

#include <stdlib.h>

static const struct threads_system *const systems[] = {&threads_linux};

struct guest_threads {
	const struct threads_system *system;
	void *state;
};

const char *guest_thread_state_name(enum guest_thread_state state)
{
	static const char *const names[THREAD_STATES] = {
		[THREAD_RUNNING] = "running", [THREAD_RUNNABLE] = "runnable",
		[THREAD_DISK] = "disk",	      [THREAD_SLEEPING] = "sleeping",
		[THREAD_IDLE] = "idle",	      [THREAD_STOPPED] = "stopped",
		[THREAD_TRACED] = "traced",   [THREAD_PARKED] = "parked",
		[THREAD_ZOMBIE] = "zombie",   [THREAD_DEAD] = "dead",
		[THREAD_OTHER] = "other"};

	return names[state];
}

bool guest_thread_list_add(struct guest_thread_list *list, const struct guest_thread *thread,
			   struct error **err)
{
	if (list->n == GUEST_THREADS_MAX)
		return false;
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct guest_thread *at = realloc(list->at, room * sizeof(*at));

		if (!at) {
			*err = error_no_memory();
			return false;
		}
		list->at = at;
		list->room = room;
	}
	list->at[list->n++] = *thread;
	return true;
}

void guest_thread_list_free(struct guest_thread_list *list)
{
	free(list->at);
	*list = (struct guest_thread_list){0};
}

struct error *guest_threads_open(const struct guest_memory *memory, const struct regs *regs,
				 struct guest_threads **out)
{
	struct guest_threads found = {0};
	struct error *err = NULL;

	*out = NULL;
	for (size_t i = 0; i < sizeof(systems) / sizeof(*systems) && !err && !found.state; i++) {
		found.system = systems[i];
		err = found.system->open(memory, regs, &found.state);
	}
	if (err || !found.state)
		return err;
	*out = malloc(sizeof(**out));
	if (!*out) {
		found.system->close(found.state);
		return error_no_memory();
	}
	**out = found;
	return NULL;
}

void guest_threads_free(struct guest_threads *threads)
{
	if (!threads)
		return;
	threads->system->close(threads->state);
	free(threads);
}

const char *guest_threads_system_name(const struct guest_threads *threads)
{
	return threads->system->name;
}

struct error *guest_threads_list(const struct guest_threads *threads,
				 const struct guest_memory *memory, struct guest_thread_list *out)
{
	struct error *err;

	*out = (struct guest_thread_list){0};
	err = threads->system->list(threads->state, memory, out);
	if (err)
		guest_thread_list_free(out);
	return err;
}

uint32_t guest_threads_cpus(const struct guest_threads *threads, const struct guest_memory *memory)
{
	return threads->system->cpus(threads->state, memory);
}

bool guest_threads_running(const struct guest_threads *threads, const struct guest_memory *memory,
			   uint32_t cpu, struct guest_thread *out)
{
	return threads->system->running(threads->state, memory, cpu, out);
}
