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
#include <sys/wait.h>
#include <unistd.h>

#include "base/preopen.h"

static int enter_directory(void **state)
{
	char *directory = strdup("/tmp/preopen-XXXXXX");

	*state = directory;
	return !mkdtemp(directory) || chdir(directory);
}

static int leave_directory(void **state)
{
	preopen_close();
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
	assert_null(preopen_input("f"));
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
	assert_null(preopen_input("f"));
	assert_null(preopen_output("none/f"));
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
	assert_null(preopen_output("f"));
	holds(open("f", O_RDONLY), "a longer text");
	fd = open_to_write("f");
	assert_int_equal(write(fd, "new", 3), 3);
	close(fd);
	holds(open("f", O_RDONLY), "new");
}

static void an_output_may_be_read_again(void **state)
{
	int fd;

	assert_null(preopen_output_and_input("f"));
	unlink("f");
	fd = open_to_write("f");
	assert_int_equal(write(fd, "new", 3), 3);
	close(fd);
	holds(open_to_read("f"), "new");
}

static void an_output_is_no_input(void **state)
{
	put("f", "text");
	assert_null(preopen_output("f"));
	holds(open_to_read("f"), "text");
}

static void what_is_written_is_for_its_owner_alone(void **state)
{
	struct stat st;

	umask(0);
	assert_null(preopen_output("preopened"));
	close(open_to_write("later"));
	assert_int_equal(stat("preopened", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat("later", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void is_refused(const char *path, int error, const char *why)
{
	struct error *err;

	assert_int_equal(open_to_write(path), -1);
	assert_int_equal(errno, error);
	err = open_to_write_error(path, errno);
	assert_int_equal(err->kind, ERR_OUTPUT);
	assert_non_null(strstr(err->text, why));
	error_free(err);
}

static void an_input_is_not_written(void **state)
{
	put("f", "text");
	assert_int_equal(link("f", "other-name"), 0);
	assert_null(preopen_input("f"));
	is_refused("f", EBUSY, "what is read");
	is_refused("other-name", EBUSY, "what is read");
	assert_null(preopen_output("other-name"));
	is_refused("other-name", EBUSY, "what is read");
	holds(open_to_read("f"), "text");
}

/* Another description of the file is as good as another process. */
static void a_second_writer_is_refused_with_the_name_of_the_first(void **state)
{
	int fd = open_to_write("f"), second;
	char name[32];

	assert_int_equal(write(fd, "first", 5), 5);
	snprintf(name, sizeof(name), "process %d is writing", (int)getpid());
	is_refused("f", EWOULDBLOCK, name);
	holds(open_to_read("f"), "first");
	close(fd);
	second = open_to_write("f");
	assert_true(second >= 0);
	close(second);
}

static void standard_streams_and_nothing_are_not_opened(void **state)
{
	assert_null(preopen_input("-"));
	assert_null(preopen_output("-"));
	assert_null(preopen_input(NULL));
	assert_null(preopen_input(""));
	assert_int_equal(access("-", F_OK), -1);
}

static void what_is_handed_out_is_not_inherited(void **state)
{
	int fd;

	put("f", "text");
	assert_null(preopen_input("f"));
	fd = open_to_read("f");
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}

static void a_fifo_is_read_whose_writer_comes_later(void **state)
{
	char text[8];
	pid_t writer;
	int fd;

	assert_int_equal(mkfifo("f", 0600), 0);
	writer = fork();
	if (!writer) {
		fd = open("f", O_WRONLY);
		/* A writer that is there may be silent for any time. */
		sleep(1);
		_exit(write(fd, "text", 4) == 4 ? 0 : 1);
	}
	assert_null(preopen_bounded_input("f"));
	fd = open_to_read("f");
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	close(fd);
	assert_int_equal(waitpid(writer, NULL, 0), writer);
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
		TEST(what_is_written_is_for_its_owner_alone),
		TEST(an_input_is_not_written),
		TEST(a_second_writer_is_refused_with_the_name_of_the_first),
		TEST(standard_streams_and_nothing_are_not_opened),
		TEST(what_is_handed_out_is_not_inherited),
		TEST(a_fifo_is_read_whose_writer_comes_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
