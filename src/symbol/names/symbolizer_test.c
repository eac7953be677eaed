/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbolizer.h"

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

static struct symbolizer *symbolizer_for(const struct images *images, const struct profile *profile)
{
	struct symbolizer *symbolizer;

	assert_null(symbolizer_new(images, profile, &symbolizer));
	return symbolizer;
}

static struct named name(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind)
{
	struct named named;

	assert_null(symbolizer_name(symbolizer, addr, kind, &named));
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
	struct symbolizer *symbolizer = symbolizer_for(images, NULL);

	check(name(symbolizer, 0x1010, FRAME_RETURN), "f", 0x10, true);
	check(name(symbolizer, 0x1010, FRAME_PC), "g", 0, true);
	check(name(symbolizer, 0x1000, FRAME_RETURN), "0x1000", 0, false);
	/* The second time from memory. */
	check(name(symbolizer, 0x1010, FRAME_RETURN), "f", 0x10, true);
	check(name(symbolizer, 0x1010, FRAME_PC), "g", 0, true);
	symbolizer_free(symbolizer);
	images_free(images);
}

static void text_may_start_at_address_0(void **state)
{
	struct images *images = table("0 T start\n10 T next\n");
	struct symbolizer *symbolizer = symbolizer_for(images, NULL);

	check(name(symbolizer, 0, FRAME_PC), "start", 0, true);
	check(name(symbolizer, 0, FRAME_RETURN), "start", 0, true);
	symbolizer_free(symbolizer);
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
	struct symbolizer *symbolizer = symbolizer_for(images, &profile);

	check(name(symbolizer, 0x1004, FRAME_PC), "given", 4, true);
	check(name(symbolizer, 0x9000, FRAME_PC), "recorded", 8, true);
	check(name(symbolizer, 0x9000, FRAME_RETURN), "0x9000", 0, false);
	check(name(symbolizer, UINT64_MAX, FRAME_PC), "0xffffffffffffffff", 0, false);
	symbolizer_free(symbolizer);
	images_free(images);
}

static void code_of_another_program_at_a_files_addresses_has_no_name(void **state)
{
	struct recorded_image image = {.path = (char *)"app", .start = 0x1000, .end = 0x2000};
	struct profile profile = {.info.images = {&image, 1}};
	struct images *images = table("1000 T given\n");
	struct symbolizer *symbolizer = symbolizer_for(images, &profile);

	symbolizer_set(symbolizer, &(struct symbolizer_options){.unnamed = UNNAMED_OFFSET});
	check(name(symbolizer, 0x1004, FRAME_PC), "given", 4, true);
	check(name(symbolizer, 0x1004, FRAME_PC | FRAME_FOREIGN), "0x1004", 0, false);
	check(name(symbolizer, 0x1004, FRAME_RETURN | FRAME_FOREIGN), "0x1004", 0, false);
	symbolizer_free(symbolizer);
	images_free(images);
}

static void what_is_said_follows_images_that_are_found_later(void **state)
{
	struct images *images = table("1000 T f\n");
	struct symbolizer *symbolizer = symbolizer_for(images, NULL);
	struct symbols *symbols;

	check(name(symbolizer, 0x9000, FRAME_PC), "0x9000", 0, false);
	assert_null(nm_read("later", strdup("9000 T g\n"), 9, &symbols));
	assert_null(images_add_tables(images, "later", symbols, NULL));
	check(name(symbolizer, 0x9000, FRAME_PC), "g", 0, true);
	images_unmap(images, 1);
	check(name(symbolizer, 0x9000, FRAME_PC), "0x9000", 0, false);
	check(name(symbolizer, 0x1000, FRAME_PC), "f", 0, true);
	symbolizer_free(symbolizer);
	images_free(images);
}

static void equal_names_are_the_same_pointer(void **state)
{
	struct images *images = table("1000 T f\n2000 T g\n3000 t f\n");
	struct symbolizer *symbolizer = symbolizer_for(images, NULL);
	const char *interned;

	assert_ptr_equal(name(symbolizer, 0x1000, FRAME_PC).name,
			 name(symbolizer, 0x3008, FRAME_RETURN).name);
	assert_ptr_not_equal(name(symbolizer, 0x1000, FRAME_PC).name,
			     name(symbolizer, 0x2000, FRAME_PC).name);
	assert_null(symbolizer_intern(symbolizer, "f", &interned));
	assert_ptr_equal(interned, name(symbolizer, 0x1000, FRAME_PC).name);
	symbolizer_free(symbolizer);
	images_free(images);
}

static void names_are_cleaned(void **state)
{
	struct symbolizer *symbolizer = symbolizer_for(NULL, NULL);
	const char *interned;

	assert_null(symbolizer_intern(symbolizer, "a\nb", &interned));
	assert_string_equal(interned, "a\xef\xbf\xbd"
				      "b");
	symbolizer_free(symbolizer);
}

