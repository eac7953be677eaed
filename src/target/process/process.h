/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Inside of the target "process": shared by its files alone. */

#include "target/host/threads.h"

/*
 * Kind of unikernel that a process is: "linuxu" (Unikraft), "mirage" (MirageOS for Unix), "spt" (a
 * guest of Solo5's); NULL: none, or its program may not be read.
 */
const char *process_unikernel(pid_t pid);

/* Further files with code are ignored. */
#define PROCESS_FILES_MAX 256

/*
 * The files whose code a process has mapped, its program first. The caller
 * frees each path, and the list, by process_files_free.
 */
struct error *process_files(pid_t pid, struct target_file **files, size_t *n);
void process_files_free(struct target_file *files, size_t n);

/*
 * Finds the names of JIT-compiled code where perf(1) does: perf-PID.map in the /tmp of the
 * process. *path is the caller's, and opened ahead (base/preopen.h); NULL: there is no such
 * file, or neither the user of the process nor root owns it.
 */
struct error *process_jit_names(pid_t pid, char **path);

/* Each architecture of the host has a file for these (regs_*.c). */

/* Reads the registers of a thread that is stopped. False if it cannot be read. */
bool process_regs(pid_t tid, struct regs *regs);

/* Registers that perf events have to give (PERF_SAMPLE_REGS_USER); 0: this processor is not supported. */
extern const uint64_t process_perf_mask;
#define PROCESS_PERF_REGS 20

/* False if perf gave none, or of an unknown width: PERF_SAMPLE_REGS_ABI_... */
bool process_perf_regs(uint64_t abi, const uint64_t values[PROCESS_PERF_REGS], struct regs *regs);

/*
 * Reads threads of a process without stopping them, by perf events
 * (perf_event_open(2)): one interrupts the CPU that a thread is on, when that
 * is asked for, and leaves its registers and a copy of its stack; another
 * leaves the registers with which a thread left its CPU.
 */

struct perf;

/* Reason why this machine lacks it, a sentence; NULL: it does not. */
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

/* True if the thread has not been on a CPU since: its stack, as it was read, is still valid. */
bool perf_still_waits(const struct perf *perf, uint32_t slot, uint64_t moment);

/*
 * Registers and stack of a thread that is on a CPU; waits a millisecond for it at most. False if
 * perf cannot give them; also if other stacks or the red zone are wanted, or more than fits.
 * `memory` (host/memory.h) is for faulting in pages that the kernel has swapped out.
 */
bool perf_read(struct perf *perf, uint32_t slot, int memory, struct vcpu_sample *vcpu);
