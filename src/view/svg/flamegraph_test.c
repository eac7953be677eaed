/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tree *tree;
static char *svg;

static int set_up(void **state)
{
	svg = NULL;
	return tree_new(&tree) ? -1 : 0;
}

static int tear_down(void **state)
{
	tree_free(tree);
	free(svg);
	return 0;
}

static uint32_t add(uint32_t parent, const char *name, uint64_t samples, uint64_t weight_ns)
{
	uint32_t node = 0;

	assert_null(tree_child(tree, parent, name, &node));
	tree->nodes[node].self = (struct profile_cell){.samples = samples, .weight_ns = weight_ns};
	return node;
}

static void draw(const struct flamegraph_options *options)
{
	size_t length;
	FILE *out = open_memstream(&svg, &length);

	assert_non_null(out);
	assert_null(tree_sum(tree));
	assert_null(flamegraph_write(tree, options, out));
	assert_int_equal(fclose(out), 0);
	assert_int_equal(strlen(svg), length);
}

static void expect_in(const char *part)
{
	if (!strstr(svg, part))
		fail_msg("the picture has no: %s", part);
}

/* The value of an attribute in the <g> of a function. */
static double number_of(const char *name, const char *attribute)
{
	char start[64], key[32];
	const char *g, *at;

	snprintf(start, sizeof(start), "<g data-name=\"%s\"", name);
	snprintf(key, sizeof(key), " %s=\"", attribute);
	g = strstr(svg, start);
	assert_non_null(g);
	at = strstr(g, key);
	assert_non_null(at);
	assert_true(at < strstr(g, "</g>"));
	return strtod(at + strlen(key), NULL);
}

/* Each frame is a line. Not strstr: AddressSanitizer measures the whole rest on each call. */
static unsigned frames(void)
{
	unsigned n = 0;

	for (const char *at = svg; *at; at++)
		n += *at == '\n' && strncmp(at + 1, "<g data-name=", 13) == 0;
	return n;
}

/* main has 1,000 samples: function_1 half, function_2 a quarter; their weights are other shares. */
static void add_example(void)
{
	uint32_t m = add(0, "main", 250, 1000);

	add(m, "function_1", 500, 3000);
	add(m, "function_2", 250, 6000);
}

static void widths_are_shares_of_the_weight(void **state)
{
	add_example();
	draw(&(struct flamegraph_options){.width = 1020});
	assert_float_equal(number_of("main", "width"), 999.5, 0.01);
	assert_float_equal(number_of("function_1", "width"), 299.5, 0.01);
	assert_float_equal(number_of("function_1", "x"), 10, 0.01);
	assert_float_equal(number_of("function_2", "width"), 599.5, 0.01);
	assert_float_equal(number_of("function_2", "x"), 310, 0.01);
	expect_in("<title>function_1 (500 samples, 30.00 %)</title>");
	expect_in("<title>main (1,000 samples, 100.00 %)</title>");
	assert_int_equal((int)number_of("function_2", "data-weight"), 6000);
	assert_int_equal((int)number_of("function_2", "data-samples"), 250);
}

/* The border is all that would be seen of a box of two pixels. */
static void inlined_functions_have_a_border_where_there_is_room(void **state)
{
	const uint32_t m = add(0, "main", 0, 0);

	for (int wide = 0; wide < 2; wide++)
		tree->nodes[add(m, wide ? "wide" : "thin", wide ? 998 : 2, 0)].inlined = 1;
	draw(&(struct flamegraph_options){.width = 1020});
	expect_in("<g data-name=\"wide\" data-samples=\"998\" class=\"inlined\">");
	expect_in("<g data-name=\"thin\" data-samples=\"2\" class=\"inlined narrow\">");
	expect_in(".inlined:not(.narrow) rect { stroke:");
}

static void without_weights_widths_are_shares_of_the_samples(void **state)
{
	add(add(0, "main", 1, 0), "leaf", 3, 0);
	draw(&(struct flamegraph_options){.width = 1020});
	assert_float_equal(number_of("leaf", "width"), 749.5, 0.01);
	expect_in("<title>leaf (3 samples, 75.00 %)</title>");
	expect_in("data-unit=\"samples\"");
	assert_null(strstr(svg, "data-weight"));
}

static void flames_grow_up_and_icicles_down(void **state)
{
	add_example();
	draw(&(struct flamegraph_options){.width = 0});
	assert_true(number_of("all", "y") > number_of("main", "y"));
	assert_true(number_of("main", "y") > number_of("function_1", "y"));
	free(svg);
	draw(&(struct flamegraph_options){.icicle = true});
	assert_true(number_of("all", "y") < number_of("main", "y"));
	assert_true(number_of("main", "y") < number_of("function_1", "y"));
}

