/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/table.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct symbols *build(const struct symbol_candidate *from, size_t n)
{
	struct symbol_candidates list = {0};
	struct symbols *symbols = NULL;

	for (size_t i = 0; i < n; i++)
		assert_null(symbol_candidates_add(&list, &from[i]));
	assert_null(symbols_build(&list, NULL, &symbols));
	symbol_candidates_free(&list);
	return symbols;
}

#define BUILD(...)                                                     \
	build((const struct symbol_candidate[]){__VA_ARGS__},          \
	      sizeof((const struct symbol_candidate[]){__VA_ARGS__}) / \
		      sizeof(struct symbol_candidate))

static const char *at(const struct symbols *symbols, uint64_t addr)
{
	struct symbol found;

	return symbols_find(symbols, addr, &found) ? found.name : "nobody";
}

static void sizes_are_respected(void **state)
{
	struct symbols *s = BUILD({.start = 0x1000, .size = 0x10, .name = "a"},
				  {.start = 0x1020, .size = 0x10, .name = "b"});

	assert_string_equal(at(s, 0xfff), "nobody");
	assert_string_equal(at(s, 0x1000), "a");
	assert_string_equal(at(s, 0x100f), "a");
	assert_string_equal(at(s, 0x1010), "nobody");
	assert_string_equal(at(s, 0x1020), "b");
	assert_string_equal(at(s, 0x1030), "nobody");
	assert_string_equal(at(s, UINT64_MAX), "nobody");
	symbols_free(s);
}

static void unsized_reach_to_the_next_and_to_the_end_of_their_section(void **state)
{
	struct symbols *s = BUILD({.start = 0x0, .name = "a"}, {.start = 0x100, .name = "b"},
				  {.start = 0x200, .limit = 0x300, .name = "c"},
				  {.start = 0x8000, .name = "last"});

	assert_string_equal(at(s, 0), "a");
	assert_string_equal(at(s, 0xff), "a");
	assert_string_equal(at(s, 0x1ff), "b");
	assert_string_equal(at(s, 0x2ff), "c");
	assert_string_equal(at(s, 0x300), "nobody");
	assert_string_equal(at(s, 0x8fff), "last");
	assert_string_equal(at(s, 0x9000), "nobody");
	symbols_free(s);
}

static void a_mark_without_name_ends_what_comes_before(void **state)
{
	struct symbols *s = BUILD({.start = 0x100, .name = "a"}, {.start = 0x200},
				  {.start = 0x300, .name = "b"}, {.start = 0x300});

	assert_string_equal(at(s, 0x1ff), "a");
	assert_string_equal(at(s, 0x200), "nobody");
	assert_string_equal(at(s, 0x300), "b");
	assert_int_equal(symbols_count(s), 2);
	symbols_free(s);
}

static void nearest_start_wins_and_the_outer_function_resumes(void **state)
{
	struct symbols *s = BUILD({.start = 0x100, .size = 0x100, .name = "outer"},
				  {.start = 0x140, .size = 0x20, .name = "inner"},
				  {.start = 0x150, .size = 0x10, .name = "innermost"},
				  {.start = 0x1f0, .size = 0x40, .name = "overlapping"});
	struct symbol found;

	assert_string_equal(at(s, 0x13f), "outer");
	assert_string_equal(at(s, 0x140), "inner");
	assert_string_equal(at(s, 0x150), "innermost");
	assert_true(symbols_find(s, 0x160, &found));
	assert_string_equal(found.name, "outer");
	assert_int_equal(found.start, 0x100);
	assert_string_equal(at(s, 0x1f0), "overlapping");
	assert_string_equal(at(s, 0x200), "overlapping");
	assert_string_equal(at(s, 0x230), "nobody");
	symbols_free(s);
}

static void labels_inside_a_sized_function_are_not_functions(void **state)
{
	struct symbols *s = BUILD({.start = 0x100, .size = 0x100, .name = "function"},
				  {.start = 0x140, .name = "label", .untyped = true},
				  {.start = 0x200, .name = "entry", .untyped = true});

	assert_string_equal(at(s, 0x150), "function");
	assert_string_equal(at(s, 0x210), "entry");
	assert_int_equal(symbols_count(s), 2);
	symbols_free(s);
}

/* Each pair differs in the criterion only, the winner listed second. */
static void aliases_are_chosen_by_the_fixed_rule(void **state)
{
	const struct symbol_candidate pairs[][2] = {
		{{.name = "a", .untyped = true}, {.name = "b", .bind = BIND_LOCAL}},
		{{.name = "a", .bind = BIND_WEAK}, {.name = "b", .bind = BIND_GLOBAL}},
		{{.name = "a", .bind = BIND_LOCAL}, {.name = "b", .bind = BIND_WEAK}},
		{{.name = "a"}, {.name = "b", .size = 8}},
		{{.name = "__a"}, {.name = "b"}},
		{{.name = "__ia32_sys_sync"}, {.name = "__x64_sys_sync"}},
		{{.name = "b"}, {.name = "a"}},
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct symbols *forward = build(pairs[i], 2);
		struct symbols *backward = BUILD(pairs[i][1], pairs[i][0]);

		assert_int_equal(symbols_count(forward), 1);
		assert_string_equal(at(forward, 0), pairs[i][1].name);
		assert_string_equal(at(backward, 0), pairs[i][1].name);
		symbols_free(forward);
		symbols_free(backward);
	}
}

