/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Parts of the image locator: a Linux kernel in its own memory, files of programs as they are on this machine,
 * and the names that processes write of code that they make themselves.
 */

#include "capture/image_locator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "capture/capture.h"
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

/*
 * True if a search can begin from a program: the kernel is at addresses of its own, to which the
 * program's tables lead, or those beside them (KPTI).
 */
static bool is_open_from_program(const struct kernel_locator *kernel, const struct regs *regs)
{
	const struct kernel_space *space = kernel_space(regs);

	return space && !space->anywhere && regs->user && regs->mmu.mode != MMU_OFF &&
	       !kernel->done && kernel->program_tries < TRIES_MAX;
}

void kernel_locator_defer(struct kernel_locator *kernel, const struct regs *from, uint64_t now_ns)
{
	if (from->user)
		kernel->next_program_ns = now_ns + WAIT_NS;
	else
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
	for (uint32_t i = 0; i < sample->vcpus && sample->time_ns >= kernel->next_program_ns; i++)
		if (sample->vcpu[i].online && is_open_from_program(kernel, &sample->vcpu[i].regs))
			return &sample->vcpu[i].regs;
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

	if (from->user)
		kernel->program_tries++;
	else
		kernel->tries++;
	/* Memory that took all steps once takes them again. */
	kernel->done = kernel->tries == TRIES_MAX || memory->budget->exhausted;
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

/*
 * The tables beside those of a program are its kernel's (KPTI) if they lead to the program, too: they
 * show the whole kernel, and the program's own may show a part of it.
 */
static void choose_tables(struct target *target, struct regs *regs)
{
	struct mmu beside = regs->mmu;
	uint64_t at, at_beside;

	mmu_use_kernel(&beside, regs->kernel_root);
	if (regs->user && regs->kernel_root &&
	    target_translate(target, &regs->mmu, regs->pc, &at) &&
	    target_translate(target, &beside, regs->pc, &at_beside) && at == at_beside)
		regs->mmu = beside;
}

struct error *kernel_locator_search(struct kernel_locator *kernel, struct target *target,
				    struct images *images, const struct regs *from,
				    struct budget *budget, bool *added)
{
	struct regs regs = *from;
	struct memory_view view = {.target = target, .regs = &regs};
	const struct guest_memory memory = {&view, memory_view_read, budget};
	struct error *err = NULL;

	*added = false;
	choose_tables(target, &regs);
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
	FREED char *name = NULL;

	TRY(sysroot_adopt(mapping->path, &name));
	if (name)
		TRY(read_copy(programs, name, &copy));
	else if (errno == EACCES && !programs->denied) {
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
	return NULL;
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

/* Where perf(1) finds the names of code that a process makes, and what that is opened by. */
#define MADE_PATH   "/tmp/perf-%u.map"
#define MADE_OPENED "made:perf-%u.map"
#define MADE_NAME   32u

/* Opens the map of a process; -1: it has none, or another user's. */
static int open_map(uint32_t pid, uint32_t owner, struct stat *st)
{
	char path[MADE_NAME];
	int fd;

	snprintf(path, sizeof(path), MADE_PATH, pid);
	fd = sysroot_open_itself(path);
	if (fd < 0)
		return -1;
	if (!fstat(fd, st) && (st->st_uid == owner || st->st_uid == 0))
		return fd;
	close(fd);
	return -1;
}

static struct error *add_made(struct programs *programs, struct program_made *made,
			      struct program_made **out)
{
	char path[MADE_NAME];
	const struct mapped_file mapped = {path, "", made->from, made->from + MAPPED_FILE_SIZE};
	struct stat st;
	int fd;

	*out = NULL;
	fd = programs->n_made < PROGRAM_MADE_MAX ? open_map(made->pid, made->owner, &st) : -1;
	if (fd < 0)
		return NULL;
	close(fd);
	snprintf(path, sizeof(path), MADE_PATH, made->pid);
	made->image = images_files(programs->images);
	TRY(images_add_mapped(programs->images, &mapped, &made->base));
	*out = &programs->made[programs->n_made++];
	**out = *made;
	return NULL;
}

static struct program_made *find_made(struct programs *programs, const struct program_made *like)
{
	for (size_t i = 0; i < programs->n_made; i++) {
		struct program_made *made = &programs->made[i];

		if (made->pid == like->pid && made->root == like->root && made->from == like->from)
			return made;
	}
	return NULL;
}

struct error *programs_find_made(struct programs *programs, const struct program_of *of,
				 const struct guest_memory *kernel, uint64_t root, uint64_t va,
				 struct program_place *kept)
{
	struct program_made like = {.pid = of->thread->pid,
				    .root = root,
				    .from = va / MAPPED_FILE_SIZE * MAPPED_FILE_SIZE};
	struct program_made *made = find_made(programs, &like);
	struct error *err = NULL;

	if (!made && sysroot_is_given() &&
	    guest_threads_owner(of->threads, kernel, of->thread, &like.owner))
		err = add_made(programs, &like, &made);
	if (err || !made)
		return err;
	if (kept->start < made->from)
		kept->start = made->from;
	if (kept->end - made->from > MAPPED_FILE_SIZE)
		kept->end = made->from + MAPPED_FILE_SIZE;
	kept->shift = made->base;
	return NULL;
}

/* True if the process has ended, or runs another program by now, as far as was seen: the map is that one's. */
static bool is_past(const struct programs *programs, const struct program_made *made)
{
	for (size_t i = 0; i < programs->n_made; i++)
		if (&programs->made[i] > made && programs->made[i].pid == made->pid &&
		    programs->made[i].root != made->root)
			return true;
	return false;
}

/* Takes over the descriptor of its map. */
static struct error *name_made(struct programs *programs, const struct program_made *made, int fd)
{
	char name[MADE_NAME];
	struct image_file *map = NULL;
	struct error *err;

	snprintf(name, sizeof(name), MADE_OPENED, made->pid);
	TRY(preopen_adopt(name, fd));
	err = read_copy(programs, name, &map);
	preopen_forget(name);
	if (map && map->symbols && !map->code) {
		images_name_mapped(programs->images, made->image, map->symbols);
		map->symbols = NULL;
	}
	image_file_free(map);
	return err;
}

/* True if the map is another one than was read; one that was read is not read again once reading took long enough. */
static bool is_news(const struct programs *programs, const struct program_made *made,
		    const struct stat *st)
{
	const bool same = st->st_size == made->size && st->st_mtim.tv_sec == made->time.tv_sec &&
			  st->st_mtim.tv_nsec == made->time.tv_nsec;

	return !same && (!made->size || programs->reading_ns <= READING_MAX_NS);
}

struct error *programs_name_made(struct programs *programs)
{
	struct error *err = NULL;

	for (size_t i = 0; i < programs->n_made && !err; i++) {
		struct program_made *made = &programs->made[i];
		const uint64_t began_ns = clock_now_ns();
		struct stat st;
		const int fd = is_past(programs, made) ? -1 : open_map(made->pid, made->owner, &st);

		if (fd >= 0 && is_news(programs, made, &st)) {
			made->size = st.st_size;
			made->time = st.st_mtim;
			err = name_made(programs, made, fd);
			programs->reading_ns += clock_now_ns() - began_ns;
		} else if (fd >= 0) {
			close(fd);
		}
	}
	return err;
}
