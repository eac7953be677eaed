/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbols.h"

#include "symbol/names/elf_fixture.h"

#define SYMBOLS(...)                                             \
	.symbols = (const struct fixture_symbol[]){__VA_ARGS__}, \
	.n = sizeof((const struct fixture_symbol[]){__VA_ARGS__}) / sizeof(struct fixture_symbol)

static struct error *load(const struct fixture *fixture, struct symbols **out)
{
	struct fixture_file file = fixture_file();
	struct error *err;

	fixture_write(fixture, file.path);
	err = symbols_load(file.path, out);
	close(file.fd);
	return err;
}

static struct symbols *table(const struct fixture *fixture)
{
	struct symbols *symbols = NULL;
	struct error *err = load(fixture, &symbols);

	if (err)
		fail_msg("%s", err->text);
	return symbols;
}

static void refused(const struct fixture *fixture, const char *because)
{
	struct symbols *symbols;
	struct error *err = load(fixture, &symbols);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, because));
	error_free(err);
}

static const char *at(const struct symbols *symbols, uint64_t addr)
{
	struct symbol found;

	return symbols_find(symbols, addr, &found) ? found.name : "nobody";
}

static void only_functions_and_labels_in_code_are_taken(void **state)
{
	struct symbols *s = table(&(struct fixture){
		.table = SHT_SYMTAB,
		SYMBOLS({"function", 0x1000, 0x10, STT_FUNC, STB_GLOBAL, IN_TEXT},
			{"indirect", 0x1100, 0x10, STT_GNU_IFUNC, STB_GLOBAL, IN_TEXT},
			{"assembly", 0x1200, 0, STT_NOTYPE, STB_LOCAL, IN_TEXT},
			{"object", 0x1300, 0x10, STT_OBJECT, STB_GLOBAL, IN_TEXT},
			{"section", 0x1310, 0, STT_SECTION, STB_LOCAL, IN_TEXT},
			{"file.c", 0x1320, 0, STT_FILE, STB_LOCAL, SHN_ABS},
			{"data", 0x8000, 0, STT_NOTYPE, STB_GLOBAL, IN_DATA},
			{"errno", 0, 4, STT_TLS, STB_GLOBAL, IN_TLS},
			{"constant", 0x1210, 0, STT_NOTYPE, STB_GLOBAL, SHN_ABS},
			{"absolute", 0x1220, 8, STT_FUNC, STB_GLOBAL, SHN_ABS},
			{"common", 0x1230, 8, STT_FUNC, STB_GLOBAL, SHN_COMMON},
			{"undefined", 0x1240, 8, STT_FUNC, STB_GLOBAL, SHN_UNDEF},
			{"no_section", 0x1250, 8, STT_FUNC, STB_GLOBAL, 77},
			{"", 0x1260, 8, STT_FUNC, STB_GLOBAL, IN_TEXT},
			{"elsewhere", 0x7000, 8, STT_FUNC, STB_GLOBAL, IN_TEXT})});

	assert_int_equal(symbols_count(s), 3);
	assert_string_equal(at(s, 0x100f), "function");
	assert_string_equal(at(s, 0x1010), "nobody");
	assert_string_equal(at(s, 0x1100), "indirect");
	assert_string_equal(at(s, 0x12ff), "assembly");
	symbols_free(s);
}

static void unsized_end_with_their_section(void **state)
{
	struct symbols *s = table(&(struct fixture){
		.table = SHT_SYMTAB,
		SYMBOLS({"a", 0x1000, 0, STT_FUNC, STB_GLOBAL, IN_TEXT},
			{"b", 0x1800, 0, STT_NOTYPE, STB_GLOBAL, IN_TEXT},
			{"_etext", 0x2000, 0, STT_NOTYPE, STB_GLOBAL, IN_TEXT},
			{"huge", 0x1ff0, UINT64_MAX, STT_FUNC, STB_GLOBAL, IN_TEXT})});

	assert_string_equal(at(s, 0x17ff), "a");
	assert_string_equal(at(s, 0x1fef), "b");
	assert_string_equal(at(s, 0x1fff), "huge");
	assert_string_equal(at(s, 0x2000), "nobody");
	symbols_free(s);
}

static void a_function_is_preferred_to_a_global_label(void **state)
{
	struct symbols *s = table(
		&(struct fixture){.table = SHT_SYMTAB,
				  SYMBOLS({"_text", 0x1000, 0, STT_NOTYPE, STB_GLOBAL, IN_TEXT},
					  {"first", 0x1000, 0x20, STT_FUNC, STB_LOCAL, IN_TEXT},
					  {"__write", 0x1100, 0x20, STT_FUNC, STB_GLOBAL, IN_TEXT},
					  {"write", 0x1100, 0x20, STT_FUNC, STB_WEAK, IN_TEXT})});

	assert_string_equal(at(s, 0x1000), "first");
	assert_string_equal(at(s, 0x1100), "__write");
	symbols_free(s);
}

