/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/display_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* NULL: stays as it is. */
static void check(const char *name, const char *expected)
{
	char *plain = demangle(name);

	if (expected) {
		assert_non_null(plain);
		assert_string_equal(plain, expected);
	} else {
		assert_null(plain);
	}
	free(plain);
}

static void ocaml_up_to_5_2(void **state)
{
	check("camlMain__f_12", "Main.f_12");
	check("camlStdlib__List__map_487", "Stdlib.List.map_487");
	check("camlMain__$2b$3d_270", "Main.+=_270");
	check("camlMain__fun_1234", "Main.fun_1234");
	check("camlDune__exe__Main__entry", "Dune.exe.Main.entry");
	check("camlMain__f_", "Main.f_");
}

static void ocaml_from_5_3_on(void **state)
{
	check("camlMain.f_12", "Main.f_12");
	check("camlStdlib__List.map_487", "Stdlib__List.map_487");
	check("camlMain.$2b$3d_270", "Main.+=_270");
	check("camlMain.b__c_3", "Main.b__c_3");
}

static void ocaml_5_4_with_dollars(void **state)
{
	check("camlMain$f_12", "Main.f_12");
	check("camlStdlib__List$$2b_487", "Stdlib__List+_487");
	check("camlMain$$$2b$$3d_270", "Main.+=_270");
}

static void what_only_looks_like_ocaml_stays(void **state)
{
	check("caml_alloc_shr", NULL);
	check("caml", NULL);
	check("camlet", NULL);
	check("main", NULL);
	check("", NULL);
}

static void damaged_escapes_stay_text(void **state)
{
	check("camlM__a$", "M.a$");
	check("camlM__a$2", "M.a$2");
	check("camlM__a$00b", "M.a$00b");
	check("camlM__", "M__");
}

static void cpp(void **state)
{
	check("_ZNSt6vectorIiSaIiEE9push_backERKi",
	      "std::vector<int, std::allocator<int> >::push_back(int const&)");
	check("_ZN3FooC4Ev", "Foo::Foo()");
	check("_Z1fv.cold", "f() [clone .cold]");
	check("_Z1fv@@VERS_1", "f()@@VERS_1");
	check("_Z", NULL);
	check("_Zotherwise", NULL);
	check("__libc_start_main", NULL);
}

static void rust(void **state)
{
	check("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write");
	check("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
	      "3bar17h930b740aa94f1d3aE",
	      "<Test + 'static as foo::Bar<Test>>::bar");
	check("_RNvC6_123foo3bar", "123foo::bar");
	check("_RNvXs_C4mainNtB4_1SNtB4_1T3fun", "<main::S as main::T>::fun");
}

static void d(void **state)
{
	check("_D8demangle4testFaZv", "demangle.test(char)");
	check("_Dmain", "D main");
}

/* Each type is a function of two of the one before. */
static void names_that_grow_without_bounds_stay(void **state)
{
	static const char digit[] = "_0123456789ABCDEFGHIJKLMNO";
	char name[1024], *end = stpcpy(name, "_Z1fFvvE");

	for (int i = 1; i < 25; i++) {
		char before[] = {digit[i], '\0'};
		const char *seq = i == 1 ? "" : before;

		end += snprintf(end, 16, "FvS%s_S%s_E", seq, seq);
	}
	check(name, NULL);
	end = stpcpy(name, "_D1a1f");
	for (int i = 0; i < 400; i++)
		*end++ = i % 2 ? 'b' : 'Q';
	*end = '\0';
	check(name, NULL);
}

static void what_is_very_long_stays(void **state)
{
	char *name = malloc(65537);

	memset(name, 'a', 65536);
	name[65536] = '\0';
	memcpy(name, "_Z65000", 7);
	check(name, NULL);
	free(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ocaml_up_to_5_2),
		cmocka_unit_test(ocaml_from_5_3_on),
		cmocka_unit_test(ocaml_5_4_with_dollars),
		cmocka_unit_test(what_only_looks_like_ocaml_stays),
		cmocka_unit_test(damaged_escapes_stay_text),
		cmocka_unit_test(cpp),
		cmocka_unit_test(rust),
		cmocka_unit_test(d),
		cmocka_unit_test(names_that_grow_without_bounds_stay),
		cmocka_unit_test(what_is_very_long_stays),
	};
	/* A build without the library knows OCaml's alone. */
	const struct CMUnitTest few[] = {
		cmocka_unit_test(ocaml_up_to_5_2),
		cmocka_unit_test(ocaml_from_5_3_on),
		cmocka_unit_test(ocaml_5_4_with_dollars),
		cmocka_unit_test(what_only_looks_like_ocaml_stays),
		cmocka_unit_test(damaged_escapes_stay_text),
	};

	if (strstr(demangle_feature, "only"))
		return cmocka_run_group_tests(few, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