static void what_is_too_narrow_is_left_out_and_told(void **state)
{
	add_example();
	add(add(0, "rare", 0, 0), "rarer", 2, 1);
	draw(&(struct flamegraph_options){.width = 1020, .min_width = 1});
	assert_int_equal(frames(), 4);
	expect_in(">1 branch too narrow to be seen is left out, 0.01 % of the width in all</text>");
	expect_in("data-left-out=\"1\"");
	free(svg);
	draw(&(struct flamegraph_options){.width = 1020, .min_width = 0});
	assert_int_equal(frames(), 6);
	assert_null(strstr(svg, "left out,"));
	expect_in("data-left-out=\"0\"");
}

static void no_samples_make_a_picture_that_says_so(void **state)
{
	draw(&(struct flamegraph_options){.width = 1020});
	expect_in("<title>all (0 samples, 0.00 %)</title>");
	expect_in(">0 samples</text>");
	assert_float_equal(number_of("all", "width"), 999.5, 0.01);
	assert_int_equal(frames(), 1);
}

static void texts_are_there_and_escaped(void **state)
{
	add_example();
	draw(&(struct flamegraph_options){.title = "A <title> & \"more\"",
					  .subtitle = "</text><script>",
					  .warning = "]]> 12 % cut",
					  .reverse = true});
	expect_in("A &lt;title&gt; &amp; &quot;more&quot;</text>");
	expect_in("&lt;/text&gt;&lt;script&gt;</text>");
	expect_in("]]&gt; 12 % cut</text>");
	expect_in("1,000 samples, 0.00 s; leaf first: callers stand above what they call");
	assert_null(strstr(strstr(svg, "<script") + 1, "<script"));
}

static void hostile_names_are_escaped_everywhere(void **state)
{
	add(0, "\"><script>alert(1)</script>", 1, 1000);
	add(0, "]]>\x1b[31m\xff\xe2\x80\xae", 1, 1000);
	draw(&(struct flamegraph_options){.width = 1020});
	expect_in("<g data-name=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\"");
	expect_in("<title>]]&gt;\\x1b[31m\\xff\\u202e (1 sample, 50.00 %)</title>");
	assert_null(strstr(svg, "<script>alert"));
	assert_null(strchr(svg, '\x1b'));
	assert_null(strstr(svg, "\xe2\x80\xae"));
}

static void long_names_are_cut(void **state)
{
	static char name[65536];

	memset(name, 'x', sizeof(name) - 1);
	add(0, name, 1, 1000);
	draw(&(struct flamegraph_options){.width = 1020});
	assert_true(strlen(svg) < 60000);
	expect_in("xxx…\" data-samples");
}

static void deep_stacks_still_make_a_picture(void **state)
{
	static const char *name = "recursion";
	uint32_t node = 0;

	for (int i = 0; i < 100000; i++)
		node = add(node, name, 1, 1000);
	draw(&(struct flamegraph_options){.width = 1020});
	assert_true(frames() > 2000 && frames() <= 4096);
	assert_true(number_of("all", "y") < 80000);
	expect_in("or deeper than 4096 levels is left out, ");
}

static void all_of_the_script_and_the_style_is_inside(void **state)
{
	add_example();
	draw(&(struct flamegraph_options){.width = 1020});
	expect_in("<style><![CDATA[\n/* SPDX");
	expect_in("<script><![CDATA[\n// SPDX");
	assert_null(strstr(svg, "href"));
	assert_null(strstr(svg, "@import"));
	assert_null(strstr(svg, "url("));
	for (const char *at = svg; (at = strstr(at, "://")); at++)
		assert_memory_equal(at - 4, "http://www.w3.org/",
				    18); /* names of XML, not addresses */
}

static void many_frames_are_all_written_in_little_room(void **state)
{
	enum { N = 100000 };
	static char names[N][24];

	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "some_function_%d", i);
		add(i % 100 ? tree->n - 1 : 0, names[i], 1, 1000);
	}
	draw(&(struct flamegraph_options){.min_width = 0});
	assert_int_equal(frames(), N + 1);
	assert_true(strlen(svg) < 250u * N);
}

#define WITH_TREE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(widths_are_shares_of_the_weight),
		WITH_TREE(inlined_functions_have_a_border_where_there_is_room),
		WITH_TREE(without_weights_widths_are_shares_of_the_samples),
		WITH_TREE(flames_grow_up_and_icicles_down),
		WITH_TREE(what_is_too_narrow_is_left_out_and_told),
		WITH_TREE(no_samples_make_a_picture_that_says_so),
		WITH_TREE(texts_are_there_and_escaped),
		WITH_TREE(hostile_names_are_escaped_everywhere),
		WITH_TREE(long_names_are_cut),
		WITH_TREE(deep_stacks_still_make_a_picture),
		WITH_TREE(all_of_the_script_and_the_style_is_inside),
		WITH_TREE(many_frames_are_all_written_in_little_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
