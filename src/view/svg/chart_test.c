/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"

#define MS UINT64_C(1000000)

/* A column is 1 ms. */
#define COLUMNS 180

static struct tree *tree;
static struct time_buckets buckets;
static size_t room;
static struct flamegraph_chart chart;
static char *svg;

static int set_up(void **state)
{
	svg = NULL;
	room = 0;
	buckets = (struct time_buckets){.bucket_ns = MS, .n = COLUMNS};
	if (tree_new(&tree))
		return -1;
	chart = (struct flamegraph_chart){.tree = tree,
					  .buckets = &buckets,
					  .states = 1u << VCPU_RUNNING,
					  .to_ns = COLUMNS * MS,
					  .tick_ns = MS};
	return 0;
}

static int tear_down(void **state)
{
	tree_free(tree);
	time_buckets_free(&buckets);
	free(svg);
	return 0;
}

static uint32_t add(uint32_t parent, const char *name)
{
	uint32_t node = 0;

	assert_null(tree_child(tree, parent, name, &node));
	return node;
}

static void sample(uint32_t bucket, uint32_t vcpu, uint8_t state, uint32_t node, uint64_t weight_ns)
{
	assert_null(ARRAY_RESERVE(&buckets.rows, &room, buckets.n_rows + 1));
	buckets.rows[buckets.n_rows++] = (struct time_bucket_row){.bucket = bucket,
								  .vcpu = vcpu,
								  .state = state,
								  .node = node,
								  .samples = 1,
								  .weight_ns = weight_ns};
}

static void run(uint32_t from, uint32_t to, uint32_t vcpu, uint32_t node)
{
	for (uint32_t i = from; i < to; i++)
		sample(i, vcpu, VCPU_RUNNING, node, MS);
}

static void draw(void)
{
	const struct flamegraph_options options = {.width = COLUMNS + 20};
	size_t length;
	FILE *out = open_memstream(&svg, &length);

	assert_non_null(out);
	assert_null(tree_sum(tree));
	assert_null(flamegraph_chart_write(&chart, &options, out));
	assert_int_equal(fclose(out), 0);
	assert_int_equal(strlen(svg), length);
}

/* "lane level from-to" of each box of that name, in ms, in the order of the file. */
static void expect_boxes(const char *name, const char *expected)
{
	char all[512] = "", start[64];

	snprintf(start, sizeof(start), "<g data-name=\"%s\"", name);
	for (const char *at = svg; (at = strstr(at, start)); at++) {
		unsigned lane, level;
		uint64_t from, to;
		size_t len = strlen(all);

		assert_int_equal(sscanf(at + strlen(start),
					" data-lane=\"%u\" data-level=\"%u\" data-from=\"%" SCNu64
					"\" data-to=\"%" SCNu64,
					&lane, &level, &from, &to),
				 4);
		snprintf(all + len, sizeof(all) - len, "%s%u %u %" PRIu64 "-%" PRIu64,
			 len ? ", " : "", lane, level, from / MS, to / MS);
	}
	assert_string_equal(all, expected);
}

static unsigned count(const char *part)
{
	unsigned n = 0;

	/* memmem(): the sanitizer's strstr() looks for the end of the picture each time. */
	for (const char *at = svg, *end = svg + strlen(svg);
	     (at = memmem(at, (size_t)(end - at), part, strlen(part))); at++)
		n++;
	return n;
}

static void functions_are_boxes_from_when_they_began_until_they_ended(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first"), s = add(m, "second");

	run(0, 50, 0, f);
	run(50, 90, 0, s);
	run(90, COLUMNS, 0, f);
	draw();
	expect_boxes("main", "0 0 0-180");
	expect_boxes("first", "0 1 0-50, 0 1 90-180");
	expect_boxes("second", "0 1 50-90");
}

static void each_vcpu_has_a_lane(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first"), s = add(m, "second");

	for (uint32_t i = 0; i < 100; i++) {
		sample(i, 3, VCPU_RUNNING, s, MS);
		sample(i, 7, VCPU_RUNNING, f, MS);
	}
	draw();
	assert_int_equal(count(">vCPU "), 2);
	assert_true(strstr(svg, ">vCPU 3<") < strstr(svg, ">vCPU 7<"));
	expect_boxes("second", "0 1 0-103");
	expect_boxes("first", "1 1 0-103");
}

static void where_nothing_was_sampled_there_is_a_gap(void **state)
{
	const uint32_t m = add(0, "main");

	run(0, 20, 0, m);
	run(100, 110, 0, m);
	for (uint32_t i = 110; i < COLUMNS; i++)
		sample(i, 0, VCPU_BLOCKED, m, MS);
	draw();
	/* The last sample before the first gap may still have run for some of its distances. */
	expect_boxes("main", "0 0 0-23, 0 0 100-110");
}

