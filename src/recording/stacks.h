/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The stack store: every distinct call chain once, as a calling context tree.
 *
 * A stack is one number, the id of its leaf node; following `parent` leads to
 * the outermost frame and then to STACK_ROOT, which is no frame. A parent's id
 * is always smaller than its children's, so one pass in id order sees parents
 * first and one pass backwards sees children first. Memory grows with distinct
 * chains only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/owned.h"
#include "unwind/unwind.h"

#define STACK_ROOT 0u

/* A hostile guest can make every stack distinct; the store stops growing here (about 0.4 GiB). */
#define STACKS_MAX_NODES (1u << 24)

/* Memory of a store per node that it has room for, bytes. */
#define STACKS_NODE_BYTES 24u

struct stack_node {
	uint64_t addr;
	uint32_t parent;
	uint8_t kind;  /* enum frame_kind */
	uint8_t trust; /* enum frame_trust */
};

struct stacks;

struct error *stacks_new(struct stacks **out);
void stacks_free(struct stacks *stacks);
OWNED_POINTER(stacks)

/*
 * Limits the store to `bytes` of memory; it grows by doubling, and keeps the
 * nodes that it has. It is then full as it is with STACKS_MAX_NODES otherwise.
 */
void stacks_limit(struct stacks *stacks, uint64_t bytes);

/* Number of nodes, the root included: valid ids are 0 to count - 1. */
uint32_t stacks_count(const struct stacks *stacks);

/* Valid until the next call that adds. `id` must be valid. */
const struct stack_node *stacks_node(const struct stacks *stacks, uint32_t id);

/* Number of frames from `id` to the root. */
size_t stacks_depth(const struct stacks *stacks, uint32_t id);

/*
 * The id of the child of `parent` for this frame, added if new. Nodes that
 * differ in address, kind or trust are different nodes.
 */
struct error *stacks_child(struct stacks *stacks, uint32_t parent, const struct frame *frame,
			   uint32_t *id);

/*
 * Adds the next node without looking whether it is there, from a source that has each
 * once. For a store in which nothing was looked for yet.
 */
struct error *stacks_append(struct stacks *stacks, uint32_t parent, const struct frame *frame);
bool stacks_may_append(const struct stacks *stacks);

/* As stacks_child, for callers that go on when the store is full: *whole is then false. */
struct error *stacks_add(struct stacks *stacks, uint32_t parent, const struct frame *frame,
			 uint32_t *id, bool *whole);

/*
 * Stores a chain, leaf first as unwinders give it. When the store is full the
 * id is that of the longest part, from the outermost frame on, that fits, and
 * *whole is false.
 */
struct error *stacks_intern(struct stacks *stacks, const struct frame *frames, size_t n,
			    uint32_t *id, bool *whole);

/* Numbers of the different frames, by address and kind, of all stacks, as they come: 0, 1, 2 ... */
struct frame_numbers {
	uint32_t *of_node; /* [stacks_count]; the root has none */
	uint32_t *node;	   /* [n]: the first node with it */
	uint32_t n;
};

struct error *frame_numbers_new(const struct stacks *stacks, struct frame_numbers *out);
void frame_numbers_free(struct frame_numbers *numbers);

/* The frames of all stacks in order of address and kind, each once; the caller frees *out. */
struct error *distinct_frames(const struct stacks *stacks, struct frame **out, size_t *n);
