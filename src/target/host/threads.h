/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

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

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "target/target.h"

struct thread {
	pid_t tid; /* 0: a free slot */
	/* All below is private to threads.c. */
	int schedstat, stat; /* -1: not there */
	bool seized;	     /* false: let go for good */
	bool stopped;	     /* by us, in this moment */
	bool halted;	     /* by SIGSTOP or the like: only its end is waited for */
	bool asked;	     /* told to stop, has not stopped yet */
	bool wanted;	     /* told to stop, and somebody waits for that */
	bool dead;	     /* a leader that has ended before its threads */
};

struct threads {
	pid_t pid;
	uint32_t n; /* slots */
	struct thread *at;
	bool follow;	  /* new threads are seized */
	bool ended;	  /* the process is gone, or has become another program */
	bool executed;	  /* the process has become another program */
	int status;	  /* of the process as of wait(2), if `ended` and not `executed` */
	bool heard;	  /* SIGCHLD, since the last threads_tend() */
	uint64_t lost;	  /* threads for which there was no slot */
	bool was_blocked; /* SIGCHLD, before threads_new() */
};

/* `n` slots for the threads of process `pid`. */
struct error *threads_new(struct threads *threads, pid_t pid, uint32_t n);

/* Resumes and detaches all threads. */
void threads_free(struct threads *threads);

/*
 * Seizes a thread into the first free slot. ERR_DENIED with a sentence that
 * says why, and what to do; ERR_GUEST when it is gone.
 */
struct error *threads_seize(struct threads *threads, pid_t tid);

/* As threads_seize, into a given free slot. */
struct error *threads_seize_as(struct threads *threads, uint32_t slot, pid_t tid);

/*
 * Detaches all threads for good, and keeps their slots: none can be stopped any more, and only threads_life()
 * sees what halts or ends them. Another tracer may seize them. True: all are detached; else call it again.
 */
bool threads_let_go(struct threads *threads);

/* Detaches a thread and frees its slot. */
void threads_release(struct threads *threads, struct thread *thread);

/* Handles pending events of all threads; cheap if there are none. */
void threads_tend(struct threads *threads);

/* Handles events of the threads until then; returns earlier when a signal comes that is caught. */
void threads_wait(struct threads *threads, uint64_t until_ns);

/*
 * Stops a thread; false if it does not stop within so long: it is gone, halted,
 * in a system call that nothing interrupts, or waits for a CPU. If it stops
 * later, it is let go at once.
 */
bool thread_stop(struct threads *threads, struct thread *thread, uint64_t patience_ns);
void thread_go(struct threads *threads, struct thread *thread);

/* Lets a stopped thread run to the begin or the end of its next system call; false: it is not stopped there. */
bool thread_to_call(struct threads *threads, struct thread *thread, uint64_t patience_ns);

/*
 * Lets all threads go. Those that were told to stop, and have not, are let go
 * once they do, until `until_ns`.
 */
void threads_go(struct threads *threads, uint64_t until_ns);

/* True if a process that is not traced yet is stopped (SIGSTOP). */
bool process_is_halted(pid_t pid);

/* State of the process: it runs, stands still or has ended, and how. */
enum target_life threads_life(struct threads *threads);

/* Scheduler statistics of a thread, read without stopping it. */
struct thread_time {
	bool known;	     /* false: this kernel does not tell */
	uint64_t cpu_ns;     /* used up to now; of a thread that is on a CPU, up to a while ago */
	uint64_t timeslices; /* how often it was put on a CPU */
};

/* Open and close the statistics of threads that are not traced. */
void thread_watch(struct thread *thread, pid_t pid, pid_t tid);
void thread_unwatch(struct thread *thread);

void thread_time(const struct thread *thread, struct thread_time *out);

/*
 * State of a thread, a letter of proc(5); X if it has ended; R (on a CPU, or waits for one) also if
 * it cannot be told.
 */
char thread_letter(const struct thread *thread);

struct stops_seen;

/*
 * Samples whose vCPUs are threads of a process: each is stopped by itself, for
 * as long as its registers and stack are read, and let go before the next one
 * is stopped. A thread that has slept since it was last read is left asleep.
 */
struct stops {
	struct threads threads;
	/*
	 * Reads registers and stacks of thread `i`, which is stopped. False if
	 * there is nothing to be read in this moment. `until_ns`: copies end
	 * then, 0: when they are done.
	 */
	bool (*read)(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns);
	/*
	 * As `read`, without stopping the thread; false: it has to be stopped.
	 * *time: its CPU time before reading; on return, when it was read.
	 * *on_cpu: it was on a CPU then; also if it has to be stopped, where that is certain. NULL: threads are always stopped.
	 */
	bool (*read_nostop)(void *ctx, uint32_t i, struct vcpu_sample *vcpu,
			    struct thread_time *time, bool *on_cpu);
	/*
	 * True if thread `i` is known to want a CPU. False: its state is read from /proc/PID/stat, which takes
	 * longer than any other read of a sample. NULL: that is always read.
	 */
	bool (*wants_cpu)(void *ctx, uint32_t i, const struct thread_time *time);
	void *ctx;
	bool never;		 /* stop none, even where read_nostop does not work */
	struct stops_seen *seen; /* of each thread */
};

/* After threads_new(stops->threads), with `read` and `ctx` set. */
struct error *stops_new(struct stops *stops);
void stops_free(struct stops *stops);

/* As `sample` of target_ops. */
struct error *stops_sample(struct stops *stops, struct sample *sample);

/* Events of a thread, and the memory in which the kernel leaves their records (perf_event_open(2)). */

/* The shortest time after which a clock's event comes (kernel/events/core.c, perf_swevent_start_hrtimer). */
#define PERF_TICK_NS 10000u

struct perf_ring {
	int fd;
	struct perf_event_mmap_page *page; /* NULL: there is none */
	size_t size;			   /* of the records' room, bytes, a power of two */
};

/*
 * Opens an event of a thread, with memory for `size` bytes of records. The caller closes it, after an
 * error, too. ERR_DENIED with a sentence; ERR_GUEST: the thread has ended.
 */
struct error *perf_ring_open(struct perf_event_attr *attr, pid_t tid, size_t size,
			     struct perf_ring *ring);
void perf_ring_close(struct perf_ring *ring);

/* Position where the kernel writes next; of a ring that is written backwards, that of the newest record. */
uint64_t perf_ring_head(const struct perf_ring *ring);

/* Copies bytes from a position of the ring; positions wrap around. */
void perf_ring_copy(const struct perf_ring *ring, uint64_t at, void *to, size_t len);

/*
 * The same from a ring that is written backwards, downwards from position 0: false if fewer than
 * `len` bytes have been written.
 */
bool perf_ring_copy_newest(const struct perf_ring *ring, uint64_t at, void *to, size_t len);
