/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of programs, by what a made-up system says of mappings, and heads of files in memory. */
#include "capture/capture.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIRST	0x7f0000000000ull /* of the file in program 1, */
#define APART	0x10000000ull	  /* and from each to the next */
#define CODE	0x3000u		  /* its code's offset and address in the file */
#define ADDRESS 0x5000u
#define LENGTH	0x2000u
#define AT	0x1234u /* in the code */
#define PAGE	4096u

struct fixture {
	struct target target;
	struct arch arch;
	struct images *images;
	struct image_locator *locator;
	struct guest_threads threads;
	uint8_t head[PAGE]; /* all files' first page */
	unsigned asked;
	const char *path;
	uint64_t file;
	uint64_t tables; /* address of the program's page tables, and of the stack's */
	bool gone, hidden;
};

static struct fixture *now; /* the target's functions are handed nothing else */

static uint64_t start_of(uint32_t pid)
{
	return FIRST + pid * APART;
}

static bool find(const void *state, const struct guest_memory *memory,
		 const struct guest_thread *thread, uint64_t va, struct guest_place *out)
{
	const uint64_t start = start_of(thread->pid), at = va - start;
	const bool code = at >= CODE;

	now->asked++;
	if (now->gone || at >= CODE + LENGTH || (!code && at >= PAGE))
		return false;
	out->tables = now->tables;
	snprintf(out->path, sizeof(out->path), "%s", now->path ? now->path : "");
	out->mapping = (struct guest_mapping){.start = start + (code ? CODE : 0),
					      .end = start + (code ? CODE + LENGTH : PAGE),
					      .offset = code ? CODE : 0,
					      .executable = code,
					      .file = now->file,
					      .path = now->path ? out->path : NULL};
	return true;
}

static const struct threads_system system_of_files = {.place = find};

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	const uint64_t at = va % APART;

	if (now->hidden || at >= PAGE || len > PAGE - at)
		return 0;
	memcpy(buf, now->head + at, len);
	return len;
}

static enum xlate_status translate(const struct mmu *mmu, uint64_t va,
				   const struct physmem *physmem, struct xlate *out)
{
	out->addr = va;
	return XLATE_OK;
}

static const struct target_ops ops = {.scheme = "fake", .read = read_memory};

/* The head of a file whose code has another address than its offset. */
static void put_head(struct fixture *f, uint8_t id)
{
	const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
				 .e_phoff = 64,
				 .e_phentsize = sizeof(Elf64_Phdr),
				 .e_phnum = 3};
	const Elf64_Phdr part[] = {
		{.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x2000, .p_memsz = 0x2000},
		{.p_type = PT_LOAD,
		 .p_flags = PF_R | PF_X,
		 .p_offset = CODE,
		 .p_vaddr = ADDRESS,
		 .p_filesz = LENGTH,
		 .p_memsz = LENGTH},
		{.p_type = PT_NOTE, .p_offset = 0x200, .p_filesz = 20}};
	const Elf64_Nhdr note = {sizeof(ELF_NOTE_GNU), 4, NT_GNU_BUILD_ID};

	memcpy(f->head, &head, sizeof(head));
	memcpy(f->head + 64, part, sizeof(part));
	memcpy(f->head + 0x200, &note, sizeof(note));
	memcpy(f->head + 0x200 + sizeof(note), ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU));
	memset(f->head + 0x200 + sizeof(note) + sizeof(ELF_NOTE_GNU), id, 4);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	now = f;
	f->arch.translate = translate;
	f->target = (struct target){.ops = &ops, .follows_tables = true};
	f->target.info.arch = &f->arch;
	f->threads.system = &system_of_files;
	f->path = "/usr/lib/x.so";
	f->file = 1;
	f->tables = 0x1000;
	put_head(f, 0xab);
	assert_null(images_new(&f->images));
	assert_null(image_locator_new(&f->target, f->images, NULL, &f->locator));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	image_locator_free(f->locator);
	images_free(f->images);
	free(f);
	return 0;
}

