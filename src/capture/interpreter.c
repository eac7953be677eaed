/* SPDX-License-Identifier: BSD-3-Clause */

/* Interpreters: that of a process that is sampled, and those that programs of a guest run. */

#include "capture/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"

/* Steps to read the functions of one stack, or the list of threads. */
#define READ_STEPS (1ull << 26)

struct interpreter {
	struct target *target;
	struct runtime *runtime;
	struct runtime_copy *copies; /* of each vCPU */
};

/* All threads of a process see the same memory, whatever their registers. */
static size_t read_process(void *ctx, uint64_t va, void *buf, size_t len)
{
	return target_read(ctx, NULL, va, buf, len);
}

static struct error *find_interpreter(struct interpreter *interpreter, struct stand_ins *stand_ins)
{
	struct target *target = interpreter->target;
	const struct guest_memory memory = {target, read_process, NULL};
	FREED uint64_t *code = NULL;

	TRY(ARRAY_NEW(&code, target->n_files + 1));
	for (size_t i = 0; i < target->n_files; i++)
		code[i] = target->files[i].address;
	return runtime_new(&memory, code, target->n_files, stand_ins, &interpreter->runtime);
}

struct error *interpreter_new(struct target *target, struct stand_ins *stand_ins,
			      struct sample *sample, struct interpreter **out)
{
	struct interpreter *interpreter = calloc(1, sizeof(*interpreter));
	struct error *err;

	*out = NULL;
	if (!interpreter)
		return error_no_memory();
	interpreter->target = target;
	err = find_interpreter(interpreter, stand_ins);
	if (err || !interpreter->runtime) {
		interpreter_free(interpreter);
		return err;
	}
	interpreter->copies = calloc(sample->vcpus, sizeof(*interpreter->copies));
	if (!interpreter->copies) {
		interpreter_free(interpreter);
		return error_no_memory();
	}
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].runtime = &interpreter->copies[i];
	sample->request.runtime = interpreter->runtime;
	*out = interpreter;
	return NULL;
}

void interpreter_free(struct interpreter *interpreter)
{
	if (!interpreter)
		return;
	runtime_free(interpreter->runtime);
	free(interpreter->copies);
	free(interpreter);
}

void interpreter_refresh(struct interpreter *interpreter)
{
	struct budget budget = {.left = READ_STEPS};
	const struct guest_memory memory = {interpreter->target, read_process, &budget};

	runtime_refresh(interpreter->runtime, &memory, clock_now_ns());
}

struct error *interpreter_merge(struct interpreter *interpreter, const struct vcpu_sample *vcpu,
				struct runtime_stack *stack)
{
	struct budget budget = {.left = READ_STEPS};
	const struct guest_memory memory = {interpreter->target, read_process, &budget};

	return runtime_merge(interpreter->runtime, &memory, vcpu->runtime, stack);
}

void interpreter_tell(const struct interpreter *interpreter, struct sampler_result *out)
{
	if (!interpreter)
		return;
	snprintf(out->runtime, sizeof(out->runtime), "%s", runtime_name(interpreter->runtime));
	out->merged = runtime_count(interpreter->runtime);
}

/* Steps to look for an interpreter in a program, and to read its threads or the functions of a stack. */
#define PROGRAM_STEPS (1ull << 22)

/* Time between two searches for one, tries in a program, and time for which its mapping is taken to be still there. */
#define SEARCH_NS    100000000ull
#define TRIES_MAX    32u
#define CONFIRMED_NS 100000000ull

struct program_interpreter {
	struct runtime *runtime; /* NULL: not found, or not yet */
	uint64_t root;		 /* of the program's page tables; 0: of none */
	uint32_t pid;
	unsigned tries;
	uint64_t start, file;  /* of the mapping in which it was found */
	uint64_t met_ns;       /* when the mapping was looked up last, */
	uint64_t confirmed_ns; /* and was there */
	uint64_t sampled_ns;   /* of the last sample that has its functions */
};

