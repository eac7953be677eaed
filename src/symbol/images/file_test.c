/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/images/file.h"

static struct error *load(const char *path, struct image_file **file)
{
	const struct image_spec spec = {.path = path,
					.given = true,
					.names = true,
					.needs_names = true};

	*file = calloc(1, sizeof(**file));
	assert_non_null(*file);
	return image_file_load_sandboxed(&spec, *file);
}

static void a_file_is_as_if_it_had_been_read_here(void **state)
{
	const struct image_spec spec = {.path = "/proc/self/exe", .names = true};
	struct image_file *file, *here = calloc(1, sizeof(*here));

	assert_null(load("/proc/self/exe", &file));
	assert_null(image_file_load(&spec, here));
	assert_string_equal(file->path, "/proc/self/exe");
	assert_true(file->given && file->names);
	assert_string_equal(file->build_id, here->build_id);
	assert_int_equal(symbols_count(file->symbols), symbols_count(here->symbols));
	assert_int_equal(file->code->n, here->code->n);
	assert_int_equal(file->table->n, here->table->n);
	image_file_free(file);
	image_file_free(here);
}

static void a_packed_file_is_the_one_that_was_packed(void **state)
{
	char path[] = "/tmp/apart-XXXXXX", command[128], id[2 * BUILD_ID_MAX + 1];
	struct image_file *plain, *packed;
	int fd = mkstemp(path);
	bool lacks;

	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command), "gzip -c /proc/%d/exe > %s", (int)getpid(), path);
	assert_int_equal(system(command), 0);
	assert_int_equal(chmod(path, 0644), 0);
	assert_null(load("/proc/self/exe", &plain));
	assert_null(load(path, &packed));
	assert_string_equal(packed->path, path);
	assert_string_equal(packed->build_id, plain->build_id);
	assert_int_equal(symbols_count(packed->symbols), symbols_count(plain->symbols));
	assert_int_equal(packed->code->n, plain->code->n);
	assert_int_equal(packed->table->n, plain->table->n);
	image_file_build_id(path, id, &lacks);
	assert_string_equal(id, plain->build_id);
	image_file_free(packed);
	image_file_free(plain);
	unlink(path);
}

static void what_is_wrong_is_told_as_ever(void **state)
{
	struct image_file *file;
	struct error *err = load("/none", &file);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, "/none: "));
	error_free(err);
	image_file_free(file);
}

static void files_opened_ahead_can_be_read(void **state)
{
	char path[] = "/tmp/apart-XXXXXX";
	struct image_file *file;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "0000000000001000 T main\n", 24), 24);
	close(fd);
	assert_null(preopen_input(path));
	unlink(path);
	assert_null(load(path, &file));
	assert_int_equal(symbols_count(file->symbols), 1);
	image_file_free(file);
	preopen_close();
}

/* Kills the process that reads `path`, a pipe, once it does: the youngest child of our parent. */
static void __attribute__((noreturn)) kill_the_reader(const char *path)
{
	char command[128];

	if (open(path, O_WRONLY) < 0)
		_exit(1);
	snprintf(command, sizeof(command), "kill -KILL $(pgrep -n -P %d)", (int)getppid());
	_exit(system(command) != 0);
}

static void a_reader_that_does_not_survive_its_file_is_an_error(void **state)
{
	char directory[] = "/tmp/apart-XXXXXX", path[64];
	struct image_file *file;
	struct error *err;
	int status;
	pid_t killer;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/pipe", directory);
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_int_equal(chmod(directory, 0755), 0);
	killer = fork();
	if (killer == 0)
		kill_the_reader(path);
	err = load(path, &file);
	assert_int_equal(waitpid(killer, &status, 0), killer);
	assert_int_equal(status, 0);
	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	assert_non_null(strstr(err->text, "signal 9"));
	error_free(err);
	image_file_free(file);
	unlink(path);
	rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_as_if_it_had_been_read_here),
		cmocka_unit_test(a_packed_file_is_the_one_that_was_packed),
		cmocka_unit_test(what_is_wrong_is_told_as_ever),
		cmocka_unit_test(files_opened_ahead_can_be_read),
		cmocka_unit_test(a_reader_that_does_not_survive_its_file_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
