/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/names/short_name_fixture.h"

/* `expected` NULL: the full name is the short one. */
static void check(const char *full, const char *expected)
{
	char *text = name_shorten(full, false);

	if (expected)
		assert_string_equal(text ? text : full, expected);
	else
		assert_string_equal(text ? text : full, full);
	free(text);
}

static void symbols_of_five_languages_are_as_people_say_them(void **state)
{
	const size_t n = sizeof(short_name_examples) / sizeof(*short_name_examples);

	assert_true(n >= 200);
	for (size_t i = 0; i < n; i++) {
		char *full = demangle(short_name_examples[i].symbol);

		/* A build without the library demangles OCaml alone. */
		if (full || short_name_examples[i].symbol[0] != '_')
			check(full ? full : short_name_examples[i].symbol,
			      short_name_examples[i].shortened);
		free(full);
	}
}

static void return_types_and_arguments_go(void **state)
{
	check("int f(char)", "f");
	check("a::b<int> c::d<char>(int) const", "c::d<char>");
	check("Foo::operator bool() const", "Foo::operator bool");
	check("void construct<int>(int*)", "construct<int>");
	check("operator new(unsigned long)", "operator new");
	check("(anonymous namespace)::f(int)", "f");
	check("f(int)::{lambda(int)#1}::operator()(int) const", "f::{lambda#1}");
	check("f() [clone .cold]", "f.cold");
	check("f(int)@@VERS_1", "f");
}

static void other_names_stay(void **state)
{
	check("main", NULL);
	check("f.constprop.0", NULL);
	check("puts@plt", NULL);
	check("0x1234", NULL);
	check("[libcrypto.so.3]", NULL);
	check("libcrypto.so.3+0x29e56f", NULL);
	check("main (script.py:3)", NULL);
	check("void (*f(int))(char)", NULL);
	check("", NULL);
}

/* As a compiler could have written them, and as it could not. */
static void odd_names_do_no_harm(void **state)
{
	char *name = malloc(100001);

	for (const char *c = "<([{>)]}:,-& "; *c; c++) {
		memset(name, *c, 100000);
		name[100000] = '\0';
		free(name_shorten(name, true));
		name[0] = name[99999] = 'a';
		free(name_shorten(name, false));
	}
	free(name);
}

static const char *get(struct short_names *names, const char *full)
{
	size_t len = strlen(full);

	return short_names_get(names, full, &len);
}

static void names_that_would_look_alike_get_arguments(void **state)
{
	static const char *const all[] = {"f(int)", "f(char)", "g(int)", "h", "h(int)"};
	struct short_names *names;

	assert_null(short_names_new(&names));
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		assert_null(short_names_add(names, all[i], strlen(all[i])));
	assert_string_equal(get(names, "f(int)"), "f(int)");
	assert_string_equal(get(names, "f(char)"), "f(char)");
	assert_string_equal(get(names, "g(int)"), "g");
	assert_string_equal(get(names, "h"), "h");
	assert_string_equal(get(names, "h(int)"), "h(int)");
	short_names_free(names);
}

static void names_that_differ_in_what_is_cut_stay_full(void **state)
{
	static const char first[] = "Main.fun_12", second[] = "Main.fun_13";
	struct short_names *names;

	assert_null(short_names_new(&names));
	assert_string_equal(get(names, first), "Main.fun");
	assert_string_equal(get(names, second), second);
	assert_string_equal(get(names, first), first);
	assert_string_equal(get(NULL, first), first);
	short_names_free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symbols_of_five_languages_are_as_people_say_them),
		cmocka_unit_test(return_types_and_arguments_go),
		cmocka_unit_test(other_names_stay),
		cmocka_unit_test(odd_names_do_no_harm),
		cmocka_unit_test(names_that_would_look_alike_get_arguments),
		cmocka_unit_test(names_that_differ_in_what_is_cut_stay_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
