/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/source/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char place[64];

static const char *put(const char *name, const char *text)
{
	static char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", place, name);
	out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
	return path;
}

static int make_place(void **state)
{
	char path[128];

	strcpy(place, "/tmp/source-text-XXXXXX");
	assert_non_null(mkdtemp(place));
	for (const char *const *name = (const char *const[]){"lib", "lib/net", NULL}; *name;
	     name++) {
		snprintf(path, sizeof(path), "%s/%s", place, *name);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	put("main.c", "int main(void)\r\n{\n\treturn 0;\x1b[31m\n}\n");
	put("lib/net/main.c", "below\n");
	return 0;
}

static int remove_place(void **state)
{
	static const char *const names[] = {"lib/net/main.c", "lib/net", "lib", "main.c"};
	char path[128];

	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", place, names[i]);
		assert_int_equal(remove(path), 0);
	}
	return rmdir(place);
}

static void check(struct source_texts *texts, const char *path, uint32_t line, const char *expected)
{
	char *text = source_texts_line(texts, path, line);

	if (expected)
		assert_string_equal(text, expected);
	else
		assert_null(text);
	free(text);
}

static void lines_are_sanitized_and_in_bounds(void **state)
{
	struct source_texts *texts = source_texts_new(&(struct source_text_options){0});
	char path[128];

	snprintf(path, sizeof(path), "%s/main.c", place);
	check(texts, path, 1, "int main(void)");
	check(texts, path, 3, "return 0;\xef\xbf\xbd[31m");
	check(texts, path, 4, "}");
	check(texts, path, 0, NULL);
	check(texts, path, 5, NULL);
	assert_string_equal(source_texts_file(texts, path), path);
	check(texts, "main.c", 1, NULL);
	check(texts, "/nowhere/at/all.c", 1, NULL);
	source_texts_free(texts);
}

static void the_longest_end_of_a_path_that_is_below_the_directory_counts(void **state)
{
	const struct source_text_options how = {.directory = place};
	struct source_texts *texts = source_texts_new(&how);

	check(texts, "/home/builder/project/lib/net/main.c", 1, "below");
	check(texts, "/home/builder/project/main.c", 2, "{");
	check(texts, "net/main.c", 2, "{");
	check(texts, "/home/builder/other.c", 1, NULL);
	source_texts_free(texts);
}

/* Debugging information could name any file of the one who makes a page, which others get to see. */
static void nothing_outside_of_the_directory_is_read_if_it_alone_counts(void **state)
{
	static char path[128], below[128];
	const struct source_text_options none = {.only_directory = true},
					 how = {.directory = below, .only_directory = true};
	struct source_texts *texts = source_texts_new(&none);

	snprintf(path, sizeof(path), "%s/main.c", place);
	snprintf(below, sizeof(below), "%s/lib", place);
	check(texts, path, 1, NULL);
	source_texts_free(texts);
	texts = source_texts_new(&how);
	check(texts, path, 1, NULL);
	check(texts, "/x/../main.c", 1, NULL);
	check(texts, "..//main.c", 1, NULL);
	check(texts, "net/../../main.c", 1, NULL);
	check(texts, "/x/../net/main.c", 1, "below");
	source_texts_free(texts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_sanitized_and_in_bounds),
		cmocka_unit_test(the_longest_end_of_a_path_that_is_below_the_directory_counts),
		cmocka_unit_test(nothing_outside_of_the_directory_is_read_if_it_alone_counts),
	};

	return cmocka_run_group_tests(tests, make_place, remove_place);
}
