/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_CONFINE_H
#define UNIPROF_CMD_CONFINE_H

/*
 * Where verbs give up their rights: once guest and files are open
 * (base/ahead.h), before anything is parsed that a guest's owner wrote.
 */

#include <stdbool.h>

#include "base/seccomp.h"

struct confine_how {
	bool keep; /* --no-sandbox */
	bool verbose, quiet;
	enum seccomp_role role; /* the target's; 0: SECCOMP_SAMPLER */
	bool screen;		/* it uses its terminal as a screen */
};

/* For verbs that sample a guest. Says what is in force, or what is lacking. */
void confine_sampler(const struct confine_how *how);

/*
 * For verbs that look at recordings: those who have no special rights lose
 * nothing, for them these are ordinary files.
 */
void confine_reader(void);

#endif