/* Frames of program `pid`; `expect_missed`: the system does not tell. */
static void place_all(struct fixture *f, uint32_t pid, struct frame *frames, size_t n,
		      bool expect_missed)
{
	const struct guest_thread thread = {.pid = pid, .tid = pid};
	const struct regs regs = {.mmu = {.root = 0x1000}};
	const struct program_of of = {&f->target, &f->threads, &thread, &regs, NULL};
	bool missed;

	assert_null(programs_place(image_locator_programs(f->locator), &of, frames, n, &missed));
	assert_int_equal(missed, expect_missed);
}

static uint64_t place_one(struct fixture *f, uint32_t pid, uint64_t at)
{
	struct frame frame = {.addr = start_of(pid) + CODE + at};

	place_all(f, pid, &frame, 1, false);
	return frame.addr;
}

static void a_function_has_the_same_address_in_each_program(void **state)
{
	struct fixture *f = *state;
	const uint64_t addr = place_one(f, 1, AT);

	assert_true(is_mapped_file(addr));
	for (uint32_t pid = 2; pid < 9; pid++)
		assert_true(place_one(f, pid, AT) == addr);
	assert_true(place_one(f, 1, AT + 1) == addr + 1);
	assert_int_equal(images_count(f->images), 1);
}

static void the_address_is_the_files_behind_its_own(void **state)
{
	struct fixture *f = *state;
	const uint64_t addr = place_one(f, 1, AT);
	const struct image *image = images_at(f->images, addr);

	assert_non_null(image);
	assert_true(addr - image->slide == ADDRESS + AT);
	assert_string_equal(image->file->path, "/usr/lib/x.so");
	assert_string_equal(image->file->build_id, "abababab");
	assert_true(image->start - image->slide == ADDRESS && image->end - image->start == LENGTH);
}

static void frames_of_the_kernel_and_of_files_that_are_given_stay(void **state)
{
	struct fixture *f = *state;
	struct frame frames[] = {{.addr = 0xffffffff81000000},
				 {.addr = start_of(1) + CODE + AT},
				 {.addr = start_of(1) + CODE + AT, .kind = FRAME_FOREIGN}};
	const struct mapped_file given = {"given", "", 0, 0x1000};
	uint64_t base;

	assert_null(images_add_mapped(f->images, &given, &base));
	assert_null(images_map(f->images, 0, base, true));
	place_all(f, 1, frames, 1, false);
	assert_int_equal(f->asked, 0);
	assert_true(frames[0].addr == 0xffffffff81000000);
	place_all(f, 1, frames + 2, 1, false);
	assert_true(is_mapped_file(frames[2].addr));
	assert_int_equal(frames[2].kind, FRAME_PC);
}

static void a_return_address_behind_the_code_belongs_to_its_call(void **state)
{
	struct fixture *f = *state;
	struct frame frame = {.addr = start_of(1) + CODE + LENGTH, .kind = FRAME_RETURN};

	place_all(f, 1, &frame, 1, false);
	assert_true(is_mapped_file(frame.addr));
}

static void files_of_one_path_are_two_if_they_differ(void **state)
{
	struct fixture *f = *state;
	const uint64_t addr = place_one(f, 1, AT);

	put_head(f, 0xcd);
	f->file = 2;
	assert_true(place_one(f, 2, AT) != addr);
	assert_int_equal(images_count(f->images), 2);
	/* The build id tells, whatever the system calls the file. */
	put_head(f, 0xab);
	f->file = 3;
	assert_true(place_one(f, 3, AT) == addr);
	assert_int_equal(images_count(f->images), 2);
}

static void code_without_a_head_has_its_offset(void **state)
{
	struct fixture *f = *state;
	const struct image *image;
	uint64_t addr;

	memset(f->head, 0, sizeof(f->head));
	addr = place_one(f, 1, AT);
	image = images_at(f->images, addr);
	assert_true(addr - image->slide == CODE + AT);
	assert_string_equal(image->file->build_id, "");
	f->file = 2;
	assert_true(place_one(f, 2, AT) != addr);
	f->file = 1;
	assert_true(place_one(f, 3, AT) == addr);
}

