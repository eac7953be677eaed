/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbols.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/uniprof-test-XXXXXX";

static int make_file(void **state)
{
	int fd = mkstemp(path);

	if (fd < 0)
		return -1;
	return close(fd);
}

static int remove_file(void **state)
{
	return unlink(path);
}

static void put(const void *bytes, size_t len)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	assert_int_equal(fclose(out), 0);
}

static void refused(const char *file, const char *because)
{
	struct symbols *symbols = NULL;
	struct error *err = symbols_load(file, &symbols);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, file));
	if (!strstr(err->text, because))
		fail_msg("\"%s\" does not say \"%s\"", err->text, because);
	error_free(err);
}

static void what_is_no_symbol_file_is_refused_with_the_reason(void **state)
{
	refused("/", "directory");
	refused("/no/such/file", "No such file");
	refused("/dev/zero", "binary");
	put("", 0);
	refused(path, "empty");
	put("\x1f\x8b\0\0", 4);
	refused(path, "binary");
	put("\x7f"
	    "ELF",
	    4);
	refused(path, "ELF");
	put("just words", 10);
	refused(path, "no function symbols");
}

static void unreadable_files_are_refused(void **state)
{
	uid_t self = geteuid();

	assert_int_equal(chmod(path, 0), 0);
	/* Root may read everything. */
	if (self == 0)
		assert_int_equal(seteuid(65534), 0);
	refused(path, "Permission denied");
	assert_int_equal(seteuid(self), 0);
	assert_int_equal(chmod(path, 0600), 0);
}

static void text_is_read_to_its_end_without_newline(void **state)
{
	struct symbols *symbols;
	struct symbol found;

	put("1000 T a\n2000 T b", 17);
	assert_null(symbols_load(path, &symbols));
	assert_true(symbols_find(symbols, 0x2000, &found));
	assert_string_equal(found.name, "b");
	assert_null(symbols_build_id(symbols));
	symbols_free(symbols);
}

/* Process substitution hands out pipes: symbolize <(nm -n app) trace */
static void load_through_pipe(const char *from)
{
	char command[256], name[64];
	struct symbols *symbols;
	FILE *pipe;

	snprintf(command, sizeof(command), "cat %s", from);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fileno(pipe));
	assert_null(symbols_load(name, &symbols));
	assert_true(symbols_count(symbols) >= 2);
	pclose(pipe);
	symbols_free(symbols);
}

static void pipes_are_read_too(void **state)
{
	char exe[4096] = "";

	put("1000 T a\n2000 T b", 17);
	load_through_pipe(path);
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	load_through_pipe(exe);
}

/* The kernel's own table: its size is not known before it is read. */
static void kallsyms_load_or_say_why_not(void **state)
{
	struct symbols *symbols;
	struct error *err;

	if (access("/proc/kallsyms", R_OK)) {
		print_message("# skipped: no /proc/kallsyms here\n");
		skip();
	}
	err = symbols_load("/proc/kallsyms", &symbols);
	if (err) {
		assert_non_null(strstr(err->text, "kptr_restrict"));
		error_free(err);
		return;
	}
	assert_true(symbols_count(symbols) > 10000);
	symbols_free(symbols);
}

/* nm's view of this program and the ELF reader's agree about its own functions, sizes included. */
static void nm_and_elf_agree(void **state)
{
	struct symbols *elf, *nm;
	char exe[4096] = "", command[4400];
	size_t compared = 0;

	if (system("nm --version >/dev/null 2>&1")) {
		print_message("# skipped: no nm here\n");
		skip();
	}
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	snprintf(command, sizeof(command), "nm -n -S '%s' >%s", exe, path);
	assert_int_equal(system(command), 0);
	assert_null(symbols_load(exe, &elf));
	assert_null(symbols_load(path, &nm));
	for (size_t i = 0; i < symbols_count(elf); i++) {
		struct symbol one, found;

		symbols_get(elf, i, &one);
		if (strncmp(one.name, "symbols_", 8) && strcmp(one.name, "main"))
			continue;
		assert_true(symbols_find(nm, one.start, &found));
		assert_string_equal(found.name, one.name);
		assert_int_equal(found.start, one.start);
		assert_int_equal(found.end, one.end);
		compared++;
	}
	assert_true(compared > 5);
	symbols_free(elf);
	symbols_free(nm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_symbol_file_is_refused_with_the_reason),
		cmocka_unit_test(unreadable_files_are_refused),
		cmocka_unit_test(text_is_read_to_its_end_without_newline),
		cmocka_unit_test(pipes_are_read_too),
		cmocka_unit_test(kallsyms_load_or_say_why_not),
		cmocka_unit_test(nm_and_elf_agree),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
