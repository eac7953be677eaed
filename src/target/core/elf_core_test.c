/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/core/elf_core.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arch.h"

/* A core of either class: two segments, three sections, of which one has the names. */
#define ROOM	 1024
#define SEGMENTS 0x80
#define SECTIONS 0x100
#define NAMES	 0x300
#define IDENT(of)                                                               \
	{                                                                       \
		ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, of, ELFDATA2LSB, EV_CURRENT \
	}

static const char names[] = "\0.shstrtab\0.xen_pages";

struct file {
	char path[32];
	struct elf_core core;
};

static struct error *open_bytes(struct file *file, const uint8_t *bytes, size_t len)
{
	int fd;

	strcpy(file->path, "/tmp/elf-core-XXXXXX");
	fd = mkstemp(file->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
	return elf_core_open(file->path, &file->core);
}

static void discard(struct file *file)
{
	elf_core_close(&file->core);
	unlink(file->path);
}

/* One definition for both classes, which differ in types only. */
#define DEFINE_CORE(bits)                                                               \
	static void put_core_##bits(uint8_t *bytes, uint16_t segments)                  \
	{                                                                               \
		const Elf##bits##_Ehdr head = {.e_ident = IDENT(ELFCLASS##bits),        \
					       .e_type = ET_CORE,                       \
					       .e_machine = EM_386,                     \
					       .e_phoff = SEGMENTS,                     \
					       .e_phentsize = sizeof(Elf##bits##_Phdr), \
					       .e_phnum = segments,                     \
					       .e_shoff = SECTIONS,                     \
					       .e_shentsize = sizeof(Elf##bits##_Shdr), \
					       .e_shnum = 3,                            \
					       .e_shstrndx = 1};                        \
		const Elf##bits##_Phdr segment[] = {{.p_type = PT_NOTE,                 \
						     .p_offset = 0x40,                  \
						     .p_filesz = 8},                    \
						    {.p_type = PT_LOAD,                 \
						     .p_offset = 0x200,                 \
						     .p_filesz = 0x100,                 \
						     .p_paddr = 0x7000}};               \
		const Elf##bits##_Shdr section[] = {{.sh_info = 2},                     \
						    {.sh_name = 1,                      \
						     .sh_type = SHT_STRTAB,             \
						     .sh_offset = NAMES,                \
						     .sh_size = sizeof(names)},         \
						    {.sh_name = 11,                     \
						     .sh_type = SHT_PROGBITS,           \
						     .sh_offset = 0x200,                \
						     .sh_size = 0x80,                   \
						     .sh_entsize = 0x40}};              \
                                                                                        \
		memset(bytes, 0, ROOM);                                                 \
		memcpy(bytes, &head, sizeof(head));                                     \
		memcpy(bytes + SEGMENTS, segment, sizeof(segment));                     \
		memcpy(bytes + SECTIONS, section, sizeof(section));                     \
		memcpy(bytes + NAMES, names, sizeof(names));                            \
	}

DEFINE_CORE(32)
DEFINE_CORE(64)

typedef void put_core(uint8_t *bytes, uint16_t segments);

static put_core *const classes[] = {put_core_32, put_core_64};

static void test_segments_of_both_classes(void **state)
{
	uint8_t bytes[ROOM];

	for (int i = 0; i < 2; i++) {
		struct elf_part part;
		struct file file;

		classes[i](bytes, 2);
		assert_null(open_bytes(&file, bytes, sizeof(bytes)));
		assert_int_equal(file.core.machine, EM_386);
		assert_int_equal(file.core.wide, i);
		assert_true(elf_core_segment(&file.core, 0, &part));
		assert_int_equal(part.type, PT_NOTE);
		assert_true(elf_core_segment(&file.core, 1, &part));
		assert_int_equal(part.type, PT_LOAD);
		assert_int_equal(part.at, 0x200);
		assert_int_equal(part.size, 0x100);
		assert_int_equal(part.physical, 0x7000);
		assert_false(elf_core_segment(&file.core, 2, &part));
		discard(&file);
	}
}

