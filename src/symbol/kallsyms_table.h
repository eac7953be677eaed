/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_KALLSYMS_TABLE_H
#define UNIPROF_SYMBOL_KALLSYMS_TABLE_H

/*
 * What kallsyms is made of; private to kallsyms.c and kallsyms_find.c. A name
 * is a string of bytes, each of which stands for a token of some characters;
 * the first character of a name is its type, as nm prints it. Addresses are
 * 32-bit offsets from a base.
 */

#include "symbol/kernel/kallsyms.h"

#define KALLSYMS_TOKENS 256
/* The longest name with its type (KSYM_NAME_LEN of Linux 6.1; 128 before). */
#define KALLSYMS_NAME_MAX 512
/* More symbols than this in no kernel. */
#define KALLSYMS_MAX (1u << 22)
/* There is a marker (the offset of a name) for so many names. */
#define KALLSYMS_STRIDE 256

struct kallsyms {
	uint64_t base;
	bool percpu; /* CONFIG_KALLSYMS_ABSOLUTE_PERCPU: offsets below 0 count down, others are absolute */
	uint32_t n;
	int32_t *offset; /* [n] */
	uint8_t *names;	 /* n times: length, tokens */
	size_t names_len;
	uint16_t index[KALLSYMS_TOKENS]; /* where a token begins in `tokens` */
	char *tokens;			 /* each with a NUL behind it */
	size_t tokens_len;
};

/*
 * The length in tokens of the name at `at`, and where its tokens begin; false
 * if it does not fit. A length above 127 takes two bytes (Linux 6.1).
 */
static inline bool kallsyms_name_at(const uint8_t *names, size_t len, size_t at, size_t *first,
				    size_t *n)
{
	if (at >= len)
		return false;
	*n = names[at++];
	if (*n & 0x80) {
		if (at >= len)
			return false;
		*n = (*n & 0x7f) | (size_t)names[at++] << 7;
	}
	*first = at;
	return *n && *n <= KALLSYMS_NAME_MAX && *n <= len - at;
}

#endif
