/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "format/export_fixture.h"
#include "analysis/grouped_tree.h"

/* f and g of kernel, h of nobody knows where. */
enum { F = 0x1010, G = 0x2010, H = 0x9010 };

static struct export_fixture fixture;
static struct profile *profile;
static struct symbolizer *symbolizer;
static struct grouped_tree grouped;

static void name(uint64_t addr, const char *text)
{
	must(recording_name(fixture.writer, addr, FRAME_PC, text, 0));
	must(recording_name(fixture.writer, addr, FRAME_RETURN, text, 0));
}

static const struct recorded_thread threads[] = {
	{12, 12, 1, false, false, "web", "web", "/system.slice/web.service"},
	{12, 13, 2, false, false, "a\tb", "web", "/system.slice/web.service"},
	{2, 2, 3, true, false, "kthreadd", "kthreadd", "/"},
	{0, 0, 0, true, true, "swapper/0", "swapper/0", NULL},
	{0, 0, 0, true, true, "swapper/1", "swapper/1", NULL}};

static int set_up(void **state)
{
	struct recorded_image kernel = {.path = (char *)"/boot/kernel",
					.start = 0x1000,
					.end = 0x3000};
	const struct recording_info info = {.vcpus = 2, .images = {.at = &kernel, .n = 1}};

	fixture_begin(&fixture, &info);
	SAMPLE(&fixture, 0, VCPU_RUNNING, G, F);
	SAMPLE(&fixture, 1, VCPU_RUNNING, G, F);
	SAMPLE(&fixture, 1, VCPU_BLOCKED, H, G, F);
	SAMPLE(&fixture, 1, VCPU_BLOCKED, H, G, F);
	name(F, "f");
	name(G, "g");
	name(H, "h");
	must(recording_close(fixture.writer, NULL));
	fixture.writer = NULL;
	return 0;
}

static int tear_down(void **state)
{
	grouped_tree_free(&grouped);
	symbolizer_free(symbolizer);
	profile_free(profile);
	fixture_end(&fixture);
	return 0;
}

static void build(const char *keys, bool reverse, const char *only)
{
	struct profile_filter filter = {.vcpu = -1};
	struct grouped_tree_options options = {.reverse = reverse};
	const char *bad;
	regex_t regex;

	assert_true(group_by_parse(keys, &options.keys, &bad));
	filter.divide = group_by_divide(&options.keys);
	must(profile_load(fixture.path, &filter, &profile));
	must(symbolizer_new(NULL, profile, &symbolizer));
	if (only)
		assert_int_equal(regcomp(&regex, only, REG_EXTENDED | REG_NOSUB), 0);
	options.only = only ? &regex : NULL;
	must(grouped_tree_build(profile, symbolizer, NULL, &options, &grouped));
	if (only)
		regfree(&regex);
}

/* Samples of the node at a path of names, total; 0 if there is none. */
static uint64_t total_of(size_t n, const char *const *path)
{
	const struct tree_node *nodes = grouped.tree->nodes;
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++) {
		at = nodes[at].first_child;
		while (at && strcmp(nodes[at].name, path[i]))
			at = nodes[at].next_sibling;
		if (!at)
			return 0;
	}
	return nodes[at].total.samples;
}

#define TOTAL(...)                                                            \
	total_of(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), \
		 (const char *const[]){__VA_ARGS__})

static void test_by_function_it_is_the_tree_of_calls(void **state)
{
	build("function", false, NULL);
	assert_int_equal(TOTAL("f"), 4);
	assert_int_equal(TOTAL("f", "g"), 4);
	assert_int_equal(TOTAL("f", "g", "h"), 2);
	assert_int_equal(grouped.tree->n, 4);
}