struct interpreters {
	const struct guest_threads *threads;
	struct stand_ins *stand_ins;
	struct sample *sample;
	struct frames_request request;
	struct runtime_copy *copies; /* of each vCPU */
	struct program_interpreter at[INTERPRETERS_MAX];
	uint64_t next_ns;					  /* no search before */
	char name[sizeof(((struct sampler_result *)0)->runtime)]; /* of the first that was found */
	struct runtime_counts ended; /* of those that are not there any more */
};

struct program_interpreter *interpreters_find(struct interpreters *all, const struct regs *regs)
{
	for (size_t i = 0; all && i < INTERPRETERS_MAX; i++) {
		struct program_interpreter *program = &all->at[i];

		if (program->runtime &&
		    (program->root == regs->mmu.root || program->root == regs->kernel_root))
			return program;
	}
	return NULL;
}

/* frames_request.copy */
static void copy_program_frames(void *ctx, struct vcpu_sample *vcpu,
				const struct guest_memory *memory)
{
	struct interpreters *all = ctx;
	const struct program_interpreter *program = interpreters_find(all, &vcpu->regs);
	struct guest_thread thread;
	struct runtime_view view = {.pages = INTERPRETER_PAGES,
				    .identities = INTERPRETER_IDENTITIES,
				    .stack = &vcpu->stack,
				    .ctx = memory->ctx,
				    .read = memory->read};

	vcpu->runtime->there = false;
	if (!program || !vcpu->thread.there ||
	    !guest_threads_decode(all->threads, &vcpu->thread, &thread) ||
	    thread.pid != program->pid)
		return;
	view.tid = thread.tid;
	runtime_copy_frames(program->runtime, &view, vcpu->runtime);
}

struct error *interpreters_new(const struct guest_threads *threads, struct stand_ins *stand_ins,
			       struct sample *sample, struct interpreters **out)
{
	struct interpreters *all = calloc(1, sizeof(*all));
	struct runtime_copy *copies = calloc(sample->vcpus, sizeof(*copies));

	if (!all || !copies) {
		free(all);
		free(copies);
		return error_no_memory();
	}
	all->threads = threads;
	all->stand_ins = stand_ins;
	all->sample = sample;
	all->request = (struct frames_request){all, copy_program_frames};
	all->copies = copies;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].runtime = &copies[i];
	*out = all;
	return NULL;
}

/* Forgets a program; what it counted stays. */
static void forget(struct interpreters *all, struct program_interpreter *program)
{
	if (program->runtime) {
		const struct runtime_counts counts = runtime_count(program->runtime);

		all->ended.merged += counts.merged;
		all->ended.unproven += counts.unproven;
	}
	runtime_free(program->runtime);
	*program = (struct program_interpreter){0};
}

void interpreters_free(struct interpreters *all)
{
	if (!all)
		return;
	for (size_t i = 0; i < INTERPRETERS_MAX; i++)
		forget(all, &all->at[i]);
	free(all->copies);
	free(all);
}

/* "/usr/bin/python3.11", "/usr/lib/libpython3.12.so.1.0" */
static bool is_interpreter(const struct guest_mapping *mapping)
{
	const char *base = mapping->path ? strrchr(mapping->path, '/') : NULL;

	if (!base || !mapping->executable || mapping->offset > mapping->start)
		return false;
	base++;
	return !strncmp(base, "python3", strlen("python3")) ||
	       !strncmp(base, "libpython3", strlen("libpython3"));
}

/* The program's entry; a new one takes the place of the one that was met the longest ago. */
static struct program_interpreter *entry_of(struct interpreters *all, uint32_t pid, uint64_t root)
{
	struct program_interpreter *oldest = &all->at[0];

	for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
		struct program_interpreter *program = &all->at[i];

		if (program->root == root && program->pid == pid)
			return program;
		/* Its page tables are another program's now. */
		if (program->root == root)
			forget(all, program);
		if (program->met_ns < oldest->met_ns)
			oldest = program;
	}
	forget(all, oldest);
	oldest->root = root;
	oldest->pid = pid;
	return oldest;
}

