/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Leads a traced uniprof through one turn of its sampling loop, which begins
 * and ends with a sleep. A stretch is the code between two system calls.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MOST_STRETCHES 16

/* Begins to trace a process that samples, and takes it to the begin of a turn. */
void stepper_to_loop(pid_t pid);

/*
 * Lets system calls pass until a stretch begins, the first being 0. False if
 * the turn ended before that.
 */
bool stepper_to_stretch(pid_t pid, unsigned stretch);

/* Goes to where the next system call is about to be made. */
void stepper_to_call(pid_t pid);

/* Single-steps, `most` instructions at most; returns how many. */
uint64_t stepper_step(pid_t pid, uint64_t most);
