/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Drops rights that are no longer needed: handles and files are opened first
 * (base/preopen.h), then this is called, and only then is anything parsed that
 * others wrote. A right that cannot be dropped (no such user in this container,
 * a kernel without filters) is reported, and no reason to stop.
 * A build with sanitizers drops nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Work that a process still has to do. */
enum seccomp_role {
	SECCOMP_UNFILTERED = 0, /* talks to the network by a library of others: no filter is set */
	SECCOMP_SAMPLER = 1,	/* samples a guest, reads files, writes to open ones */
	SECCOMP_READER = 2,	/* reads files, writes to open ones */
	SECCOMP_GUARD = 4,	/* waits, and lets a guest run again */
	SECCOMP_TRACER = 8, /* a sampler that stops threads by ptrace and changes nothing in them */
	SECCOMP_SCREEN = 16, /* sets the modes of its terminal; together with another */
	SECCOMP_PARSER = 32, /* a reader of one file, which starts no processes */
	SECCOMP_CALLER = 64, /* a tracer that lets threads make calls; together with that */
};

struct privilege {
	uid_t uid;	  /* the user that we now run as */
	int user_error;	  /* errno value: root could not be given up; 0: we are not root */
	int caps_error;	  /* errno value: capabilities are left; 0: none */
	int filter_error; /* errno value: system calls are not filtered; 0: they are */
	bool kept;	  /* nothing was given up: not asked for, or not by this build */
};

/* True if we have rights that others do not have: root's, or capabilities. */
bool privilege_is_special(void);

/*
 * Gives up root (for nobody's user and group), all capabilities, core dumps
 * and being traced (our memory holds that of guests), the gain of rights by
 * exec, and all system calls that `role` does not need. For a sampler,
 * real-time priority and locked memory stay possible. Not to be undone.
 */
void privilege_drop(enum seccomp_role role, struct privilege *got);

/*
 * Locks the memory that is mapped now (mlockall(2)), if RLIMIT_MEMLOCK can be
 * lifted: the stack is locked, too, and a locked stack that has to grow beyond
 * the limit, which counts once the rights are given up, is a SIGSEGV. False
 * with errno: nothing is locked.
 */
bool privilege_lock_memory(void);

/* Text for the user: protections in force; and those that are missing, "" if none. */
void privilege_describe(const struct privilege *got, char *text, size_t size);
void privilege_lacks(const struct privilege *got, char *text, size_t size);

/* For `uniprof -V`. */
extern const char *const privilege_feature;

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