static void samples_that_are_farther_apart_than_pixels_leave_no_gaps(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first");

	chart.tick_ns = 10 * MS;
	for (uint32_t i = 0; i < COLUMNS; i += 10)
		sample(i, 0, VCPU_RUNNING, i < 90 ? f : m, 10 * MS);
	draw();
	expect_boxes("main", "0 0 0-180");
	expect_boxes("first", "0 1 0-90");
}

static void a_pixel_shows_what_took_most_of_it(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first"), s = add(m, "second"),
		       o = add(s, "one"), t = add(s, "two");

	buckets.bucket_ns = MS / 4;
	for (uint32_t i = 0; i < 4 * COLUMNS; i += 4) {
		sample(i, 0, VCPU_RUNNING, f, 4);
		sample(i + 1, 0, VCPU_RUNNING, o, 3);
		sample(i + 2, 0, VCPU_RUNNING, t, 2);
	}
	draw();
	/* `first` is the heaviest stack, but `second` the heavier function. */
	expect_boxes("first", "");
	expect_boxes("second", "0 1 0-180");
	expect_boxes("one", "0 2 0-180");
}

static void a_function_that_was_mostly_at_work_itself_has_nothing_on_it(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first");

	for (uint32_t i = 0; i < COLUMNS; i++) {
		sample(i, 0, VCPU_RUNNING, m, 3);
		sample(i, 0, VCPU_RUNNING, f, 2);
	}
	draw();
	expect_boxes("main", "0 0 0-180");
	expect_boxes("first", "");
}

static void lanes_can_be_threads(void **state)
{
	const uint32_t a = add(0, "web (1)"), b = add(0, "db (2)"), f = add(a, "main"),
		       g = add(b, "main");

	chart.outer = true;
	run(0, 50, 0, f);
	run(50, COLUMNS, 0, g);
	draw();
	assert_non_null(strstr(svg, ">web (1)<"));
	assert_null(strstr(svg, "vCPU 0"));
	/* The lane with more time is the first one. */
	expect_boxes("main", "0 0 50-180, 1 0 0-53");
	expect_boxes("web (1)", "");
}

static void a_stretch_has_all_of_the_width(void **state)
{
	const uint32_t m = add(0, "main"), f = add(m, "first");

	chart.from_ns = buckets.first_ns = 1000 * MS;
	chart.to_ns = 1090 * MS;
	run(0, 45, 0, f);
	run(45, 90, 0, m);
	draw();
	expect_boxes("main", "0 0 1000-1090");
	expect_boxes("first", "0 1 1000-1045");
}

static void many_samples_that_all_differ_make_a_bounded_picture(void **state)
{
	enum { KINDS = 1000, DEPTH = 200 };
	static uint32_t leaf[KINDS];
	static char name[KINDS][8];

	for (unsigned i = 0; i < KINDS; i++) {
		snprintf(name[i], sizeof(name[i]), "f%u", i);
		leaf[i] = add(0, name[i]);
		for (unsigned k = 1; k < DEPTH; k++)
			leaf[i] = add(leaf[i], name[i]);
	}
	for (uint32_t i = 0; i < 50000; i++)
		sample(i / 278, i % 64, VCPU_RUNNING, leaf[i * UINT64_C(7919) % KINDS], 1);
	draw();
	assert_in_range(count("<g data-name="), 1000, 1 << 17);
}

static void hostile_names_are_escaped(void **state)
{
	run(0, COLUMNS, 0, add(0, "<script>\x1b"));
	draw();
	assert_null(strstr(svg, "<script"));
	assert_int_equal(count("&lt;script&gt;\\x1b"), 3);
}

static void without_samples_the_picture_says_so(void **state)
{
	draw();
	assert_int_equal(count("<g data-name="), 0);
	assert_non_null(strstr(svg, "no samples"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(functions_are_boxes_from_when_they_began_until_they_ended),
		TEST(each_vcpu_has_a_lane),
		TEST(where_nothing_was_sampled_there_is_a_gap),
		TEST(samples_that_are_farther_apart_than_pixels_leave_no_gaps),
		TEST(a_pixel_shows_what_took_most_of_it),
		TEST(a_function_that_was_mostly_at_work_itself_has_nothing_on_it),
		TEST(lanes_can_be_threads),
		TEST(a_stretch_has_all_of_the_width),
		TEST(many_samples_that_all_differ_make_a_bounded_picture),
		TEST(hostile_names_are_escaped),
		TEST(without_samples_the_picture_says_so),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
