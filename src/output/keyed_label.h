/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_KEYED_LABEL_H
#define UNIPROF_OUTPUT_KEYED_LABEL_H

/* What frames are called in trees by keys; the lower half of output/keyed.h. */

#include "output/keyed.h"

struct labeller {
	const struct profile *profile;
	struct namer *namer;
	const struct images *images;
	const struct keys *keys;
	struct pool *pool;
	/* What is said of the whole samples, whose frames are named now. */
	uint16_t vcpu;
	uint8_t state;
	/* A name being made; grows. */
	char *text;
	size_t len, room;
};

void labeller_free(struct labeller *labeller);

/* The name of one of the functions that a frame stands for. */
struct error *label_of_function(struct labeller *labeller, const struct stack_node *frame,
				const struct location *function, const char **name);

/* The name of a whole sample, for keys that say nothing of frames. */
struct error *label_of_sample(struct labeller *labeller, const char **name);

#endif
