/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/settle_kernel.h"

#include "symbol/kernel/memory.h"

/* A guest that boots may not have its kernel in place yet. */
#define TRIES_MAX 8
#define WAIT_NS	  1000000000ull
/* So often modules are looked for that were loaded later. */
#define MODULES_TRIES_MAX 64

/* What one vCPU shows. */
struct view {
	struct target *target;
	const struct regs *regs;
};

static size_t read_view(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct view *view = ctx;

	return view->target->ops->read(view->target, view->regs, va, buf, len);
}

/* Does it execute what may be a kernel's code, of which nothing is known? */
static bool is_open(const struct settle_kernel *kernel, const struct images *images,
		    const struct regs *regs)
{
	const struct kernel_space *space = kernel_space(regs);

	if (!space || regs->user)
		return false;
	if (kernel->done)
		return regs->pc >= space->modules && !images_at(images, regs->pc);
	return regs->pc >= space->lowest;
}

const struct regs *settle_kernel_from(const struct settle_kernel *kernel,
				      const struct target *target, const struct images *images,
				      const struct sample *sample)
{
	if (sample->time_ns < kernel->next_ns || !target->ops->read)
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
	return images_add_tables(ctx, module->name, module->symbols, module->rows);
}

static struct error *look_for_kernel(struct settle_kernel *kernel,
				     const struct guest_memory *memory, struct images *images,
				     const struct regs *from, bool *added)
{
	struct kernel_memory found;
	struct error *err = kernel_memory_find(memory, kernel_space(from), from->pc, &found, added);

	kernel->done = ++kernel->tries == TRIES_MAX;
	if (err || !*added)
		return err;
	kernel->done = true;
	kernel->tries = 0;
	kernel->modules = found.modules;
	return images_add_tables(images, "the guest's kernel", found.symbols, found.rows);
}

struct error *settle_kernel_look(struct settle_kernel *kernel, struct target *target,
				 struct images *images, const struct regs *from, uint64_t now_ns,
				 bool *added)
{
	struct view view = {.target = target, .regs = from};
	const struct guest_memory memory = {&view, read_view};
	struct error *err = NULL;

	*added = false;
	kernel->next_ns = now_ns + WAIT_NS;
	if (!kernel->done)
		err = look_for_kernel(kernel, &memory, images, from, added);
	else
		kernel->tries++;
	if (err || !kernel->modules.list)
		return err;
	return kernel_modules_read(&memory, &kernel->modules, images, is_known, take_module);
}