static void thumb_bit_and_mapping_symbols_go_on_arm(void **state)
{
	struct symbols *s = table(
		&(struct fixture){.class = ELFCLASS32,
				  .machine = EM_ARM,
				  .table = SHT_SYMTAB,
				  SYMBOLS({"thumb", 0x1001, 0x10, STT_FUNC, STB_GLOBAL, IN_TEXT},
					  {"$t", 0x1000, 0, STT_NOTYPE, STB_LOCAL, IN_TEXT},
					  {"$d.3", 0x1020, 0, STT_NOTYPE, STB_LOCAL, IN_TEXT},
					  {"arm", 0x1100, 0x10, STT_FUNC, STB_GLOBAL, IN_TEXT})});
	struct symbol found;

	assert_true(symbols_find(s, 0x1000, &found));
	assert_string_equal(found.name, "thumb");
	assert_int_equal(found.start, 0x1000);
	assert_int_equal(found.end, 0x1010);
	assert_string_equal(at(s, 0x1020), "nobody");
	assert_int_equal(symbols_count(s), 2);
	symbols_free(s);
}

static void odd_addresses_stay_on_x86(void **state)
{
	struct symbols *s = table(
		&(struct fixture){.class = ELFCLASS32,
				  .machine = EM_386,
				  .table = SHT_SYMTAB,
				  SYMBOLS({"odd", 0x1001, 0x10, STT_FUNC, STB_GLOBAL, IN_TEXT})});
	struct symbol found;

	assert_true(symbols_find(s, 0x1001, &found));
	assert_int_equal(found.start, 0x1001);
	assert_string_equal(at(s, 0x1000), "nobody");
	symbols_free(s);
}

static void dynamic_symbols_serve_when_there_are_no_others(void **state)
{
	struct symbols *s = table(&(struct fixture){.type = ET_DYN,
						    .table = SHT_DYNSYM,
						    SYMBOLS({"exported", 0x1000, 0x10, STT_FUNC,
							     STB_GLOBAL, IN_TEXT})});

	assert_string_equal(at(s, 0x1000), "exported");
	symbols_free(s);
}

static void names_of_64_KiB_are_kept_whole(void **state)
{
	char *name = malloc(65537);
	struct symbols *s;

	memset(name, 'x', 65536);
	name[65536] = '\0';
	s = table(&(struct fixture){.table = SHT_SYMTAB,
				    SYMBOLS({name, 0x1000, 1, STT_FUNC, STB_GLOBAL, IN_TEXT})});
	assert_string_equal(at(s, 0x1000), name);
	symbols_free(s);
	free(name);
}

static void build_id_is_given_in_hex(void **state)
{
	struct symbols *s =
		table(&(struct fixture){.table = SHT_SYMTAB,
					SYMBOLS({"f", 0x1000, 1, STT_FUNC, STB_GLOBAL, IN_TEXT})});

	assert_string_equal(symbols_build_id(s), FIXTURE_BUILD_ID);
	symbols_free(s);
}

static void files_without_functions_are_refused(void **state)
{
	refused(&(struct fixture){.table = 0, SYMBOLS({"", 0, 0, 0, 0, 0})}, "stripped");
	refused(&(struct fixture){.table = SHT_SYMTAB,
				  SYMBOLS({"data", 0x8000, 8, STT_OBJECT, STB_GLOBAL, IN_DATA})},
		"no function symbols");
	refused(&(struct fixture){.type = ET_REL,
				  .table = SHT_SYMTAB,
				  SYMBOLS({"f", 0x1000, 1, STT_FUNC, STB_GLOBAL, IN_TEXT})},
		"not linked");
}

/* The file that is running now, as its compiler and linker made it. */
static void a_real_program_finds_its_own_functions(void **state)
{
	struct symbols *symbols;
	size_t seen = 0;

	assert_null(symbols_load("/proc/self/exe", &symbols));
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		struct symbol one, found;

		symbols_get(symbols, i, &one);
		assert_true(one.end > one.start);
		assert_true(symbols_find(symbols, one.start, &found));
		assert_string_equal(found.name, one.name);
		assert_true(symbols_find(symbols, one.end - 1, &found));
		seen += !strcmp(one.name, "main") || !strcmp(one.name, "symbols_load");
		if (i) {
			struct symbol before;

			symbols_get(symbols, i - 1, &before);
			assert_true(before.start < one.start);
		}
	}
	assert_int_equal(seen, 2);
	symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_functions_and_labels_in_code_are_taken),
		cmocka_unit_test(unsized_end_with_their_section),
		cmocka_unit_test(a_function_is_preferred_to_a_global_label),
		cmocka_unit_test(thumb_bit_and_mapping_symbols_go_on_arm),
		cmocka_unit_test(odd_addresses_stay_on_x86),
		cmocka_unit_test(dynamic_symbols_serve_when_there_are_no_others),
		cmocka_unit_test(names_of_64_KiB_are_kept_whole),
		cmocka_unit_test(build_id_is_given_in_hex),
		cmocka_unit_test(files_without_functions_are_refused),
		cmocka_unit_test(a_real_program_finds_its_own_functions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
