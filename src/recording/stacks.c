/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/stacks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/array.h"
#include "base/owned.h"

/* Nodes that the store starts with room for; a power of two. */
#define FIRST_NODES 1024u

/* Chains that were interned lately; a power of two. */
#define RECENT 4096u

_Static_assert(sizeof(struct stack_node) + 2 * sizeof(uint32_t) == STACKS_NODE_BYTES,
	       "a node and two slots");

struct recent {
	uint64_t hash; /* of the whole chain */
	uint32_t leaf; /* STACK_ROOT: empty */
};

struct stacks {
	struct stack_node *nodes;
	uint32_t n;
	uint32_t cap; /* nodes there is room for */
	uint32_t max; /* limit of `cap` */
	/* 2 * cap of them: ids, STACK_ROOT where empty; probed linearly. NULL: nothing was looked for yet */
	uint32_t *slots;
	uint64_t seed;
	struct recent recent[RECENT];
};

/*
 * Frames come from guests and files, which could choose them to collide: hence
 * the seed. Ids do not depend on it.
 */
static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ (hash >> 29);
}

static uint64_t hash_frame(uint64_t hash, uint64_t addr, uint8_t kind, uint8_t trust)
{
	return mix(mix(hash, addr), (uint64_t)kind << 8 | trust);
}

static uint32_t first_slot(const struct stacks *stacks, const struct stack_node *node)
{
	uint64_t hash = mix(stacks->seed, node->parent);

	hash = hash_frame(hash, node->addr, node->kind, node->trust);
	return (uint32_t)(hash >> 32) & (stacks->cap * 2 - 1);
}

static uint64_t random_seed(void)
{
	uint64_t seed;
	struct timespec now;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed))
		return seed;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
}

struct error *stacks_new(struct stacks **out)
{
	struct stacks *stacks;

	TRY(ARRAY_NEW(&stacks, 1));
	stacks->nodes = calloc(FIRST_NODES, sizeof(*stacks->nodes));
	if (!stacks->nodes) {
		stacks_free(stacks);
		return error_no_memory();
	}
	stacks->cap = FIRST_NODES;
	stacks->max = STACKS_MAX_NODES;
	stacks->n = 1;
	stacks->seed = random_seed();
	*out = stacks;
	return NULL;
}

void stacks_free(struct stacks *stacks)
{
	if (!stacks)
		return;
	free(stacks->nodes);
	free(stacks->slots);
	free(stacks);
}

void stacks_limit(struct stacks *stacks, uint64_t bytes)
{
	stacks->max = stacks->cap;
	while (stacks->max < STACKS_MAX_NODES &&
	       (uint64_t)stacks->max * 2 * STACKS_NODE_BYTES <= bytes)
		stacks->max *= 2;
}

uint32_t stacks_count(const struct stacks *stacks)
{
	return stacks->n;
}

const struct stack_node *stacks_node(const struct stacks *stacks, uint32_t id)
{
	return &stacks->nodes[id];
}

size_t stacks_depth(const struct stacks *stacks, uint32_t id)
{
	size_t depth = 0;

	for (; id != STACK_ROOT; id = stacks->nodes[id].parent)
		depth++;
	return depth;
}

/* Slots for all nodes that there is room for. */
static struct error *fill_slots(struct stacks *stacks)
{
	const uint32_t mask = stacks->cap * 2 - 1;
	uint32_t *slots = array_zeros((size_t)stacks->cap * 2, sizeof(*slots));

	if (!slots)
		return error_no_memory();
	free(stacks->slots);
	stacks->slots = slots;
	for (uint32_t id = 1; id < stacks->n; id++) {
		uint32_t slot = first_slot(stacks, &stacks->nodes[id]);

		while (slots[slot] != STACK_ROOT)
			slot = (slot + 1) & mask;
		slots[slot] = id;
	}
	return NULL;
}

static struct error *grow(struct stacks *stacks)
{
	struct stack_node *nodes =
		array_resize(stacks->nodes, (size_t)stacks->cap * 2, sizeof(*nodes));

