/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_THREADS_H
#define UNIPROF_TARGET_HOST_THREADS_H

/*
 * Threads of another process, seized by ptrace(2), stopped for a moment each
 * and let go. What the process does meanwhile goes on as without us: signals
 * reach their threads, a stop by its administrator (SIGSTOP) holds, new
 * threads are seized, too, if so asked. The kernel lets all of them run when
 * we die, in whatever way and at whatever moment: there is nothing to guard.
 *
 * SIGCHLD is blocked from threads_new() on, and waited for; it is how the
 * kernel says that a thread has something to tell.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "target/target.h"

struct thread {
	pid_t tid; /* 0: a free slot */
	/* The rest is private to threads.c and thread_time.c. */
	int schedstat, stat; /* -1: not there */
	bool stopped;	     /* by us, in this moment */
	bool halted;	     /* by SIGSTOP or the like: it listens for its end */
	bool asked;	     /* told to stop, and has not done so yet */
	bool wanted;	     /* ... and somebody waits for it */
	bool dead;	     /* a leader that has ended before its threads */
};

struct threads {
	pid_t pid;
	uint32_t n; /* slots */
	struct thread *at;
	bool follow;	  /* new threads are seized */
	bool ended;	  /* the process is gone, or has become another program */
	bool executed;	  /* ... the latter */
	int status;	  /* of the process as of wait(2), if `ended` and not `executed` */
	uint64_t lost;	  /* threads for which there was no slot */
	bool was_blocked; /* SIGCHLD, before */
};

/* `n` slots for the threads of process `pid`. */
struct error *threads_new(struct threads *threads, pid_t pid, uint32_t n);

/* Lets go and detaches all. */
void threads_free(struct threads *threads);

/*
 * Seizes a thread into the first free slot. ERR_DENIED with a sentence about
 * why and what to do; ERR_GUEST when it is gone.
 */
struct error *threads_seize(struct threads *threads, pid_t tid);

/* The same into a slot of one's choice, which is free. */
struct error *threads_seize_as(struct threads *threads, uint32_t slot, pid_t tid);

/* Detaches a thread and frees its slot. */
void threads_release(struct threads *threads, struct thread *thread);

/* Deals with whatever threads have to tell; cheap if that is nothing. */
void threads_tend(struct threads *threads);

/* Does so until then; returns earlier when a signal comes that is caught. */
void threads_wait(struct threads *threads, uint64_t until_ns);

/*
 * Stops a thread; false if it does not stop within so long: it is gone, halted,
 * in a system call that nothing interrupts, or waits for a CPU. If it stops
 * later, it is let go at once.
 */
bool thread_stop(struct threads *threads, struct thread *thread, uint64_t patience_ns);
void thread_go(struct threads *threads, struct thread *thread);

/* All that are left have been halted by somebody. */
bool threads_are_halted(const struct threads *threads);

/* Is a process that is not traced yet stopped (SIGSTOP)? */
bool process_is_halted(pid_t pid);

/* How the process ended or stands. */
enum target_life threads_life(struct threads *threads);

/* Why the kernel has refused to let us trace the process, and what to do; never NULL. */
struct error *threads_cannot_trace(pid_t pid);

#endif
