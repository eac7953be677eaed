/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/stacks.h"

static uint32_t child(struct tree *tree, uint32_t parent, const char *name)
{
	uint32_t node = 0;

	assert_null(tree_child(tree, parent, name, &node));
	assert_int_not_equal(node, 0);
	return node;
}

static struct tree *new_tree(void)
{
	struct tree *tree = NULL;

	assert_null(tree_new(&tree));
	return tree;
}

static void the_same_name_under_the_same_parent_is_one_node(void **state)
{
	static const char *main_name = "main", *work = "work";
	struct tree *tree = new_tree();
	uint32_t m = child(tree, 0, main_name);
	uint32_t w = child(tree, m, work);

	assert_int_equal(child(tree, 0, main_name), m);
	assert_int_equal(child(tree, m, work), w);
	assert_int_not_equal(child(tree, 0, work), w);
	assert_int_equal(tree->n, 4);
	tree_free(tree);
}

static void a_recursion_is_a_chain(void **state)
{
	static const char *name = "again";
	struct tree *tree = new_tree();
	uint32_t node = 0;

	for (int i = 0; i < 50000; i++)
		node = child(tree, node, name);
	tree->nodes[node].self = (struct profile_cell){.samples = 7, .weight_ns = 70};
	assert_null(tree_sum(tree));
	assert_int_equal(tree->n, 50001);
	assert_int_equal(tree->depth, 50000);
	assert_int_equal(tree->nodes[0].total.samples, 7);
	tree_free(tree);
}

static void totals_hold_a_node_and_all_below_it(void **state)
{
	struct tree *tree = new_tree();
	uint32_t m = child(tree, 0, "main"), a = child(tree, m, "a"), b = child(tree, m, "b");

	tree->nodes[m].self = (struct profile_cell){.samples = 1, .weight_ns = 10};
	tree->nodes[a].self = (struct profile_cell){.samples = 2, .weight_ns = 200};
	tree->nodes[b].self = (struct profile_cell){.samples = 4, .weight_ns = 4000};
	assert_null(tree_sum(tree));
	assert_int_equal(tree->nodes[m].total.samples, 7);
	assert_int_equal(tree->nodes[m].total.weight_ns, 4210);
	assert_int_equal(tree->nodes[m].self.samples, 1);
	assert_int_equal(tree->nodes[0].total.weight_ns, 4210);
	assert_int_equal(tree->nodes[a].total.samples, 2);
	assert_int_equal(tree->depth, 2);
	tree_free(tree);
}

static void totals_that_do_not_fit_stay_at_the_most(void **state)
{
	struct tree *tree = new_tree();

	tree->nodes[child(tree, 0, "a")].self =
		(struct profile_cell){.samples = 3, .weight_ns = UINT64_MAX - 1};
	tree->nodes[child(tree, 0, "b")].self = (struct profile_cell){.samples = 4, .weight_ns = 5};
	assert_null(tree_sum(tree));
	assert_int_equal(tree->nodes[0].total.samples, 7);
	assert_true(tree->nodes[0].total.weight_ns == UINT64_MAX);
	tree_free(tree);
}

static void children_are_in_order_of_their_names(void **state)
{
	static const char *names[] = {"m", "z", "0x10", "a", "B", "\xff", "aa"};
	static const char *sorted[] = {"0x10", "B", "a", "aa", "m", "z", "\xff"};
	struct tree *tree = new_tree();
	uint32_t top = child(tree, 0, "top"), node;
	size_t i = 0;

	for (size_t k = 0; k < 7; k++)
		child(tree, top, names[k]);
	assert_null(tree_sum(tree));
	for (node = tree->nodes[top].first_child; node; node = tree->nodes[node].next_sibling)
		assert_string_equal(tree->nodes[node].name, sorted[i++]);
	assert_int_equal(i, 7);
	assert_int_equal(tree->nodes[0].first_child, top);
	assert_int_equal(tree->nodes[top].next_sibling, 0);
	tree_free(tree);
}

static void many_children_are_all_found_again(void **state)
{
	enum { N = 20000 };
	static char names[N][8];
	static uint32_t ids[N];
	struct tree *tree = new_tree();
	uint32_t n = 0, node;

	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "f%d", i);
		ids[i] = child(tree, i % 7 ? ids[i / 7] : 0, names[i]);
	}
	assert_null(tree_sum(tree));
	for (int i = 0; i < N; i++)
		assert_int_equal(child(tree, i % 7 ? ids[i / 7] : 0, names[i]), ids[i]);
	for (uint32_t i = 0; i < tree->n; i++)
		for (node = tree->nodes[i].first_child; node; node = tree->nodes[node].next_sibling)
			n++;
	assert_int_equal(n, N);
	tree_free(tree);
}

static void an_empty_tree_sums_to_nothing(void **state)
{
	struct tree *tree = new_tree();

	assert_null(tree_sum(tree));
	assert_int_equal(tree->n, 1);
	assert_int_equal(tree->depth, 0);
	assert_int_equal(tree->nodes[0].total.samples, 0);
	assert_string_equal(tree->nodes[0].name, "all");
	tree_free(tree);
}

/* f at 0x1000, g at 0x2000, h at 0x3000, each 0x100 long; nothing at 0x9000. */
static struct profile_name names[] = {
	{.addr = 0x1010, .offset = 0x10, .name = "f", .kind = FRAME_RETURN},
	{.addr = 0x1020, .offset = 0x20, .name = "f", .kind = FRAME_RETURN},
	{.addr = 0x2000, .offset = 0x00, .name = "g", .kind = FRAME_PC},
	{.addr = 0x2010, .offset = 0x10, .name = "g", .kind = FRAME_RETURN},
	{.addr = 0x3000, .offset = 0x00, .name = "h", .kind = FRAME_PC},
};

static struct profile profile;
static struct symbolizer *symbolizer;

/* Room for every stack that a test adds. */
static struct profile_cell cells[64];

static int set_up(void **state)
{
	memset(cells, 0, sizeof(cells));
	profile = (struct profile){.cells = {.at = cells}, .names = names, .n_names = 5};
	if (stacks_new(&profile.stacks))
		return -1;
	return symbolizer_new(NULL, &profile, &symbolizer) ? -1 : 0;
}

static int tear_down(void **state)
{
	symbolizer_free(symbolizer);
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

	assert_null(tree_build(&profile, symbolizer, &options, &tree));
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

	cells[STACK_ROOT] = (struct profile_cell){.samples = 6, .weight_ns = 60};
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
		cmocka_unit_test(the_same_name_under_the_same_parent_is_one_node),
		cmocka_unit_test(a_recursion_is_a_chain),
		cmocka_unit_test(totals_hold_a_node_and_all_below_it),
		cmocka_unit_test(totals_that_do_not_fit_stay_at_the_most),
		cmocka_unit_test(children_are_in_order_of_their_names),
		cmocka_unit_test(many_children_are_all_found_again),
		cmocka_unit_test(an_empty_tree_sums_to_nothing),
		WITH_PROFILE(frames_of_one_function_are_one_node),
		WITH_PROFILE(leaf_first_the_callers_stand_below_the_leaf),
		WITH_PROFILE(addresses_without_a_name_are_marked),
		WITH_PROFILE(stacks_that_were_not_selected_are_not_there),
		WITH_PROFILE(samples_without_frames_count_for_the_root),
		WITH_PROFILE(an_empty_profile_is_a_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
