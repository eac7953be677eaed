/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbol/names/symbols.h"
#include "symbol/names/table.h"

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

static struct error *read_text(const char *text, struct symbols **out)
{
	return nm_read("test", strdup(text), strlen(text), out);
}

static struct symbols *table(const char *text)
{
	struct symbols *symbols = NULL;
	struct error *err = read_text(text, &symbols);

	if (err)
		fail_msg("%s", err->text);
	return symbols;
}

static void check(const struct symbols *symbols, uint64_t addr, const char *name, uint64_t offset)
{
	struct symbol found;

	assert_true(symbols_find(symbols, addr, &found));
	assert_string_equal(found.name, name);
	assert_int_equal(addr - found.start, offset);
}

static void text_refused(const char *text, const char *because)
{
	struct symbols *symbols = NULL;
	struct error *err = read_text(text, &symbols);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, because));
	error_free(err);
}

static void functions_are_taken_and_nothing_else(void **state)
{
	struct symbols *s = table("0000000000000000 D errno\n"
				  "0000000000000000 T _start\n"
				  "0000000000000004 A constant\n"
				  "0000000000000008 b tls\n"
				  "                 U undefined\n"
				  "                 w weak_undefined\n"
				  "0000000000000100 t local\n"
				  "0000000000000200 W weak\n"
				  "0000000000000300 i indirect\n"
				  "0000000000000380 u unique_data\n"
				  "0000000000000400 R table\n");

	check(s, 0xff, "_start", 0xff);
	check(s, 0x1ff, "local", 0xff);
	check(s, 0x200, "weak", 0);
	check(s, 0x3ff, "indirect", 0xff);
	assert_int_equal(symbols_count(s), 4);
	symbols_free(s);
}

static void addresses_keep_all_64_bits_and_may_have_32(void **state)
{
	struct symbols *s = table("00101000 T low\n"
				  "ffffffff81000000 T high\n");

	check(s, 0x101004, "low", 4);
	check(s, 0xffffffff81000010, "high", 0x10);
	assert_false(symbols_find(s, 0x81000010, &(struct symbol){0}));
	assert_false(symbols_find(s, 0xffffffff00101004, &(struct symbol){0}));
	symbols_free(s);
}

static void sizes_of_nm_S_are_used(void **state)
{
	struct symbols *s = table("0000000000001000 0000000000000010 T a\n"
				  "0000000000001100 T b\n"
				  "00001200 00000008 t c\n");

	check(s, 0x100f, "a", 0xf);
	assert_false(symbols_find(s, 0x1010, &(struct symbol){0}));
	check(s, 0x11ff, "b", 0xff);
	assert_false(symbols_find(s, 0x1208, &(struct symbol){0}));
	symbols_free(s);
}

/* perf-PID.map: a function hides those before that it overlaps. */
static void of_jit_compiled_functions_the_latest_counts(void **state)
{
	struct symbol found;
	struct symbols *symbols = table("7f0000001000 100 LazyCompile:*old app.js:1\n"
					"0x00007f0000002000 0x0000000000000008 int stub(int)\n"
					"7f0000001080 40 Builtin:two words\n"
					"7f0000003000 100 moved\n"
					"7f0000003000 80 LazyCompile:~new /app.js:7:3\n"
					"7f0000004000 0 nothing\n"
					"not a line\n");

	assert_int_equal(symbols_count(symbols), 3);
	check(symbols, 0x7f0000002007, "int stub(int)", 7);
	check(symbols, 0x7f0000001080, "Builtin:two words", 0);
	check(symbols, 0x7f0000003010, "LazyCompile:~new /app.js:7:3", 0x10);
	assert_false(symbols_find(symbols, 0x7f0000001010, &found));
	assert_false(symbols_find(symbols, 0x7f0000003090, &found));
	symbols_free(symbols);
}

static void order_of_lines_does_not_matter(void **state)
{
	struct symbols *s = table("2000 T b\n1000 T a\n");

	check(s, 0x1fff, "a", 0xfff);
	check(s, 0x2000, "b", 0);
	symbols_free(s);
}

