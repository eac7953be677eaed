/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_KEYS_H
#define UNIPROF_OUTPUT_KEYS_H

/* By what samples are put together: by function, or by what else is known of a frame or a sample. */

#include <stdbool.h>
#include <stddef.h>

enum key {
	KEY_FUNCTION,
	KEY_LINE,  /* "FILE:LINE" of the source */
	KEY_FILE,  /* of the source */
	KEY_IMAGE, /* the file that the code came from */
	KEY_VCPU,
	KEY_STATE, /* of the vCPU */
	KEYS
};

/* In the order of the columns; each at most once. */
struct keys {
	enum key at[KEYS];
	size_t n;
};

/* "function", ...: as in --by, as the head of a column, and in JSON. */
const char *key_text(enum key key);

/* Is it said of a frame? If not, it is of a whole sample. */
bool key_is_of_frame(enum key key);

bool keys_have(const struct keys *keys, enum key key);

/* True if any of them is said of a whole sample. */
bool keys_divide(const struct keys *keys);

/*
 * "function,vcpu": names with commas between them; also as perf calls them (symbol, dso, cpu).
 * False, with *bad at what is wrong, when a name is unknown or there twice.
 */
bool keys_parse(const char *text, struct keys *keys, const char **bad);

#endif
