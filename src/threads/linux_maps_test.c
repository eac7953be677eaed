/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/linux_testing.h"

/* Structures of process 4, each in a place of its own. */
#define MM	  (START + 0x20000)
#define VMA(i)	  (START + 0x21000 + 0x80 * (uint64_t)(i))
#define FILE(i)	  (START + 0x24000 + 0x40 * (uint64_t)(i))
#define DENTRY(i) (START + 0x25000 + 0x80 * (uint64_t)(i))
#define NAME(i)	  (DENTRY(i) + 0x40)
#define MOUNT(i)  (START + 0x28000 + 0x40 * (uint64_t)(i))
#define NODE(i)	  (START + 0x30000 + 0x100 * (uint64_t)(i))
#define LEAF(i)	  (NODE(i) | 1 << 3 | 4)
#define INNER(i)  (NODE(i) | 3 << 3 | 4)

#define READ	 1u
#define WRITE	 2u
#define EXECUTE	 4u
#define NO_FILE	 0u
#define MAPPINGS 6u

static void put_dentry(struct kernel *kernel, unsigned i, unsigned parent, const char *name)
{
	const size_t len = strlen(name);

	put_at(kernel, DENTRY(i), DENTRY_NAME_LEN, len);
	put_at(kernel, DENTRY(i), DENTRY_NAME, NAME(i));
	put_at(kernel, DENTRY(i), DENTRY_PARENT, DENTRY(parent));
	put_at(kernel, DENTRY(i), DENTRY_HASHED, DENTRY(parent));
	memcpy(kernel->bytes + (NAME(i) - START), name, len);
}

/* A mount whose root is a dentry; the first one is its own parent. */
static void put_mount(struct kernel *kernel, unsigned i, unsigned parent, unsigned point,
		      unsigned root)
{
	put_at(kernel, MOUNT(i), MOUNT_PARENT, MOUNT(parent));
	put_at(kernel, MOUNT(i), MOUNT_POINT, DENTRY(point));
	put_at(kernel, MOUNT(i), MNT_ROOT, DENTRY(root));
}

static void put_file(struct kernel *kernel, unsigned i, unsigned mount, unsigned dentry)
{
	put_at(kernel, FILE(i), FILE_MOUNT, MOUNT(mount) + layout.maps.at[MOUNT_MNT]);
	put_at(kernel, FILE(i), FILE_DENTRY, DENTRY(dentry));
}

static void put_vma(struct kernel *kernel, unsigned i, uint64_t start, uint64_t end, uint64_t flags)
{
	put_at(kernel, VMA(i), VMA_START, start);
	put_at(kernel, VMA(i), VMA_END, end);
	put_at(kernel, VMA(i), VMA_FLAGS, flags);
	put_at(kernel, VMA(i), VMA_MM, MM);
}

static void map_file(struct kernel *kernel, unsigned i, uint64_t file, uint64_t page)
{
	put_at(kernel, VMA(i), VMA_FILE, file);
	put_at(kernel, VMA(i), VMA_OFFSET, page);
}

static void put_slot(struct kernel *kernel, uint64_t node, unsigned i, uint64_t last, uint64_t slot)
{
	const bool leaf = (node >> 3 & 15) == 1;

	node &= ~0xffull;
	put_at(kernel, node + 8ull * i, leaf ? LEAF_PIVOTS : INNER_PIVOTS, last);
	put_at(kernel, node + 8ull * i, leaf ? LEAF_SLOTS : INNER_SLOTS, slot);
}

/* Two leaves below an inner node; gaps have no slots. */
static void put_tree(struct kernel *kernel)
{
	put_at(kernel, MM, MM_ROOT, INNER(0));
	put_slot(kernel, INNER(0), 0, 0x4fffff, LEAF(1));
	put_slot(kernel, INNER(0), 1, UINT64_MAX, LEAF(2));
	put_slot(kernel, LEAF(1), 0, 0x3fffff, 0);
	put_slot(kernel, LEAF(1), 1, 0x401fff, VMA(0));
	put_slot(kernel, LEAF(1), 2, 0x402fff, VMA(1));
	/* An end without a pivot. */
	put_slot(kernel, LEAF(1), 3, 0, 0);
	put_slot(kernel, LEAF(2), 0, 0x500fff, VMA(2));
	put_slot(kernel, LEAF(2), 1, 0x7effffffffff, 0);
	put_slot(kernel, LEAF(2), 2, 0x7f0000001fff, VMA(3));
	put_slot(kernel, LEAF(2), 3, 0x7f0000002fff, VMA(4));
	put_slot(kernel, LEAF(2), 4, 0x7f0000003fff, VMA(5));
	put_slot(kernel, LEAF(2), 5, UINT64_MAX, 0);
}

