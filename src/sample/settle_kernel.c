/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/settle_kernel.h"

#include "symbol/kernel_memory.h"

/* A guest that boots may not have its kernel in place yet. */
#define TRIES_MAX 8
#define WAIT_NS	  1000000000ull

/* Where Linux's own code is (Documentation/arch/x86/x86_64/mm.rst), modules included. */
#define KERNEL_LOWEST 0xffffffff80000000ull

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

/* A vCPU that executes what may be a kernel's code. */
static const struct regs *find_regs(const struct sample *sample)
{
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		const struct regs *regs = &sample->vcpu[i].regs;

		if (sample->vcpu[i].online && regs->word == 8 && !regs->user &&
		    regs->pc >= KERNEL_LOWEST)
			return regs;
	}
	return NULL;
}

const struct regs *settle_kernel_from(const struct settle_kernel *kernel,
				      const struct target *target, const struct sample *sample)
{
	if (kernel->done || sample->time_ns < kernel->next_ns || !target->ops->read)
		return NULL;
	return find_regs(sample);
}

struct error *settle_kernel_look(struct settle_kernel *kernel, struct target *target,
				 struct images *images, const struct regs *from, uint64_t now_ns,
				 bool *added)
{
	struct view view = {.target = target, .regs = from};
	const struct guest_memory memory = {&view, read_view};
	struct kernel_memory found;
	struct error *err;

	*added = false;
	kernel->done = ++kernel->tries == TRIES_MAX;
	kernel->next_ns = now_ns + WAIT_NS;
	err = kernel_memory_find(&memory, &found, added);
	if (err || !*added)
		return err;
	kernel->done = true;
	return images_add_tables(images, "the guest's kernel", found.symbols, found.rows);
}
