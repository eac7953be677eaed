/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of a program, in memory, and what is at its path below a directory. */
#include "capture/image_locator.h"

#include <sys/stat.h>

#include "base/preopen.h"
#include "symbol/images/code_fixture.h"

#define PATH   "/usr/lib/x.so"
#define SLIDE  0x7f0000000000ull
#define ID_1   "0101010101010101010101010101010101010101"
#define CODE   0x1000u /* its offset and address */
#define LENGTH 0x4000u

static const struct code_fixture own = {.va = CODE, .len = LENGTH, .seed = 1, .id = 1};

struct fixture {
	char dir[32], path[64];
	struct images *images;
	struct programs programs;
	struct program_file *file;
	struct guest_mapping mapping;
	struct fake_memory memory;
	unsigned notes, warnings;
};

static void note(void *ctx, bool warning, const char *text)
{
	struct fixture *f = ctx;

	f->notes++;
	f->warnings += warning;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char command[256];

	assert_non_null(f);
	strcpy(f->dir, "/tmp/uniprof-copy-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s" PATH, f->dir);
	snprintf(command, sizeof(command), "mkdir -p %s/usr/lib", f->dir);
	assert_int_equal(system(command), 0);
	assert_null(sysroot_preopen(f->dir));
	assert_null(images_new(&f->images));
	f->programs.images = f->images;
	f->programs.notes = (struct image_locator_notes){f, note};
	f->mapping = (struct guest_mapping){.start = SLIDE + CODE,
					    .end = SLIDE + CODE + LENGTH + 0x1000,
					    .offset = CODE,
					    .executable = true,
					    .path = PATH};
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[64];

	preopen_close();
	images_free(f->images);
	fake_end(&f->memory);
	snprintf(command, sizeof(command), "rm -r %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

/* The file as the guest tells of it. */
static void tell(struct fixture *f, const char *build_id)
{
	const struct mapped_file mapped = {PATH, build_id, CODE, CODE + LENGTH + CODE_NOTE_LEN};

	f->file = &f->programs.file[f->programs.n++];
	*f->file = (struct program_file){.start = mapped.start,
					 .end = mapped.end,
					 .head = *build_id,
					 .image = images_files(f->images)};
	assert_null(images_add_mapped(f->images, &mapped, &f->file->base));
}

/* What is below the directory. */
static void put_copy(const struct fixture *f, const struct code_fixture *code)
{
	char path[32], command[256];
	int fd;

	code_file(code, &fd, path);
	snprintf(command, sizeof(command), "cp %s %s && chmod 644 %s", path, f->path, f->path);
	assert_int_equal(system(command), 0);
	close(fd);
}

static void seek(struct fixture *f)
{
	struct budget budget = {.left = 1u << 22};
	const struct guest_memory memory = {&f->memory, fake_read, &budget};

	assert_null(programs_find_copy(&f->programs, f->file, &f->mapping, &memory,
				       SLIDE + CODE + 0x234));
}

static void check_names(const struct fixture *f, bool are_there)
{
	struct symbol symbol;

	assert_int_equal(f->file->copied, are_there);
	assert_int_equal(f->file->named, are_there);
	assert_int_equal(images_find(f->images, f->file->base + CODE + 0x234, true, &symbol) !=
				 NULL,
			 are_there);
	if (are_there)
		assert_string_equal(symbol.name, "f2");
}

static void the_copy_with_its_build_id_names_a_file(void **state)
{
	struct fixture *f = *state;
	const struct image_file *file;

	put_copy(f, &own);
	tell(f, ID_1);
	images_sandbox(f->images);
	seek(f);
	check_names(f, true);
	file = images_file(f->images, f->file->image);
	assert_string_equal(file->path, PATH);
	/* It is found again when its lines are asked for, by nothing that this machine has at the guest's path. */
	assert_string_not_equal(file->opened, PATH);
	assert_true(is_regular_file(file->opened));
	assert_int_equal(f->notes, 0);
}

static void another_build_is_not_used(void **state)
{
	struct code_fixture other = own;
	struct fixture *f = *state;

	other.id = 2;
	put_copy(f, &other);
	tell(f, ID_1);
	seek(f);
	check_names(f, false);
	assert_int_equal(f->warnings, 1);
	/* It is looked for once. */
	put_copy(f, &own);
	seek(f);
	check_names(f, false);
	assert_int_equal(f->warnings, 1);
}

static void a_copy_without_a_build_id_is_not_the_file_that_has_one(void **state)
{
	struct code_fixture other = own;
	struct fixture *f = *state;

	other.id = 0;
	put_copy(f, &other);
	tell(f, ID_1);
	fake_load(&f->memory, &own, SLIDE);
	seek(f);
	check_names(f, false);
}

static void without_build_ids_the_code_must_be_the_same(void **state)
{
	struct code_fixture without = own, other = own;
	struct fixture *f = *state;

	without.id = other.id = 0;
	other.seed = 2;
	put_copy(f, &without);
	tell(f, "");
	/* Nothing can be read there. */
	seek(f);
	check_names(f, false);
	tell(f, "");
	fake_load(&f->memory, &other, SLIDE);
	seek(f);
	check_names(f, false);
	fake_end(&f->memory);
	tell(f, "");
	fake_load(&f->memory, &without, SLIDE);
	seek(f);
	check_names(f, true);
	assert_int_equal(f->warnings, 0);
}

static void a_copy_with_a_build_id_waits_for_that_of_the_guest(void **state)
{
	struct fixture *f = *state;

	put_copy(f, &own);
	tell(f, "");
	fake_load(&f->memory, &own, SLIDE);
	seek(f);
	check_names(f, false);
	assert_int_equal(f->warnings, 0);
}

static void what_is_no_file_or_no_elf_file_is_not_used(void **state)
{
	struct fixture *f = *state;
	FILE *out;

	tell(f, ID_1);
	seek(f);
	check_names(f, false);
	tell(f, ID_1);
	assert_int_equal(mkfifo(f->path, 0666), 0);
	alarm(10);
	seek(f);
	alarm(0);
	check_names(f, false);
	assert_int_equal(f->notes, 0);
	tell(f, ID_1);
	assert_int_equal(unlink(f->path), 0);
	out = fopen(f->path, "w");
	fputs("0000000000001000 T f2\n", out);
	fclose(out);
	seek(f);
	check_names(f, false);
}

static void code_elsewhere_than_the_guest_tells_is_not_used(void **state)
{
	struct code_fixture large = own;
	struct fixture *f = *state;

	large.len = 2 * LENGTH;
	put_copy(f, &large);
	tell(f, ID_1);
	seek(f);
	check_names(f, false);
}

static void a_file_that_was_removed_is_not_the_one_at_its_path(void **state)
{
	struct fixture *f = *state;

	put_copy(f, &own);
	tell(f, ID_1);
	f->mapping.deleted = true;
	seek(f);
	check_names(f, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_copy_with_its_build_id_names_a_file),
		TEST(another_build_is_not_used),
		TEST(a_copy_without_a_build_id_is_not_the_file_that_has_one),
		TEST(without_build_ids_the_code_must_be_the_same),
		TEST(a_copy_with_a_build_id_waits_for_that_of_the_guest),
		TEST(what_is_no_file_or_no_elf_file_is_not_used),
		TEST(code_elsewhere_than_the_guest_tells_is_not_used),
		TEST(a_file_that_was_removed_is_not_the_one_at_its_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
