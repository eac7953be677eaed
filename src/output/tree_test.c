/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
	tree->nodes[node].self = (struct profile_cell){7, 70};
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

	tree->nodes[m].self = (struct profile_cell){1, 10};
	tree->nodes[a].self = (struct profile_cell){2, 200};
	tree->nodes[b].self = (struct profile_cell){4, 4000};
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

	tree->nodes[child(tree, 0, "a")].self = (struct profile_cell){3, UINT64_MAX - 1};
	tree->nodes[child(tree, 0, "b")].self = (struct profile_cell){4, 5};
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