static void names_are_demangled_unless_they_are_not_to_be(void **state)
{
	struct images *images = table("1000 T camlMain__f_12\n2000 T main\n");
	struct symbolizer *symbolizer = symbolizer_for(images, NULL);

	check(name(symbolizer, 0x1004, FRAME_PC), "Main.f_12", 4, true);
	assert_string_equal(name(symbolizer, 0x1004, FRAME_PC).symbol, "camlMain__f_12");
	assert_ptr_equal(name(symbolizer, 0x2000, FRAME_PC).symbol,
			 name(symbolizer, 0x2000, FRAME_PC).name);
	symbolizer_free(symbolizer);
	symbolizer = symbolizer_for(images, NULL);
	symbolizer_set(symbolizer, &(struct symbolizer_options){.no_demangle = true});
	check(name(symbolizer, 0x1004, FRAME_PC), "camlMain__f_12", 4, true);
	symbolizer_free(symbolizer);
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
	struct symbolizer *symbolizer = symbolizer_for(NULL, &profile);
	const struct location *at;
	size_t n;

	assert_null(symbolizer_locate(symbolizer, 0x1004, FRAME_PC, &at, &n));
	assert_int_equal(n, 2);
	assert_string_equal(at[0].function, "Main.g_1");
	assert_string_equal(at[0].symbol, "camlMain__g_1");
	assert_true(at[0].inlined && !at[1].inlined);
	assert_string_equal(at[1].function, "Main.f_2");
	assert_ptr_equal(at[0].file, at[1].file);
	assert_int_equal(at[0].line, 7);
	assert_int_equal(at[1].line, 9);
	check(name(symbolizer, 0x1004, FRAME_PC), "Main.f_2", 4, true);
	symbolizer_free(symbolizer);
	symbolizer = symbolizer_for(NULL, &profile);
	symbolizer_set(symbolizer, &(struct symbolizer_options){.no_inline = true});
	assert_null(symbolizer_locate(symbolizer, 0x1004, FRAME_PC, &at, &n));
	assert_int_equal(n, 1);
	assert_string_equal(at[0].function, "Main.f_2");
	assert_int_equal(at[0].line, 9);
	symbolizer_free(symbolizer);
}

/* Strings stay where they are while tables grow; names may have 64 KiB. */
static void many_and_long_names_stay_valid(void **state)
{
	enum { N = 100000 };
	struct symbolizer *symbolizer = symbolizer_for(NULL, NULL);
	const char **names = calloc(N, sizeof(*names)), *interned;
	char *longest = malloc(65537), expected[24];

	for (size_t i = 0; i < N; i++)
		names[i] = name(symbolizer, i * 16, FRAME_PC).name;
	memset(longest, 'x', 65536);
	longest[65536] = '\0';
	assert_null(symbolizer_intern(symbolizer, longest, &interned));
	assert_string_equal(interned, longest);
	for (size_t i = 0; i < N; i += 997) {
		snprintf(expected, sizeof(expected), "0x%zx", i * 16);
		assert_string_equal(names[i], expected);
		assert_ptr_equal(name(symbolizer, i * 16, FRAME_PC).name, names[i]);
	}
	symbolizer_free(symbolizer);
	free(names);
	free(longest);
}

static struct symbolizer *symbolizer_of_unnamed(const struct profile *profile,
						enum unnamed_code unnamed)
{
	struct symbolizer *symbolizer = symbolizer_for(NULL, profile);

	symbolizer_set(symbolizer, &(struct symbolizer_options){.unnamed = unnamed});
	return symbolizer;
}

static void unnamed_code_is_its_image_and_an_offset_that_does_not_move(void **state)
{
	struct recorded_image image = {.path = (char *)"/lib/libz.so",
				       .start = 0x7f0000001000,
				       .end = 0x7f0000002000,
				       .slide = 0x7f0000000000};
	struct profile profile = {.info.images = {&image, 1}};
	struct symbolizer *offset = symbolizer_of_unnamed(&profile, UNNAMED_OFFSET);
	struct symbolizer *whole = symbolizer_of_unnamed(&profile, UNNAMED_IMAGE);
	struct symbolizer *bare = symbolizer_of_unnamed(&profile, UNNAMED_ADDRESS);

	check(name(offset, 0x7f0000001234, FRAME_PC), "libz.so+0x1234", 0, false);
	check(name(offset, 0x7f0000002000, FRAME_RETURN), "libz.so+0x2000", 0, false);
	check(name(offset, 0x7f0000002000, FRAME_PC), "0x7f0000002000", 0, false);
	check(name(whole, 0x7f0000001234, FRAME_PC), "[libz.so]", 0, false);
	check(name(bare, 0x7f0000001234, FRAME_PC), "0x7f0000001234", 0, false);
	assert_ptr_equal(name(whole, 0x7f0000001234, FRAME_PC).name,
			 name(whole, 0x7f0000001238, FRAME_PC).name);
	symbolizer_free(offset);
	symbolizer_free(whole);
	symbolizer_free(bare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(return_addresses_are_looked_up_minus_one),
		cmocka_unit_test(unnamed_code_is_its_image_and_an_offset_that_does_not_move),
		cmocka_unit_test(text_may_start_at_address_0),
		cmocka_unit_test(table_comes_before_recorded_names_before_addresses),
		cmocka_unit_test(code_of_another_program_at_a_files_addresses_has_no_name),
		cmocka_unit_test(what_is_said_follows_images_that_are_found_later),
		cmocka_unit_test(equal_names_are_the_same_pointer),
		cmocka_unit_test(names_are_cleaned),
		cmocka_unit_test(names_are_demangled_unless_they_are_not_to_be),
		cmocka_unit_test(recorded_places_are_told_with_names_demangled),
		cmocka_unit_test(many_and_long_names_stay_valid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
