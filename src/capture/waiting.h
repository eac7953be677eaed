/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CAPTURE_WAITING_H
#define UNIPROF_CAPTURE_WAITING_H

/*
 * Stacks of threads that do not run, in the kernel: read while the guest runs,
 * without a pause. A thread that had the CPU meanwhile is read again.
 */

#include "capture/capture.h"
#include "threads/threads.h"

struct waiting {
	struct target *target;
	struct capture *capture; /* has taken a tick: images are located */
	const struct guest_threads *threads;
	const struct guest_memory *memory;
	const struct regs *regs; /* of a vCPU that sees the kernel */
};

struct waiting_stack {
	bool read; /* false: it runs, has ended, never stood still or cannot be read; nothing below is set */
	uint32_t stack; /* id in the store of `capture`, frames of its program among them */
	enum unwind_end end;
};

/* *thread is read anew. Errors are those of capture_unwind. */
struct error *waiting_unwind(const struct waiting *waiting, struct guest_thread *thread,
			     struct waiting_stack *out);

#endif