/* "/bin/tool" twice, a heap, "/mnt/lib/x.so" of another mount, a vDSO and a stack. */
static void put_process(struct kernel *kernel)
{
	put_dentry(kernel, 0, 0, "/");
	put_dentry(kernel, 1, 0, "bin");
	put_dentry(kernel, 2, 1, "tool");
	put_dentry(kernel, 3, 0, "mnt");
	put_dentry(kernel, 4, 4, "/");
	put_dentry(kernel, 5, 4, "lib");
	put_dentry(kernel, 6, 5, "x.so");
	put_mount(kernel, 0, 0, 0, 0);
	put_mount(kernel, 1, 0, 3, 4);
	put_file(kernel, 0, 0, 2);
	put_file(kernel, 1, 1, 6);
	put_vma(kernel, 0, 0x400000, 0x402000, READ | EXECUTE);
	put_vma(kernel, 1, 0x402000, 0x403000, READ | WRITE);
	put_vma(kernel, 2, 0x500000, 0x501000, READ | WRITE);
	put_vma(kernel, 3, 0x7f0000000000, 0x7f0000002000, READ | EXECUTE | 0x80);
	put_vma(kernel, 4, 0x7f0000002000, 0x7f0000003000, READ | EXECUTE);
	put_vma(kernel, 5, 0x7f0000003000, 0x7f0000004000, READ | WRITE);
	map_file(kernel, 0, FILE(0), 0);
	map_file(kernel, 1, FILE(0), 2);
	map_file(kernel, 3, FILE(1), 0x10);
	put_at(kernel, MM, MM_COUNT, MAPPINGS);
	put_at(kernel, MM, MM_HEAP, 0x500000);
	put_at(kernel, MM, MM_HEAP_END, 0x500800);
	put_at(kernel, MM, MM_STACK, 0x7f0000003f00);
	put_at(kernel, MM, MM_VDSO, 0x7f0000002000);
	put_at(kernel, TASK(4), MAPS_MM, MM);
	put_tree(kernel);
}

static int make_process(void **state)
{
	const int failed = make(state);

	if (!failed)
		put_process(*state);
	return failed;
}

static struct guest_mapping_list read_as(struct kernel *kernel, const struct linux_threads *own,
					 unsigned task)
{
	struct guest_threads threads = {&threads_linux, (void *)own};
	const struct guest_thread thread = thread_of(task);
	struct guest_mapping_list list;

	kernel->reads = 0;
	assert_null(guest_threads_mappings(&threads, &kernel->memory, &thread, &list));
	return list;
}

static struct guest_mapping_list read_maps(struct kernel *kernel)
{
	return read_as(kernel, &layout, 4);
}

static void assert_all(struct guest_mapping_list *list)
{
	static const struct {
		const char *access, *path;
		uint64_t offset;
	} known[MAPPINGS] = {
		{"r-xp", "/bin/tool", 0}, {"rw-p", "/bin/tool", 0x2000},
		{"rw-p", "[heap]", 0},	  {"r-xs", "/mnt/lib/x.so", 0x10000},
		{"r-xp", "[vdso]", 0},	  {"rw-p", "[stack]", 0},
	};

	assert_null(list->trouble);
	assert_int_equal(list->n, MAPPINGS);
	for (size_t i = 0; i < MAPPINGS; i++) {
		const struct guest_mapping *at = &list->at[i];
		const char access[] = {at->readable ? 'r' : '-', at->writable ? 'w' : '-',
				       at->executable ? 'x' : '-', at->shared ? 's' : 'p', 0};

		assert_string_equal(access, known[i].access);
		assert_string_equal(at->path, known[i].path);
		assert_true(at->offset == known[i].offset && !at->deleted);
	}
	assert_true(list->at[3].start == 0x7f0000000000 && list->at[3].end == 0x7f0000002000);
	guest_mapping_list_free(list);
}

