/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"

static int enter_directory(void **state)
{
	char *directory = strdup("/tmp/ahead-XXXXXX");

	*state = directory;
	return !mkdtemp(directory) || chdir(directory);
}

static int leave_directory(void **state)
{
	ahead_close();
	(void)!system("rm -r \"$PWD\"");
	free(*state);
	return chdir("/");
}

static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void holds(int fd, const char *text)
{
	char got[64] = "";

	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
	assert_string_equal(got, text);
	close(fd);
}

static void what_was_opened_ahead_is_read_though_its_name_is_gone(void **state)
{
	put("f", "text");
	assert_null(ahead_input("f"));
	unlink("f");
	holds(open_to_read("f"), "text");
	holds(open_to_read("f"), "text");
}

static void other_files_are_opened_as_ever(void **state)
{
	put("f", "text");
	holds(open_to_read("f"), "text");
	assert_int_equal(open_to_read("none"), -1);
	assert_int_equal(errno, ENOENT);
}

static void why_it_could_not_be_opened_is_told_later(void **state)
{
	assert_null(ahead_input("f"));
	assert_null(ahead_output("none/f"));
	put("f", "too late");
	assert_int_equal(open_to_read("f"), -1);
	assert_int_equal(errno, ENOENT);
	mkdir("none", 0777);
	assert_int_equal(open_to_write("none/f"), -1);
	assert_int_equal(errno, ENOENT);
}

static void an_output_keeps_its_contents_until_it_is_opened(void **state)
{
	int fd;

	put("f", "a longer text");
	assert_null(ahead_output("f"));
	holds(open("f", O_RDONLY), "a longer text");
	fd = open_to_write("f");
	assert_int_equal(write(fd, "new", 3), 3);
	close(fd);
	holds(open("f", O_RDONLY), "new");
}

static void an_output_may_be_read_again(void **state)
{
	int fd;

	assert_null(ahead_output_and_input("f"));
	unlink("f");
	fd = open_to_write("f");
	assert_int_equal(write(fd, "new", 3), 3);
	close(fd);
	holds(open_to_read("f"), "new");
}

static void an_output_is_no_input(void **state)
{
	put("f", "text");
	assert_null(ahead_output("f"));
	holds(open_to_read("f"), "text");
}

static void standard_streams_and_nothing_are_not_opened(void **state)
{
	assert_null(ahead_input("-"));
	assert_null(ahead_output("-"));
	assert_null(ahead_input(NULL));
	assert_null(ahead_input(""));
	assert_int_equal(access("-", F_OK), -1);
}

static void what_is_handed_out_is_not_inherited(void **state)
{
	int fd;

	put("f", "text");
	assert_null(ahead_input("f"));
	fd = open_to_read("f");
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_directory, leave_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_opened_ahead_is_read_though_its_name_is_gone),
		TEST(other_files_are_opened_as_ever),
		TEST(why_it_could_not_be_opened_is_told_later),
		TEST(an_output_keeps_its_contents_until_it_is_opened),
		TEST(an_output_may_be_read_again),
		TEST(an_output_is_no_input),
		TEST(standard_streams_and_nothing_are_not_opened),
		TEST(what_is_handed_out_is_not_inherited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
