/* SPDX-License-Identifier: BSD-3-Clause */
/* Code that processes make, and the maps that they write of it below a directory. */
#include "capture/capture.h"
#include "capture/image_locator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/preopen.h"

#define START 0x7f1234560000ull
#define SIZE  0x10000u
#define AT    (START + 0x123)
#define OTHER 4242u /* a user */

struct fixture {
	char dir[32];
	struct images *images;
	struct programs programs;
};

static uint32_t user; /* of all processes */
static bool is_told;

static bool tell_owner(const void *state, const struct guest_memory *memory,
		       const struct guest_thread *thread, uint32_t *out)
{
	*out = user;
	return is_told;
}

static const struct threads_system system_of_users = {.owner = tell_owner};
static const struct guest_threads threads = {.system = &system_of_users};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[64];

	assert_non_null(f);
	strcpy(f->dir, "/tmp/uniprof-made-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(path, sizeof(path), "%s/tmp", f->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_null(sysroot_preopen(f->dir));
	assert_null(images_new(&f->images));
	images_sandbox(f->images);
	f->programs.images = f->images;
	user = geteuid();
	is_told = true;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[64];

	preopen_close();
	images_free(f->images);
	snprintf(command, sizeof(command), "rm -r %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static void path_of(const struct fixture *f, uint32_t pid, char path[64])
{
	snprintf(path, 64, "%s/tmp/perf-%u.map", f->dir, pid);
}

static void put_map(const struct fixture *f, uint32_t pid, const char *text)
{
	char path[64];
	FILE *out;

	path_of(f, pid, path);
	out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

/* The address of code at `va` of a process with page tables at `root`, which it has in `size` bytes. */
static uint64_t place(struct fixture *f, uint32_t pid, uint64_t root, uint64_t va, uint64_t size)
{
	const struct guest_thread thread = {.pid = pid, .tid = pid + 1};
	const struct program_of of = {.threads = &threads, .thread = &thread};
	const struct guest_memory none = {0};
	struct program_place kept = {.start = va & ~0xfffull, .end = (va & ~0xfffull) + size};

	assert_null(programs_find_made(&f->programs, &of, &none, root, va, &kept));
	assert_true(va >= kept.start && va < kept.end);
	/* Each address of the stretch is of its own. */
	assert_true(!kept.shift || kept.end - kept.start <= MAPPED_FILE_SIZE);
	return va + kept.shift;
}

static void check_name(struct fixture *f, uint64_t addr, const char *name)
{
	struct symbol symbol;

	assert_null(programs_name_made(&f->programs));
	if (!name) {
		assert_null(images_find(f->images, addr, true, &symbol));
		return;
	}
	assert_non_null(images_find(f->images, addr, true, &symbol));
	assert_string_equal(symbol.name, name);
}

static void names_are_those_of_the_process_alone(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	put_map(f, 7, "7f1234560100 80 red\n");
	put_map(f, 8, "7f1234560100 80 green\n");
	first = place(f, 7, 0x1000, AT, SIZE);
	second = place(f, 8, 0x2000, AT, SIZE);
	assert_true(is_mapped_file(first) && is_mapped_file(second) && first != second);
	check_name(f, first, "red");
	check_name(f, second, "green");
	/* Code of a file, or of a process without a map, has its address alone. */
	check_name(f, AT, NULL);
	assert_true(place(f, 9, 0x3000, AT, SIZE) == AT);
	assert_true(place(f, 7, 0x1000, AT + 1, SIZE) == first + 1);
	assert_string_equal(images_at(f->images, first)->file->path, "/tmp/perf-7.map");
	assert_int_equal(images_files(f->images), 2);
}

static void names_that_are_written_later_count(void **state)
{
	struct fixture *f = *state;
	uint64_t addr;

	assert_true(place(f, 7, 0x1000, AT, SIZE) == AT);
	put_map(f, 7, "7f1234560100 80 red\n");
	addr = place(f, 7, 0x1000, AT, SIZE);
	check_name(f, addr, "red");
	put_map(f, 7, "7f1234560100 80 red\n7f1234560110 20 pink\n");
	check_name(f, addr, "pink");
}

static void addresses_far_apart_have_images_of_their_own(void **state)
{
	struct fixture *f = *state;
	const uint64_t end = START / MAPPED_FILE_SIZE * MAPPED_FILE_SIZE + MAPPED_FILE_SIZE;
	char map[128];
	uint64_t before, behind;

	snprintf(map, sizeof(map), "%llx 10 before\n%llx 10 behind\n",
		 (unsigned long long)end - 0x10, (unsigned long long)end);
	put_map(f, 7, map);
	/* One mapping has both. */
	before = place(f, 7, 0x1000, end - 8, 3 * MAPPED_FILE_SIZE);
	behind = place(f, 7, 0x1000, end + 8, 3 * MAPPED_FILE_SIZE);
	check_name(f, before, "before");
	check_name(f, behind, "behind");
	assert_int_equal(images_files(f->images), 2);
}

static void a_map_of_another_user_names_nothing(void **state)
{
	struct fixture *f = *state;
	char path[64];
	uint64_t addr;

	put_map(f, 7, "7f1234560100 80 red\n");
	is_told = false;
	assert_true(place(f, 7, 0x1000, AT, SIZE) == AT);
	is_told = true;
	path_of(f, 7, path);
	if (!geteuid())
		assert_int_equal(chown(path, OTHER, OTHER), 0);
	user = OTHER + 1;
	assert_true(place(f, 7, 0x1000, AT, SIZE) == AT);
	user = geteuid() ?: OTHER;
	addr = place(f, 7, 0x1000, AT, SIZE);
	check_name(f, addr, "red");
}

static void a_link_and_a_file_that_is_no_map_name_nothing(void **state)
{
	struct fixture *f = *state;
	char path[64], command[256];

	put_map(f, 7, "7f1234560100 80 red\n");
	path_of(f, 8, path);
	assert_int_equal(symlink("perf-7.map", path), 0);
	assert_true(place(f, 8, 0x2000, AT, SIZE) == AT);
	path_of(f, 9, path);
	snprintf(command, sizeof(command), "cp /proc/self/exe %s && chmod 644 %s", path, path);
	assert_int_equal(system(command), 0);
	check_name(f, place(f, 9, 0x3000, AT, SIZE), NULL);
}

/* The number may be another process's by then, and the map is of the program that runs. */
static void code_of_a_program_that_another_has_followed_has_no_names(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	put_map(f, 7, "7f1234560100 80 red\n");
	first = place(f, 7, 0x1000, AT, SIZE);
	second = place(f, 7, 0x2000, AT, SIZE);
	assert_true(first != second);
	check_name(f, first, NULL);
	check_name(f, second, "red");
}

static void processes_beyond_the_bound_have_no_names(void **state)
{
	struct fixture *f = *state;

	for (uint32_t pid = 1; pid <= PROGRAM_MADE_MAX + 3; pid++) {
		put_map(f, pid, "7f1234560100 80 red\n");
		assert_int_equal(place(f, pid, 0x1000, AT, SIZE) != AT, pid <= PROGRAM_MADE_MAX);
	}
	assert_int_equal(images_files(f->images), PROGRAM_MADE_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(names_are_those_of_the_process_alone),
		TEST(names_that_are_written_later_count),
		TEST(addresses_far_apart_have_images_of_their_own),
		TEST(a_map_of_another_user_names_nothing),
		TEST(a_link_and_a_file_that_is_no_map_name_nothing),
		TEST(code_of_a_program_that_another_has_followed_has_no_names),
		TEST(processes_beyond_the_bound_have_no_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
