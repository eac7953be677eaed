/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/images.h"

#include <fcntl.h>

#include "base/preopen.h"
#include "symbol/images/code_fixture.h"
#include "symbol/names/table.h"

static size_t load(struct images *images, const struct code_fixture *f, bool names)
{
	struct image_spec spec = {.given = true, .names = names};
	char path[32];
	size_t i;
	int fd;

	code_file(f, &fd, path);
	spec.path = path;
	assert_null(images_load(images, &spec, &i));
	close(fd);
	return i;
}

static struct images *new_images(void)
{
	struct images *images;

	assert_null(images_new(&images));
	return images;
}

static void assert_at(const struct images *images, uint64_t va, const char *name)
{
	struct symbol symbol;
	bool found = images_find(images, va, true, &symbol);

	assert_int_equal(found, name != NULL);
	if (!name)
		return;
	assert_string_equal(symbol.name, name);
	assert_true(va >= symbol.start && va < symbol.end);
}

static void a_file_names_nothing_before_it_has_a_place(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000, .id = 1};
	struct images *images = new_images();
	size_t i = load(images, &f, true);
	unsigned changes = images_changes(images);

	assert_at(images, 0x1000, NULL);
	assert_null(images_at(images, 0x1000));
	assert_null(images_map(images, i, 0x10000, true));
	assert_true(images_changes(images) != changes);
	assert_at(images, 0x1000, NULL);
	assert_at(images, 0x11100, "f1");
	assert_int_equal(images_at(images, 0x11100)->slide, 0x10000);
	/* The note behind the code belongs to the image, too. */
	assert_non_null(images_at(images, 0x12000 + CODE_NOTE_LEN - 1));
	assert_null(images_at(images, 0x12000 + CODE_NOTE_LEN));
	images_unmap(images, i);
	assert_at(images, 0x11100, NULL);
	images_free(images);
}

static void a_file_may_have_many_places_but_not_any_number(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000};
	struct images *images = new_images();
	size_t other = load(images, &f, true), i = load(images, &f, true);

	for (uint64_t k = 0; k < 2 * IMAGE_MAPPINGS_MAX; k++) {
		assert_null(images_map(images, i, k << 20, false));
		assert_null(images_map(images, i, k << 20, true));
	}
	assert_int_equal(images_count(images), IMAGE_MAPPINGS_MAX);
	for (uint64_t k = 0; k < IMAGE_MAPPINGS_MAX; k++) {
		assert_at(images, (k << 20) + 0x1200, "f2");
		assert_true(images_get(images, (size_t)k)->checked);
	}
	/* Those of the file that was loaded first come first. */
	assert_null(images_map(images, other, 0, false));
	assert_ptr_equal(images_at(images, 0x1200)->file, images_file(images, other));
	images_unmap(images, i);
	assert_int_equal(images_count(images), 1);
	images_free(images);
}

static void addresses_wrap_around(void **state)
{
	struct code_fixture f = {.va = 0xfffffffffffff000 - 0x1000, .len = 0x1000};
	struct images *images = new_images();

	assert_null(images_map(images, load(images, &f, true), 0x3000, true));
	assert_at(images, 0x1000, "f0");
	assert_at(images, 0x1fff, "f15");
	assert_at(images, 0xfff, NULL);
	images_free(images);
}

static void a_file_for_callers_only_gives_no_names(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000};
	struct images *images = new_images();
	struct symbol symbol;

	assert_null(images_map(images, load(images, &f, false), 0, true));
	assert_at(images, 0x1000, NULL);
	assert_true(images_find(images, 0x1100, false, &symbol));
	assert_string_equal(symbol.name, "f1");
	images_free(images);
}

/* A file without symbols has its code, a table has the names. */
static void tables_serve_beside_stripped_files(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000, .no_symbols = true};
	struct images *images = new_images();
	struct symbols *symbols;

	assert_null(images_map(images, load(images, &f, true), 0, true));
	assert_null(nm_read("test", strdup("1000 T a\n1800 T b\n2000 T c\n"), 27, &symbols));
	assert_null(images_add_tables(images, "test", symbols, NULL));
	assert_at(images, 0x1900, "b");
	assert_non_null(images_at(images, 0x1900)->file->code);
	images_free(images);
}

static void an_address_means_where_code_begins(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000};
	struct images *images = new_images();
	struct image_file *file = images_file(images, load(images, &f, true));

	assert_int_equal(image_slide_for(file, 0x7f0000000000), 0x7f0000000000 - 0x1000);
	/* The linker put the code into the middle of a page. */
	file->code->start += 0x120;
	assert_int_equal(image_slide_for(file, 0x7f0000000000), 0x7f0000000000 - 0x1000);
	assert_int_equal(image_slide_for(file, 0x7f0000000120), 0x7f0000000000 - 0x1000);
	images_free(images);
}

