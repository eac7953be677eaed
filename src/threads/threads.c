/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/threads.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "threads/linux.h"

static const struct threads_system *const systems[] = {&threads_linux};

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
	*err = ARRAY_RESERVE(&list->at, &list->room, list->n + 1);
	if (*err)
		return false;
	list->at[list->n++] = *thread;
	return true;
}

void guest_thread_list_free(struct guest_thread_list *list)
{
	free(list->at);
	*list = (struct guest_thread_list){0};
}

/* Takes found->state over. */
static struct error *keep(const struct guest_threads *found, struct guest_threads **out)
{
	*out = malloc(sizeof(**out));
	if (!*out) {
		found->system->close(found->state);
		return error_no_memory();
	}
	**out = *found;
	return NULL;
}

/* A system that is known by its file. */
struct filed_system {
	const struct threads_system *system; /* NULL: none */
	uint8_t isa;
	struct error *(*find)(const struct guest_memory *memory, const struct image_file *file,
			      uint64_t slide, void **state);
};

static const struct filed_system unikernels[UNIKERNELS] = {
	[UNIKERNEL_UNIKRAFT] = {&threads_unikraft, ISA_X86, unikernel_threads_find},
	[UNIKERNEL_MINIOS] = {&threads_minios, ISA_X86, unikernel_threads_find},
	[UNIKERNEL_FREERTOS] = {&threads_freertos, ISA_ARM, freertos_threads_find}};

struct error *guest_threads_open_images(const struct guest_memory *memory, const struct regs *regs,
					const struct images *images, struct guest_threads **out)
{
	struct guest_threads found = {0};
	struct error *err = NULL;

	*out = NULL;
	if (regs->word != 8)
		return NULL;
	for (size_t i = 0; images && i < images_count(images) && !err && !found.state; i++) {
		const struct image *image = images_get(images, i);
		const struct filed_system *of = &unikernels[image->file->threads.system];

		found.system = of->system;
		if (of->system && of->isa == regs->isa && image->checked)
			err = of->find(memory, image->file, image->slide, &found.state);
	}
	return err || !found.state ? err : keep(&found, out);
}

struct error *guest_threads_open(const struct guest_memory *memory, const struct regs *regs,
				 const struct images *images, struct guest_threads **out)
{
	struct guest_threads found = {0};
	struct error *err = guest_threads_open_images(memory, regs, images, out);

	if (err || *out)
		return err;
	for (size_t i = 0; i < sizeof(systems) / sizeof(*systems) && !err && !found.state; i++) {
		found.system = systems[i];
		err = found.system->open(memory, regs, &found.state);
	}
	return err || !found.state ? err : keep(&found, out);
}

