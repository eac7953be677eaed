/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_REGS_H
#define UNIPROF_TARGET_PROCESS_REGS_H

#include <stdbool.h>
#include <sys/types.h>

#include "arch/arch.h"

/* Reads the registers of a thread that is stopped. False if it cannot be read. */
bool process_regs(pid_t tid, struct regs *regs);

/* On x86-64, what a perf event is asked for (PERF_REG_X86_...): all but segments other than cs and ss. */
#define PROCESS_PERF_MASK 0xff0fffull
#define PROCESS_PERF_REGS 20

/* Were there any, and of which width? PERF_SAMPLE_REGS_ABI_... */
bool process_perf_regs_known(uint64_t abi);
void process_perf_regs(uint64_t abi, const uint64_t values[PROCESS_PERF_REGS], struct regs *regs);

#endif
