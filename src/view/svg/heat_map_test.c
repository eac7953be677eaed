/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COLUMNS 3
#define ROWS	50

static struct profile_cell cells[COLUMNS * ROWS];
static struct heat heat;
static char *svg;

static int set_up(void **state)
{
	memset(cells, 0, sizeof(cells));
	heat = (struct heat){COLUMNS, ROWS, 0, 1, cells};
	svg = NULL;
	return 0;
}

static int tear_down(void **state)
{
	free(svg);
	return 0;
}

static void add(uint32_t column, uint32_t row, uint64_t samples, uint64_t weight_ns)
{
	cells[column * ROWS + row] =
		(struct profile_cell){.samples = samples, .weight_ns = weight_ns};
}

static void draw(const struct flamegraph_options *options)
{
	size_t length;
	FILE *out = open_memstream(&svg, &length);

	assert_non_null(out);
	heat_map_write(&heat, options, out);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(strlen(svg), length);
}

static void expect_in(const char *part)
{
	if (!strstr(svg, part))
		fail_msg("the picture has no: %s", part);
}

static unsigned count(const char *part)
{
	unsigned n = 0;

	for (const char *at = svg; (at = strstr(at, part)); at++)
		n++;
	return n;
}

static void each_cell_with_samples_is_a_box_with_its_time(void **state)
{
	add(0, 0, 1, 1000000);
	add(2, 49, 8, 8000000);
	draw(&(struct flamegraph_options){0});
	assert_int_equal(count("data-samples="), 2);
	expect_in("<title>0.000 s to 0.020 s: 1 sample, 0.001 s</title>");
	expect_in("<title>2.980 s to 3.000 s: 8 samples, 0.008 s</title>");
	expect_in("9 samples, 0.009 s; a cell is 20 ms of 1 second, with at most 8 samples, "
		  "0.008 s");
}

static void the_hottest_cell_has_the_strongest_shade(void **state)
{
	add(0, 1, 50, 1);
	add(0, 2, 1, 100);
	add(0, 3, 1, 51);
	draw(&(struct flamegraph_options){0});
	expect_in("<rect class=\"s1\" x=\"68\" y=\"56\"");
	expect_in("<rect class=\"s9\" x=\"68\" y=\"66\"");
	expect_in("<rect class=\"s5\" x=\"68\" y=\"76\"");
}

static void samples_count_where_none_has_a_weight(void **state)
{
	add(0, 1, 50, 0);
	add(1, 1, 1, 0);
	draw(&(struct flamegraph_options){0});
	expect_in("<rect class=\"s9\" x=\"68\"");
	expect_in(": 50 samples</title>");
	assert_int_equal(count("data-weight="), 0);
}

static void merged_columns_say_so(void **state)
{
	heat.column_s = 5;
	heat.first_s = 100;
	add(1, 0, 2, 2000000);
	draw(&(struct flamegraph_options){0});
	expect_in("<title>105.000 s to 105.020 s and in the 4 seconds behind: 2 samples, 0.002 s");
	expect_in("a cell is 20 ms of 5 seconds");
	expect_in(">100 s</text>");
}

static void texts_are_escaped(void **state)
{
	static const char hostile[] = "]]></style><script>\"&\x1b[2J\xff";

	add(0, 0, 1, 1);
	draw(&(struct flamegraph_options){.title = hostile,
					  .subtitle = hostile,
					  .warning = hostile});
	assert_int_equal(count("<script"), 0);
	assert_int_equal(count("]]>"), 1);
	assert_null(strchr(svg, '\x1b'));
	assert_int_equal(count("]]&gt;&lt;/style&gt;&lt;script&gt;&quot;&amp;\\x1b[2J\\xff"), 7);
}

static void an_empty_map_is_a_picture(void **state)
{
	draw(&(struct flamegraph_options){.width = 1});
	assert_int_equal(count("data-samples="), 0);
	expect_in("width=\"200\"");
	expect_in(">0 samples</text>");
}

static void columns_fit_into_their_picture(void **state)
{
	static const unsigned widths[] = {1, 200, 777, 20000};

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		const uint32_t columns =
			heat_map_columns(&(struct flamegraph_options){.width = widths[i]});

		assert_true(columns >= 1);
		assert_true(columns * 3 + 78 <= (widths[i] < 200 ? 200 : widths[i]));
	}
	assert_int_equal(heat_map_columns(&(struct flamegraph_options){0}),
			 heat_map_columns(&(struct flamegraph_options){.width = 1200}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_cell_with_samples_is_a_box_with_its_time,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_hottest_cell_has_the_strongest_shade, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(samples_count_where_none_has_a_weight, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(merged_columns_say_so, set_up, tear_down),
		cmocka_unit_test_setup_teardown(texts_are_escaped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_empty_map_is_a_picture, set_up, tear_down),
		cmocka_unit_test_setup_teardown(columns_fit_into_their_picture, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