/* None at all, for a bounded number of reads. */
static void assert_none(struct kernel *kernel)
{
	struct guest_mapping_list list = read_maps(kernel);

	assert_non_null(list.trouble);
	assert_int_equal(list.n, 0);
	assert_true(kernel->reads < 20000);
	guest_mapping_list_free(&list);
}

static void mappings_of_a_tree_have_the_paths_of_their_files(void **state)
{
	struct guest_mapping_list list = read_maps(*state);

	assert_all(&list);
}

static void mappings_of_a_list_do_so_too(void **state)
{
	struct linux_threads older = layout;
	struct kernel *kernel = *state;
	struct guest_mapping_list list;

	older.maps.tree = false;
	put_at(kernel, MM, MM_ROOT, VMA(0));
	for (unsigned i = 1; i < MAPPINGS; i++)
		put_at(kernel, VMA(i - 1), VMA_NEXT, VMA(i));
	list = read_as(kernel, &older, 4);
	assert_all(&list);
	/* A loop goes back to lower addresses, or to its own. */
	for (unsigned i = 0; i < MAPPINGS; i++) {
		put_at(kernel, VMA(MAPPINGS - 1), VMA_NEXT, VMA(i));
		list = read_as(kernel, &older, 4);
		assert_non_null(list.trouble);
		assert_int_equal(list.n, 0);
		assert_true(kernel->reads < 2000);
		guest_mapping_list_free(&list);
	}
}

static void an_address_is_in_one_mapping_or_in_none(void **state)
{
	struct guest_mapping_list list = read_maps(*state);

	assert_ptr_equal(guest_mapping_at(&list, 0x400000), &list.at[0]);
	assert_ptr_equal(guest_mapping_at(&list, 0x402fff), &list.at[1]);
	assert_ptr_equal(guest_mapping_at(&list, 0x7f0000003fff), &list.at[5]);
	assert_null(guest_mapping_at(&list, 0x403000));
	assert_null(guest_mapping_at(&list, 0));
	assert_null(guest_mapping_at(&list, UINT64_MAX));
	assert_null(guest_mapping_at(NULL, 0x400000));
	guest_mapping_list_free(&list);
}

static void threads_of_the_kernel_have_no_mappings(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list = read_as(kernel, &layout, 3);

	assert_null(list.trouble);
	assert_int_equal(list.n, 0);
	guest_mapping_list_free(&list);
	/* One that works in a program's memory. */
	put(kernel, 4, TASK_FLAGS, 0x00200000);
	list = read_maps(kernel);
	assert_null(list.trouble);
	assert_int_equal(list.n, 0);
	guest_mapping_list_free(&list);
}

static void a_thread_that_is_another_by_now_has_none(void **state)
{
	struct kernel *kernel = *state;

	put_word(kernel, TASK(4) + layout.at[TASK_START], 5);
	assert_none(kernel);
}

/* Another root, once one of the leaves has been read. */
static void change_root(struct kernel *kernel, uint64_t va)
{
	if (va != NODE(2) || kernel->changes++)
		return;
	memcpy(kernel->bytes + (NODE(8) - START), kernel->bytes + (NODE(0) - START), 0x100);
	put_at(kernel, MM, MM_ROOT, INNER(8));
}

static void mappings_that_change_meanwhile_are_read_again(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list;

	kernel->runs = change_root;
	list = read_maps(kernel);
	assert_all(&list);
	assert_int_equal(kernel->changes, 2);
}

static void mappings_that_do_not_fit_together_are_none(void **state)
{
	struct kernel *kernel = *state;

	/* Fewer or more than the process counts; one of another process; one that is not where it is said to be. */
	put_at(kernel, MM, MM_COUNT, MAPPINGS + 1);
	assert_none(kernel);
	put_at(kernel, MM, MM_COUNT, MAPPINGS);
	put_at(kernel, VMA(2), VMA_MM, MM + 8);
	assert_none(kernel);
	put_at(kernel, VMA(2), VMA_MM, MM);
	put_at(kernel, VMA(2), VMA_END, 0x502000);
	assert_none(kernel);
	put_at(kernel, VMA(2), VMA_END, 0x501000);
	put_at(kernel, VMA(5), VMA_END, UINT64_MAX);
	assert_none(kernel);
	put_vma(kernel, 5, 0x7f0000003000, 0x7f0000004000, READ | WRITE);
	put_slot(kernel, LEAF(1), 1, 0x3f0000, VMA(0));
	assert_none(kernel);
}

