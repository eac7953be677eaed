/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/distinct.h"

#include <stdlib.h>

static int by_address(const void *a, const void *b)
{
	const struct frame *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->kind - y->kind;
}

struct error *distinct_frames(const struct stacks *stacks, struct frame **out, size_t *n)
{
	uint32_t nodes = stacks_count(stacks) - 1;
	struct frame *frames = calloc(nodes ? nodes : 1, sizeof(*frames));
	size_t kept = 0;

	if (!frames)
		return error_no_memory();
	for (uint32_t i = 0; i < nodes; i++) {
		const struct stack_node *node = stacks_node(stacks, i + 1);

		frames[i].addr = node->addr;
		frames[i].kind = node->kind;
	}
	qsort(frames, nodes, sizeof(*frames), by_address);
	for (uint32_t i = 0; i < nodes; i++)
		if (!kept || by_address(&frames[kept - 1], &frames[i]))
			frames[kept++] = frames[i];
	*out = frames;
	*n = kept;
	return NULL;
}
