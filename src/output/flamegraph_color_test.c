/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/flamegraph_color.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define TEXT 0x111111 /* of names, as in flamegraph.css */

/* WCAG 2.1, "relative luminance". */
static double luminance(uint32_t color)
{
	static const double weight[] = {0.0722, 0.7152, 0.2126};
	double sum = 0;

	for (int i = 0; i < 3; i++) {
		double c = (color >> (8 * i) & 255) / 255.0;

		sum += weight[i] * (c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
	}
	return sum;
}

static double contrast(uint32_t color)
{
	return (luminance(color) + 0.05) / (luminance(TEXT) + 0.05);
}

static void a_name_has_the_same_color_in_every_picture(void **state)
{
	/* Written down: a change would make old and new pictures disagree. */
	assert_int_equal(flamegraph_color("main", false), 0xfcad5c);
	assert_int_equal(flamegraph_color("function_1", false), 0xf78569);
	assert_int_equal(flamegraph_color("0x1234", true), 0xbcbab7);
}

static void names_are_warm_and_good_to_read_on(void **state)
{
	char name[16];

	for (int i = 0; i < 20000; i++) {
		uint32_t color, r, g, b;

		snprintf(name, sizeof(name), "f%d", i);
		color = flamegraph_color(name, false);
		r = color >> 16;
		g = color >> 8 & 255;
		b = color & 255;
		assert_in_range(r, 230, 255);
		assert_true(r > g && g > b);
		assert_true(contrast(color) >= 6);
	}
}

static void addresses_without_a_name_are_grey(void **state)
{
	char name[24];

	for (int i = 0; i < 20000; i++) {
		uint32_t color, r, g, b;

		snprintf(name, sizeof(name), "0x%x", i * 7919);
		color = flamegraph_color(name, true);
		r = color >> 16;
		g = color >> 8 & 255;
		b = color & 255;
		assert_true(r < b + 24 && b < r + 24 && g < b + 24 && b < g + 24);
		assert_true(contrast(color) >= 6);
	}
}

static void names_that_differ_in_a_digit_differ_in_color(void **state)
{
	uint32_t colors[9];
	char name[16];

	for (int i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "function_%d", i + 1);
		colors[i] = flamegraph_color(name, false);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(colors[i], colors[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_has_the_same_color_in_every_picture),
		cmocka_unit_test(names_are_warm_and_good_to_read_on),
		cmocka_unit_test(addresses_without_a_name_are_grey),
		cmocka_unit_test(names_that_differ_in_a_digit_differ_in_color),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