/* A recording of its own: a sample of each thread, and one of none. */
static void record_threads(void)
{
	fixture_end(&fixture);
	fixture_begin(&fixture, &(struct recording_info){.vcpus = 1});
	for (uint32_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
		must(recording_thread(fixture.writer, &threads[i]));
	for (fixture.thread = 0; fixture.thread <= 5; fixture.thread++)
		SAMPLE(&fixture, 0, VCPU_RUNNING, F);
	name(F, "f");
	must(recording_close(fixture.writer, NULL));
	fixture.writer = NULL;
}

static void test_by_process_its_threads_are_together(void **state)
{
	record_threads();
	build("process", false, NULL);
	assert_int_equal(TOTAL("web (12)"), 2);
	assert_int_equal(TOTAL("[kthreadd] (2)"), 1);
	assert_int_equal(TOTAL("[idle]"), 2);
	assert_int_equal(TOTAL("[unknown]"), 1);
	assert_int_equal(grouped.tree->n, 5);
}

static void test_by_container_its_processes_are_together(void **state)
{
	record_threads();
	build("container", false, NULL);
	assert_int_equal(TOTAL("web.service"), 2);
	assert_int_equal(TOTAL("/"), 1);
	assert_int_equal(TOTAL("[idle]"), 2);
	assert_int_equal(TOTAL("[unknown]"), 1);
	assert_int_equal(grouped.tree->n, 5);
}

static void test_by_container_and_thread_each_has_both(void **state)
{
	record_threads();
	build("cgroup,thread", false, NULL);
	assert_int_equal(TOTAL("web.service\tweb (12)"), 1);
	assert_int_equal(TOTAL("web.service\tweb/a\xef\xbf\xbd"
			       "b (13)"),
			 1);
	assert_int_equal(TOTAL("/\t[kthreadd] (2)"), 1);
	assert_int_equal(TOTAL("[idle]\t[idle]"), 2);
}

static void test_containers_are_chosen_by_name_or_path(void **state)
{
	static const struct {
		const char *list;
		uint64_t samples;
	} chosen[] = {{"web.service", 2},
		      {"/", 1},
		      {"x,/system.slice/web.service", 2},
		      {"/,web.service", 3},
		      {"web", 0}};
	struct profile_filter filter = {.vcpu = -1};
	struct profile *those;

	record_threads();
	build("container", false, NULL);
	for (size_t i = 0; i < sizeof(chosen) / sizeof(*chosen); i++) {
		filter.container = chosen[i].list;
		must(profile_load(fixture.path, &filter, &those));
		assert_int_equal(those->selected.samples, chosen[i].samples);
		profile_free(those);
	}
}

static void test_by_thread_each_has_its_own(void **state)
{
	record_threads();
	build("thread,function", false, NULL);
	assert_int_equal(TOTAL("web (12)\tf"), 1);
	assert_int_equal(TOTAL("web/a\xef\xbf\xbd"
			       "b (13)\tf"),
			 1);
	assert_int_equal(TOTAL("[kthreadd] (2)\tf"), 1);
	assert_int_equal(TOTAL("[idle]\tf"), 2);
	assert_int_equal(TOTAL("[unknown]\tf"), 1);
}

/* The tree of a picture, with nodes outside of the outermost functions. */
static void build_with_outer(enum group_key key, bool reverse)
{
	const struct profile_filter filter = {.vcpu = -1, .divide = true};
	struct group_outer by = {.key = key};
	const struct tree_outer outer = {group_outer_name, &by};

	must(profile_load(fixture.path, &filter, &profile));
	must(symbolizer_new(NULL, profile, &symbolizer));
	by.profile = profile;
	by.symbolizer = symbolizer;
	must(tree_build(profile, symbolizer,
			&(struct tree_options){.reverse = reverse, .outer = &outer},
			&grouped.tree));
}

static void test_processes_stand_around_their_functions(void **state)
{
	record_threads();
	build_with_outer(GROUP_PROCESS, false);
	assert_int_equal(TOTAL("web (12)"), 2);
	assert_int_equal(TOTAL("web (12)", "f"), 2);
	assert_int_equal(TOTAL("[idle]", "f"), 2);
	assert_int_equal(TOTAL("[unknown]", "f"), 1);
	assert_int_equal(grouped.tree->n, 9);
	assert_int_equal(grouped.tree->nodes[0].total.samples, 6);
}

static void test_leaf_first_threads_stand_behind_their_functions(void **state)
{
	record_threads();
	build_with_outer(GROUP_THREAD, true);
	assert_int_equal(TOTAL("f"), 6);
	assert_int_equal(TOTAL("f", "web (12)"), 1);
	assert_int_equal(TOTAL("f", "[idle]"), 2);
	assert_int_equal(grouped.tree->n, 7);
}

static void test_without_threads_all_stacks_are_below_one_node(void **state)
{
	build_with_outer(GROUP_THREAD, false);
	assert_int_equal(TOTAL("[unknown]", "f", "g", "h"), 2);
	assert_int_equal(grouped.tree->n, 5);
}

static void test_leaf_first_it_is_turned_round(void **state)
{
	build("function", true, NULL);
	assert_int_equal(TOTAL("g"), 2);
	assert_int_equal(TOTAL("h", "g", "f"), 2);
}

static void test_frames_of_one_image_in_a_row_are_one_node(void **state)
{
	build("image", false, NULL);
	assert_int_equal(TOTAL("/boot/kernel"), 4);
	assert_int_equal(TOTAL("/boot/kernel", "[unknown]"), 2);
	assert_int_equal(grouped.tree->n, 3);
}

static void test_whole_samples_are_one_node_for_each_vcpu_and_state(void **state)
{
	build("vcpu,state", false, NULL);
	assert_int_equal(TOTAL("0\trunning"), 1);
	assert_int_equal(TOTAL("1\trunning"), 1);
	assert_int_equal(TOTAL("1\tblocked"), 2);
	assert_int_equal(grouped.tree->n, 4);
}

static void test_keys_of_frames_and_of_samples_go_together_in_the_order_given(void **state)
{
	build("vcpu,function", false, NULL);
	assert_int_equal(TOTAL("0\tf", "0\tg"), 1);
	assert_int_equal(TOTAL("1\tf", "1\tg"), 3);
	assert_int_equal(TOTAL("1\tf", "1\tg", "1\th"), 2);
}

static void test_only_stacks_through_a_matching_function_are_there(void **state)
{
	build("function", false, "^h$");
	assert_int_equal(TOTAL("f", "g", "h"), 2);
	assert_int_equal(grouped.tree->nodes[0].total.samples, 2);
}

static void test_nothing_matches_gives_an_empty_tree(void **state)
{
	build("function", true, "nowhere");
	assert_int_equal(grouped.tree->n, 1);
}

static void test_columns_are_found_in_a_name(void **state)
{
	size_t len;
	const char *at = grouped_tree_column("one\ttwo\tthree", 1, &len);

	assert_int_equal(len, 3);
	assert_memory_equal(at, "two", 3);
	(void)grouped_tree_column("one", 0, &len);
	assert_int_equal(len, 3);
}

static void test_keys_are_known_by_perfs_names_and_none_twice(void **state)
{
	struct group_by keys;
	const char *bad;

	assert_true(group_by_parse("dso,sym,cpu", &keys, &bad));
	assert_int_equal(keys.n, 3);
	assert_int_equal(keys.at[0], GROUP_IMAGE);
	assert_false(group_by_parse("function,symbol", &keys, &bad));
	assert_string_equal(bad, "symbol");
	assert_false(group_by_parse("", &keys, &bad));
	assert_false(group_by_parse("function,", &keys, &bad));
}

#define WITH_RECORDING(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_RECORDING(test_by_function_it_is_the_tree_of_calls),
		WITH_RECORDING(test_by_process_its_threads_are_together),
		WITH_RECORDING(test_by_container_its_processes_are_together),
		WITH_RECORDING(test_by_container_and_thread_each_has_both),
		WITH_RECORDING(test_containers_are_chosen_by_name_or_path),
		WITH_RECORDING(test_by_thread_each_has_its_own),
		WITH_RECORDING(test_processes_stand_around_their_functions),
		WITH_RECORDING(test_leaf_first_threads_stand_behind_their_functions),
		WITH_RECORDING(test_without_threads_all_stacks_are_below_one_node),
		WITH_RECORDING(test_leaf_first_it_is_turned_round),
		WITH_RECORDING(test_frames_of_one_image_in_a_row_are_one_node),
		WITH_RECORDING(test_whole_samples_are_one_node_for_each_vcpu_and_state),
		WITH_RECORDING(test_keys_of_frames_and_of_samples_go_together_in_the_order_given),
		WITH_RECORDING(test_only_stacks_through_a_matching_function_are_there),
		WITH_RECORDING(test_nothing_matches_gives_an_empty_tree),
		cmocka_unit_test(test_columns_are_found_in_a_name),
		cmocka_unit_test(test_keys_are_known_by_perfs_names_and_none_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
