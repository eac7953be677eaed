/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/stacks.h"

/* f at 0x1000, g at 0x2000, h at 0x3000, each 0x100 long; nothing at 0x9000. */
static struct profile_name names[] = {
	{.addr = 0x1010, .offset = 0x10, .name = "f", .kind = FRAME_RETURN},
	{.addr = 0x1020, .offset = 0x20, .name = "f", .kind = FRAME_RETURN},
	{.addr = 0x2000, .offset = 0x00, .name = "g", .kind = FRAME_PC},
	{.addr = 0x2010, .offset = 0x10, .name = "g", .kind = FRAME_RETURN},
	{.addr = 0x3000, .offset = 0x00, .name = "h", .kind = FRAME_PC},
};

static struct profile profile;
static struct namer *namer;

/* Room for every stack that a test adds. */
static struct profile_cell cells[64];

static int set_up(void **state)
{
	memset(cells, 0, sizeof(cells));
	profile = (struct profile){.cells = cells, .names = names, .n_names = 5};
	if (stacks_new(&profile.stacks))
		return -1;
	return namer_new(NULL, &profile, &namer) ? -1 : 0;
}

static int tear_down(void **state)
{
	namer_free(namer);
	stacks_free(profile.stacks);
	return 0;
}

/* A sampled stack of `n` addresses, leaf first; the first is a PC, the others are returns. */
static void sample(uint64_t samples, size_t n, const uint64_t *addrs)
{
	struct frame frames[8];
	uint32_t id;
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){.addr = addrs[i], .kind = i ? FRAME_RETURN : FRAME_PC};
	assert_null(stacks_intern(profile.stacks, frames, n, &id, &whole));
	assert_true(id < 64);
	cells[id].samples += samples;
	cells[id].weight_ns += samples * 10;
}

#define SAMPLE(samples, ...)                                                  \
	sample(samples, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
	       (const uint64_t[]){__VA_ARGS__})

static struct tree *build(bool reverse)
{
	const struct tree_options options = {.reverse = reverse};
	struct tree *tree = NULL;

	assert_null(tree_build(&profile, namer, &options, &tree));
	return tree;
}

/* The node that is reached by names from the root. */
static const struct tree_node *find(const struct tree *tree, const char *path)
{
	const struct tree_node *node = &tree->nodes[0];
	char copy[64], *rest = copy;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *name; (name = strsep(&rest, ";"));) {
		uint32_t child = node->first_child;

		while (child && strcmp(tree->nodes[child].name, name) != 0)
			child = tree->nodes[child].next_sibling;
		if (!child)
			return NULL;
		node = &tree->nodes[child];
	}
	return node;
}

static void frames_of_one_function_are_one_node(void **state)
{
	struct tree *tree;

	SAMPLE(3, 0x2000, 0x1010);
	SAMPLE(4, 0x2000, 0x1020);
	SAMPLE(5, 0x3000, 0x1020);
	tree = build(false);
	assert_int_equal(tree->n, 4);
	assert_int_equal(find(tree, "f")->total.samples, 12);
	assert_int_equal(find(tree, "f")->self.samples, 0);
	assert_int_equal(find(tree, "f;g")->self.samples, 7);
	assert_int_equal(find(tree, "f;g")->self.weight_ns, 70);
	assert_int_equal(find(tree, "f;h")->self.samples, 5);
	assert_int_equal(tree->nodes[0].total.weight_ns, 120);
	assert_int_equal(tree->depth, 2);
	tree_free(tree);
}

static void leaf_first_the_callers_stand_below_the_leaf(void **state)
{
	struct tree *tree;

	SAMPLE(3, 0x2000, 0x1010);
	SAMPLE(4, 0x3000, 0x2010, 0x1010);
	SAMPLE(5, 0x3000, 0x1020);
	tree = build(true);
	assert_int_equal(find(tree, "g")->total.samples, 3);
	assert_int_equal(find(tree, "g;f")->self.samples, 3);
	assert_int_equal(find(tree, "h")->total.samples, 9);
	assert_int_equal(find(tree, "h;g;f")->self.samples, 4);
	assert_int_equal(find(tree, "h;f")->self.samples, 5);
	assert_null(find(tree, "f"));
	assert_int_equal(tree->nodes[0].total.samples, 12);
	tree_free(tree);
}

static void addresses_without_a_name_are_marked(void **state)
{
	struct tree *tree;

	SAMPLE(1, 0x9000, 0x1010);
	tree = build(false);
	assert_int_equal(find(tree, "f;0x9000")->unresolved, 1);
	assert_int_equal(find(tree, "f")->unresolved, 0);
	tree_free(tree);
}

static void stacks_that_were_not_selected_are_not_there(void **state)
{
	struct tree *tree;

	SAMPLE(0, 0x3000, 0x1010);
	SAMPLE(2, 0x2000, 0x1010);
	for (int reverse = 0; reverse < 2; reverse++) {
		tree = build(reverse);
		assert_int_equal(tree->n, 3);
		assert_int_equal(tree->nodes[0].total.samples, 2);
		tree_free(tree);
	}
}

static void samples_without_frames_count_for_the_root(void **state)
{
	struct tree *tree;

	cells[STACK_ROOT] = (struct profile_cell){6, 60};
	SAMPLE(2, 0x2000);
	for (int reverse = 0; reverse < 2; reverse++) {
		tree = build(reverse);
		assert_int_equal(tree->nodes[0].self.samples, 6);
		assert_int_equal(tree->nodes[0].total.weight_ns, 80);
		tree_free(tree);
	}
}

static void an_empty_profile_is_a_root(void **state)
{
	struct tree *tree = build(false);

	assert_int_equal(tree->n, 1);
	tree_free(tree);
	tree = build(true);
	assert_int_equal(tree->n, 1);
	tree_free(tree);
}

#define WITH_PROFILE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PROFILE(frames_of_one_function_are_one_node),
		WITH_PROFILE(leaf_first_the_callers_stand_below_the_leaf),
		WITH_PROFILE(addresses_without_a_name_are_marked),
		WITH_PROFILE(stacks_that_were_not_selected_are_not_there),
		WITH_PROFILE(samples_without_frames_count_for_the_root),
		WITH_PROFILE(an_empty_profile_is_a_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
