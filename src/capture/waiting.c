/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

/* A thread that has run while its stack was read is read again so often. */
#define TRIES 4

/* Kernels' stacks are not larger, but for those with KASAN. */
#define STACK_MAX 16384u

/* The view of memory, with the registers that the thread goes on with. */
static struct regs registers_of(const struct waiting *waiting, const struct thread_saved *saved)
{
	struct regs regs = *waiting->regs;

	regs.pc = saved->pc;
	regs.sp = saved->sp;
	regs.fp = saved->fp;
	regs.user = false;
	regs.gp_valid = 0;
	regs.has_elr = false;
	return regs;
}

struct error *waiting_unwind(const struct waiting *waiting, struct guest_thread *thread,
			     struct waiting_stack *out)
{
	uint8_t bytes[STACK_MAX];
	struct window stack = {.bytes = bytes};
	struct tick_entry entry = {0};
	struct thread_saved saved;
	struct error *err = NULL;

	*out = (struct waiting_stack){0};
	for (unsigned i = 0; i < TRIES && !out->read; i++) {
		struct regs regs;
		uint64_t len;

		if (!guest_threads_saved(waiting->threads, waiting->memory, thread, &saved))
			return NULL;
		regs = registers_of(waiting, &saved);
		len = saved.stack_end - saved.sp;
		stack.va = saved.sp;
		stack.len = (uint32_t)target_read(waiting->target, &regs, saved.sp, bytes,
						  len < STACK_MAX ? len : STACK_MAX);
		out->read = stack.len &&
			    guest_threads_stands(waiting->threads, waiting->memory, thread);
		if (out->read)
			err = capture_unwind(waiting->capture, &regs, &stack, &entry);
	}
	out->stack = entry.stack;
	out->end = (enum unwind_end)entry.end;
	return err;
}