static void a_first_page_that_is_not_there_yet_tells_later(void **state)
{
	struct fixture *f = *state;
	uint64_t addr;

	f->hidden = true;
	addr = place_one(f, 1, AT);
	assert_string_equal(images_at(f->images, addr)->file->build_id, "");
	/* The code's address is its offset: it is told of the same file. */
	f->hidden = false;
	put_head(f, 0xab);
	((Elf64_Phdr *)(void *)(f->head + 64))[1].p_vaddr = CODE;
	assert_true(place_one(f, 2, AT) == addr);
	assert_string_equal(images_at(f->images, addr)->file->build_id, "abababab");
	/* Then one whose first page is not there is the same, too. */
	f->hidden = true;
	assert_true(place_one(f, 3, AT) == addr);
	assert_int_equal(images_count(f->images), 1);
}

static void a_program_that_is_another_by_now_says_nothing(void **state)
{
	struct fixture *f = *state;
	const uint64_t va = start_of(1) + CODE + AT;
	struct frame frame = {.addr = va};

	f->tables = 0x2000;
	place_all(f, 1, &frame, 1, true);
	assert_true(frame.addr == va);
	/* Nor does what lies there in another one. */
	assert_int_equal(frame.kind, FRAME_FOREIGN);
	f->gone = true;
	frame.kind = FRAME_PC;
	place_all(f, 1, &frame, 1, true);
	assert_true(frame.addr == va);
	assert_int_equal(frame.kind, FRAME_FOREIGN);
	assert_int_equal(images_count(f->images), 0);
}

static void code_that_is_of_no_file_stays(void **state)
{
	struct fixture *f = *state;

	f->path = NULL;
	assert_true(place_one(f, 1, AT) == start_of(1) + CODE + AT);
	assert_int_equal(images_count(f->images), 0);
}

static void what_is_mapped_is_asked_once_in_a_while(void **state)
{
	struct fixture *f = *state;
	struct frame frames[64];

	for (size_t i = 0; i < 64; i++)
		frames[i] = (struct frame){.addr = start_of(1) + CODE + i};
	place_all(f, 1, frames, 64, false);
	/* Once for the code, and once for the file's first page. */
	assert_int_equal(f->asked, 2);
}

static void heads_that_lie_lead_to_offsets_or_nowhere(void **state)
{
	struct fixture *f = *state;
	uint32_t random = 1;

	for (unsigned round = 0; round < 2000; round++) {
		struct frame frame = {.addr = start_of(round) + CODE + AT};

		assert_false(is_mapped_file(frame.addr));
		put_head(f, 0xab);
		for (unsigned i = 0; i < 4; i++) {
			random = random * 1664525 + 1013904223;
			f->head[(random >> 8) % 0x220] = (uint8_t)(random >> 24);
		}
		place_all(f, round, &frame, 1, false);
		assert_true(is_mapped_file(frame.addr) ||
			    frame.addr == start_of(round) + CODE + AT);
	}
	assert_true(images_count(f->images) <= PROGRAM_FILES_MAX);
}

static void files_beyond_the_bound_have_no_address(void **state)
{
	struct fixture *f = *state;
	char path[32];

	f->path = path;
	for (uint32_t i = 0; i < PROGRAM_FILES_MAX + 9; i++) {
		snprintf(path, sizeof(path), "/file-%u", i);
		assert_int_equal(is_mapped_file(place_one(f, i, AT)), i < PROGRAM_FILES_MAX);
	}
	assert_int_equal(images_count(f->images), PROGRAM_FILES_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_function_has_the_same_address_in_each_program),
		TEST(the_address_is_the_files_behind_its_own),
		TEST(frames_of_the_kernel_and_of_files_that_are_given_stay),
		TEST(a_return_address_behind_the_code_belongs_to_its_call),
		TEST(files_of_one_path_are_two_if_they_differ),
		TEST(code_without_a_head_has_its_offset),
		TEST(a_first_page_that_is_not_there_yet_tells_later),
		TEST(a_program_that_is_another_by_now_says_nothing),
		TEST(code_that_is_of_no_file_stays),
		TEST(what_is_mapped_is_asked_once_in_a_while),
		TEST(heads_that_lie_lead_to_offsets_or_nowhere),
		TEST(files_beyond_the_bound_have_no_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
