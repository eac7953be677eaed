/* SPDX-License-Identifier: BSD-3-Clause */

/* Files beside a stripped one, as builds leave them: this program, stripped, is the image. */

#include "base/debug_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/preopen.h"
#include "symbol/names/symbols.h"

#define NO_ID "-R .note.gnu.build-id"

#ifdef __x86_64__
#define X86_64 true
#else
#define X86_64 false
#endif

struct place {
	char dir[32], image[64];
};

static void run(const struct place *place, const char *format, const char *options)
{
	char command[512];
	int len = snprintf(command, sizeof(command), "cd %s && ", place->dir);

	snprintf(command + len, sizeof(command) - (size_t)len, format, options);
	assert_int_equal(system(command), 0);
}

/* A directory with an image without symbols, made with these options. */
static int make_place(void **state, const char *options)
{
	struct place *place = calloc(1, sizeof(*place));
	char self[256] = "";

	assert_non_null(place);
	strcpy(place->dir, "/tmp/uniprof-debug-XXXXXX");
	assert_non_null(mkdtemp(place->dir));
	snprintf(place->image, sizeof(place->image), "%s/app", place->dir);
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	run(place, "ln -s %s self", self);
	run(place, "objcopy -S %s self app", options);
	*state = place;
	return 0;
}

static int set_up(void **state)
{
	return make_place(state, NO_ID);
}

static int set_up_with_id(void **state)
{
	return make_place(state, "");
}

static int tear_down(void **state)
{
	struct place *place = *state;

	preopen_close();
	run(place, "rm -r %s", place->dir);
	free(place);
	return 0;
}

static bool has_names(const struct place *place)
{
	struct symbols *symbols = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	bool has;

	error_free(symbols_load(place->image, &symbols));
	if (symbols)
		error_free(symbols_write_nm(symbols, 0, out));
	symbols_free(symbols);
	fclose(out);
	has = strstr(text, " a_function_of_this_file\n");
	free(text);
	return has;
}

/* Local, so that it is in no table that `strip` leaves. */
static __attribute__((noinline, used)) void a_function_of_this_file(void)
{
	__asm__ volatile("");
}

static void all_names_of_builds_are_found(void **state)
{
	static const char *const names[] = {"app.dbg", "app.debug", ".debug/app",
					    ".debug/app.debug", ".debug/app.dbg"};
	const struct place *place = *state;

	run(place, "mkdir .debug%s", "");
	assert_false(has_names(place));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		run(place, "objcopy " NO_ID " self %s", names[i]);
		assert_true(has_names(place));
		run(place, "rm %s", names[i]);
	}
	assert_false(has_names(place));
}

static void a_build_id_is_enough(void **state)
{
	const struct place *place = *state;

	assert_false(has_names(place));
	run(place, "objcopy --only-keep-debug %s self app.dbg", "");
	assert_true(has_names(place));
	run(place, "objcopy " NO_ID " self %s", "app.dbg");
	assert_false(has_names(place));
}

/* Its directories are called by the build id. */
static void the_guest_s_own_debug_files_are_found(void **state)
{
	const struct place *place = *state;
	char root[64];

	run(place,
	    "id=$(readelf -n self | sed -n 's/.*Build ID: //p') && "
	    "d=root/usr/lib/debug/.build-id/${id%%${id#??}} && mkdir -p $d && "
	    "objcopy --only-keep-debug %s self $d/${id#??}.debug",
	    "");
	assert_false(has_names(place));
	snprintf(root, sizeof(root), "%s/root", place->dir);
	assert_null(sysroot_preopen(root));
	assert_true(has_names(place));
}

static void without_one_code_must_be_there_and_the_same(void **state)
{
	const struct place *place = *state;

	run(place, "objcopy --only-keep-debug %s self app.dbg", NO_ID);
	assert_false(has_names(place));
	run(place, "cp /bin/sh %s", "app.dbg");
	assert_false(has_names(place));
	/* One byte of its code is another. */
	run(place, "objcopy -O binary --only-section=.text %s self text", "");
	run(place, "printf X | dd of=text bs=1 seek=%s conv=notrunc 2>/dev/null", "100");
	run(place, "objcopy %s --update-section .text=text self app.dbg", NO_ID);
	assert_false(has_names(place));
}

static void code_of_64_bits_in_a_file_of_32_bits_has_names(void **state)
{
	const struct place *place = *state;

	if (!X86_64)
		skip();
	run(place, "objcopy -O elf32-i386 %s app app32 2>/dev/null && mv app32 app", "");
	run(place, "objcopy " NO_ID " self %s", "app.dbg");
	assert_true(has_names(place));
}

static void what_is_opened_ahead_is_found_when_rights_are_gone(void **state)
{
	const struct place *place = *state;

	run(place, "objcopy " NO_ID " self %s", "app.dbg");
	assert_null(preopen_input(place->image));
	assert_null(debug_file_preopen_beside(place->image));
	run(place, "rm app %s", "app.dbg");
	assert_true(has_names(place));
}

static void a_fifo_is_not_waited_for(void **state)
{
	const struct place *place = *state;

	run(place, "mkfifo %s", "app.dbg");
	assert_null(debug_file_preopen_beside(place->image));
	assert_false(has_names(place));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_names_of_builds_are_found, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_build_id_is_enough, set_up_with_id, tear_down),
		cmocka_unit_test_setup_teardown(the_guest_s_own_debug_files_are_found,
						set_up_with_id, tear_down),
		cmocka_unit_test_setup_teardown(without_one_code_must_be_there_and_the_same, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(code_of_64_bits_in_a_file_of_32_bits_has_names,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_opened_ahead_is_found_when_rights_are_gone,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_fifo_is_not_waited_for, set_up, tear_down),
	};

	if (system("objcopy --version >/dev/null 2>&1")) {
		puts("1..0 # SKIP no objcopy on this machine");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
