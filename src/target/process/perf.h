/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_PERF_H
#define UNIPROF_TARGET_PROCESS_PERF_H

/*
 * Reads threads of a process without stopping them, by perf events
 * (perf_event_open(2)): one interrupts the CPU that a thread is on, when that
 * is asked for, and leaves its registers and a copy of its stack; another
 * leaves the registers with which a thread left its CPU. The build chooses
 * between perf.c and perf_none.c.
 */

#include "target/host/thread_time.h"

struct perf;

/* What this machine lacks for it, a sentence; NULL: nothing. */
const char *perf_missing(void);

/* For as many slots of threads. */
struct error *perf_new(uint32_t slots, struct perf **out);
void perf_free(struct perf *perf);

/* Watches a thread from now on; one that has ended is none. ERR_DENIED with a sentence if that is refused. */
struct error *perf_watch(struct perf *perf, uint32_t slot, pid_t tid);

/* Is the thread in the slot one that is watched? */
bool perf_watches(const struct perf *perf, uint32_t slot, pid_t tid);

/*
 * The registers of a thread that is not on a CPU now. False if it is, or has
 * not left one since it was watched. *moment is for perf_still_waits().
 */
bool perf_waits(const struct perf *perf, uint32_t slot, struct regs *regs, uint64_t *moment);

/* Has it not been on a CPU since? What was read of its stack holds then. */
bool perf_still_waits(const struct perf *perf, uint32_t slot, uint64_t moment);

/*
 * Registers and stack of a thread that is on a CPU; waits a millisecond for it
 * at most. False if they are not to be had in this way: then, too, if other
 * stacks are wanted, or more than fits. `memory` (host/memory.h) is for
 * bringing pages that the kernel has put away.
 */
bool perf_read(struct perf *perf, uint32_t slot, int memory, struct vcpu_sample *vcpu);

#endif
