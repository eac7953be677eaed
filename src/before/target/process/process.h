/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_PROCESS_H
#define UNIPROF_TARGET_PROCESS_PROCESS_H

/* Inside of the target "process": shared by its files alone. */

#include "target/host/stops.h"
#include "target/process/perf.h"

struct process {
	struct target base;
	struct stops stops;
	int memory;
	struct perf *perf;	   /* NULL: threads are stopped by ptrace */
	struct error *why_stopped; /* ... because; NULL: they are not */
	char advice[256];
};

/* Stacks of a thread that stands still, by its registers; `until_ns` as of `read` of struct stops. */
void process_copy_stacks(struct process *process, struct vcpu_sample *vcpu, uint64_t until_ns);

/* As `peek` of struct stops, by process->perf. */
bool process_peek(void *process, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		  bool *on_cpu);

#endif
