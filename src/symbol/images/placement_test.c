/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/code_fixture.h"

#define KiB 1024ul

static struct elf_code *load(const struct code_fixture *f)
{
	struct elf_code *code = NULL;
	char path[32];
	int fd;

	code_file(f, &fd, path);
	assert_null(elf_code_load(path, &code));
	assert_non_null(code);
	close(fd);
	return code;
}

/* Searches with `at` as the guest's only address. */
static enum placement_verdict find(const struct code_fixture *f, struct fake_memory *memory,
				   uint64_t at, struct placement_finding *finding)
{
	const struct guest_memory guest = {.ctx = memory, .read = fake_read};
	struct elf_code *code = load(f);
	enum placement_verdict found = placement_find(code, &guest, &at, 1, finding);

	elf_code_free(code);
	return found;
}

static void assert_found(const struct code_fixture *f, uint64_t slide, uint64_t pc)
{
	struct fake_memory memory = {0};
	struct placement_finding finding;

	fake_load(&memory, f, slide);
	assert_int_equal(find(f, &memory, pc, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, slide);
	fake_end(&memory);
}

static void code_is_found_where_it_was_linked(void **state)
{
	assert_found(&(struct code_fixture){.va = 0x100000, .len = 40 * KiB, .id = 1}, 0, 0x101234);
	assert_found(&(struct code_fixture){.va = 0x100000, .len = 40 * KiB}, 0, 0x101234);
	/* Also when the guest is elsewhere just now. */
	assert_found(&(struct code_fixture){.va = 0x100000, .len = 40 * KiB}, 0, 0x7fff0000);
}

static void text_may_begin_at_address_0_and_end_at_the_top(void **state)
{
	assert_found(&(struct code_fixture){.va = 0, .len = 40 * KiB, .id = 1}, 0, 0x10);
	assert_found(&(struct code_fixture){.va = 0, .len = 40 * KiB}, 0x200000, 0x200010);
	assert_found(&(struct code_fixture){.va = 0x200000, .len = 40 * KiB}, -0x200000ull, 0x10);
	assert_found(&(struct code_fixture){.va = 0xffffffff80000000, .len = 40 * KiB}, 0,
		     0xffffffff80000100);
	assert_found(&(struct code_fixture){.va = 0xffffffff80000000, .len = 40 * KiB, .id = 3},
		     0x1e00000, 0xffffffff81e01000);
}

static void code_that_was_moved_is_found_by_what_the_guest_executes(void **state)
{
	assert_found(&(struct code_fixture){.va = 0x1000, .len = 900 * KiB}, 0x555555554000,
		     0x5555555a1234);
	assert_found(&(struct code_fixture){.va = 0x1000, .len = 900 * KiB, .no_sections = true},
		     0x555555554000, 0x5555555a1234);
	/* A file of one page, which is not whole. */
	assert_found(&(struct code_fixture){.va = 0x1000, .len = 512}, 0x555555554000,
		     0x555555555010);
	/* Downwards. */
	assert_found(&(struct code_fixture){.va = 0xffffffff80000000, .len = 40 * KiB},
		     0x100000 - 0xffffffff80000000, 0x101000);
}

/* The copy that the guest executes is found, not the one that was loaded. */
static void a_copy_that_is_left_behind_is_not_taken(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 40 * KiB, .id = 1};
	struct fake_memory memory = {0};
	struct placement_finding finding;

	fake_load(&memory, &f, 0);
	fake_load(&memory, &f, 0x40000000);
	assert_int_equal(find(&f, &memory, 0x40101000, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, 0x40000000);
	assert_int_equal(find(&f, &memory, 0x101000, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, 0);
	fake_end(&memory);
}

/* Every 100th byte of code, with 5 bytes each; and a page of filler that was put to use. */
static void what_a_guest_patches_is_allowed_for(void **state)
{
	struct code_fixture f = {.va = 0xffffffff81000000,
				 .len = 400 * KiB,
				 .id = 1,
				 .patched = true};
	struct fake_memory memory = {0};
	struct placement_finding finding;
	uint8_t *bytes = fake_load(&memory, &f, 0x8000000);

	for (size_t i = 0; i + 5 < f.len; i += 100)
		memcpy(bytes + i, "\x0f\x1f\x44\0", 5);
	memset(bytes + 0x3000, 0x90, 0x1000);
	assert_int_equal(find(&f, &memory, 0xffffffff89001234, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, 0x8000000);
	f.id = 0;
	assert_int_equal(find(&f, &memory, 0xffffffff89001234, &finding), PLACEMENT_SAME);
	fake_end(&memory);
}

static void addresses_that_moved_with_the_code_are_allowed_for(void **state)
{
	struct code_fixture f = {.va = 0xffffffff81000000, .len = 40 * KiB};
	struct fake_memory memory = {0};
	struct placement_finding finding;
	uint8_t *bytes = fake_load(&memory, &f, 0x12345000);

	for (size_t i = 0; i + 8 < f.len; i += 8) {
		uint32_t word;

		memcpy(&word, bytes + i, 4);
		word += 0x12345000;
		memcpy(bytes + i, &word, 4);
	}
	/* Found by its linked place alone it cannot be; the check must allow for it. */
	struct elf_code *code = load(&f);
	const struct guest_memory guest = {.ctx = &memory, .read = fake_read};

	assert_int_equal(placement_check(code, 0x12345000, &guest, NULL, 0, &finding),
			 PLACEMENT_SAME);
	elf_code_free(code);
	fake_end(&memory);
}

/* The hypercall page of a guest is filler in its file. */
static void filler_says_nothing(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 8 * KiB};
	struct fake_memory memory = {0};
	struct elf_code *code = load(&f);
	const struct guest_memory guest = {.ctx = &memory, .read = fake_read};
	struct placement_finding finding;
	uint8_t *bytes = fake_load(&memory, &f, 0);

	memset((void *)(code->piece[0].bytes + 0x1000), 0xcc, 0x1000);
	memset(bytes + 0x1000, 0x51, 0x1000);
	assert_int_equal(placement_check(code, 0, &guest, NULL, 0, &finding), PLACEMENT_SAME);
	elf_code_free(code);
	fake_end(&memory);
}

static void another_build_is_told_by_its_build_id(void **state)
{
	struct code_fixture there = {.va = 0x100000, .len = 40 * KiB, .id = 0xab};
	struct code_fixture file = {.va = 0x100000, .len = 40 * KiB, .id = 1};
	struct fake_memory memory = {0};
	struct placement_finding finding;

	fake_load(&memory, &there, 0);
	/* The code is the same, byte for byte. */
	assert_int_equal(find(&file, &memory, 0x101234, &finding), PLACEMENT_OTHER);
	assert_string_equal(finding.build_id, "abababababababababababababababababababab");
	assert_int_equal(finding.build_id_va, 0x100000 + 40 * KiB);
	/* A file of another size: its note is elsewhere. */
	fake_end(&memory);
	there.len = 44 * KiB;
	there.seed = 1;
	fake_load(&memory, &there, 0);
	assert_int_equal(find(&file, &memory, 0x101234, &finding), PLACEMENT_OTHER);
	assert_string_equal(finding.build_id, "abababababababababababababababababababab");
	fake_end(&memory);
}

/* 16 bytes more in one function, and all that follows is elsewhere. */
static void another_build_without_build_id_is_told_by_its_code(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 256 * KiB};
	struct fake_memory memory = {0};
	struct placement_finding finding;
	uint8_t *bytes = fake_load(&memory, &f, 0);

	memmove(bytes + f.len - 0x1410, bytes + f.len - 0x1400, 0x1400);
	assert_int_equal(find(&f, &memory, 0x101234, &finding), PLACEMENT_OTHER);
	assert_string_equal(finding.build_id, "");
	/* Quite another. */
	f.seed = 7;
	assert_int_equal(find(&f, &memory, 0x101234, &finding), PLACEMENT_OTHER);
	fake_end(&memory);
}

static void what_is_not_there_yet_is_no_mismatch(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 256 * KiB, .id = 1};
	struct fake_memory memory = {0};
	struct placement_finding finding;

	assert_int_equal(find(&f, &memory, 0x101234, &finding), PLACEMENT_UNSEEN);
	fake_part(&memory, 0x100000, 512 * KiB);
	assert_int_equal(find(&f, &memory, 0x101234, &finding), PLACEMENT_UNSEEN);
	fake_end(&memory);
}

