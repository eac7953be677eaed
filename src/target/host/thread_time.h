/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_THREAD_TIME_H
#define UNIPROF_TARGET_HOST_THREAD_TIME_H

/* What a thread has been doing, as the scheduler tells without stopping it. */

#include "target/host/threads.h"

struct thread_time {
	bool known;	 /* false: this kernel does not tell */
	uint64_t cpu_ns; /* used up to now; of a thread that is on a CPU, up to a while ago */
	uint64_t slices; /* how often it was put on a CPU */
};

/* For threads that are only looked at: opens and closes what this needs. */
void thread_watch(struct thread *thread, pid_t pid, pid_t tid);
void thread_unwatch(struct thread *thread);

void thread_time(const struct thread *thread, struct thread_time *out);

/* Its state, a letter of proc(5): R is on a CPU or waits for one; R, too, if it cannot be told. */
char thread_letter(const struct thread *thread);

#endif
