/* SPDX-License-Identifier: BSD-3-Clause */

/* Parts of the image locator: a Linux kernel in its own memory, and files of programs as they are on this machine. */

#include "capture/image_locator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/preopen.h"
#include "symbol/images/file.h"
#include "symbol/images/placement.h"
#include "symbol/kernel/kernel.h"

/* A guest that boots may not have its kernel in place yet. */
#define TRIES_MAX 8
#define WAIT_NS	  1000000000ull
/* Searches for modules that were loaded later, at most. */
#define MODULES_TRIES_MAX 64

/* Bytes that trampolines into a kernel have at most, and that any kernel has. */
#define TRAMPOLINE 0x10000u

/* Steps to find out where threads are in a kernel whose names are known: twice what Debian's take. */
#define THREADS_STEPS (1ull << 28)

/*
 * True in the few pages that Linux on arm64 lets programs' tables have of it (KPTI): nothing of the
 * kernel is around them.
 */
static bool is_in_trampoline(struct target *target, const struct regs *regs)
{
	uint8_t byte;

	return regs->isa == ISA_ARM && regs->kernel_root &&
	       !target_read(target, regs, regs->pc + TRAMPOLINE, &byte, 1) &&
	       !target_read(target, regs, regs->pc - TRAMPOLINE, &byte, 1);
}

/* True if the vCPU executes what may be a kernel's code, in no known image. */
static bool is_open(const struct kernel_locator *kernel, struct target *target,
		    const struct images *images, const struct regs *regs)
{
	const struct kernel_space *space = kernel_space(regs);

	if (!space || regs->user)
		return false;
	if (kernel->done)
		return regs->pc >= space->modules && !images_at(images, regs->pc);
	return regs->pc >= space->lowest && !is_in_trampoline(target, regs);
}

void kernel_locator_defer(struct kernel_locator *kernel, uint64_t now_ns)
{
	kernel->next_ns = now_ns + WAIT_NS;
}

const struct regs *kernel_locator_regs(const struct kernel_locator *kernel, struct target *target,
				       const struct images *images, const struct sample *sample)
{
	if (sample->time_ns < kernel->next_ns || !target_can_read(target))
		return NULL;
	if (kernel->done && (!kernel->modules.list || kernel->tries == MODULES_TRIES_MAX))
		return NULL;
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct regs *regs = &sample->vcpu[i].regs;

		if (sample->vcpu[i].online && is_open(kernel, target, images, regs))
			return regs;
	}
	return NULL;
}

static bool is_known(void *ctx, uint64_t start, uint64_t end)
{
	const struct images *images = ctx;

	for (size_t i = 0; i < images_count(images); i++)
		if (images_get(images, i)->start - start < end - start)
			return true;
	return false;
}

static struct error *take_module(void *ctx, struct kernel_module *module)
{
	return images_add_tables(ctx, module->name, module->symbols, module->table);
}

/* A kernel that lacks what that needs is profiled without; its modules have steps of their own. */
static void find_threads(struct kernel_locator *kernel, const struct guest_memory *memory,
			 const struct kallsyms *names)
{
	struct budget budget = *memory->budget;
	const struct guest_memory bounded = {memory->ctx, memory->read, &budget};

	budget.left = THREADS_STEPS;
	error_free(guest_threads_open_linux(&bounded, names, &kernel->threads));
}

static struct error *find_kernel(struct kernel_locator *kernel, const struct guest_memory *memory,
				 struct images *images, const struct regs *from, bool *added)
{
	struct kernel_memory found;
	struct error *err = kernel_memory_find(memory, kernel_space(from), from->pc, &found, added);

	/* Memory that took all steps once takes them again. */
	kernel->done = ++kernel->tries == TRIES_MAX || memory->budget->exhausted;
	if (err || !*added)
		return err;
	kernel->done = true;
	kernel->tries = 0;
	kernel->modules = found.modules;
	err = images_add_tables(images, "the guest's kernel", found.symbols, found.table);
	if (!err && kernel->with_threads)
		find_threads(kernel, memory, found.names);
	kallsyms_free(found.names);
	return err;
}