struct error *guest_threads_open_linux(const struct guest_memory *memory,
				       const struct kallsyms *names, struct guest_threads **out)
{
	struct guest_threads found = {.system = &threads_linux};
	struct error *err = linux_threads_find(memory, names, &found.state);

	*out = NULL;
	return err ? err : keep(&found, out);
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

enum guest_thread_turn guest_threads_next(const struct guest_threads *threads,
					  const struct guest_memory *memory,
					  struct guest_thread *thread)
{
	return threads->system->next(threads->state, memory, thread);
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

bool guest_threads_saved(const struct guest_threads *threads, const struct guest_memory *memory,
			 struct guest_thread *thread, struct thread_saved *out)
{
	return threads->system->saved(threads->state, memory, thread, out);
}

bool guest_threads_stands(const struct guest_threads *threads, const struct guest_memory *memory,
			  const struct guest_thread *thread)
{
	return threads->system->stands(threads->state, memory, thread);
}

bool guest_threads_place(const struct guest_threads *threads, const struct guest_memory *memory,
			 const struct guest_thread *thread, uint64_t va, struct guest_place *out)
{
	return threads->system->place &&
	       threads->system->place(threads->state, memory, thread, va, out);
}

bool guest_threads_container(const struct guest_threads *threads, const struct guest_memory *memory,
			     const struct guest_thread *thread, char container[GUEST_PATH_MAX + 1])
{
	return threads->system->container &&
	       threads->system->container(threads->state, memory, thread, container);
}

bool guest_threads_owner(const struct guest_threads *threads, const struct guest_memory *memory,
			 const struct guest_thread *thread, uint32_t *user)
{
	return threads->system->owner &&
	       threads->system->owner(threads->state, memory, thread, user);
}

struct error *guest_threads_mappings(const struct guest_threads *threads,
				     const struct guest_memory *memory,
				     const struct guest_thread *thread,
				     struct guest_mapping_list *out)
{
	struct error *err;

	*out = (struct guest_mapping_list){0};
	err = pool_new(&out->paths);
	if (!err && threads->system->mappings)
		err = threads->system->mappings(threads->state, memory, thread, out);
	if (err)
		guest_mapping_list_free(out);
	return err;
}

void guest_mapping_list_free(struct guest_mapping_list *list)
{
	free(list->at);
	pool_free(list->paths);
	*list = (struct guest_mapping_list){0};
}

const struct guest_mapping *guest_mapping_at(const struct guest_mapping_list *list, uint64_t va)
{
	const size_t behind = list ? ARRAY_UPTO(list->at, list->n, start, va) : 0;
	const struct guest_mapping *at = behind ? &list->at[behind - 1] : NULL;

	return at && va < at->end ? at : NULL;
}

bool guest_threads_request(const struct guest_threads *threads, struct thread_request *out)
{
	return threads->system->request(threads->state, out);
}

bool guest_threads_decode(const struct guest_threads *threads, const struct thread_copy *copy,
			  struct guest_thread *out)
{
	return threads->system->decode(copy, out);
}

bool guest_threads_switches(const struct guest_threads *threads, uint64_t va)
{
	return threads->system->switches(threads->state, va);
}

bool guest_threads_idles(const struct guest_threads *threads, uint64_t va)
{
	return threads->system->idles && threads->system->idles(threads->state, va);
}

uint64_t guest_cpu_own(const struct thread_request *request, const struct guest_memory *memory,
		       uint64_t id, uint32_t cpus)
{
	const size_t size = sizeof(uint64_t);
	uint64_t found = 0, own = 0;
	uint32_t cpu = 0;

	if (!request->ids || !request->cpus)
		return 0;
	while (cpu < cpus && guest_memory_get(memory, request->ids + cpu * size, &found, size) &&
	       found != id)
		cpu++;
	return found == id && cpu < cpus &&
			       guest_memory_get(memory, request->cpus + cpu * size, &own, size)
		       ? own
		       : 0;
}

/* Of a thread that has ended nothing is known, and its process is called as it was. */
static void read_details(const struct guest_threads *threads, const struct guest_memory *memory,
			 const struct guest_thread *thread, struct thread_details *out)
{
	*out = (struct thread_details){0};
	memcpy(out->process, thread->name, sizeof(thread->name));
	if (threads->system->details)
		(void)threads->system->details(threads->state, memory, thread, out);
	else
		snprintf(out->process, sizeof(out->process), "%s", threads->system->name);
	/* The first thread of a process may have another name by now than it had. */
	if (thread->pid == thread->tid)
		memcpy(out->process, thread->name, sizeof(thread->name));
}

struct guest_thread thread_by_address(uint64_t at)
{
	return (struct guest_thread){.at = at,
				     .pid = RECORDED_ID_UNKNOWN,
				     .tid = (uint32_t)(at / THREAD_NUMBER_UNIT),
				     .cpu = -1,
				     .start_ns = THREAD_UNKNOWN,
				     .cpu_ns = THREAD_UNKNOWN,
				     .switches = THREAD_UNKNOWN};
}

bool thread_is_same(const struct guest_thread *a, const struct guest_thread *b)
{
	return a->at == b->at && a->tid == b->tid && !strcmp(a->name, b->name);
}

bool thread_name_read(const struct guest_memory *memory, uint64_t at, uint64_t name, char *out)
{
	const size_t n = name ? guest_memory_read(memory, name, out, THREAD_NAME_MAX) : 0;

	out[n] = '\0';
	if (!*out)
		snprintf(out, THREAD_NAME_MAX + 1, "0x%llx", (unsigned long long)at);
	return n || !name;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return COMPARE(*left, *right);
}

void thread_walk_sort(struct thread_walk *walk)
{
	size_t n = 0;

	qsort(walk->at, walk->n, sizeof(*walk->at), compare);
	for (size_t i = 0; i < walk->n; i++)
		if (!n || walk->at[i] != walk->at[n - 1])
			walk->at[n++] = walk->at[i];
	walk->n = n;
}

struct error *thread_walk_list(const struct thread_walk *walk, const void *state,
			       const struct guest_memory *memory, struct guest_thread_list *out)
{
	const struct filed_threads *own = state;
	struct guest_thread thread;
	struct error *err = NULL;

	for (size_t i = 0; i < walk->n && !err; i++) {
		if (!own->read(own, memory, walk->at[i], &thread))
			out->trouble = "some of the guest's threads make no sense, or changed all "
				       "the time, and are left out";
		else if (!thread.idle)
			(void)guest_thread_list_add(out, &thread, &err);
	}
	return err;
}

/* Searches for a CPU by its own data that may fail: in a guest that keeps none, all of them do. */
#define OWN_TRIES 1000u

struct thread_numbers {
	struct ids *ids;     /* by pid, tid and start */
	struct ids *named;   /* by that and the name */
	struct ids *grouped; /* by that and the group: numbers, from 0 on */
	struct pool *names;
	struct numbered_thread {
		struct recorded_thread thread;
		uint64_t stack, stack_size; /* as of struct thread_details */
	} * at;
	size_t n, room;
	unsigned failed; /* times that no CPU's own data were where they should be */
	uint64_t *own;	 /* of each vCPU: where its CPU's own data are; 0: not known */
};

struct error *thread_numbers_new(uint32_t vcpus, struct thread_numbers **out)
{
	struct thread_numbers *numbers = calloc(1, sizeof(*numbers));
	struct error *err = numbers ? ids_new(&numbers->ids) : error_no_memory();

	if (!err)
		err = ids_new(&numbers->named);
	if (!err)
		err = ids_new(&numbers->grouped);
	if (!err)
		err = pool_new(&numbers->names);
	if (!err) {
		numbers->own = calloc(vcpus, sizeof(*numbers->own));
		err = numbers->own ? NULL : error_no_memory();
	}
	if (err)
		thread_numbers_free(numbers);
	else
		*out = numbers;
	return err;
}

void thread_numbers_free(struct thread_numbers *numbers)
{
	if (!numbers)
		return;
	ids_free(numbers->ids);
	ids_free(numbers->named);
	ids_free(numbers->grouped);
	pool_free(numbers->names);
	free(numbers->at);
	free(numbers->own);
	free(numbers);
}

/* `container`: NULL if it is not known. */
static struct error *add(struct thread_numbers *numbers, const struct guest_thread *thread,
			 const char *name, const struct thread_details *details,
			 const char *container)
{
	struct error *err = ARRAY_RESERVE(&numbers->at, &numbers->room, numbers->n + 1);
	struct numbered_thread *to = err ? NULL : &numbers->at[numbers->n++];

	if (err)
		return err;
	*to = (struct numbered_thread){.thread = {.pid = thread->pid,
						  .tid = thread->tid,
						  .start_ns = thread->start_ns == THREAD_UNKNOWN
								      ? 0
								      : thread->start_ns,
						  .kernel = details->kernel,
						  .idle = thread->idle,
						  .name = name},
				       .stack = details->stack,
				       .stack_size = details->stack_size};
	err = pool_intern(numbers->names, details->process, strlen(details->process),
			  &to->thread.process);
	return err || !container ? err
				 : pool_intern(numbers->names, container, strlen(container),
					       &to->thread.container);
}

/* True if the copy is by the CPU's own data: a program can set the register to something else. */
static bool is_own(struct thread_numbers *numbers, const struct guest_threads *threads,
		   const struct guest_memory *memory, uint32_t vcpu, uint64_t own)
{
	if (!threads->system->is_cpu)
		return true;
	if (!numbers->own[vcpu] && numbers->failed < OWN_TRIES) {
		if (threads->system->is_cpu(threads->state, memory, own))
			numbers->own[vcpu] = own;
		else
			numbers->failed++;
	}
	return numbers->own[vcpu] == own;
}

/* Finds a thread that has a number, or gives it one: it is added then. */
static struct error *number_of(struct thread_numbers *numbers, const struct guest_thread *thread,
			       const char **name, uint32_t *at, bool *added)
{
	const uint64_t who = (uint64_t)thread->pid << 32 | thread->tid;
	uint32_t id = 0;

	TRY(pool_intern(numbers->names, thread->name, strlen(thread->name), name));
	TRY(ids_get(numbers->ids, who, thread->start_ns, &id, added));
	TRY(ids_get(numbers->named, id, (uintptr_t)*name, &id, added));
	return ids_get(numbers->grouped, id, thread->group, at, added);
}

/* ... 0 if it has none. */
static uint32_t known_number(const struct thread_numbers *numbers,
			     const struct guest_thread *thread)
{
	const uint64_t who = (uint64_t)thread->pid << 32 | thread->tid;
	const char *name = pool_find(numbers->names, thread->name, strlen(thread->name));
	uint32_t id, at;

	return name && ids_find(numbers->ids, who, thread->start_ns, &id) &&
			       ids_find(numbers->named, id, (uintptr_t)name, &id) &&
			       ids_find(numbers->grouped, id, thread->group, &at)
		       ? at + 1
		       : 0;
}

struct error *thread_numbers_find(struct thread_numbers *numbers,
				  const struct guest_threads *threads,
				  const struct guest_memory *memory, uint32_t vcpu,
				  const struct thread_copy *copy, uint32_t *number)
{
	struct guest_thread thread;

	*number = 0;
	if (!is_own(numbers, threads, memory, vcpu, copy->own) ||
	    !guest_threads_decode(threads, copy, &thread) ||
	    (threads->system->complete &&
	     !threads->system->complete(threads->state, memory, &thread)))
		return NULL;
	return thread_numbers_add(numbers, threads, memory, &thread, number);
}

struct error *thread_numbers_add(struct thread_numbers *numbers,
				 const struct guest_threads *threads,
				 const struct guest_memory *memory,
				 const struct guest_thread *thread, uint32_t *number)
{
	char container[GUEST_PATH_MAX + 1];
	struct thread_details details;
	bool added = false, contained;
	const char *name;
	uint32_t at;

	*number = 0;
	if (numbers->n == RECORDED_THREADS_MAX) {
		*number = known_number(numbers, thread);
		return NULL;
	}
	TRY(number_of(numbers, thread, &name, &at, &added));
	if (added) {
		read_details(threads, memory, thread, &details);
		contained = guest_threads_container(threads, memory, thread, container);
		TRY(add(numbers, thread, name, &details, contained ? container : NULL));
	}
	*number = at + 1;
	return NULL;
}

bool thread_numbers_on_stack(const struct thread_numbers *numbers, uint32_t number, uint64_t sp)
{
	const struct numbered_thread *at = &numbers->at[number - 1];

	return sp - at->stack < at->stack_size;
}

uint32_t thread_numbers_count(const struct thread_numbers *numbers)
{
	return numbers ? (uint32_t)numbers->n : 0;
}

const struct recorded_thread *thread_numbers_get(const struct thread_numbers *numbers,
						 uint32_t number)
{
	return &numbers->at[number - 1].thread;
}
