/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/functions.h"

static const char main_name[] = "main", f_name[] = "f", g_name[] = "g", h_name[] = "h",
		  fg_name[] = "fg";

static void add_stack(struct tree *tree, const char *const *path, size_t n, uint64_t samples)
{
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++)
		assert_null(tree_child(tree, at, path[i], &at));
	tree->nodes[at].self.samples += samples;
	tree->nodes[at].self.weight_ns += 10 * samples;
}

#define STACK(tree, samples, ...)                           \
	add_stack(tree, (const char *const[]){__VA_ARGS__}, \
		  sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), samples)

static struct tree *example(void)
{
	struct tree *tree;

	assert_null(tree_new(&tree));
	STACK(tree, 1, main_name, f_name, g_name);
	STACK(tree, 2, main_name, h_name, f_name);
	STACK(tree, 4, main_name, h_name, f_name, g_name);
	STACK(tree, 8, f_name, g_name, f_name, h_name); /* recursive, and called by nobody */
	STACK(tree, 16, main_name, h_name);
	assert_null(tree_sum(tree));
	return tree;
}

/* Samples of the child that is reached by names from the root; total, 0 if there is none. */
static uint64_t total_of(const struct tree *tree, size_t n, const char *const *path)
{
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++) {
		at = tree->nodes[at].first_child;
		while (at && strcmp(tree->nodes[at].name, path[i]))
			at = tree->nodes[at].next_sibling;
		if (!at)
			return 0;
	}
	return tree->nodes[at].total.samples;
}

#define TOTAL(tree, ...)                                                            \
	total_of(tree, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), \
		 (const char *const[]){__VA_ARGS__})

static void test_a_stack_counts_once_for_callers_and_for_callees(void **state)
{
	struct tree *tree = example();
	struct callers_callees around;

	assert_null(callers_callees_build(tree, f_name, &around));
	assert_int_equal(around.total.samples, 15);
	assert_int_equal(around.total.weight_ns, 150);
	assert_int_equal(around.self.samples, 2);
	assert_int_equal(around.callers->nodes[0].total.samples, 15);
	assert_int_equal(around.callees->nodes[0].total.samples, 15);
	assert_int_equal(around.callers->nodes[0].self.samples, 8); /* those that nobody calls */
	callers_callees_free(&around);
	tree_free(tree);
}

static void test_callers_are_nearest_first_and_callees_merge_over_all_callers(void **state)
{
	struct tree *tree = example();
	struct callers_callees around;

	assert_null(callers_callees_build(tree, f_name, &around));
	assert_int_equal(TOTAL(around.callers, main_name), 1);
	assert_int_equal(TOTAL(around.callers, h_name), 6);
	assert_int_equal(TOTAL(around.callers, h_name, main_name), 6);
	assert_int_equal(TOTAL(around.callees, g_name), 13);
	assert_int_equal(TOTAL(around.callees, h_name), 0);
	callers_callees_free(&around);
	tree_free(tree);
}

static void test_a_function_that_calls_itself_is_among_its_callees(void **state)
{
	struct tree *tree = example();
	struct callers_callees around;

	assert_null(callers_callees_build(tree, f_name, &around));
	assert_int_equal(TOTAL(around.callees, g_name, f_name, h_name), 8);
	assert_int_equal(TOTAL(around.callers, f_name), 0);
	callers_callees_free(&around);
	tree_free(tree);
}

static void test_a_function_is_found_by_its_name_or_a_part_that_only_it_has(void **state)
{
	struct tree *tree = example();
	struct error *err;
	const char *name;
	uint32_t child;

	assert_null(tree_child(tree, 0, fg_name, &child));
	assert_null(callers_callees_find(tree, "f", &name));
	assert_ptr_equal(name, f_name);
	assert_null(callers_callees_find(tree, "mai", &name));
	assert_ptr_equal(name, main_name);
	assert_null(callers_callees_find(tree, "fg", &name));
	assert_ptr_equal(name, fg_name);
	assert_null(callers_callees_find(tree, "^m.*n$", &name));
	assert_ptr_equal(name, main_name);
	err = callers_callees_find(tree, "*(", &name);
	assert_int_equal(err->kind, ERR_USAGE);
	error_free(err);
	err = callers_callees_find(tree, "i_am_not_there", &name);
	assert_int_equal(err->kind, ERR_USAGE);
	error_free(err);
	tree_free(tree);
}

static void test_an_ambiguous_part_names_the_candidates(void **state)
{
	static const char one[] = "read_all", two[] = "read_one";
	struct tree *tree;
	struct error *err;
	const char *name;

	assert_null(tree_new(&tree));
	STACK(tree, 1, one, two);
	err = callers_callees_find(tree, "read", &name);
	assert_int_equal(err->kind, ERR_USAGE);
	assert_non_null(strstr(err->text, one));
	assert_non_null(strstr(err->text, two));
	error_free(err);
	tree_free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stack_counts_once_for_callers_and_for_callees),
		cmocka_unit_test(test_callers_are_nearest_first_and_callees_merge_over_all_callers),
		cmocka_unit_test(test_a_function_that_calls_itself_is_among_its_callees),
		cmocka_unit_test(test_a_function_is_found_by_its_name_or_a_part_that_only_it_has),
		cmocka_unit_test(test_an_ambiguous_part_names_the_candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