	if (!nodes)
		return error_no_memory();
	stacks->nodes = nodes;
	stacks->cap *= 2;
	return stacks->slots ? fill_slots(stacks) : NULL;
}

static bool same(const struct stack_node *a, const struct stack_node *b)
{
	return a->addr == b->addr && a->parent == b->parent && a->kind == b->kind &&
	       a->trust == b->trust;
}

struct error *stacks_add(struct stacks *stacks, uint32_t parent, const struct frame *frame,
			 uint32_t *id, bool *whole)
{
	struct stack_node node = {frame->addr, parent, frame->kind, frame->trust};
	uint32_t slot, found;

	*whole = true;
	if (!stacks->slots)
		TRY(fill_slots(stacks));
	slot = first_slot(stacks, &node);
	while ((found = stacks->slots[slot]) != STACK_ROOT) {
		if (same(&stacks->nodes[found], &node)) {
			*id = found;
			return NULL;
		}
		slot = (slot + 1) & (stacks->cap * 2 - 1);
	}
	if (stacks->n == stacks->max) {
		*whole = false;
		return NULL;
	}
	if (stacks->n == stacks->cap) {
		TRY(grow(stacks));
		return stacks_add(stacks, parent, frame, id, whole);
	}
	stacks->nodes[stacks->n] = node;
	stacks->slots[slot] = *id = stacks->n++;
	return NULL;
}

static struct error *full(const struct stacks *stacks)
{
	return error_new(ERR_FAILED, "there are more than %u distinct frames to keep", stacks->max);
}

struct error *stacks_append(struct stacks *stacks, uint32_t parent, const struct frame *frame)
{
	assert(!stacks->slots);
	if (stacks->n == stacks->max)
		return full(stacks);
	if (stacks->n == stacks->cap)
		TRY(grow(stacks));
	stacks->nodes[stacks->n++] =
		(struct stack_node){frame->addr, parent, frame->kind, frame->trust};
	return NULL;
}

bool stacks_may_append(const struct stacks *stacks)
{
	return !stacks->slots;
}

struct error *stacks_child(struct stacks *stacks, uint32_t parent, const struct frame *frame,
			   uint32_t *id)
{
	bool whole;

	TRY(stacks_add(stacks, parent, frame, id, &whole));
	return whole ? NULL : full(stacks);
}

static bool is_chain(const struct stacks *stacks, uint32_t id, const struct frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct stack_node *node = &stacks->nodes[id];

		if (id == STACK_ROOT || node->addr != frames[i].addr ||
		    node->kind != frames[i].kind || node->trust != frames[i].trust)
			return false;
		id = node->parent;
	}
	return id == STACK_ROOT;
}

struct error *stacks_intern(struct stacks *stacks, const struct frame *frames, size_t n,
			    uint32_t *id, bool *whole)
{
	uint64_t hash = stacks->seed;
	struct recent *recent;
	uint32_t leaf = STACK_ROOT;

	*whole = true;
	for (size_t i = 0; i < n; i++)
		hash = hash_frame(hash, frames[i].addr, frames[i].kind, frames[i].trust);
	recent = &stacks->recent[hash >> 32 & (RECENT - 1)];
	if (recent->hash == hash && is_chain(stacks, recent->leaf, frames, n)) {
		*id = recent->leaf;
		return NULL;
	}
	for (size_t i = n; i-- > 0 && *whole;)
		TRY(stacks_add(stacks, leaf, &frames[i], &leaf, whole));
	if (*whole)
		*recent = (struct recent){hash, leaf};
	*id = leaf;
	return NULL;
}

/* A table of the frames that were met: open addressing, three quarters full at most. */
struct met {
	struct met_frame {
		uint32_t hash;	 /* of the frame, most of which is read for nothing else */
		uint32_t number; /* + 1; 0: free */
	} * slots;
	uint32_t room; /* a power of two */
};

/* So many nodes ahead memory is asked for: most of the table is in no cache. */
#define AHEAD 16u

static uint32_t met_hash(const struct stacks *stacks, const struct stack_node *node)
{
	return (uint32_t)(hash_frame(stacks->seed, node->addr, node->kind, 0) >> 32);
}