struct error *interpreters_meet(struct interpreters *all, const struct program_of *of,
				const struct guest_place *place, uint64_t root)
{
	const struct guest_mapping *mapping = &place->mapping;
	const uint64_t first = mapping->start - mapping->offset, now_ns = clock_now_ns();
	struct memory_view view = {of->target, of->regs};
	struct budget budget = {.left = PROGRAM_STEPS};
	const struct guest_memory memory = {&view, memory_view_read, &budget};
	struct program_interpreter *program;

	if (!all || !is_interpreter(mapping))
		return NULL;
	program = entry_of(all, of->thread->pid, root);
	program->met_ns = now_ns;
	if (program->runtime || program->tries == TRIES_MAX || now_ns < all->next_ns)
		return NULL;
	all->next_ns = now_ns + SEARCH_NS;
	program->tries++;
	TRY(runtime_new(&memory, &first, 1, all->stand_ins, &program->runtime));
	if (!program->runtime)
		return NULL;
	program->start = mapping->start;
	program->file = mapping->file;
	program->confirmed_ns = now_ns;
	all->sample->request.frames = &all->request;
	if (!*all->name)
		snprintf(all->name, sizeof(all->name), "%s", runtime_name(program->runtime));
	return NULL;
}

/* True if the program still is the one in which the interpreter was found, by what the system tells. */
static bool is_confirmed(struct interpreters *all, const struct program_of *of,
			 struct program_interpreter *program)
{
	struct memory_view view = {of->target, of->regs};
	struct budget budget = {.left = PROGRAM_STEPS};
	const struct guest_memory kernel = {&view, kernel_view_read, &budget};
	const uint64_t now_ns = clock_now_ns();
	struct guest_place place;

	if (of->thread->pid != program->pid)
		return false;
	if (now_ns - program->confirmed_ns < CONFIRMED_NS)
		return true;
	if (!guest_threads_place(all->threads, &kernel, of->thread, program->start, &place))
		return false;
	if (place.mapping.start != program->start || place.mapping.file != program->file) {
		forget(all, program);
		return false;
	}
	program->met_ns = program->confirmed_ns = now_ns;
	return true;
}

/* The copied stack that has the marker of the innermost entry: a vCPU in the kernel has another one. */
static const struct window *marked_stack(const struct vcpu_sample *vcpu)
{
	const struct runtime_copy *copy = vcpu->runtime;
	uint64_t marker = 0;

	for (uint32_t i = 0; i < copy->n && !marker; i++)
		marker = copy->at[i].marker;
	for (unsigned i = 0; i < vcpu_others(vcpu); i++)
		if (marker - vcpu->others[i].va < vcpu->others[i].len)
			return &vcpu->others[i];
	return &vcpu->stack;
}

struct error *interpreters_merge(struct interpreters *all, const struct program_of *of,
				 const struct vcpu_sample *vcpu, struct runtime_stack *stack)
{
	struct program_interpreter *program = interpreters_find(all, of->regs);
	struct memory_view view = {of->target, of->regs};
	struct budget budget = {.left = PROGRAM_STEPS};
	const struct guest_memory memory = {&view, memory_view_read, &budget};

	if (!program || !is_confirmed(all, of, program))
		return NULL;
	/* Once a sample, of all vCPUs that run the program. */
	if (program->sampled_ns != all->sample->time_ns)
		runtime_refresh(program->runtime, &memory, clock_now_ns());
	program->sampled_ns = all->sample->time_ns;
	stack->window = marked_stack(vcpu);
	stack->others = vcpu->others;
	stack->n_others = vcpu_others(vcpu);
	return runtime_merge(program->runtime, &memory, vcpu->runtime, stack);
}

void interpreters_tell(const struct interpreters *all, struct sampler_result *out)
{
	if (!all || !*all->name)
		return;
	memcpy(out->runtime, all->name, sizeof(out->runtime));
	out->merged = all->ended;
	for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
		struct runtime_counts counts;

		if (!all->at[i].runtime)
			continue;
		counts = runtime_count(all->at[i].runtime);
		out->merged.merged += counts.merged;
		out->merged.unproven += counts.unproven;
	}
}