static void tables_are_written_with_the_guest_s_addresses(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x200};
	struct images *images = new_images();
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_null(images_map(images, load(images, &f, true), 0xffffffff80000000, true));
	assert_null(images_write_nm(images, out));
	fclose(out);
	assert_string_equal(text, "ffffffff80001000 t f0\nffffffff80001100 t f1\n");
	free(text);
	images_free(images);
}

static void copy_file(const char *from, int to)
{
	static char bytes[1 << 16];
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(to, bytes, (size_t)n), n);
	assert_int_equal(n, 0);
	close(fd);
}

static const struct image_file *load_program(struct images *images, const char *path)
{
	const struct image_spec spec = {.path = path};
	size_t i;

	assert_null(images_load(images, &spec, &i));
	return images_file(images, i);
}

/* This very program is sure to have tables. */
static void copies_of_a_file_have_their_tables_together(bool apart)
{
	const char *own = "/proc/self/exe";
	int copy = memfd_create("copy", 0), longer = memfd_create("longer", 0);
	char copy_path[32], longer_path[32];
	struct images *images = new_images();
	const struct unwind_table *table;

	snprintf(copy_path, sizeof(copy_path), "/dev/fd/%d", copy);
	snprintf(longer_path, sizeof(longer_path), "/dev/fd/%d", longer);
	copy_file(own, copy);
	copy_file(own, longer);
	assert_int_equal(write(longer, "", 1), 1);
	/* A process apart has no other files. */
	assert_null(preopen_input(copy_path));
	assert_null(preopen_input(longer_path));
	if (apart)
		images_sandbox(images);
	table = load_program(images, own)->table;
	assert_non_null(table);
	assert_ptr_equal(load_program(images, copy_path)->table, table);
	assert_ptr_equal(load_program(images, own)->table, table);
	/* A longer copy is read anew: it may know more. */
	assert_non_null(load_program(images, longer_path)->table);
	assert_ptr_not_equal(load_program(images, longer_path)->table, table);
	preopen_close();
	close(copy);
	close(longer);
	images_free(images);
}

static void copies_read_here_have_their_tables_together(void **state)
{
	copies_of_a_file_have_their_tables_together(false);
}

static void copies_read_apart_have_their_tables_together(void **state)
{
	copies_of_a_file_have_their_tables_together(true);
}

static void files_for_names_only_have_range_and_names(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 0x1000, .id = 1};
	struct images *whole = new_images(), *images = new_images();
	const struct image_file *file, *same = images_file(whole, load(whole, &f, true));
	size_t i;

	images_names_only(images);
	i = load(images, &f, true);
	file = images_file(images, i);
	assert_int_equal(file->code->start, same->code->start);
	assert_int_equal(file->code->end, same->code->end);
	assert_string_equal(file->build_id, same->build_id);
	assert_int_equal(file->code->n, 0);
	assert_null(load_program(images, "/proc/self/exe")->table);
	assert_null(images_map(images, i, 0x10000, true));
	assert_at(images, 0x11100, "f1");
	images_free(whole);
	images_free(images);
}

/* Bases of files that are added to new images. */
static void add_mapped(const struct mapped_file *files, size_t n, uint64_t *base)
{
	struct images *images = new_images();

	for (size_t i = 0; i < n; i++) {
		const struct image *image;

		assert_null(images_add_mapped(images, &files[i], &base[i]));
		image = images_at(images, base[i] + files[i].start);
		assert_true(image && image->slide == base[i] && is_mapped_file(base[i]));
		assert_string_equal(image->file->path, files[i].path);
		assert_null(images_at(images, base[i] + files[i].end));
	}
	images_free(images);
}

static void mapped_files_have_addresses_of_their_own_that_stay(void **state)
{
	const struct mapped_file files[] = {{"/lib/a", "", 0x1000, 0x2000},
					    {"/lib/a", "ab", 0x1000, 0x2000},
					    {"/lib/b", "ab", 0x1000, 0x2000},
					    {"/lib/b", "ab", 0x5000, 0x6000}};
	uint64_t base[4], again[3];

	add_mapped(files, 4, base);
	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < i; k++)
			assert_true(base[i] != base[k]);
	add_mapped(files, 3, again);
	assert_memory_equal(again, base, sizeof(again));
	/* In recordings of other versions, too. */
	assert_true(base[0] == UINT64_C(0x68c83b4d00000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_names_nothing_before_it_has_a_place),
		cmocka_unit_test(a_file_may_have_many_places_but_not_any_number),
		cmocka_unit_test(addresses_wrap_around),
		cmocka_unit_test(a_file_for_callers_only_gives_no_names),
		cmocka_unit_test(tables_serve_beside_stripped_files),
		cmocka_unit_test(mapped_files_have_addresses_of_their_own_that_stay),
		cmocka_unit_test(an_address_means_where_code_begins),
		cmocka_unit_test(tables_are_written_with_the_guest_s_addresses),
		cmocka_unit_test(files_for_names_only_have_range_and_names),
		cmocka_unit_test(copies_read_here_have_their_tables_together),
		cmocka_unit_test(copies_read_apart_have_their_tables_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
