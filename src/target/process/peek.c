/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A thread that is on a CPU is read by a perf event. One that waits, for a CPU
 * or for something else, stands still anyway: it is read as it left its CPU,
 * and if it has not run meanwhile, that holds.
 */

#include "target/process/process.h"

/* It may come and go while we look. */
#define ROUNDS 3

bool process_peek(void *ctx, uint32_t i, struct vcpu_sample *vcpu, struct thread_time *time,
		  bool *on_cpu)
{
	struct process *process = ctx;
	const struct thread *thread = &process->stops.threads.at[i];
	uint64_t moment;

	if (!perf_watches(process->perf, i, thread->tid))
		return false;
	for (int round = 0; round < ROUNDS; round++) {
		*on_cpu = !perf_waits(process->perf, i, &vcpu->regs, &moment);
		if (!*on_cpu)
			process_copy_stacks(process, vcpu, 0);
		else if (!perf_read(process->perf, i, process->memory, vcpu))
			continue;
		thread_time(thread, time);
		if (*on_cpu || perf_still_waits(process->perf, i, moment))
			return true;
	}
	return false;
}
