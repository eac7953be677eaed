/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/stacks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct stacks *new_store(void)
{
	struct stacks *stacks;

	assert_null(stacks_new(&stacks));
	return stacks;
}

static uint32_t intern(struct stacks *stacks, const struct frame *frames, size_t n)
{
	uint32_t id;
	bool whole;

	assert_null(stacks_intern(stacks, frames, n, &id, &whole));
	assert_true(whole);
	return id;
}

static void assert_is(const struct stacks *stacks, uint32_t id, const struct frame *frames,
		      size_t n)
{
	assert_int_equal(stacks_depth(stacks, id), n);
	for (size_t i = 0; i < n; i++) {
		const struct stack_node *node = stacks_node(stacks, id);

		assert_int_equal(node->addr, frames[i].addr);
		assert_int_equal(node->kind, frames[i].kind);
		assert_int_equal(node->trust, frames[i].trust);
		assert_true(node->parent < id);
		id = node->parent;
	}
	assert_int_equal(id, STACK_ROOT);
}

static void test_a_new_store_has_the_root(void **state)
{
	struct stacks *stacks = new_store();

	assert_int_equal(stacks_count(stacks), 1);
	assert_int_equal(stacks_depth(stacks, STACK_ROOT), 0);
	assert_int_equal(intern(stacks, NULL, 0), STACK_ROOT);
	assert_int_equal(stacks_count(stacks), 1);
	stacks_free(stacks);
	stacks_free(NULL);
}

static void test_chains_share_their_outer_frames(void **state)
{
	const struct frame a[] = {{1, FRAME_PC, 0}, {2, FRAME_RETURN, 0}, {3, FRAME_RETURN, 0}};
	const struct frame b[] = {{9, FRAME_PC, 0}, {2, FRAME_RETURN, 0}, {3, FRAME_RETURN, 0}};
	struct stacks *stacks = new_store();
	uint32_t id_a = intern(stacks, a, 3), id_b = intern(stacks, b, 3);

	assert_int_equal(stacks_count(stacks), 1 + 3 + 1);
	assert_is(stacks, id_a, a, 3);
	assert_is(stacks, id_b, b, 3);
	assert_int_equal(stacks_node(stacks, id_a)->parent, stacks_node(stacks, id_b)->parent);
	assert_int_equal(intern(stacks, a, 3), id_a);
	assert_int_equal(intern(stacks, a + 1, 2), stacks_node(stacks, id_a)->parent);
	assert_int_equal(stacks_count(stacks), 5);
	stacks_free(stacks);
}

static void test_frames_differ_by_address_kind_and_trust(void **state)
{
	const struct frame frames[] = {{0, FRAME_PC, TRUST_SURE},
				       {0, FRAME_RETURN, TRUST_SURE},
				       {0, FRAME_PC, TRUST_GUESS},
				       {UINT64_C(1) << 63, FRAME_PC, TRUST_SURE}};
	struct stacks *stacks = new_store();
	uint32_t ids[4];

	for (size_t i = 0; i < 4; i++)
		ids[i] = intern(stacks, &frames[i], 1);
	assert_int_equal(stacks_count(stacks), 5);
	for (size_t i = 0; i < 4; i++) {
		uint32_t id;

		assert_null(stacks_child(stacks, STACK_ROOT, &frames[i], &id));
		assert_int_equal(id, ids[i]);
		assert_is(stacks, ids[i], &frames[i], 1);
	}
	/* An equal frame below another parent is another node. */
	assert_null(stacks_child(stacks, ids[0], &frames[0], &ids[1]));
	assert_int_equal(ids[1], 5);
	stacks_free(stacks);
}

/* Frames that differ only in their callers. */
static void test_a_recursion_has_a_node_for_each_frame(void **state)
{
	enum { DEPTH = 1000 };
	struct frame frames[DEPTH];

	for (int i = 0; i < DEPTH; i++)
		frames[i] = (struct frame){4096, FRAME_RETURN, TRUST_SURE};
	for (int round = 0; round < 20; round++) {
		struct stacks *stacks = new_store();

		for (uint32_t depth = 1; depth <= DEPTH; depth++)
			assert_int_equal(intern(stacks, frames, depth), depth);
		assert_int_equal(stacks_depth(stacks, DEPTH), DEPTH);
		assert_int_equal(stacks_count(stacks), DEPTH + 1);
		stacks_free(stacks);
	}
}

static void make_chain(uint32_t i, struct frame *frames, size_t n)
{
	for (size_t depth = 0; depth < n; depth++)
		frames[depth] = (struct frame){(uint64_t)(i >> depth) * 64 + depth,
					       depth ? FRAME_RETURN : FRAME_PC, i >> depth & 1};
}

static void test_ids_stay_while_the_store_grows(void **state)
{
	enum { CHAINS = 100000, DEPTH = 20 };
	struct stacks *stacks = new_store();
	uint32_t *ids = malloc(CHAINS * sizeof(*ids)), count;
	struct frame frames[DEPTH];

	assert_non_null(ids);
	for (uint32_t i = 0; i < CHAINS; i++) {
		make_chain(i, frames, DEPTH);
		ids[i] = intern(stacks, frames, DEPTH);
	}
	count = stacks_count(stacks);
	for (uint32_t i = 0; i < CHAINS; i++) {
		make_chain(i, frames, DEPTH);
		assert_int_equal(intern(stacks, frames, DEPTH), ids[i]);
		assert_is(stacks, ids[i], frames, DEPTH);
	}
	assert_int_equal(stacks_count(stacks), count);
	free(ids);
	stacks_free(stacks);
}

