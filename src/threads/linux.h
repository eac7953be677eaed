/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_THREADS_LINUX_H
#define UNIPROF_THREADS_LINUX_H

/* State of threads_linux: found once in a kernel, it leads through its lists again and again. */

#include "threads/threads.h"

/* Members of struct task_struct. */
enum task_member {
	TASK_PID,
	TASK_TGID,
	TASK_COMM,
	TASK_FLAGS,
	TASK_STATE,
	TASK_EXIT_STATE,
	TASK_ON_CPU,
	TASK_CPU,
	TASK_START,
	TASK_CPU_TIME,
	TASK_SWITCHES,
	TASK_SWITCHES_FORCED,
	TASK_TASKS,
	TASK_SIGNAL,
	TASK_THREAD_NODE,
	TASK_LEADER,
	TASK_STACK,
	TASK_MEMBERS
};

/*
 * Where the registers are of a thread that does not run, from the beginning of
 * task_struct. On x86 that has the stack pointer alone: the others are in the
 * frame that it leads to, of which the return address is the last word.
 */
struct linux_saved {
	bool known, framed;
	uint32_t pc, sp, fp;
};

struct linux_threads {
	uint64_t init_task;	   /* begins and ends the list of processes */
	uint32_t at[TASK_MEMBERS]; /* offsets */
	uint32_t span;		   /* bytes of task_struct with all of them */
	uint32_t thread_head;	   /* in signal_struct */
	uint64_t offsets;	   /* of each CPU's own data */
	uint64_t current; /* in that data: the address of the task that runs; 0: not known */
	/* Code that has the stack of the next task, but not yet made it the CPU's. */
	struct {
		uint64_t start, end;
	} switches[2];
	struct linux_saved saved;
	uint64_t online, cpus; /* the mask of CPUs that are on-line; how many there may be */
};

/* Finds all of it by a kernel's names and BTF; freed by threads_linux.close. */
struct error *linux_threads_find(const struct guest_memory *memory, const struct kallsyms *names,
				 void **state);

#endif
