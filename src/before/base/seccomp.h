/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_SECCOMP_H
#define UNIPROF_BASE_SECCOMP_H

/*
 * A filter on system calls that stays until the process ends, and holds for
 * the processes that it starts. The build chooses between seccomp.c
 * (libseccomp) and seccomp_none.c; the list of what is allowed, and why, is
 * in seccomp_rules.c.
 *
 * What is not on the list fails with EPERM, so that a C library that tries
 * something new can do without it. What only an intruder would try ends the
 * process at once; a guest that is paused then is the guard's (target/guard.h).
 */

#include <stdbool.h>

/* What a process still has to do. */
enum seccomp_role {
	SECCOMP_SAMPLER = 1, /* samples a guest, reads files, writes to what is open */
	SECCOMP_READER = 2,  /* reads files, writes to what is open */
	SECCOMP_GUARD = 4,   /* waits, and lets a guest run again */
	SECCOMP_TRACER = 8, /* a sampler that stops threads by ptrace and changes nothing in them */
	SECCOMP_SCREEN = 16, /* sets the modes of its terminal; together with another */
};

/* Sets the filter; no_new_privs must be set. 0, or a negative errno: there is none then. */
int seccomp_enter(enum seccomp_role role);

/* For `uniprof -V`: "filters system calls", ... */
extern const char seccomp_feature[];

#endif
