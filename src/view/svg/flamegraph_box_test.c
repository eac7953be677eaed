/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/svg/flamegraph.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALL SIZE_MAX

static FILE *out;
static char *written;
static size_t length;

static int open_stream(void **state)
{
	out = open_memstream(&written, &length);
	return out ? 0 : -1;
}

static int close_stream(void **state)
{
	fclose(out);
	free(written);
	return 0;
}

static void expect(const char *text)
{
	fflush(out);
	assert_string_equal(written, text);
	rewind(out);
}

static void expect_text(const char *text, size_t cells, const char *shown)
{
	flamegraph_put_text(out, text, cells);
	fputc('\0', out);
	expect(shown);
}

static void plain_names_stay_as_they_are(void **state)
{
	expect_text("", ALL, "");
	expect_text("xen_hypercall_sched_op", ALL, "xen_hypercall_sched_op");
	expect_text("Vec<T>::push", ALL, "Vec&lt;T&gt;::push");
	expect_text("größe Ελληνικά 函数 🔥", ALL, "größe Ελληνικά 函数 🔥");
}

static void markup_is_escaped(void **state)
{
	expect_text("<script>alert(\"1\" & '2')</script>", ALL,
		    "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
	expect_text("]]>", ALL, "]]&gt;");
	expect_text("&amp;", ALL, "&amp;amp;");
}

static void what_cannot_be_seen_is_spelt_out(void **state)
{
	expect_text("a\tb\nc\x01\x1b\x7f", ALL, "a\\x09b\\x0ac\\x01\\x1b\\x7f");
	expect_text("\xc2\x85", ALL, "\\u0085");
	expect_text("evil\xe2\x80\xaegpj.exe", ALL, "evil\\u202egpj.exe");
	expect_text("\xe2\x81\xa6\xe2\x80\x8f\xef\xbb\xbf\xef\xbf\xbf", ALL,
		    "\\u2066\\u200f\\ufeff\\uffff");
	expect_text("\xf3\xa0\x81\x81", ALL, "\\U000e0041");
	expect_text("\xf0\x9f\xbf\xbe", ALL, "\\U0001fffe");
}

static void bytes_that_are_no_utf8_are_spelt_out(void **state)
{
	expect_text("a\xff\xfe z", ALL, "a\\xff\\xfe z");
	expect_text("\x80\xbf", ALL, "\\x80\\xbf");
	expect_text("\xc0\xaf", ALL, "\\xc0\\xaf");		      /* overlong */
	expect_text("\xe0\x80\x80", ALL, "\\xe0\\x80\\x80");	      /* overlong */
	expect_text("\xed\xa0\x80", ALL, "\\xed\\xa0\\x80");	      /* surrogate */
	expect_text("\xf4\x90\x80\x80", ALL, "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
	expect_text("\xf8\x88\x80\x80\x80", ALL, "\\xf8\\x88\\x80\\x80\\x80");
	expect_text("cut\xe2\x82", ALL, "cut\\xe2\\x82");
	expect_text("cut\xf0", ALL, "cut\\xf0");
}

static void texts_that_do_not_fit_end_in_an_ellipsis(void **state)
{
	expect_text("function_1", 10, "function_1");
	expect_text("function_1", 9, "function…");
	expect_text("function_1", 1, "…");
	expect_text("function_1", 0, "");
	expect_text("", 0, "");
	expect_text("a<b>c", 4, "a&lt;b…");
	expect_text("函数名", 6, "函数名");
	expect_text("函数名", 5, "函数…");
	expect_text("函数名", 4, "函…");
	expect_text("\x01\x02", 6, "\\x01…");
	expect_text("\x01\x02", 4, "…");
}

static void numbers_have_two_decimals_and_no_comma(void **state)
{
	/* A locale with a decimal comma, if the machine has one; the promise holds without, too. */
	setlocale(LC_ALL, "de_DE.UTF-8");
	flamegraph_put_fixed(out, 12.345678);
	fputc(' ', out);
	flamegraph_put_fixed(out, 0.999);
	fputc(' ', out);
	flamegraph_put_fixed(out, 0.05);
	fputc(' ', out);
	flamegraph_put_fixed(out, -1);
	fputc(' ', out);
	flamegraph_put_fixed(out, NAN);
	fputc(' ', out);
	flamegraph_put_fixed(out, INFINITY);
	fputc('\0', out);
	setlocale(LC_ALL, "C");
	expect("12.35 1.00 0.05 0.00 0.00 0.00");
}

static void counts_are_grouped_by_thousands(void **state)
{
	static const struct {
		uint64_t value;
		const char *text;
	} cases[] = {{0, "0"},
		     {999, "999"},
		     {1000, "1,000"},
		     {1234567, "1,234,567"},
		     {UINT64_MAX, "18,446,744,073,709,551,615"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		flamegraph_put_count(out, cases[i].value);
		fputc('\0', out);
		expect(cases[i].text);
	}
}

#define WITH_STREAM(f) cmocka_unit_test_setup_teardown(f, open_stream, close_stream)

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
	assert_int_equal(flamegraph_color("main", false, false), 0xfcad5c);
	assert_int_equal(flamegraph_color("function_1", false, false), 0xf78569);
	assert_int_equal(flamegraph_color("0x1234", true, false), 0xbcbab7);
}

static void names_are_warm_and_good_to_read_on(void **state)
{
	char name[16];

	for (int i = 0; i < 20000; i++) {
		uint32_t color, r, g, b;

		snprintf(name, sizeof(name), "f%d", i);
		color = flamegraph_color(name, false, false);
		r = color >> 16;
		g = color >> 8 & 255;
		b = color & 255;
		assert_in_range(r, 230, 255);
		assert_true(r > g && g > b);
		assert_true(contrast(color) >= 6);
	}
}

static void time_that_was_waited_is_blue_and_good_to_read_on(void **state)
{
	char name[16];

	for (int i = 0; i < 20000; i++) {
		uint32_t color;

		snprintf(name, sizeof(name), "f%d", i);
		color = flamegraph_color(name, false, true);
		assert_in_range(color & 255, 230, 255);
		assert_true((color >> 8 & 255) < (color & 255) && color >> 16 < (color >> 8 & 255));
		assert_true(contrast(color) >= 6);
	}
}

static void addresses_without_a_name_are_grey(void **state)
{
	char name[24];

	for (int i = 0; i < 20000; i++) {
		uint32_t color, r, g, b;

		snprintf(name, sizeof(name), "0x%x", i * 7919);
		color = flamegraph_color(name, true, false);
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
		colors[i] = flamegraph_color(name, false, false);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(colors[i], colors[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_STREAM(plain_names_stay_as_they_are),
		WITH_STREAM(markup_is_escaped),
		WITH_STREAM(what_cannot_be_seen_is_spelt_out),
		WITH_STREAM(bytes_that_are_no_utf8_are_spelt_out),
		WITH_STREAM(texts_that_do_not_fit_end_in_an_ellipsis),
		WITH_STREAM(numbers_have_two_decimals_and_no_comma),
		WITH_STREAM(counts_are_grouped_by_thousands),
		cmocka_unit_test(a_name_has_the_same_color_in_every_picture),
		cmocka_unit_test(names_are_warm_and_good_to_read_on),
		cmocka_unit_test(time_that_was_waited_is_blue_and_good_to_read_on),
		cmocka_unit_test(addresses_without_a_name_are_grey),
		cmocka_unit_test(names_that_differ_in_a_digit_differ_in_color),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