static void test_ids_depend_on_the_order_alone(void **state)
{
	struct stacks *one = new_store(), *two = new_store();
	struct frame frames[5];

	for (uint32_t i = 0; i < 5000; i++) {
		make_chain(i * 7 % 3001, frames, 5);
		assert_int_equal(intern(one, frames, 5), intern(two, frames, 5));
	}
	stacks_free(one);
	stacks_free(two);
}

static void test_a_full_store_keeps_the_outermost_part(void **state)
{
	struct stacks *stacks = new_store();
	struct frame chain[] = {{1, FRAME_PC, 0}, {2, FRAME_RETURN, 0}, {3, FRAME_RETURN, 0}};
	struct frame frame = {.kind = FRAME_RETURN};
	struct error *err;
	uint32_t id, outer;
	bool whole;

	/* Appended: nothing is looked for until the store is full. */
	assert_null(stacks_append(stacks, STACK_ROOT, chain + 2));
	assert_null(stacks_append(stacks, 1, chain + 1));
	outer = 2;
	while (stacks_count(stacks) < STACKS_MAX_NODES) {
		frame.addr += 16;
		assert_null(stacks_append(stacks, STACK_ROOT, &frame));
	}
	assert_null(stacks_intern(stacks, chain, 3, &id, &whole));
	assert_false(whole);
	assert_int_equal(id, outer);
	assert_null(stacks_intern(stacks, chain, 1, &id, &whole));
	assert_false(whole);
	assert_int_equal(id, STACK_ROOT);
	/* Nodes that were added before are still found. */
	assert_int_equal(intern(stacks, chain + 1, 2), outer);
	assert_int_equal(intern(stacks, &frame, 1), STACKS_MAX_NODES - 1);
	err = stacks_child(stacks, outer, &frame, &id);
	assert_non_null(err);
	error_free(err);
	assert_int_equal(stacks_count(stacks), STACKS_MAX_NODES);
	stacks_free(stacks);
}

static void test_a_store_with_a_limit_is_full_earlier(void **state)
{
	struct stacks *stacks = new_store();
	struct frame frame = {.kind = FRAME_RETURN};
	bool whole = true;
	uint32_t id, n = 0;

	stacks_limit(stacks, 100000);
	while (whole && n < 10000) {
		frame.addr += 16;
		assert_null(stacks_intern(stacks, &frame, 1, &id, &whole));
		n += whole;
	}
	assert_int_equal(stacks_count(stacks), n + 1);
	assert_true(stacks_count(stacks) * STACKS_NODE_BYTES <= 100000);
	assert_true(stacks_count(stacks) * STACKS_NODE_BYTES > 100000 / 2 - STACKS_NODE_BYTES);
	/* A lower limit removes no nodes. */
	stacks_limit(stacks, 0);
	frame.addr = 16;
	assert_int_equal(intern(stacks, &frame, 1), 1);
	stacks_free(stacks);
}

/* Many frames, each in two stacks and of two kinds. */
static void test_distinct_frames_come_once_and_in_order(void **state)
{
	const size_t addresses = 100000;
	struct stacks *stacks = new_store();
	struct frame *frames;
	size_t n;

	for (size_t i = addresses; i-- > 0;)
		for (uint8_t kind = FRAME_PC; kind <= FRAME_RETURN; kind++) {
			const struct frame chain[] = {{i * 16, kind, TRUST_SURE},
						      {i * 16, kind, TRUST_GUESS}};

			intern(stacks, chain, 2);
		}
	assert_null(distinct_frames(stacks, &frames, &n));
	assert_int_equal(n, 2 * addresses);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(frames[i].addr, i / 2 * 16);
		assert_int_equal(frames[i].kind, FRAME_PC + i % 2);
	}
	free(frames);
	stacks_free(stacks);
}

static void test_appended_nodes_are_found_by_those_that_look(void **state)
{
	const size_t n = 5000;
	struct stacks *stacks = new_store();
	struct frame frame = {0x1000, FRAME_RETURN, TRUST_SURE};
	uint32_t id;

	assert_true(stacks_may_append(stacks));
	for (size_t i = 0; i < n; i++) {
		frame.addr = 0x1000 + i;
		assert_null(stacks_append(stacks, (uint32_t)(i / 2), &frame));
	}
	assert_int_equal(stacks_count(stacks), n + 1);
	for (size_t i = 0; i < n; i++) {
		frame.addr = 0x1000 + i;
		assert_null(stacks_child(stacks, (uint32_t)(i / 2), &frame, &id));
		assert_int_equal(id, i + 1);
	}
	assert_int_equal(stacks_count(stacks), n + 1);
	assert_false(stacks_may_append(stacks));
	stacks_free(stacks);
}

static void test_a_store_without_stacks_has_no_frames(void **state)
{
	struct stacks *stacks = new_store();
	struct frame *frames;
	size_t n;

	assert_null(distinct_frames(stacks, &frames, &n));
	assert_int_equal(n, 0);
	free(frames);
	stacks_free(stacks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_new_store_has_the_root),
		cmocka_unit_test(test_chains_share_their_outer_frames),
		cmocka_unit_test(test_frames_differ_by_address_kind_and_trust),
		cmocka_unit_test(test_a_recursion_has_a_node_for_each_frame),
		cmocka_unit_test(test_ids_stay_while_the_store_grows),
		cmocka_unit_test(test_ids_depend_on_the_order_alone),
		cmocka_unit_test(test_a_full_store_keeps_the_outermost_part),
		cmocka_unit_test(test_a_store_with_a_limit_is_full_earlier),
		cmocka_unit_test(test_distinct_frames_come_once_and_in_order),
		cmocka_unit_test(test_appended_nodes_are_found_by_those_that_look),
		cmocka_unit_test(test_a_store_without_stacks_has_no_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