static void test_sections_of_both_classes_by_name(void **state)
{
	uint8_t bytes[ROOM];

	for (int i = 0; i < 2; i++) {
		struct elf_part part;
		struct file file;

		classes[i](bytes, 2);
		assert_null(open_bytes(&file, bytes, sizeof(bytes)));
		assert_true(elf_core_section(&file.core, ".xen_pages", &part));
		assert_int_equal(part.at, 0x200);
		assert_int_equal(part.size, 0x80);
		assert_int_equal(part.entry_size, 0x40);
		assert_false(elf_core_section(&file.core, ".xen", &part));
		assert_false(elf_core_section(&file.core, "xen_pages", &part));
		discard(&file);
	}
}

static void test_more_segments_than_fit_are_counted_in_the_first_section(void **state)
{
	uint8_t bytes[ROOM];

	for (int i = 0; i < 2; i++) {
		struct file file;

		classes[i](bytes, PN_XNUM);
		assert_null(open_bytes(&file, bytes, sizeof(bytes)));
		assert_int_equal(file.core.segments, 2);
		discard(&file);
	}
}

/* Wherever a file ends, nothing beyond is handed out. */
static void test_cut_off_anywhere(void **state)
{
	uint8_t bytes[ROOM];

	for (int i = 0; i < 2; i++)
		for (size_t len = 0; len < sizeof(bytes); len += 4) {
			struct elf_part part;
			struct file file;
			struct error *err;

			classes[i](bytes, 2);
			err = open_bytes(&file, bytes, len);
			if (err)
				assert_int_equal(err->kind, ERR_INPUT);
			else if (elf_core_segment(&file.core, 1, &part))
				assert_true(part.at + part.size <= len);
			error_free(err);
			discard(&file);
		}
}

static void assert_refused(const void *bytes, size_t len, const char *why)
{
	struct file file;
	struct error *err = open_bytes(&file, bytes, len);

	assert_non_null(err);
	assert_non_null(strstr(err->text, why));
	error_free(err);
	discard(&file);
}

static void test_other_files_are_refused_by_what_they_are(void **state)
{
	uint8_t bytes[ROOM];
	Elf64_Ehdr *head = (Elf64_Ehdr *)bytes;

	assert_refused("", 0, "too short");
	assert_refused("KDUMP   and more of it", 20, "compressed");
	assert_refused("makedumpfile, and more of it", 28, "compressed");
	assert_refused("something else altogether", 25, "no ELF file");
	put_core_64(bytes, 2);
	head->e_type = ET_EXEC;
	assert_refused(bytes, sizeof(bytes), "another kind");
	put_core_64(bytes, 2);
	head->e_ident[EI_DATA] = ELFDATA2MSB;
	assert_refused(bytes, sizeof(bytes), "another kind");
	put_core_64(bytes, 2);
	head->e_phentsize--;
	assert_refused(bytes, sizeof(bytes), "another kind");
	put_core_64(bytes, 2);
	head->e_ident[EI_CLASS] = 3;
	assert_refused(bytes, sizeof(bytes), "another kind");
}

static void test_notes_one_after_the_other(void **state)
{
	struct {
		Elf64_Nhdr head;
		char name[8];
		uint32_t desc;
		Elf64_Nhdr second;
		char xen[4];
	} notes = {{5, 3, 7}, "CORE", 0x1234, {4, 0, 9}, "Xen"};
	const uint8_t *bytes = (const uint8_t *)&notes;
	struct elf_note note;
	size_t at = 0;

	assert_true(elf_note_next(bytes, sizeof(notes), &at, &note));
	assert_string_equal(note.name, "CORE");
	assert_int_equal(note.type, 7);
	assert_int_equal(note.len, 3);
	assert_ptr_equal(note.desc, &notes.desc);
	assert_true(elf_note_next(bytes, sizeof(notes), &at, &note));
	assert_string_equal(note.name, "Xen");
	assert_int_equal(note.len, 0);
	assert_false(elf_note_next(bytes, sizeof(notes), &at, &note));
	notes.head.n_descsz = 0xfffffff0;
	at = 0;
	assert_false(elf_note_next(bytes, sizeof(notes), &at, &note));
	notes.head.n_descsz = 3;
	notes.head.n_namesz = 0xffffffff;
	assert_false(elf_note_next(bytes, sizeof(notes), &at, &note));
}

