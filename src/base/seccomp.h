/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_SECCOMP_H
#define UNIPROF_BASE_SECCOMP_H

/*
 * A filter on system calls that stays until the process ends, and holds for
 * the processes that it starts. The list of allowed calls, with reasons, is in
 * seccomp.c; a build without libseccomp has none.
 *
 * Calls that are not on the list fail with EPERM, so that a C library that
 * tries something new can do without it. Calls that only an intruder would make
 * end the process at once; if a guest is paused then, the guard unpauses it
 * (target/guard.h).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Work that a process still has to do. */
enum seccomp_role {
	SECCOMP_UNFILTERED = 0, /* talks to the network by a library of others: no filter is set */
	SECCOMP_SAMPLER = 1,	/* samples a guest, reads files, writes to open ones */
	SECCOMP_READER = 2,	/* reads files, writes to open ones */
	SECCOMP_GUARD = 4,	/* waits, and lets a guest run again */
	SECCOMP_TRACER = 8, /* a sampler that stops threads by ptrace and changes nothing in them */
	SECCOMP_SCREEN = 16, /* sets the modes of its terminal; together with another */
	SECCOMP_PARSER = 32, /* a reader of one file, which starts no processes */
};

/* Sets the filter; no_new_privs must be set. 0, or a negative errno: there is none then. */
int seccomp_enter(enum seccomp_role role);

/* For `uniprof -V`: "filters system calls", ... */
extern const char seccomp_feature[];

/* The list, for seccomp.c and its test. */
struct seccomp_rule {
	int call;	      /* SCMP_SYS(...) */
	int roles;	      /* that may call it, enum seccomp_role */
	int argument;	      /* -1: whatever the arguments; else this one must have ... */
	uint64_t mask, value; /* ... (argument & mask) == value */
};

/* Allowed; several rules for one call are alternatives. */
extern const struct seccomp_rule seccomp_allowed[];
extern const size_t seccomp_n_allowed;

/*
 * Checking arguments costs 130 instructions in each hypercall of the sampler,
 * beside 150 for the filter as such. Beyond sampling, ioctl() could only type
 * into a terminal: without a terminal, the sampler's ioctl() is not checked.
 */
int seccomp_enter_with(enum seccomp_role role, bool terminal);

/*
 * Calls that nothing in this program leads to: a process that makes one has
 * been taken over, and is killed. Exception: a role that is allowed some form
 * of the call; its other forms fail.
 */
extern const int seccomp_fatal[];
extern const size_t seccomp_n_fatal;

#endif
