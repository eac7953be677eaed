/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_STACK_MEMO_H
#define UNIPROF_OUTPUT_STACK_MEMO_H

/*
 * Remembers what whole stacks of a trace were turned into: traces consist of
 * few different stacks that come again and again. Of constant size; forgets
 * when it is full.
 */

#include "classic/resolve.h"

struct stack_memo;

struct error *stack_memo_new(struct stack_memo **out);
void stack_memo_free(struct stack_memo *memo);

/*
 * The end of the stack that begins at `at`: behind its empty line. NULL when
 * there is none before `end`. `*hash` is for the functions below.
 */
const char *stack_end(const char *at, const char *end, uint64_t *hash);

struct stack_text {
	const char *bytes;
	size_t len;
};

/* False if it is not there. The text is valid until the next stack_memo_add. */
bool stack_memo_find(const struct stack_memo *memo, uint64_t hash, struct stack_text stack,
		     struct stack_text *becomes, struct resolve_result *result);

void stack_memo_add(struct stack_memo *memo, uint64_t hash, struct stack_text stack,
		    struct stack_text becomes, struct resolve_result result);

#endif
