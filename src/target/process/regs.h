/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_PROCESS_REGS_H
#define UNIPROF_TARGET_PROCESS_REGS_H

#include <stdbool.h>
#include <sys/types.h>

#include "arch/arch.h"

/* Reads the registers of a thread that is stopped. False if it cannot be read. */
bool process_regs(pid_t tid, struct regs *regs);

#endif
