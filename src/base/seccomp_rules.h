/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_SECCOMP_RULES_H
#define UNIPROF_BASE_SECCOMP_RULES_H

/* The list of system calls; private to base/seccomp.c and its test. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/seccomp.h"

struct seccomp_rule {
	int call;	      /* SCMP_SYS(...) */
	int roles;	      /* who may, enum seccomp_role */
	int argument;	      /* -1: whatever the arguments; else this one must have ... */
	uint64_t mask, value; /* ... (argument & mask) == value */
};

/* Allowed; several rules for one call are alternatives. */
extern const struct seccomp_rule seccomp_allowed[];
extern const size_t seccomp_n_allowed;

/*
 * A look at arguments costs 130 instructions in each call that the sampler
 * makes of the hypervisor, beside 150 for the filter as such. What ioctl()
 * could do beyond sampling is to type into a terminal; where there is none,
 * the sampler's ioctl() passes unseen.
 */
int seccomp_enter_with(enum seccomp_role role, bool terminal);

/*
 * Calls that nothing in this program could lead to: who makes one is no longer
 * this program. Except for a role that is allowed some form of it: there, the
 * others fail.
 */
extern const int seccomp_fatal[];
extern const size_t seccomp_n_fatal;

#endif
