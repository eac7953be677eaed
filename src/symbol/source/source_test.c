/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/names/symbols.h"

static volatile int sink;

/* A function at a known line, inlined into another one. */
static inline __attribute__((always_inline)) void inner(int n)
{
	sink += n;
}

void source_test_outer(int n);
__attribute__((noinline)) void source_test_outer(int n)
{
	inner(n);
	sink++;
}

/* All answers for the addresses of a function: "FUNCTION:FILE" of each frame. */
struct heard {
	bool inner_in_outer;
	unsigned answers, empty;
};

static struct error *hear(void *ctx, size_t i, const struct source_answer *answer)
{
	struct heard *heard = ctx;
	const struct source_frame *frame = answer->frame;

	heard->answers++;
	heard->empty += !answer->n;
	/* A damaged file may give any answer. */
	if (answer->n != 2 || !frame[0].function || !frame[0].file || !frame[1].function)
		return NULL;
	if (!strcmp(frame[0].function, "inner") && strstr(frame[0].file, "source_test.c") &&
	    frame[0].line && frame[1].line && !strcmp(frame[1].function, "source_test_outer"))
		heard->inner_in_outer = true;
	return NULL;
}

static void find_outer(struct symbol *symbol)
{
	struct symbols *symbols;
	bool found = false;

	assert_null(symbols_load("/proc/self/exe", &symbols));
	for (size_t i = 0; i < symbols_count(symbols) && !found; i++) {
		symbols_get(symbols, i, symbol);
		found = !strcmp(symbol->name, "source_test_outer");
	}
	assert_true(found);
	symbols_free(symbols);
}

static void ask(const char *path, struct heard *heard, bool *alive)
{
	struct source *source;
	uint64_t addr[SOURCE_BATCH];
	struct symbol outer;
	size_t n = 0;

	*heard = (struct heard){0};
	*alive = false;
	assert_null(source_open(path, "", &source));
	if (!source)
		return;
	find_outer(&outer);
	while (outer.start + n < outer.end && n < SOURCE_BATCH) {
		addr[n] = outer.start + n;
		n++;
	}
	assert_null(source_ask(source, addr, n, hear, heard, alive));
	source_close(source);
}

static void inlined_functions_come_before_the_one_around(void **state)
{
	struct heard heard;
	bool alive;

	source_test_outer(1);
	ask("/proc/self/exe", &heard, &alive);
	assert_true(alive);
	assert_true(heard.answers > 0 && !heard.empty);
	assert_true(heard.inner_in_outer);
}

static void a_file_that_gzip_packed_has_its_lines(void **state)
{
	char path[] = "/tmp/source-XXXXXX", command[128];
	struct heard heard;
	bool alive;

	close(mkstemp(path));
	snprintf(command, sizeof(command), "gzip -c /proc/%d/exe > %s", (int)getpid(), path);
	assert_int_equal(system(command), 0);
	assert_int_equal(chmod(path, 0644), 0);
	ask(path, &heard, &alive);
	assert_true(alive);
	assert_true(heard.inner_in_outer);
	unlink(path);
}

static void another_build_id_is_another_file(void **state)
{
	struct source *source;

	assert_null(source_open("/proc/self/exe", "00112233", &source));
	assert_null(source);
	assert_null(source_open("/none", "", &source));
	assert_null(source);
}

static void what_lies_nowhere_has_no_answer(void **state)
{
	const uint64_t addr[] = {UINT64_MAX, 1};
	struct heard heard = {0};
	struct source *source;
	bool alive;

	assert_null(source_open("/proc/self/exe", "", &source));
	assert_non_null(source);
	assert_null(source_ask(source, addr, 2, hear, &heard, &alive));
	assert_true(alive);
	assert_int_equal(heard.answers, 2);
	assert_int_equal(heard.empty, 2);
	source_close(source);
}

/* Our own file in memory. */
static uint8_t *read_self(size_t *len)
{
	FILE *in = fopen("/proc/self/exe", "r");
	struct stat st;
	uint8_t *bytes;

	assert_non_null(in);
	assert_int_equal(fstat(fileno(in), &st), 0);
	*len = (size_t)st.st_size;
	bytes = malloc(*len);
	assert_int_equal(fread(bytes, 1, *len, in), *len);
	fclose(in);
	return bytes;
}

static void write_file(const char *path, const uint8_t *bytes, size_t len)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	fclose(out);
}

/* Damage of any kind leaves lines that can be read, or none. */
static void damage_costs_no_more_than_the_lines(void **state)
{
	char path[] = "/tmp/source-XXXXXX";
	size_t len;
	uint8_t *good = read_self(&len), *bad = malloc(len);
	unsigned seed = 1;

	close(mkstemp(path));
	/* The reader has no rights. */
	assert_int_equal(chmod(path, 0644), 0);
	for (int round = 0; round < 40; round++) {
		struct heard heard;
		bool alive;

		memcpy(bad, good, len);
		/*
		 * Debugging information lies behind all loaded bytes, before
		 * the section headers.
		 */
		for (int i = 0; i < 2000; i++)
			bad[len / 8 + (size_t)rand_r(&seed) % (len - len / 8 - 8192)] =
				(uint8_t)rand_r(&seed);
		write_file(path, bad, round % 8 ? len : len / 2 + (size_t)round * 1000);
		ask(path, &heard, &alive);
	}
	unlink(path);
	free(good);
	free(bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inlined_functions_come_before_the_one_around),
		cmocka_unit_test(a_file_that_gzip_packed_has_its_lines),
		cmocka_unit_test(another_build_id_is_another_file),
		cmocka_unit_test(what_lies_nowhere_has_no_answer),
		cmocka_unit_test(damage_costs_no_more_than_the_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
