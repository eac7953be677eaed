/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/namer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/names/table.h"

static struct images *table(const char *text)
{
	struct symbols *symbols;
	struct images *images;

	assert_null(nm_read("test", strdup(text), strlen(text), &symbols));
	assert_null(images_new(&images));
	assert_null(images_add_tables(images, "test", symbols, NULL));
	return images;
}

static struct namer *namer_for(const struct images *images, const struct profile *profile)
{
	struct namer *namer;

	assert_null(namer_new(images, profile, &namer));
	return namer;
}

static struct named name(struct namer *namer, uint64_t addr, uint8_t kind)
{
	struct named named;

	assert_null(namer_name(namer, addr, kind, &named));
	return named;
}

static void check(struct named named, const char *expected, uint64_t offset, bool resolved)
{
	assert_string_equal(named.name, expected);
	assert_int_equal(named.offset, offset);
	assert_int_equal(named.resolved, resolved);
}

/* f calls a function that never returns, as its last instruction: g begins right behind. */
static void return_addresses_are_looked_up_minus_one(void **state)
{
	struct images *images = table("1000 T f\n1010 T g\n");
	struct namer *namer = namer_for(images, NULL);

	check(name(namer, 0x1010, FRAME_RETURN), "f", 0x10, true);
	check(name(namer, 0x1010, FRAME_PC), "g", 0, true);
	check(name(namer, 0x1000, FRAME_RETURN), "0x1000", 0, false);
	/* The second time from memory. */
	check(name(namer, 0x1010, FRAME_RETURN), "f", 0x10, true);
	check(name(namer, 0x1010, FRAME_PC), "g", 0, true);
	namer_free(namer);
	images_free(images);
}

static void text_may_start_at_address_0(void **state)
{
	struct images *images = table("0 T start\n10 T next\n");
	struct namer *namer = namer_for(images, NULL);

	check(name(namer, 0, FRAME_PC), "start", 0, true);
	check(name(namer, 0, FRAME_RETURN), "start", 0, true);
	namer_free(namer);
	images_free(images);
}

static void table_comes_before_recorded_names_before_addresses(void **state)
{
	struct profile_name names[] = {
		{.addr = 0x1004, .offset = 4, .name = "recorded", .kind = FRAME_PC},
		{.addr = 0x9000, .offset = 8, .name = "recorded", .kind = FRAME_PC},
	};
	struct profile profile = {.names = names, .n_names = 2};
	struct images *images = table("1000 T given\n");
	struct namer *namer = namer_for(images, &profile);

	check(name(namer, 0x1004, FRAME_PC), "given", 4, true);
	check(name(namer, 0x9000, FRAME_PC), "recorded", 8, true);
	check(name(namer, 0x9000, FRAME_RETURN), "0x9000", 0, false);
	check(name(namer, UINT64_MAX, FRAME_PC), "0xffffffffffffffff", 0, false);
	namer_free(namer);
	images_free(images);
}

static void what_is_said_follows_images_that_are_found_later(void **state)
{
	struct images *images = table("1000 T f\n");
	struct namer *namer = namer_for(images, NULL);
	struct symbols *symbols;

	check(name(namer, 0x9000, FRAME_PC), "0x9000", 0, false);
	assert_null(nm_read("later", strdup("9000 T g\n"), 9, &symbols));
	assert_null(images_add_tables(images, "later", symbols, NULL));
	check(name(namer, 0x9000, FRAME_PC), "g", 0, true);
	images_lift(images, 1);
	check(name(namer, 0x9000, FRAME_PC), "0x9000", 0, false);
	check(name(namer, 0x1000, FRAME_PC), "f", 0, true);
	namer_free(namer);
	images_free(images);
}

static void equal_names_are_the_same_pointer(void **state)
{
	struct images *images = table("1000 T f\n2000 T g\n3000 t f\n");
	struct namer *namer = namer_for(images, NULL);
	const char *interned;

	assert_ptr_equal(name(namer, 0x1000, FRAME_PC).name,
			 name(namer, 0x3008, FRAME_RETURN).name);
	assert_ptr_not_equal(name(namer, 0x1000, FRAME_PC).name,
			     name(namer, 0x2000, FRAME_PC).name);
	assert_null(namer_intern(namer, "f", &interned));
	assert_ptr_equal(interned, name(namer, 0x1000, FRAME_PC).name);
	namer_free(namer);
	images_free(images);
}