static bool is_frame_of(const struct stacks *stacks, uint32_t id, const struct stack_node *node)
{
	return stacks->nodes[id].addr == node->addr && stacks->nodes[id].kind == node->kind;
}

/* The slot of a node's frame, or the free one where it is to be added. */
static struct met_frame *find_met(const struct stacks *stacks, const struct met *met,
				  const struct frame_numbers *numbers,
				  const struct stack_node *node)
{
	const uint32_t hash = met_hash(stacks, node);
	uint32_t i = hash & (met->room - 1);

	while (met->slots[i].number &&
	       (met->slots[i].hash != hash ||
		!is_frame_of(stacks, numbers->node[met->slots[i].number - 1], node)))
		i = (i + 1) & (met->room - 1);
	return &met->slots[i];
}

static struct error *grow_met(struct met *met)
{
	const struct met old = *met;

	met->room = old.room ? old.room * 2 : 2 * FIRST_NODES;
	met->slots = array_zeros(met->room, sizeof(*met->slots));
	if (!met->slots) {
		*met = old;
		return error_no_memory();
	}
	for (uint32_t k = 0; k < old.room; k++) {
		uint32_t i = old.slots[k].hash & (met->room - 1);

		if (!old.slots[k].number)
			continue;
		while (met->slots[i].number)
			i = (i + 1) & (met->room - 1);
		met->slots[i] = old.slots[k];
	}
	free(old.slots);
	return NULL;
}

static struct error *number_frame(const struct stacks *stacks, uint32_t id, struct met *met,
				  size_t *room, struct frame_numbers *numbers)
{
	const struct stack_node *node = &stacks->nodes[id];
	struct met_frame *slot;

	if (numbers->n >= met->room / 4 * 3)
		TRY(grow_met(met));
	slot = find_met(stacks, met, numbers, node);
	if (!slot->number) {
		TRY(ARRAY_RESERVE(&numbers->node, room, numbers->n + (size_t)1));
		numbers->node[numbers->n] = id;
		*slot = (struct met_frame){met_hash(stacks, node), ++numbers->n};
	}
	numbers->of_node[id] = slot->number - 1;
	return NULL;
}

struct error *frame_numbers_new(const struct stacks *stacks, struct frame_numbers *out)
{
	struct met met = {0};
	struct error *err;
	size_t room = 0;

	*out = (struct frame_numbers){.of_node =
					      array_resize(NULL, stacks->n, sizeof(*out->of_node))};
	err = out->of_node ? NULL : error_no_memory();
	if (!err)
		out->of_node[STACK_ROOT] = UINT32_MAX;
	for (uint32_t id = STACK_ROOT + 1; id < stacks->n && !err; id++) {
		if (met.room && id + AHEAD < stacks->n) {
			const uint32_t later = met_hash(stacks, &stacks->nodes[id + AHEAD]);

			__builtin_prefetch(&met.slots[later & (met.room - 1)], 1);
		}
		err = number_frame(stacks, id, &met, &room, out);
	}
	free(met.slots);
	if (err)
		frame_numbers_free(out);
	return err;
}

void frame_numbers_free(struct frame_numbers *numbers)
{
	free(numbers->of_node);
	free(numbers->node);
	*numbers = (struct frame_numbers){0};
}

static int by_address(const void *a, const void *b)
{
	const struct frame *x = a, *y = b;

	return COMPARE(x->addr, y->addr) ?: x->kind - y->kind;
}

struct error *distinct_frames(const struct stacks *stacks, struct frame **out, size_t *n)
{
	ENDED_BY(frame_numbers_free) struct frame_numbers numbers = {0};

	TRY(frame_numbers_new(stacks, &numbers));
	*n = numbers.n;
	TRY(ARRAY_NEW(out, *n + 1));
	for (size_t i = 0; i < *n; i++) {
		const struct stack_node *node = &stacks->nodes[numbers.node[i]];

		(*out)[i] = (struct frame){.addr = node->addr, .kind = node->kind};
	}
	qsort(*out, *n, sizeof(**out), by_address);
	return NULL;
}
