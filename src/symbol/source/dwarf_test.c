/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of this very program's functions, from a copy that has only a few symbols left. */
#include "symbol/names/symbols.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Damaged copies, each with the next of a fixed row of random numbers. */
#define DAMAGES 100

struct fixture {
	char dir[32], whole[PATH_MAX], thin[64];
	struct symbols *full;
};

static void run(const char *format, const char *from, const char *to)
{
	char command[3 * PATH_MAX];

	snprintf(command, sizeof(command), format, from, to);
	assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	ssize_t n;

	assert_non_null(f);
	n = readlink("/proc/self/exe", f->whole, sizeof(f->whole) - 1);
	assert_true(n > 0);
	strcpy(f->dir, "/tmp/uniprof-dwarf-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->thin, sizeof(f->thin), "%s/thin", f->dir);
	assert_null(symbols_load(f->whole, &f->full));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	run("rm -r %s", f->dir, NULL);
	symbols_free(f->full);
	free(f);
	return 0;
}

/* Debugging information lacks the suffix that a compiler appends to the name of a copy. */
static bool same_name(const char *symbol, const char *debug)
{
	size_t len = strcspn(symbol, ".");

	return !strncmp(symbol, debug, len) && !debug[strcspn(debug, ".")] == !debug[len];
}

static void need(const char *command)
{
	if (!system(command))
		return;
	print_message("# this needs objcopy, and debugging information in this program\n");
	skip();
}

static void keep_few_symbols(const struct fixture *f)
{
	need("objcopy --version >/dev/null 2>&1");
	need("readelf -S /proc/$PPID/exe 2>/dev/null | grep -q '[.]debug_info'");
	run("objcopy -w --strip-symbol='!_start' %s %s", f->whole, f->thin);
}

static void expect_names(const struct fixture *f, const struct symbols *thin)
{
	size_t same = 0;

	for (size_t i = 0; i < symbols_count(f->full); i++) {
		struct symbol full, found;

		symbols_get(f->full, i, &full);
		if (!symbols_find(thin, full.start, &found) || found.start != full.start)
			continue;
		if (!same_name(full.name, found.name))
			fail_msg("%s is called %s", full.name, found.name);
		assert_true(found.end == full.end);
		same++;
	}
	print_message("# %zu of %zu functions\n", same, symbols_count(f->full));
	assert_true(same > symbols_count(f->full) / 2);
}

static void functions_without_symbols_have_those_of_the_debugging_information(void **state)
{
	const struct fixture *f = *state;
	struct symbols *thin;

	keep_few_symbols(f);
	assert_null(symbols_load(f->thin, &thin));
	expect_names(f, thin);
	symbols_free(thin);
	/* Debugging information in a separate file, of an image without any symbols. */
	run("objcopy --only-keep-debug %s %s.debug", f->thin, f->thin);
	run("objcopy -S %s && cd %s && objcopy --add-gnu-debuglink=thin.debug thin", f->thin,
	    f->dir);
	assert_null(symbols_load(f->thin, &thin));
	expect_names(f, thin);
	symbols_free(thin);
}

static void a_symbol_without_a_size_ends_where_its_unit_does(void **state)
{
	struct fixture *f = *state;
	struct symbols *thin;
	struct symbol found;

	keep_few_symbols(f);
	assert_null(symbols_load(f->thin, &thin));
	for (size_t i = 0; i < symbols_count(thin); i++) {
		symbols_get(thin, i, &found);
		assert_true(found.end - found.start <= UNSIZED_USUAL);
	}
	symbols_free(thin);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static void damaged_debugging_information_is_survived(void **state)
{
	struct fixture *f = *state;
	uint64_t seed = 1;
	FILE *file;
	long size;

	keep_few_symbols(f);
	file = fopen(f->thin, "r+");
	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	for (unsigned i = 0; i < DAMAGES; i++) {
		struct symbols *symbols = NULL;

		/* Sections of debugging information are the last of a file. */
		fseek(file, size / 2 + (long)(next_random(&seed) % (uint64_t)(size / 2 - 8192)),
		      SEEK_SET);
		fputc((int)next_random(&seed), file);
		fflush(file);
		error_free(symbols_load(f->thin, &symbols));
		symbols_free(symbols);
	}
	fclose(file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(functions_without_symbols_have_those_of_the_debugging_information),
		TEST(a_symbol_without_a_size_ends_where_its_unit_does),
		TEST(damaged_debugging_information_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