/* Some files have no code (separate debug information), but the note. */
static void a_file_without_code_is_found_by_its_note(void **state)
{
	struct code_fixture f = {.va = 0x1000, .len = 200 * KiB, .id = 9};
	struct fake_memory memory = {0};
	struct elf_code *code = load(&f);
	const struct guest_memory guest = {.ctx = &memory, .read = fake_read};
	struct placement_finding finding;
	uint64_t pc = 0x7f0000000000 + 0x1000 + 100 * KiB;
	size_t pieces = code->n;

	fake_load(&memory, &f, 0x7f0000000000);
	code->n = 0;
	assert_int_equal(placement_find(code, &guest, &pc, 1, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, 0x7f0000000000);
	code->n = pieces;
	elf_code_free(code);
	fake_end(&memory);
}

/* Two pages of a file that are the same do not tell which of them the guest is in. */
static void what_is_in_the_file_twice_does_not_count(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 40 * KiB};
	struct fake_memory memory = {0};
	struct elf_code *code = load(&f);
	const struct guest_memory guest = {.ctx = &memory, .read = fake_read};
	struct placement_finding finding;
	uint64_t pc = 0x40102010, at[] = {0x40102010, 0x40104010};
	uint8_t *bytes = fake_load(&memory, &f, 0x40000000);

	memcpy((void *)(code->piece[0].bytes + 0x2000), code->piece[0].bytes + 0x5000, 0x1000);
	memcpy(bytes + 0x2000, bytes + 0x5000, 0x1000);
	assert_int_equal(placement_find(code, &guest, &pc, 1, &finding), PLACEMENT_UNSEEN);
	assert_int_equal(placement_find(code, &guest, at, 2, &finding), PLACEMENT_SAME);
	assert_int_equal(finding.slide, 0x40000000);
	elf_code_free(code);
	fake_end(&memory);
}