static void add_run(struct frame_map *map, uint64_t gfn, uint64_t n, uint64_t at)
{
	assert_null(frame_map_add(map, gfn, n, at));
}

static void assert_at(const struct frame_map *map, uint64_t gfn, uint64_t wanted)
{
	uint64_t at;

	assert_true(frame_map_find(map, gfn, &at));
	assert_int_equal(at, wanted);
}

static void assert_absent(const struct frame_map *map, uint64_t gfn)
{
	uint64_t at;

	assert_false(frame_map_find(map, gfn, &at));
}

static void test_nothing_is_found_where_nothing_is(void **state)
{
	struct frame_map map = {0};

	frame_map_sort(&map);
	assert_absent(&map, 0);
	frame_map_free(&map);
}

static void test_what_goes_on_here_and_there_is_one_run(void **state)
{
	struct frame_map map = {0};

	add_run(&map, 10, 2, 0x1000);
	add_run(&map, 12, 1, 0x1000 + 2 * FRAME_SIZE);
	assert_int_equal(map.n, 1);
	add_run(&map, 13, 1, 0x9000);
	add_run(&map, 20, 1, 0xa000);
	assert_int_equal(map.n, 3);
	frame_map_free(&map);
}

static void test_frames_are_found_in_whatever_order_they_came(void **state)
{
	struct frame_map map = {0};

	add_run(&map, 100, 4, 0x50000);
	add_run(&map, 7, 1, 0x30000);
	add_run(&map, 1ull << 51, 2, 0x40000);
	frame_map_sort(&map);
	assert_at(&map, 7, 0x30000);
	assert_at(&map, 100, 0x50000);
	assert_at(&map, 103, 0x50000 + 3 * FRAME_SIZE);
	assert_at(&map, (1ull << 51) + 1, 0x40000 + FRAME_SIZE);
	assert_absent(&map, 6);
	assert_absent(&map, 8);
	assert_absent(&map, 99);
	assert_absent(&map, 104);
	frame_map_free(&map);
}

static void test_frames_that_came_twice_are_there_once(void **state)
{
	struct frame_map map = {0};

	add_run(&map, 10, 10, 0x100000);
	add_run(&map, 15, 10, 0x200000);
	add_run(&map, 12, 2, 0x300000);
	frame_map_sort(&map);
	assert_int_equal(map.n, 2);
	assert_at(&map, 12, 0x100000 + 2 * FRAME_SIZE);
	assert_at(&map, 19, 0x100000 + 9 * FRAME_SIZE);
	assert_at(&map, 20, 0x200000 + 5 * FRAME_SIZE);
	assert_at(&map, 24, 0x200000 + 9 * FRAME_SIZE);
	assert_absent(&map, 25);
	frame_map_free(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments_of_both_classes),
		cmocka_unit_test(test_sections_of_both_classes_by_name),
		cmocka_unit_test(test_more_segments_than_fit_are_counted_in_the_first_section),
		cmocka_unit_test(test_cut_off_anywhere),
		cmocka_unit_test(test_other_files_are_refused_by_what_they_are),
		cmocka_unit_test(test_notes_one_after_the_other),
		cmocka_unit_test(test_nothing_is_found_where_nothing_is),
		cmocka_unit_test(test_what_goes_on_here_and_there_is_one_run),
		cmocka_unit_test(test_frames_are_found_in_whatever_order_they_came),
		cmocka_unit_test(test_frames_that_came_twice_are_there_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
