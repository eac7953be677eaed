/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/image_locator.h"

#include "symbol/kernel/kernel.h"

/* A guest that boots may not have its kernel in place yet. */
#define TRIES_MAX 8
#define WAIT_NS	  1000000000ull
/* Searches for modules that were loaded later, at most. */
#define MODULES_TRIES_MAX 64

/* Steps to find out where threads are in a kernel whose names are known: twice what Debian's take. */
#define THREADS_STEPS (1ull << 28)

/* True if the vCPU executes what may be a kernel's code, in no known image. */
static bool is_open(const struct kernel_locator *kernel, const struct images *images,
		    const struct regs *regs)
{
	const struct kernel_space *space = kernel_space(regs);

	if (!space || regs->user)
		return false;
	if (kernel->done)
		return regs->pc >= space->modules && !images_at(images, regs->pc);
	return regs->pc >= space->lowest;
}

void kernel_locator_defer(struct kernel_locator *kernel, uint64_t now_ns)
{
	kernel->next_ns = now_ns + WAIT_NS;
}

const struct regs *kernel_locator_regs(const struct kernel_locator *kernel,
				       const struct target *target, const struct images *images,
				       const struct sample *sample)
{
	if (sample->time_ns < kernel->next_ns || !target_can_read(target))
		return NULL;
	if (kernel->done && (!kernel->modules.list || kernel->tries == MODULES_TRIES_MAX))
		return NULL;
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct regs *regs = &sample->vcpu[i].regs;

		if (sample->vcpu[i].online && is_open(kernel, images, regs))
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
