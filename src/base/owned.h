/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Variables that give back what they hold as they go out of scope, so that a
 * function can return at any place, as by TRY():
 *
 *	FREED char *text = NULL;
 *	CLOSED int fd = -1;
 *
 *	ENDED_BY(bytes_free) struct bytes text = {0};
 *
 * Each has a value from its declaration on. What a caller gets is taken out
 * first: *out = text; text = NULL.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FREED  __attribute__((cleanup(owned_free)))
#define CLOSED __attribute__((cleanup(owned_close)))

/* Of any type: `end` gets the variable's address. */
#define ENDED_BY(end) __attribute__((cleanup(end)))

/* Defines NAME_end() for ENDED_BY: of a pointer to what NAME_free() frees, or NULL. */
#define OWNED_POINTER(name)                             \
	static inline void name##_end(struct name **at) \
	{                                               \
		name##_free(*at);                       \
	}

/* `at`: a pointer to a pointer of any type, which may be NULL. */
static inline void owned_free(const void *at)
{
	void *held;

	memcpy(&held, at, sizeof(held));
	free(held);
}

/* Keeps errno. A number below zero is no file. */
static inline void owned_close(const int *fd)
{
	const int kept = errno;

	if (*fd >= 0)
		close(*fd);
	errno = kept;
}