struct error *kernel_locator_search(struct kernel_locator *kernel, struct target *target,
				    struct images *images, const struct regs *from,
				    struct budget *budget, bool *added)
{
	struct memory_view view = {.target = target, .regs = from};
	const struct guest_memory memory = {&view, memory_view_read, budget};
	struct error *err = NULL;

	*added = false;
	if (!kernel->done)
		err = find_kernel(kernel, &memory, images, from, added);
	else
		kernel->tries++;
	if (err || !kernel->modules.list)
		return err;
	err = kernel_modules_read(&memory, &kernel->modules, images, is_known, take_module);
	if (budget->exhausted)
		kernel->modules.list = 0;
	return err;
}

/* Files of programs, below the user's directory. */

/* Time that reading them may take in all: the guest says which, and goes on meanwhile. */
#define READING_MAX_NS 30000000000ull

/* True if the code at `va`, and around, is the copy's. */
static bool has_code(const struct program_file *file, const struct guest_mapping *mapping,
		     const struct guest_memory *memory, uint64_t va, const struct elf_code *code)
{
	const uint64_t slide = mapping->start - mapping->offset - file->less;
	struct placement_finding finding;

	return placement_check(code, slide, memory, &va, 1, &finding) == PLACEMENT_SAME &&
	       !budget_over(memory->budget);
}

/* Is it the file that the program has mapped? */
static bool is_same(const struct programs *programs, const struct program_file *file,
		    const struct guest_mapping *mapping, const struct guest_memory *memory,
		    uint64_t va, const struct image_file *copy)
{
	const char *id = images_file(programs->images, file->image)->build_id;
	const struct elf_code *code = copy->code;

	if (!code || code->start < file->start || code->end > file->end)
		return false;
	return *id || *copy->build_id ? !strcmp(copy->build_id, id)
				      : has_code(file, mapping, memory, va, code);
}

/* Reads what was opened; NULL: it cannot be. */
static struct error *read_copy(const struct programs *programs, const char *name,
			       struct image_file **out)
{
	const struct image_spec spec = {.path = name, .names = true};
	struct error *err = images_read(programs->images, &spec, out);

	if (!err || err == error_no_memory())
		return err;
	image_locator_say(&programs->notes, false, "%s", err->text);
	error_free(err);
	return NULL;
}

static struct error *find_copy(struct programs *programs, struct program_file *file,
			       const struct guest_mapping *mapping,
			       const struct guest_memory *memory, uint64_t va)
{
	struct image_file *copy = NULL;
	char *name;
	struct error *err = sysroot_adopt(mapping->path, &name);

	if (!err && name)
		err = read_copy(programs, name, &copy);
	else if (!err && errno == EACCES && !programs->denied) {
		programs->denied = true;
		image_locator_say(&programs->notes, true,
				  "%s cannot be read below --sysroot: without rights of root only "
				  "files that all users may read can",
				  mapping->path);
	}
	if (copy && is_same(programs, file, mapping, memory, va, copy)) {
		file->named = file->named || copy->symbols;
		file->copied = true;
		images_take_copy(programs->images, file->image, copy);
	} else if (copy) {
		/* A build id that is not in memory yet may come. */
		image_locator_say(
			&programs->notes, file->head,
			"%s (build id %s) is not what the guest runs there, as far as its memory "
			"tells, and is not used",
			name, *copy->build_id ? copy->build_id : "none");
		image_file_free(copy);
	}
	free(name);
	return err;
}

struct error *programs_find_copy(struct programs *programs, struct program_file *file,
				 const struct guest_mapping *mapping,
				 const struct guest_memory *memory, uint64_t va)
{
	struct error *err;
	uint64_t began_ns;

	if (file->sought || mapping->deleted || !sysroot_is_given() ||
	    programs->reading_ns > READING_MAX_NS)
		return NULL;
	file->sought = true;
	began_ns = clock_now_ns();
	err = find_copy(programs, file, mapping, memory, va);
	programs->reading_ns += clock_now_ns() - began_ns;
	if (programs->reading_ns > READING_MAX_NS)
		image_locator_say(
			&programs->notes, true,
			"no more files of the guest's programs are read: those so far took %llu s",
			READING_MAX_NS / 1000000000);
	return err;
}
