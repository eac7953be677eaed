/* SPDX-License-Identifier: BSD-3-Clause */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/preopen.h"
#include "symbol/images/file.h"

static char place[] = "/tmp/symbol-cache-XXXXXX";

static int make_place(void **state)
{
	return !mkdtemp(place) || setenv("XDG_CACHE_HOME", place, 1);
}

static int remove_place(void **state)
{
	char command[64];

	preopen_close();
	snprintf(command, sizeof(command), "rm -r %s", place);
	return system(command);
}

static struct image_file *load_self(void)
{
	const struct image_spec spec = {.path = "/proc/self/exe", .names = true};
	struct image_file *file = calloc(1, sizeof(*file));

	assert_null(image_file_load(&spec, file));
	assert_true(*file->build_id);
	return file;
}

static bool load(const char *build_id, struct image_file **file)
{
	bool found;

	*file = calloc(1, sizeof(**file));
	preopen_close();
	assert_null(symbol_cache_preopen());
	found = symbol_cache_load(build_id, *file);
	return found;
}

static void what_was_given_once_is_found_by_its_build_id(void **state)
{
	struct image_file *self = load_self(), *kept;

	assert_false(load(self->build_id, &kept));
	image_file_free(kept);
	symbol_cache_keep("/proc/self/exe");
	assert_true(load(self->build_id, &kept));
	assert_string_equal(kept->build_id, self->build_id);
	assert_int_equal(symbols_count(kept->symbols), symbols_count(self->symbols));
	assert_int_equal(kept->code->note_va, self->code->note_va);
	assert_int_equal(kept->code->n, 0);
	assert_null(kept->table);
	image_file_free(kept);
	image_file_free(self);
}

static void no_other_name_leads_anywhere(void **state)
{
	static const char *const names[] = {"", "..", "../x", "/etc/passwd", "0123", "ABCD"};
	struct image_file *kept;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		assert_false(load(names[i], &kept));
		image_file_free(kept);
	}
	symbol_cache_keep("/none");
	symbol_cache_keep("/etc/passwd");
}

/* Each byte of the beginning, and some of the rest. */
static void what_is_damaged_is_not_used(void **state)
{
	struct image_file *self = load_self(), *kept;
	char path[256];

	symbol_cache_keep("/proc/self/exe");
	snprintf(path, sizeof(path), "%s/uniprof/symbols/%s", place, self->build_id);
	for (long at = 0; at < 3000; at += at < 200 ? 1 : 97) {
		FILE *file = fopen(path, "r+");
		int byte;

		assert_non_null(file);
		fseek(file, at, SEEK_SET);
		byte = fgetc(file);
		fseek(file, at, SEEK_SET);
		fputc(byte ^ 0x11, file);
		fflush(file);
		assert_false(load(self->build_id, &kept));
		image_file_free(kept);
		fseek(file, at, SEEK_SET);
		fputc(byte, file);
		fclose(file);
	}
	assert_true(load(self->build_id, &kept));
	image_file_free(kept);
	assert_int_equal(truncate(path, 2500), 0);
	assert_false(load(self->build_id, &kept));
	image_file_free(kept);
	image_file_free(self);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_given_once_is_found_by_its_build_id),
		cmocka_unit_test(no_other_name_leads_anywhere),
		cmocka_unit_test(what_is_damaged_is_not_used),
	};

	return cmocka_run_group_tests(tests, make_place, remove_place);
}
