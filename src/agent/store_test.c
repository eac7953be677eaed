/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define HOUR  ((int64_t)1700000000 / 3600 * 3600)
#define LATER (HOUR + 100 * 3600)

static struct store_segment minute(const char *guest, int64_t start_s, uint64_t bytes)
{
	return (struct store_segment){.guest = guest,
				      .start_s = start_s,
				      .last_s = start_s,
				      .bytes = bytes};
}

static void assert_guest(const char *kind, const char *name, const char *id, const char *wanted)
{
	char out[STORE_GUEST_MAX];

	store_guest(kind, name, id, out);
	assert_string_equal(out, wanted);
}

static void test_names_of_guests_cannot_leave_the_store(void **state)
{
	char name[600], one[STORE_GUEST_MAX], other[STORE_GUEST_MAX];

	assert_guest("xen", "web", "7", "web");
	assert_guest("kvm", "web-1.example:2", "7", "web-1.example:2");
	assert_guest("kvm", "", "4242", "kvm-4242");
	assert_guest("xen", "..", "7", "%2E.");
	assert_guest("xen", ".", "7", "%2E");
	assert_guest("xen", "../../etc/passwd", "7", "%2E.%2F..%2Fetc%2Fpasswd");
	assert_guest("xen", "-rf", "7", "%2Drf");
	assert_guest("xen", "a\nb\033[2J%", "7", "a%0Ab%1B%5B2J%25");
	for (unsigned char c = 1; c; c++) {
		const char text[] = {(char)c, '/', (char)c, 0};

		store_guest("xen", text, "7", one);
		assert_null(strchr(one, '/'));
		assert_true(*one != '.' && *one != '-' && strlen(one) >= 5);
	}
	memset(name, '/', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	store_guest("xen", name, "7", one);
	name[sizeof(name) - 2] = 'x';
	store_guest("xen", name, "7", other);
	assert_true(strlen(one) < STORE_GUEST_MAX);
	assert_string_not_equal(one, other);
}

static void test_what_is_too_old_or_joined_elsewhere_is_removed(void **state)
{
	struct store_segment at[] = {minute("a", HOUR, 10), minute("a", LATER - 7200, 10),
				     minute("a", LATER - 3000, 10), minute("a", LATER - 20, 10)};
	const struct store_segments all = {.at = at, .n = 4};
	const struct store_limits limits = {.age_s = 3600};
	bool remove[4];

	at[2].superseded = true;
	store_choose_old(&all, &limits, LATER, remove);
	assert_true(remove[0] && remove[1] && remove[2] && !remove[3]);
	store_choose_old(&all, &(struct store_limits){0}, LATER, remove);
	assert_true(!remove[0] && !remove[1] && remove[2] && !remove[3]);
}

static void test_the_guest_that_has_most_loses_its_oldest(void **state)
{
	struct store_segment at[] = {minute("busy", HOUR + 600, 50), minute("busy", HOUR + 660, 50),
				     minute("busy", HOUR + 720, 50), minute("idle", HOUR, 10),
				     minute("idle", HOUR + 60, 10)};
	const struct store_segments all = {.at = at, .n = 5};
	bool remove[5];

	store_choose_old(&all, &(struct store_limits){.bytes = 170}, LATER, remove);
	assert_false(remove[0] || remove[1] || remove[2] || remove[3] || remove[4]);
	store_choose_old(&all, &(struct store_limits){.bytes = 100}, LATER, remove);
	assert_true(remove[0] && remove[1] && !remove[2] && !remove[3] && !remove[4]);
	store_choose_old(&all, &(struct store_limits){.bytes = 15}, LATER, remove);
	assert_true(remove[0] && remove[1] && remove[2] && remove[3] && !remove[4]);
}

static void test_what_is_being_written_is_never_removed(void **state)
{
	struct store_segment at[] = {minute("a", LATER - 30, 1000), minute("b", LATER - 30, 1000)};
	const struct store_segments all = {.at = at, .n = 2};
	bool remove[2];

	store_choose_old(&all, &(struct store_limits){.bytes = 1, .age_s = 1}, LATER, remove);
	assert_false(remove[0] || remove[1]);
}

static void test_minutes_of_an_hour_that_is_over_are_joined(void **state)
{
	struct store_segment at[] = {minute("a", HOUR - 60, 1), minute("b", HOUR, 1),
				     minute("b", HOUR + 60, 1), minute("b", HOUR + 3599, 1),
				     minute("b", HOUR + 3600, 1)};
	const struct store_segments all = {.at = at, .n = 5};
	size_t first, n;

	assert_true(store_choose_join(&all, LATER, &first, &n));
	assert_int_equal(first, 0);
	assert_int_equal(n, 1);
	at[0].joined = true;
	assert_true(store_choose_join(&all, HOUR + 3600 + 600, &first, &n));
	assert_int_equal(first, 1);
	assert_int_equal(n, 3);
	assert_false(store_choose_join(&all, HOUR + 3600, &first, &n));
}

/* A store on the disk, with what was listed of it. */
struct fixture {
	char path[64];
	int store;
	struct store_segments listed;
};

static void list(struct fixture *f)
{
	struct error *err;

	store_segments_free(&f->listed);
	err = store_list(f->path, NULL, &f->listed);
	assert_null(err);
}

static struct fixture set_up(void)
{
	struct fixture f = {.path = "/tmp/store-test-XXXXXX"};
	struct error *err;

	assert_non_null(mkdtemp(f.path));
	err = store_open(f.path, &f.store);
	assert_null(err);
	list(&f);
	assert_int_equal(f.listed.n, 0);
	return f;
}

static void tear_down(struct fixture *f)
{
	list(f);
	for (size_t i = 0; i < f->listed.n; i++)
		store_remove(f->store, &f->listed.at[i]);
	store_segments_free(&f->listed);
	close(f->store);
	assert_int_equal(rmdir(f->path), 0);
}

static void begin(struct fixture *f, const char *guest, int64_t at_s, const char *contents)
{
	int fd;
	struct error *err = store_begin(f->store, guest, at_s, &fd);

	assert_null(err);
	assert_int_equal(write(fd, contents, strlen(contents)), (ssize_t)strlen(contents));
	close(fd);
}

static void test_segments_are_listed_by_guest_and_time(void **state)
{
	struct fixture f = set_up();
	char *path, stray[128];
	FILE *out;

	begin(&f, "web", HOUR + 60, "b");
	begin(&f, "web", HOUR, "a");
	begin(&f, "web", HOUR, "second of this moment");
	begin(&f, "db", HOUR + 5, "c");
	snprintf(stray, sizeof(stray), "%s/web/notes.uniprof", f.path);
	out = fopen(stray, "w");
	assert_non_null(out);
	fclose(out);
	list(&f);
	assert_int_equal(f.listed.n, 4);
	assert_string_equal(f.listed.at[0].guest, "db");
	assert_int_equal(f.listed.at[1].start_s, HOUR);
	assert_int_equal(f.listed.at[2].start_s, HOUR + 1);
	assert_int_equal(f.listed.at[3].start_s, HOUR + 60);
	path = store_path(f.path, &f.listed.at[3]);
	assert_int_equal(access(path, R_OK), 0);
	free(path);
	unlink(stray);
	tear_down(&f);
}

static void test_only_segments_of_the_time_are_chosen(void **state)
{
	const struct store_segment at = minute("web", HOUR, 1);
	const uint64_t begin_ns = (uint64_t)HOUR * NS_PER_S;

	assert_true(store_covers(&at, 0, 0));
	assert_true(store_covers(&at, begin_ns + 59 * NS_PER_S, 0));
	assert_false(store_covers(&at, begin_ns + 120 * NS_PER_S, 0));
	assert_true(store_covers(&at, 0, begin_ns + NS_PER_S));
	assert_false(store_covers(&at, 0, begin_ns - NS_PER_S));
}

static void test_joined_minutes_count_once_whenever_it_was_interrupted(void **state)
{
	struct fixture f = set_up();
	int fd;
	struct error *err;

	begin(&f, "web", HOUR, "a");
	begin(&f, "web", HOUR + 60, "b");
	begin(&f, "web", HOUR + 120, "c");
	list(&f);
	err = store_join_begin(f.store, "web", &fd);
	assert_null(err);
	close(fd);
	list(&f);
	assert_int_equal(f.listed.n, 3);
	err = store_join_begin(f.store, "web", &fd);
	assert_null(err);
	err = store_joined(f.store, &f.listed.at[0], 2, fd);
	assert_null(err);
	close(fd);
	/* As if it had been killed before all minutes were removed. */
	begin(&f, "web", HOUR + 60, "b");
	list(&f);
	assert_int_equal(f.listed.n, 3);
	assert_true(f.listed.at[0].joined && !f.listed.at[0].superseded);
	assert_true(f.listed.at[1].superseded);
	assert_false(store_covers(&f.listed.at[1], 0, 0));
	assert_false(f.listed.at[2].superseded);
	tear_down(&f);
}

static void test_a_store_has_one_writer(void **state)
{
	struct fixture f = set_up();
	int other;
	struct error *err = store_open(f.path, &other);

	assert_non_null(err);
	assert_int_equal(err->kind, ERR_OUTPUT);
	error_free(err);
	tear_down(&f);
}

static void test_links_are_not_followed(void **state)
{
	struct fixture f = set_up();
	char elsewhere[] = "/tmp/store-test-XXXXXX", link[128];
	struct error *err;
	int fd;

	assert_non_null(mkdtemp(elsewhere));
	snprintf(link, sizeof(link), "%s/web", f.path);
	assert_int_equal(symlink(elsewhere, link), 0);
	err = store_begin(f.store, "web", HOUR, &fd);
	assert_non_null(err);
	error_free(err);
	assert_int_equal(rmdir(elsewhere), 0);
	unlink(link);
	tear_down(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_of_guests_cannot_leave_the_store),
		cmocka_unit_test(test_what_is_too_old_or_joined_elsewhere_is_removed),
		cmocka_unit_test(test_the_guest_that_has_most_loses_its_oldest),
		cmocka_unit_test(test_what_is_being_written_is_never_removed),
		cmocka_unit_test(test_minutes_of_an_hour_that_is_over_are_joined),
		cmocka_unit_test(test_segments_are_listed_by_guest_and_time),
		cmocka_unit_test(test_only_segments_of_the_time_are_chosen),
		cmocka_unit_test(test_joined_minutes_count_once_whenever_it_was_interrupted),
		cmocka_unit_test(test_a_store_has_one_writer),
		cmocka_unit_test(test_links_are_not_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