static void an_unsized_alias_takes_the_size_of_its_twin(void **state)
{
	struct symbols *s = BUILD({.start = 0x100, .size = 0x20, .bind = BIND_LOCAL, .name = "a"},
				  {.start = 0x100, .bind = BIND_GLOBAL, .name = "b"});

	assert_string_equal(at(s, 0x11f), "b");
	assert_string_equal(at(s, 0x120), "nobody");
	symbols_free(s);
}

static void top_of_memory_does_not_wrap(void **state)
{
	struct symbols *s = BUILD({.start = 0xffffffff81000000, .size = 0x10, .name = "low"},
				  {.start = 0xffffffffffffff00, .size = 0x1000, .name = "high"});

	assert_string_equal(at(s, 0xffffffff8100000f), "low");
	assert_string_equal(at(s, 0x8100000f), "nobody");
	assert_string_equal(at(s, 0xfffffffffffffff0), "high");
	assert_string_equal(at(s, 0), "nobody");
	symbols_free(s);
}

static void empty_table_finds_nothing(void **state)
{
	struct symbols *s = build(NULL, 0);

	assert_int_equal(symbols_count(s), 0);
	assert_string_equal(at(s, 0), "nobody");
	symbols_free(s);
}

/* Many overlapping functions against the plain definition: nearest start that reaches so far. */
static void random_overlaps_match_a_linear_search(void **state)
{
	enum { N = 200, SPACE = 1024 };
	struct symbol_candidate from[N];
	struct symbols *s;
	unsigned seed = 1;

	for (size_t i = 0; i < N; i++) {
		seed = seed * 1103515245 + 12345;
		from[i] = (struct symbol_candidate){.start = seed >> 16 & (SPACE - 1),
						    .size = 1 + (seed >> 8 & 63),
						    .name = "x"};
	}
	s = build(from, N);
	for (uint64_t addr = 0; addr < SPACE + 64; addr++) {
		struct symbol found, one;
		bool expected = false;
		uint64_t start = 0;

		for (size_t i = 0; i < symbols_count(s); i++) {
			symbols_get(s, i, &one);
			if (addr < one.start || addr >= one.end)
				continue;
			expected = true;
			start = one.start;
		}
		assert_int_equal(symbols_find(s, addr, &found), expected);
		if (expected)
			assert_int_equal(found.start, start);
	}
	symbols_free(s);
}

static void lookups_all_over_a_large_table_find_what_is_there(void **state)
{
	enum { N = 200000 };
	struct symbol_candidate *from = calloc(N, sizeof(*from));
	struct symbols *s;
	unsigned found = 0;

	for (size_t i = 0; i < N; i++)
		from[i] = (struct symbol_candidate){.start = 0xffffffff81000000 + 64 * i,
						    .size = 48,
						    .name = "f"};
	s = build(from, N);
	for (uint64_t i = 0, x = 1; i < 1000000; i++) {
		struct symbol one;

		x = x * 6364136223846793005 + 1;
		found += symbols_find(s, 0xffffffff81000000 + (x >> 33) % (64 * N), &one);
	}
	assert_in_range(found, 740000, 760000);
	symbols_free(s);
	free(from);
}

static void written_table_is_one_clean_line_a_function(void **state)
{
	struct symbols *s = BUILD({.start = 0x10, .size = 4, .name = "a"},
				  {.start = 0xffffffff81000000, .size = 4, .name = "b\nc"});
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_null(symbols_write_nm(s, 0, out));
	fclose(out);
	assert_string_equal(text, "0000000000000010 t a\n"
				  "ffffffff81000000 t b\xef\xbf\xbd"
				  "c\n");
	free(text);
	symbols_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_respected),
		cmocka_unit_test(unsized_reach_to_the_next_and_to_the_end_of_their_section),
		cmocka_unit_test(a_mark_without_name_ends_what_comes_before),
		cmocka_unit_test(nearest_start_wins_and_the_outer_function_resumes),
		cmocka_unit_test(labels_inside_a_sized_function_are_not_functions),
		cmocka_unit_test(aliases_are_chosen_by_the_fixed_rule),
		cmocka_unit_test(an_unsized_alias_takes_the_size_of_its_twin),
		cmocka_unit_test(top_of_memory_does_not_wrap),
		cmocka_unit_test(empty_table_finds_nothing),
		cmocka_unit_test(random_overlaps_match_a_linear_search),
		cmocka_unit_test(lookups_all_over_a_large_table_find_what_is_there),
		cmocka_unit_test(written_table_is_one_clean_line_a_function),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
