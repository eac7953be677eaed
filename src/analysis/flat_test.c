/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/flat.h"

static const char main_name[] = "main", f_name[] = "f", g_name[] = "g";

/* Adds a stack with this many samples, each of 10 ns. */
static void add_stack(struct tree *tree, const char *const *path, size_t n, uint64_t samples)
{
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++)
		assert_null(tree_child(tree, at, path[i], &at));
	tree->nodes[at].self.samples += samples;
	tree->nodes[at].self.weight_ns += 10 * samples;
}

static const struct flat_row *find(const struct flat *flat, const char *name)
{
	for (size_t i = 0; i < flat->n; i++)
		if (!strcmp(flat->rows[i].name, name))
			return &flat->rows[i];
	return NULL;
}

static struct flat *example(struct tree **tree)
{
	const char *const one[] = {main_name, f_name}, *const two[] = {main_name, g_name},
			  *const recursive[] = {main_name, f_name, g_name, f_name, f_name};
	struct flat *flat;

	assert_null(tree_new(tree));
	add_stack(*tree, one, 2, 3);
	add_stack(*tree, two, 2, 5);
	add_stack(*tree, recursive, 5, 7);
	assert_null(tree_sum(*tree));
	assert_null(flat_new(*tree, &flat));
	return flat;
}

static void self_and_total_add_up(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_int_equal(flat->n, 3);
	assert_int_equal(find(flat, "main")->self.samples, 0);
	assert_int_equal(find(flat, "main")->total.samples, 15);
	assert_int_equal(find(flat, "f")->self.samples, 10);
	assert_int_equal(find(flat, "g")->self.samples, 5);
	assert_int_equal(find(flat, "g")->total.weight_ns, 120);
	flat_free(flat);
	tree_free(tree);
}

static void recursion_counts_once_in_the_total(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_int_equal(find(flat, "f")->total.samples, 10);
	flat_free(flat);
	tree_free(tree);
}

static void rows_come_by_self_or_by_total(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_string_equal(flat->rows[0].name, "f");
	flat_sort_by_total(flat);
	assert_string_equal(flat->rows[0].name, "main");
	assert_string_equal(flat->rows[2].name, "f");
	flat_free(flat);
	tree_free(tree);
}

static void an_empty_tree_has_no_rows(void **state)
{
	struct tree *tree;
	struct flat *flat;

	assert_null(tree_new(&tree));
	assert_null(tree_sum(tree));
	assert_null(flat_new(tree, &flat));
	assert_int_equal(flat->n, 0);
	flat_free(flat);
	tree_free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(self_and_total_add_up),
		cmocka_unit_test(recursion_counts_once_in_the_total),
		cmocka_unit_test(rows_come_by_self_or_by_total),
		cmocka_unit_test(an_empty_tree_has_no_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