static void names_are_cleaned(void **state)
{
	struct namer *namer = namer_for(NULL, NULL);
	const char *interned;

	assert_null(namer_intern(namer, "a\nb", &interned));
	assert_string_equal(interned, "a\xef\xbf\xbd"
				      "b");
	namer_free(namer);
}

static void names_are_demangled_unless_they_are_not_to_be(void **state)
{
	struct images *images = table("1000 T camlMain__f_12\n2000 T main\n");
	struct namer *namer = namer_for(images, NULL);

	check(name(namer, 0x1004, FRAME_PC), "Main.f_12", 4, true);
	assert_string_equal(name(namer, 0x1004, FRAME_PC).symbol, "camlMain__f_12");
	assert_ptr_equal(name(namer, 0x2000, FRAME_PC).symbol, name(namer, 0x2000, FRAME_PC).name);
	namer_free(namer);
	namer = namer_for(images, NULL);
	namer_set(namer, &(struct namer_options){.no_demangle = true});
	check(name(namer, 0x1004, FRAME_PC), "camlMain__f_12", 4, true);
	namer_free(namer);
	images_free(images);
}

static void recorded_places_are_told_with_names_demangled(void **state)
{
	const struct source_frame frames[] = {
		{.function = "camlMain__g_1", .file = "a/main.ml", .line = 7},
		{.function = NULL, .file = "a/main.ml", .line = 9},
	};
	struct profile_name names[] = {{.addr = 0x1004,
					.offset = 4,
					.name = "camlMain__f_2",
					.kind = FRAME_PC,
					.frames = frames,
					.n_frames = 2}};
	struct profile profile = {.names = names, .n_names = 1};
	struct namer *namer = namer_for(NULL, &profile);
	const struct location *at;
	size_t n;

	assert_null(namer_locate(namer, 0x1004, FRAME_PC, &at, &n));
	assert_int_equal(n, 2);
	assert_string_equal(at[0].function, "Main.g_1");
	assert_string_equal(at[0].symbol, "camlMain__g_1");
	assert_true(at[0].inlined && !at[1].inlined);
	assert_string_equal(at[1].function, "Main.f_2");
	assert_ptr_equal(at[0].file, at[1].file);
	assert_int_equal(at[0].line, 7);
	assert_int_equal(at[1].line, 9);
	check(name(namer, 0x1004, FRAME_PC), "Main.f_2", 4, true);
	namer_free(namer);
	namer = namer_for(NULL, &profile);
	namer_set(namer, &(struct namer_options){.no_inline = true});
	assert_null(namer_locate(namer, 0x1004, FRAME_PC, &at, &n));
	assert_int_equal(n, 1);
	assert_string_equal(at[0].function, "Main.f_2");
	assert_int_equal(at[0].line, 9);
	namer_free(namer);
}

/* Strings stay where they are while tables grow; names may have 64 KiB. */
static void many_and_long_names_stay_valid(void **state)
{
	enum { N = 100000 };
	struct namer *namer = namer_for(NULL, NULL);
	const char **names = calloc(N, sizeof(*names)), *interned;
	char *longest = malloc(65537), expected[24];

	for (size_t i = 0; i < N; i++)
		names[i] = name(namer, i * 16, FRAME_PC).name;
	memset(longest, 'x', 65536);
	longest[65536] = '\0';
	assert_null(namer_intern(namer, longest, &interned));
	assert_string_equal(interned, longest);
	for (size_t i = 0; i < N; i += 997) {
		snprintf(expected, sizeof(expected), "0x%zx", i * 16);
		assert_string_equal(names[i], expected);
		assert_ptr_equal(name(namer, i * 16, FRAME_PC).name, names[i]);
	}
	namer_free(namer);
	free(names);
	free(longest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(return_addresses_are_looked_up_minus_one),
		cmocka_unit_test(text_may_start_at_address_0),
		cmocka_unit_test(table_comes_before_recorded_names_before_addresses),
		cmocka_unit_test(what_is_said_follows_images_that_are_found_later),
		cmocka_unit_test(equal_names_are_the_same_pointer),
		cmocka_unit_test(names_are_cleaned),
		cmocka_unit_test(names_are_demangled_unless_they_are_not_to_be),
		cmocka_unit_test(recorded_places_are_told_with_names_demangled),
		cmocka_unit_test(many_and_long_names_stay_valid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
