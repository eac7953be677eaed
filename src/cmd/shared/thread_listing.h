/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_THREAD_LISTING_H
#define UNIPROF_CMD_SHARED_THREAD_LISTING_H

/* Lists the threads of a guest, with the view of its memory that has its kernel. */

#include "target/target.h"
#include "threads/threads.h"

/* Threads of a guest, and the one of each CPU. */
struct thread_listing {
	struct target *target;
	struct sample *sample;
	struct regs regs; /* of the vCPU whose view of memory is read */
	struct budget budget;
	struct guest_memory memory;
	struct guest_threads *threads;
	struct guest_thread_list list;
	struct guest_thread *running; /* [cpus] */
	bool *is_running;	      /* [cpus] */
	uint32_t cpus;
};

/*
 * Samples an open target until a vCPU shows the kernel, and lists what it has.
 * Must not be moved afterwards. ERR_GUEST: no system that is known runs there.
 */
struct error *thread_listing_take(struct target *target, struct thread_listing *out);

/* May be called again. */
void thread_listing_free(struct thread_listing *listing);

#endif
