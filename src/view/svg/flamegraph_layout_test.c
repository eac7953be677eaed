/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tree *tree;
static struct flamegraph_layout *layout;

static int set_up(void **state)
{
	layout = malloc(sizeof(*layout));
	return !layout || tree_new(&tree) ? -1 : 0;
}

static int tear_down(void **state)
{
	tree_free(tree);
	free(layout);
	return 0;
}

static uint32_t add(uint32_t parent, const char *name, uint64_t samples, uint64_t weight_ns)
{
	uint32_t node = 0;

	assert_null(tree_child(tree, parent, name, &node));
	tree->nodes[node].self = (struct profile_cell){.samples = samples, .weight_ns = weight_ns};
	return node;
}

static void expect(const char *name, uint32_t level, uint64_t offset, uint64_t value)
{
	struct flamegraph_frame frame;

	assert_true(flamegraph_layout_next(layout, &frame));
	assert_string_equal(tree->nodes[frame.node].name, name);
	assert_int_equal(frame.level, level);
	assert_int_equal(frame.offset, offset);
	assert_int_equal(frame.value, value);
}

static void expect_end(void)
{
	struct flamegraph_frame frame;

	assert_false(flamegraph_layout_next(layout, &frame));
}

static void start(double width, double min_width)
{
	assert_null(tree_sum(tree));
	flamegraph_layout_init(layout, tree, width, min_width);
}

static void children_stand_side_by_side_in_their_parent(void **state)
{
	uint32_t m = add(0, "main", 5, 50), b = add(m, "b", 2, 20);

	add(b, "x", 1, 10);
	add(b, "y", 4, 40);
	add(m, "a", 3, 30);
	add(0, "other", 1, 10);
	start(1000, 0);
	expect("all", 0, 0, 160);
	expect("main", 1, 0, 150);
	expect("a", 2, 0, 30);
	expect("b", 2, 30, 70);
	expect("x", 3, 30, 10);
	expect("y", 3, 40, 40);
	expect("other", 1, 150, 10);
	expect_end();
	expect_end();
	assert_int_equal(layout->drawn, 7);
	assert_int_equal(layout->levels, 4);
	assert_int_equal(layout->left_out, 0);
}

static void without_weights_samples_count(void **state)
{
	add(add(0, "main", 1, 0), "a", 3, 0);
	start(100, 0);
	assert_true(layout->by_samples);
	expect("all", 0, 0, 4);
	expect("main", 1, 0, 4);
	expect("a", 2, 0, 3);
	expect_end();
}

static void narrow_frames_are_left_out_with_all_on_top(void **state)
{
	uint32_t tiny = add(0, "b", 0, 0);

	add(add(tiny, "c", 0, 0), "d", 1, 9);
	add(0, "a", 1, 991);
	add(0, "z", 1, 1000);
	start(200, 1.0); /* a pixel is ten units */
	expect("all", 0, 0, 2000);
	expect("a", 1, 0, 991);
	expect("z", 1, 991, 1000);
	expect_end();
	assert_int_equal(layout->left_out, 9);
	assert_int_equal(layout->levels, 2);
	assert_false(layout->too_deep);
}

static void a_tree_without_samples_is_its_root(void **state)
{
	add(0, "main", 0, 0);
	start(100, 0);
	expect("all", 0, 0, 0);
	expect_end();
}

static void stacks_that_are_too_deep_are_cut(void **state)
{
	static const char *name = "again";
	uint32_t node = 0;

	for (int i = 0; i < FLAMEGRAPH_MAX_LEVELS + 1000; i++)
		node = add(node, name, 0, 0);
	tree->nodes[node].self = (struct profile_cell){.samples = 1, .weight_ns = 10};
	start(100, 0);
	expect("all", 0, 0, 10);
	for (uint32_t level = 1; level < FLAMEGRAPH_MAX_LEVELS; level++)
		expect("again", level, 0, 10);
	expect_end();
	assert_int_equal(layout->levels, FLAMEGRAPH_MAX_LEVELS);
	assert_true(layout->too_deep);
	assert_int_equal(layout->left_out, 10);
}

static void children_never_reach_out_of_their_parent(void **state)
{
	add(0, "a", 1, UINT64_MAX - 10);
	add(0, "b", 1, UINT64_MAX - 10);
	start(100, 0);
	expect("all", 0, 0, UINT64_MAX);
	expect("a", 1, 0, UINT64_MAX - 10);
	expect("b", 1, UINT64_MAX - 10, 10);
	expect_end();
}

#define WITH_TREE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(children_stand_side_by_side_in_their_parent),
		WITH_TREE(without_weights_samples_count),
		WITH_TREE(narrow_frames_are_left_out_with_all_on_top),
		WITH_TREE(a_tree_without_samples_is_its_root),
		WITH_TREE(stacks_that_are_too_deep_are_cut),
		WITH_TREE(children_never_reach_out_of_their_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