static const uint64_t wild[] = {8,	    0x7fffffff0000, START + SIZE,  START + SIZE + 0x18,
				UINT64_MAX, UINT64_MAX - 7, START + 0x1001};

static void wild_pointers_lead_to_no_mappings(void **state)
{
	struct kernel *kernel = *state;

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_process(kernel);
		put_at(kernel, TASK(4), MAPS_MM, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		put_at(kernel, MM, MM_ROOT, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		put_slot(kernel, INNER(0), 1, UINT64_MAX, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		put_slot(kernel, LEAF(2), 2, 0x7f0000001fff, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		map_file(kernel, 3, wild[i], 0);
		assert_none(kernel);
		put_process(kernel);
		put_at(kernel, FILE(1), FILE_MOUNT, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		put_at(kernel, DENTRY(6), DENTRY_PARENT, wild[i]);
		assert_none(kernel);
		put_process(kernel);
		put_at(kernel, MOUNT(1), MOUNT_PARENT, wild[i]);
		assert_none(kernel);
	}
}

static void a_tree_without_end_ends(void **state)
{
	struct kernel *kernel = *state;

	/* Nodes that are their own children, in all of their slots. */
	put_slot(kernel, INNER(0), 0, UINT64_MAX, INNER(0));
	assert_none(kernel);
	for (unsigned i = 0; i < 9; i++)
		put_slot(kernel, INNER(0), i, i, INNER(1));
	for (unsigned i = 0; i < 9; i++)
		put_slot(kernel, INNER(1), i, 0, INNER(1));
	assert_none(kernel);
}

static const char *path_of_library(struct kernel *kernel, struct guest_mapping_list *list)
{
	*list = read_maps(kernel);
	assert_null(list->trouble);
	return list->at[3].path;
}

static void paths_that_never_end_are_cut_or_none(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list;

	put_at(kernel, DENTRY(5), DENTRY_PARENT, DENTRY(6));
	assert_memory_equal(path_of_library(kernel, &list), ".../lib/x.so/lib", 16);
	guest_mapping_list_free(&list);
	/* Mounts of each other, without a name on the way. */
	put_process(kernel);
	put_mount(kernel, 0, 1, 4, 0);
	put_mount(kernel, 1, 0, 0, 4);
	assert_none(kernel);
}

static void a_file_in_no_directory_has_its_name(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list;

	put_dentry(kernel, 6, 6, "memfd:code");
	put_at(kernel, DENTRY(6), DENTRY_HASHED, 0);
	assert_string_equal(path_of_library(kernel, &list), "/memfd:code");
	assert_false(list.at[3].deleted);
	guest_mapping_list_free(&list);
}

static void a_file_that_was_removed_is_told(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list;

	put_at(kernel, DENTRY(6), DENTRY_HASHED, 0);
	assert_string_equal(path_of_library(kernel, &list), "/mnt/lib/x.so");
	assert_true(list.at[3].deleted && !list.at[0].deleted);
	guest_mapping_list_free(&list);
}

static void the_end_of_a_long_path_is_kept(void **state)
{
	struct kernel *kernel = *state;
	struct guest_mapping_list list;
	const char *path;

	/* 30 directories of the same name, 20 bytes each with their slashes. */
	for (unsigned i = 10; i < 40; i++)
		put_dentry(kernel, i, i == 10 ? 4 : i - 1, "nineteen characters");
	put_dentry(kernel, 5, 39, "lib");
	path = path_of_library(kernel, &list);
	assert_in_range(strlen(path), GUEST_PATH_MAX - 20, GUEST_PATH_MAX);
	assert_memory_equal(path, ".../nineteen", 12);
	assert_string_equal(path + strlen(path) - 9, "/lib/x.so");
	guest_mapping_list_free(&list);
}

static void a_budget_ends_a_reading(void **state)
{
	struct kernel *kernel = *state;

	kernel->budget.left = UINT64_C(20) * GUEST_MEMORY_PAGE_STEPS;
	assert_none(kernel);
	assert_true(kernel->reads <= 20);
}

static bool place_as(struct kernel *kernel, const struct linux_threads *own, uint64_t va,
		     struct guest_place *out)
{
	struct guest_threads threads = {&threads_linux, (void *)own};
	const struct guest_thread thread = thread_of(4);

	kernel->reads = 0;
	return guest_threads_place(&threads, &kernel->memory, &thread, va, out);
}

/* All addresses around the ends of mappings are in those that the whole list has. */
static void assert_places(struct kernel *kernel, const struct linux_threads *own)
{
	struct guest_mapping_list list = read_as(kernel, own, 4);
	static const uint64_t gaps[] = {0, 0x3fffff, 0x403000, 0x501000, UINT64_MAX};
	struct guest_place place;

	put_word(kernel, MM + own->saved.pgd, START + 0x3f000);
	for (size_t i = 0; i < list.n; i++) {
		const struct guest_mapping *at = &list.at[i];
		const uint64_t va[] = {at->start, at->end - 1};

		for (size_t k = 0; k < 2; k++) {
			assert_true(place_as(kernel, own, va[k], &place));
			assert_true(kernel->reads < 60);
			assert_true(place.mapping.start == at->start &&
				    place.mapping.end == at->end && place.mapping.file == at->file);
			assert_true(place.tables == START + 0x3f000);
			assert_true(!at->path == !place.mapping.path);
			if (at->path)
				assert_string_equal(place.mapping.path, at->path);
		}
	}
	for (size_t i = 0; i < sizeof(gaps) / sizeof(*gaps); i++)
		assert_false(place_as(kernel, own, gaps[i], &place));
	guest_mapping_list_free(&list);
}

static void the_place_of_an_address_is_found_alone(void **state)
{
	struct linux_threads older = layout;
	struct kernel *kernel = *state;

	assert_places(kernel, &layout);
	older.maps.tree = false;
	put_at(kernel, MM, MM_ROOT, VMA(0));
	for (unsigned i = 1; i < MAPPINGS; i++)
		put_at(kernel, VMA(i - 1), VMA_NEXT, VMA(i));
	assert_places(kernel, &older);
}

static void wild_pointers_lead_to_no_place(void **state)
{
	struct linux_threads older = layout;
	struct kernel *kernel = *state;
	struct guest_place place;

	older.maps.tree = false;
	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_process(kernel);
		put_word(kernel, MM + layout.saved.pgd, START + 0x3f000);
		put_at(kernel, MM, MM_ROOT, wild[i]);
		assert_false(place_as(kernel, &layout, 0x7f0000000000, &place));
		assert_false(place_as(kernel, &older, 0x7f0000000000, &place));
		put_process(kernel);
		put_slot(kernel, INNER(0), 1, UINT64_MAX, wild[i]);
		assert_false(place_as(kernel, &layout, 0x7f0000000000, &place));
	}
	/* A tree and a list that never end. */
	put_process(kernel);
	put_slot(kernel, INNER(0), 1, UINT64_MAX, INNER(0));
	assert_false(place_as(kernel, &layout, 0x7f0000000000, &place));
	assert_true(kernel->reads < 60);
	put_at(kernel, MM, MM_ROOT, VMA(0));
	put_at(kernel, VMA(0), VMA_NEXT, VMA(0));
	kernel->budget.left = UINT64_C(500) * GUEST_MEMORY_PAGE_STEPS;
	assert_false(place_as(kernel, &older, 0x7f0000000000, &place));
	assert_true(kernel->reads < 600);
}

#define MAPS_TEST(name) cmocka_unit_test_setup_teardown(name, make_process, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MAPS_TEST(mappings_of_a_tree_have_the_paths_of_their_files),
		MAPS_TEST(mappings_of_a_list_do_so_too),
		MAPS_TEST(an_address_is_in_one_mapping_or_in_none),
		MAPS_TEST(threads_of_the_kernel_have_no_mappings),
		MAPS_TEST(a_thread_that_is_another_by_now_has_none),
		MAPS_TEST(mappings_that_change_meanwhile_are_read_again),
		MAPS_TEST(mappings_that_do_not_fit_together_are_none),
		MAPS_TEST(wild_pointers_lead_to_no_mappings),
		MAPS_TEST(a_tree_without_end_ends),
		MAPS_TEST(paths_that_never_end_are_cut_or_none),
		MAPS_TEST(a_file_in_no_directory_has_its_name),
		MAPS_TEST(a_file_that_was_removed_is_told),
		MAPS_TEST(the_end_of_a_long_path_is_kept),
		MAPS_TEST(a_budget_ends_a_reading),
		MAPS_TEST(the_place_of_an_address_is_found_alone),
		MAPS_TEST(wild_pointers_lead_to_no_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