static void last_line_needs_no_newline_and_carriage_returns_go(void **state)
{
	struct symbols *s = table("1000 T a\r\n2000 T b");

	check(s, 0x1000, "a", 0);
	check(s, 0x2000, "b", 0);
	symbols_free(s);
}

static void names_may_have_blanks_and_64_KiB(void **state)
{
	size_t len = 65536;
	char *text = malloc(len + 64), *name;
	struct symbols *s;

	memcpy(text, "1000 T ", 7);
	name = text + 7;
	memset(name, 'n', len);
	strcpy(name + len, "\n2000 T operator()(int, char)\n");
	s = table(text);
	name[len] = '\0';
	check(s, 0x1001, name, 1);
	check(s, 0x2000, "operator()(int, char)", 0);
	symbols_free(s);
	free(text);
}

static void kallsyms_modules_and_source_lines_are_cut_off(void **state)
{
	struct symbols *s = table("ffffffffc0000000 t init\t[xfs]\n"
				  "ffffffffc0001000 t exit\t/src/exit.c:12\n");

	check(s, 0xffffffffc0000000, "init", 0);
	check(s, 0xffffffffc0001000, "exit", 0);
	symbols_free(s);
}

static void end_of_text_marks_end_the_last_function(void **state)
{
	struct symbols *s = table("1000 T a\n1100 T _etext\n900000 t init\n");

	check(s, 0x10ff, "a", 0xff);
	assert_false(symbols_find(s, 0x1100, &(struct symbol){0}));
	assert_int_equal(symbols_count(s), 2);
	symbols_free(s);
}

static void mapping_symbols_are_no_functions(void **state)
{
	struct symbols *s = table("1000 t $x\n1000 T f\n1010 t $d.1\n1020 t $a\n1030 t $dollar\n");

	check(s, 0x102f, "f", 0x2f);
	check(s, 0x1030, "$dollar", 0);
	symbols_free(s);
}

static void hidden_addresses_are_refused_with_the_reason(void **state)
{
	text_refused("0000000000000000 T _text\n0000000000000000 t f\n", "kptr_restrict");
}

static void a_single_function_at_0_is_fine(void **state)
{
	struct symbols *s = table("0000000000000000 T _start\n");

	check(s, 0, "_start", 0);
	check(s, 0xfff, "_start", 0xfff);
	assert_false(symbols_find(s, 0x1000, &(struct symbol){0}));
	symbols_free(s);
}

static void text_without_functions_is_refused(void **state)
{
	text_refused("hello, world\n", "no function symbols");
	text_refused("1000 D data\n", "no function symbols");
	text_refused("\n\n\n", "no function symbols");
	text_refused("11112222333344445 T too_many_digits\n", "no function symbols");
	text_refused("1000 T\n1000 T \n1000\n1000 \n1000 0 T\n1000 TT name\n",
		     "no function symbols");
	text_refused("1000 T _etext\n", "no function symbols");
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
		cmocka_unit_test(functions_are_taken_and_nothing_else),
		cmocka_unit_test(addresses_keep_all_64_bits_and_may_have_32),
		cmocka_unit_test(sizes_of_nm_S_are_used),
		cmocka_unit_test(of_jit_compiled_functions_the_latest_counts),
		cmocka_unit_test(order_of_lines_does_not_matter),
		cmocka_unit_test(last_line_needs_no_newline_and_carriage_returns_go),
		cmocka_unit_test(names_may_have_blanks_and_64_KiB),
		cmocka_unit_test(kallsyms_modules_and_source_lines_are_cut_off),
		cmocka_unit_test(end_of_text_marks_end_the_last_function),
		cmocka_unit_test(mapping_symbols_are_no_functions),
		cmocka_unit_test(hidden_addresses_are_refused_with_the_reason),
		cmocka_unit_test(a_single_function_at_0_is_fine),
		cmocka_unit_test(text_without_functions_is_refused),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
