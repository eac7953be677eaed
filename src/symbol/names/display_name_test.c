/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REPLACED "\xef\xbf\xbd"

static void check(const char *name, const char *expected)
{
	char *clean = sanitize_new(name);

	assert_non_null(clean);
	assert_string_equal(clean, expected);
	free(clean);
}

static void ordinary_names_stay_as_they_are(void **state)
{
	check("main", "main");
	check("std::vector<int, a>::push_back(int const&)",
	      "std::vector<int, a>::push_back(int const&)");
	check("a;b", "a;b");
	check("größe", "größe");
	check("\xf0\x9f\x90\xab", "\xf0\x9f\x90\xab");
}

static void control_characters_are_replaced(void **state)
{
	check("a\nb", "a" REPLACED "b");
	check("a\tb\rc", "a" REPLACED "b" REPLACED "c");
	check("\x1b[31m", REPLACED "[31m");
	check("\x7f", REPLACED);
	check("a\xc2\x85"
	      "b",
	      "a" REPLACED "b");
}

static void characters_that_move_text_are_replaced(void **state)
{
	check("a\xe2\x80\xae"
	      "b",
	      "a" REPLACED "b"); /* right-to-left override */
	check("a\xe2\x81\xa6"
	      "b",
	      "a" REPLACED "b"); /* isolate */
	check("a\xe2\x80\xa8"
	      "b",
	      "a" REPLACED "b"); /* line separator */
}

static void bad_utf8_is_replaced_byte_by_byte(void **state)
{
	check("\xff", REPLACED);
	check("a\x80z", "a" REPLACED "z");
	check("\xc0\xaf", REPLACED REPLACED);				/* overlong */
	check("\xed\xa0\x80", REPLACED REPLACED REPLACED);		/* surrogate */
	check("\xf4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED); /* above U+10FFFF */
	check("\xe2\x82", REPLACED REPLACED);				/* ends too early */
	check("\xe2\x82(", REPLACED REPLACED "(");
}

static void outer_blanks_go_and_nothing_becomes_a_dash(void **state)
{
	check("  a b  ", "a b");
	check("", "-");
	check("   ", "-");
}

/* Bytes behind `len` must neither be read nor matter. */
static void all_blanks_are_the_same(void **state)
{
	check("a\xc2\xa0z", "a z");	/* no-break */
	check("a\xe2\x80\x83z", "a z"); /* em */
	check("a\xe3\x80\x80z", "a z"); /* ideographic */
	check("\xe2\x80\x83 wide \xc2\xa0", "wide");
	check("\xc2\xa0", "-");
	check("\xef\xbf\xbf\xef\xbf\xbe", REPLACED REPLACED); /* no characters */
	check("\xef\xbb\xbf"
	      "mark",
	      REPLACED "mark");
}

static void length_bounds_the_name(void **state)
{
	char out[SANITIZE_ROOM(3)];

	assert_int_equal(sanitize_name("ab\xe2\x82\xac", 3, out), 5);
	assert_string_equal(out, "ab" REPLACED);
}

static void worst_case_fits_the_room(void **state)
{
	size_t len = 65536;
	char *name = malloc(len), *out = malloc(SANITIZE_ROOM(len));

	memset(name, 0xff, len);
	assert_int_equal(sanitize_name(name, len, out), 3 * len);
	free(name);
	free(out);
}

/* Every single byte and every pair: the result is one line of valid text. */
static void no_pair_of_bytes_survives_as_control(void **state)
{
	for (unsigned pair = 0; pair < 65536; pair++) {
		char name[2] = {(char)(pair >> 8), (char)pair}, out[SANITIZE_ROOM(2)];
		size_t len = sanitize_name(name, 2, out);

		assert_in_range(len, 1, 6);
		for (size_t i = 0; i < len; i++) {
			unsigned char c = (unsigned char)out[i];

			assert_true(c >= 0x20 && c != 0x7f);
		}
	}
}

static void text_is_cut_between_characters(void **state)
{
	assert_int_equal(sanitize_cut("main", 4), 4);
	assert_int_equal(sanitize_cut("main", 3), 3);
	assert_int_equal(sanitize_cut("ö", 1), 0);
	assert_int_equal(sanitize_cut("aöb", 2), 1);
	assert_int_equal(sanitize_cut("aöb", 3), 3);
	assert_int_equal(sanitize_cut("\xf0\x9f\x90\xab!", 4), 4);
	assert_int_equal(sanitize_cut("\xf0\x9f\x90\xab!", 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_names_stay_as_they_are),
		cmocka_unit_test(control_characters_are_replaced),
		cmocka_unit_test(characters_that_move_text_are_replaced),
		cmocka_unit_test(bad_utf8_is_replaced_byte_by_byte),
		cmocka_unit_test(outer_blanks_go_and_nothing_becomes_a_dash),
		cmocka_unit_test(all_blanks_are_the_same),
		cmocka_unit_test(length_bounds_the_name),
		cmocka_unit_test(worst_case_fits_the_room),
		cmocka_unit_test(text_is_cut_between_characters),
		cmocka_unit_test(no_pair_of_bytes_survives_as_control),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
