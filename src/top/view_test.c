/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "top/top.h"

static struct summary_row rows[] = {{.name = "f"}, {.name = "g"}, {.name = "h"}};
static const struct summary shown = {.rows = rows, .n_rows = 3};
static struct live_view view;

static int set_up(void **state)
{
	live_view_init(&view);
	live_view_set_vcpus(&view, 2);
	return 0;
}

static int tear_down(void **state)
{
	live_view_free(&view);
	return 0;
}

static void type(const char *keys)
{
	for (; *keys; keys++)
		live_view_key(&view, *keys == '\n' ? VIEW_ENTER : *keys, &shown);
}

static void test_q_quits_but_not_while_text_is_typed(void **state)
{
	type("/q");
	assert_false(view.quit);
	assert_string_equal(view.typed, "q");
	type("\nq");
	assert_true(view.quit);
}

static void test_the_chosen_function_stays_when_others_pass_it(void **state)
{
	struct summary_row later[] = {{.name = "g"}, {.name = "h"}, {.name = "f"}};
	const struct summary moved = {.rows = later, .n_rows = 3};

	type("jj");
	assert_int_equal(live_view_selected(&view, &shown), 2);
	assert_int_equal(live_view_selected(&view, &moved), 1);
	type("jjjk");
	assert_int_equal(live_view_selected(&view, &shown), 1);
}

static void test_enter_shows_one_function_and_escape_goes_back_to_it(void **state)
{
	type("j\n");
	assert_string_equal(view.zoom, "g");
	live_view_key(&view, VIEW_BACK, &shown);
	assert_null(view.zoom);
	assert_int_equal(live_view_selected(&view, &shown), 1);
}

static void test_enter_shows_the_functions_of_a_process_and_escape_goes_back_to_it(void **state)
{
	type("b");
	assert_true(live_view_by_thread(&view));
	live_view_key(&view, VIEW_DOWN, &shown);
	live_view_key(&view, VIEW_ENTER, &shown);
	assert_string_equal(view.inside, shown.rows[1].name);
	assert_null(view.zoom);
	assert_false(live_view_by_thread(&view));
	live_view_key(&view, VIEW_ENTER, &shown);
	assert_string_equal(view.zoom, shown.rows[0].name);
	live_view_key(&view, VIEW_BACK, &shown);
	assert_null(view.zoom);
	assert_non_null(view.inside);
	live_view_key(&view, VIEW_BACK, &shown);
	assert_null(view.inside);
	assert_string_equal(view.selected, shown.rows[1].name);
	type("b");
	assert_int_equal(view.by, GROUP_THREAD);
	type("b");
	assert_int_equal(view.by, GROUP_CONTAINER);
	type("b");
	assert_int_equal(view.by, GROUP_FUNCTION);
}

static void test_nothing_is_chosen_where_there_is_nothing(void **state)
{
	const struct summary none = {0};

	live_view_key(&view, VIEW_DOWN, &none);
	live_view_key(&view, VIEW_ENTER, &none);
	live_view_key(&view, VIEW_ENTER, NULL);
	assert_null(view.zoom);
}

static void test_a_filter_is_a_regular_expression(void **state)
{
	type("/^a|b\n");
	assert_true(view.has_only);
	assert_string_equal(view.filter, "^a|b");
	type("/(\n");
	assert_non_null(strstr(view.message, "no regular expression"));
	assert_string_equal(view.filter, "^a|b");
	type("/\n");
	assert_false(view.has_only);
}

static void test_the_window_has_bounds(void **state)
{
	type("w2.5\n");
	assert_int_equal(view.span_ns, 2500000000);
	type("+");
	assert_int_equal(view.span_ns, 5000000000);
	type("----------------");
	assert_true(view.span_ns >= 100000000);
	type("w1e9\n");
	assert_non_null(strstr(view.message, "not from"));
	type("wnan\n");
	assert_true(view.span_ns >= 100000000 && view.span_ns <= 5000000000);
}

static void test_a_vcpu_is_chosen_if_there_is_one(void **state)
{
	type("v1\n");
	assert_int_equal(view.vcpu, 1);
	type("v2\n");
	assert_int_equal(view.vcpu, 1);
	type("v\n");
	assert_int_equal(view.vcpu, -1);
}

static void test_keys_that_mean_nothing_do_nothing(void **state)
{
	for (int key = 128; key < 300; key++)
		live_view_key(&view, key, &shown);
	live_view_key(&view, VIEW_REDRAW, &shown);
	assert_false(view.quit || view.held || view.help || view.prompt);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_q_quits_but_not_while_text_is_typed),
		TEST(test_the_chosen_function_stays_when_others_pass_it),
		TEST(test_enter_shows_one_function_and_escape_goes_back_to_it),
		TEST(test_enter_shows_the_functions_of_a_process_and_escape_goes_back_to_it),
		TEST(test_nothing_is_chosen_where_there_is_nothing),
		TEST(test_a_filter_is_a_regular_expression),
		TEST(test_the_window_has_bounds),
		TEST(test_a_vcpu_is_chosen_if_there_is_one),
		TEST(test_keys_that_mean_nothing_do_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