static void little_memory_is_read_whatever_the_guest_says(void **state)
{
	struct code_fixture f = {.va = 0x100000, .len = 4096 * KiB, .id = 1}, other = f;
	struct fake_memory memory = {0};
	struct elf_code *code = load(&f);
	const struct guest_memory guest = {.ctx = &memory, .read = fake_read};
	struct placement_finding finding;
	uint64_t at[512];

	other.seed = 3;
	other.id = 0;
	fake_load(&memory, &other, 0);
	for (size_t i = 0; i < 512; i++)
		at[i] = 0x100000 + i * 4096 + 17;
	assert_int_equal(placement_find(code, &guest, at, 512, &finding), PLACEMENT_OTHER);
	assert_true(memory.reads < 2500);
	for (size_t i = 0; i < 512; i++)
		at[i] = UINT64_MAX - i * 4096;
	placement_find(code, &guest, at, 512, &finding);
	elf_code_free(code);
	fake_end(&memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_is_found_where_it_was_linked),
		cmocka_unit_test(text_may_begin_at_address_0_and_end_at_the_top),
		cmocka_unit_test(code_that_was_moved_is_found_by_what_the_guest_executes),
		cmocka_unit_test(a_copy_that_is_left_behind_is_not_taken),
		cmocka_unit_test(what_a_guest_patches_is_allowed_for),
		cmocka_unit_test(addresses_that_moved_with_the_code_are_allowed_for),
		cmocka_unit_test(filler_says_nothing),
		cmocka_unit_test(another_build_is_told_by_its_build_id),
		cmocka_unit_test(another_build_without_build_id_is_told_by_its_code),
		cmocka_unit_test(what_is_not_there_yet_is_no_mismatch),
		cmocka_unit_test(a_file_without_code_is_found_by_its_note),
		cmocka_unit_test(what_is_in_the_file_twice_does_not_count),
		cmocka_unit_test(little_memory_is_read_whatever_the_guest_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
