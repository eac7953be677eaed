/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_STOPS_H
#define UNIPROF_TARGET_HOST_STOPS_H

/*
 * Samples whose vCPUs are threads of a process: each is stopped by itself, for
 * as long as its registers and stack are read, and let go before the next one
 * is stopped. A thread that has slept since it was last read is left asleep.
 */

#include "target/host/thread_time.h"
#include "target/host/threads.h"

struct stops_seen;

struct stops {
	struct threads threads;
	/*
	 * Reads registers and stacks of thread `i`, which is stopped. False if
	 * there is nothing to be read in this moment. `until_ns`: copies end
	 * then, 0: when they are done.
	 */
	bool (*read)(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns);
	/*
	 * The same without stopping it; false: it has to be stopped. *time: what
	 * the thread had done when it was looked at, and then, when it was read.
	 * *on_cpu: it was on a CPU then. NULL: threads are always stopped.
	 */
	bool (*peek)(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		     bool *on_cpu);
	void *ctx;
	struct stops_seen *seen; /* of each thread */
};

/* After threads_new(stops->threads), with `read` and `ctx` set. */
struct error *stops_new(struct stops *stops);
void stops_free(struct stops *stops);

/* As `sample` of target_ops. */
struct error *stops_sample(struct stops *stops, struct sample *sample);

#endif
