/* SPDX-License-Identifier: BSD-3-Clause */

/* A guest's root in a directory, beside what no path of the guest's may reach. */

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/preopen.h"

struct place {
	char dir[32];
};

static void put_file(const char *dir, const char *path, const char *text)
{
	char whole[PATH_MAX];
	FILE *out;

	snprintf(whole, sizeof(whole), "%s/%s", dir, path);
	out = fopen(whole, "w");
	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

static void put_link(const char *dir, const char *path, const char *to)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s/%s", dir, path);
	assert_int_equal(symlink(to, whole), 0);
}

static int set_up(void **state)
{
	struct place *place = calloc(1, sizeof(*place));
	char root[64], command[256];

	assert_non_null(place);
	strcpy(place->dir, "/tmp/uniprof-root-XXXXXX");
	assert_non_null(mkdtemp(place->dir));
	snprintf(command, sizeof(command), "cd %s && mkdir -p root/usr/lib/deep root/etc",
		 place->dir);
	assert_int_equal(system(command), 0);
	put_file(place->dir, "secret", "secret");
	put_file(place->dir, "root/usr/lib/a.so", "a");
	snprintf(root, sizeof(root), "%s/root", place->dir);
	assert_null(sysroot_preopen(root));
	*state = place;
	return 0;
}

static int tear_down(void **state)
{
	struct place *place = *state;
	char command[64];

	preopen_close();
	snprintf(command, sizeof(command), "rm -r %s", place->dir);
	assert_int_equal(system(command), 0);
	free(place);
	return 0;
}

/* NULL: nothing is opened. */
static void check(const char *path, const char *text)
{
	const int fd = sysroot_open(path);
	char found[16] = "";

	if (!text) {
		assert_int_equal(fd, -1);
		return;
	}
	assert_true(fd >= 0);
	assert_true(read(fd, found, sizeof(found) - 1) >= 0);
	assert_string_equal(found, text);
	close(fd);
}

static void paths_of_the_guest_are_found_below(void **state)
{
	check("/usr/lib/a.so", "a");
	check("//usr/./lib/deep/../a.so", "a");
	check("/usr/lib/b.so", NULL);
	check("/usr/lib/a.so/x", NULL);
	check("/usr/lib/a.so/", NULL);
	check("/usr/lib", NULL);
	check("/", NULL);
	check("", NULL);
	check("usr/lib/a.so", NULL);
	check("...lib/a.so", NULL);
}

static void no_path_leads_out(void **state)
{
	check("/../secret", NULL);
	check("/usr/../../secret", NULL);
	/* The root's own parent is the root. */
	check("/../../usr/lib/a.so", "a");
}

static void links_are_the_guests(void **state)
{
	const struct place *place = *state;
	char secret[64];

	snprintf(secret, sizeof(secret), "%s/secret", place->dir);
	put_link(place->dir, "root/lib", "usr/lib");
	put_link(place->dir, "root/etc/lib", "/usr/lib");
	put_link(place->dir, "root/etc/up", "../../../../../../secret");
	put_link(place->dir, "root/etc/out", secret);
	put_link(place->dir, "root/etc/outside", place->dir);
	put_link(place->dir, "root/etc/above", "..");
	put_link(place->dir, "root/etc/passwd", "/etc/passwd");
	check("/lib/a.so", "a");
	check("/etc/lib/a.so", "a");
	check("/etc/lib/deep/../../lib/a.so", "a");
	check("/etc/above/usr/lib/a.so", "a");
	check("/etc/up", NULL);
	check("/etc/out", NULL);
	check("/etc/outside/secret", NULL);
	check("/etc/above/../secret", NULL);
	/* The link leads to the directory's own file, not to this machine's. */
	check("/etc/passwd", NULL);
}

static void links_and_directories_are_bounded(void **state)
{
	const struct place *place = *state;
	char deep[PATH_MAX + 64] = "";

	put_link(place->dir, "root/loop", "loop");
	put_link(place->dir, "root/grows", "grows/x");
	check("/loop", NULL);
	check("/grows/y", NULL);
	for (size_t i = 0; i + 4 < sizeof(deep); i += 2)
		strcat(deep, "/.");
	check(deep, NULL);
	strcpy(deep + PATH_MAX - 64, "/usr/lib/a.so");
	check(deep, "a");
	memset(deep, 'n', NAME_MAX + 2);
	deep[0] = '/';
	deep[NAME_MAX + 2] = '\0';
	check(deep, NULL);
}

static void a_link_is_not_opened_where_the_file_itself_is_wanted(void **state)
{
	const struct place *place = *state;
	int fd;

	put_link(place->dir, "root/usr/lib/link.so", "a.so");
	put_link(place->dir, "root/lib", "usr/lib");
	check("/usr/lib/link.so", "a");
	assert_int_equal(sysroot_open_itself("/usr/lib/link.so"), -1);
	/* The directories before it may be links. */
	fd = sysroot_open_itself("/lib/a.so");
	assert_true(fd >= 0);
	close(fd);
}

static void what_is_no_regular_file_is_not_opened(void **state)
{
	const struct place *place = *state;
	char path[64];

	snprintf(path, sizeof(path), "%s/root/fifo", place->dir);
	assert_int_equal(mkfifo(path, 0666), 0);
	put_link(place->dir, "root/pipe", "fifo");
	/* It has no writer: to open it would wait. */
	alarm(10);
	check("/fifo", NULL);
	check("/pipe", NULL);
	alarm(0);
}

static void a_file_is_opened_by_its_name_from_then_on(void **state)
{
	char *name, *again, found = 0;
	int fd;

	assert_null(sysroot_adopt("/usr/lib/none.so", &name));
	assert_null(name);
	assert_null(sysroot_adopt("/usr/lib/a.so", &name));
	assert_non_null(name);
	assert_null(sysroot_adopt("/usr/lib/a.so", &again));
	assert_string_equal(again, name);
	assert_true(is_regular_file(name));
	fd = open_to_read(name);
	assert_int_equal(read(fd, &found, 1), 1);
	assert_int_equal(found, 'a');
	close(fd);
	preopen_forget(name);
	assert_false(is_regular_file(name));
	free(name);
	free(again);
}

static void without_a_directory_there_is_nothing(void **state)
{
	struct error *err;

	preopen_close();
	assert_false(sysroot_is_given());
	check("/etc/passwd", NULL);
	err = sysroot_preopen("/none");
	assert_non_null(err);
	assert_int_equal(err->kind, ERR_INPUT);
	error_free(err);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(paths_of_the_guest_are_found_below),
		TEST(no_path_leads_out),
		TEST(links_are_the_guests),
		TEST(a_link_is_not_opened_where_the_file_itself_is_wanted),
		TEST(links_and_directories_are_bounded),
		TEST(what_is_no_regular_file_is_not_opened),
		TEST(a_file_is_opened_by_its_name_from_then_on),
		TEST(without_a_directory_there_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
