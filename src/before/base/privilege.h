/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_PRIVILEGE_H
#define UNIPROF_BASE_PRIVILEGE_H

/*
 * Giving up rights that are no longer needed: handles and files are opened
 * first (base/ahead.h), then this is called, and only then is anything parsed
 * that others wrote. What cannot be given up (no such user in this container,
 * a kernel without filters) is told and no reason to stop.
 *
 * The build chooses between privilege.c and privilege_kept.c, which gives up
 * nothing: sanitizers need what is taken away here.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/seccomp.h"

struct privilege {
	uid_t uid;	  /* what we now run as */
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

/* For a person: what is in force now; and what should be and is not, "" if nothing. */
void privilege_describe(const struct privilege *got, char *text, size_t size);
void privilege_lacks(const struct privilege *got, char *text, size_t size);

/* For `uniprof -V`. */
extern const char privilege_feature[];

#endif
