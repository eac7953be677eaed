/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FRAMES 24

/* Guest memory: frames 0 to FRAMES - 1; each byte of a frame not otherwise used is its number. */
static uint8_t memory[FRAMES][FRAME_SIZE];
static uint64_t hidden; /* bit n: frame n is not at hand */
static unsigned reads;

static const void *frame(void *ctx, uint64_t gfn)
{
	reads++;
	return gfn < FRAMES && !(hidden >> gfn & 1) ? memory[gfn] : NULL;
}

static const struct physmem physmem = {.frame = frame};

static void put(unsigned gfn, unsigned index, uint64_t entry)
{
	memcpy(memory[gfn] + index * 8, &entry, 8);
}

/*
 * Frames 1 to 4 are the tables. Mapped are the pages from 0x10000 on (frames 8,
 * 9, 11; then a hole), a large page at 0x200000 (frame 0 on), and, by the same
 * tables again, the last page of the address space (frame 12).
 */
static int build(void **state)
{
	for (unsigned i = 0; i < FRAMES; i++)
		memset(memory[i], (int)i, FRAME_SIZE);
	for (unsigned i = 1; i <= 4; i++)
		memset(memory[i], 0, FRAME_SIZE);
	put(1, 0, 0x2001);
	put(1, 511, 0x2001);
	put(2, 0, 0x3001);
	put(2, 511, 0x3001);
	put(3, 0, 0x4001);
	put(3, 1, 0x81);
	put(3, 511, 0x4001);
	put(4, 16, 0x8001);
	put(4, 17, 0x9001);
	put(4, 18, 0xb001);
	put(4, 511, 0xc001);
	hidden = 0;
	reads = 0;
	return 0;
}

static uint8_t buffer[FRAMES * FRAME_SIZE];
static struct window window;
static uint64_t gfn;

static bool copy_by(const struct arch *arch, const struct regs *regs, uint32_t want,
		    struct window_trails *by)
{
	struct window_copy copy = {.arch = arch,
				   .regs = regs,
				   .mem = &physmem,
				   .trails = by,
				   .buffer = buffer,
				   .out = &window};
	const bool whole = window_copy(&copy, want);

	gfn = copy.gfn;
	return whole;
}

static bool copy(uint64_t sp, uint32_t want)
{
	struct regs regs = {.sp = sp, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x1000}};

	memset(buffer, 0xee, sizeof(buffer));
	return copy_by(&arch_x86_64, &regs, want, NULL);
}

#define assert_window(at, length, is_cut)                              \
	do {                                                           \
		assert_int_equal(window.va, at);                       \
		assert_int_equal(window.len, length);                  \
		assert_int_equal(window.cut, is_cut);                  \
		assert_ptr_equal(window.bytes, buffer + window.below); \
		assert_int_equal(window.bytes[length], 0xee);          \
	} while (0)

static void what_was_asked_for_is_copied(void **state)
{
	assert_true(copy(0x10ff0, 32));
	assert_window(0x10ff0, 32, true);
	assert_int_equal(window.bytes[15], 8);
	assert_int_equal(window.bytes[16], 9);
}

static void frames_need_not_be_neighbours(void **state)
{
	assert_true(copy(0x10008, 0x2010));
	assert_window(0x10008, 0x2010, true);
	assert_int_equal(window.bytes[0xff8], 9);
	assert_int_equal(window.bytes[0x1ff8], 11);
	assert_int_equal(window.bytes[0x200f], 11);
}

static void a_hole_ends_the_stack(void **state)
{
	assert_true(copy(0x12f00, 4096));
	assert_window(0x12f00, 0x100, false);
	assert_true(copy(0x13000, 4096));
	assert_window(0x13000, 0, false);
}

static void a_misaligned_stack_pointer_is_aligned_down(void **state)
{
	assert_true(copy(0x10ff7, 16));
	assert_window(0x10ff0, 16, true);
}

static void a_missing_table_or_page_is_named(void **state)
{
	hidden = 1u << 9;
	assert_false(copy(0x10ff0, 64));
	assert_int_equal(gfn, 9);
	assert_window(0x10ff0, 16, true);
	hidden = 1u << 3;
	assert_false(copy(0x10ff0, 64));
	assert_int_equal(gfn, 3);
	assert_window(0x10ff0, 0, true);
}

static void a_large_page_is_walked_once(void **state)
{
	assert_true(copy(0x208010, 0x5000));
	assert_window(0x208010, 0x5000, true);
	assert_int_equal(window.bytes[0], 8);
	assert_int_equal(window.bytes[0x4fff], 13);
	/* The red zone is in the frame before. */
	assert_int_equal(reads, 3 + 7);
}

static void the_end_of_the_address_space_is_the_end(void **state)
{
	assert_true(copy(0xfffffffffffff800, 0x10000));
	assert_window(0xfffffffffffff800, 0x800, false);
	assert_true(copy(UINT64_MAX, 8));
	assert_window(0xfffffffffffffff8, 8, false);
	assert_int_equal(window.bytes[7], 12);
}

static void no_stack_at_zero_or_at_non_canonical_addresses(void **state)
{
	assert_true(copy(0, 4096));
	assert_window(0, 0, false);
	assert_true(copy(0x800000000000, 4096));
	assert_window(0x800000000000, 0, false);
	assert_true(copy(0x7ffffffffffff8, 4096));
	assert_window(0x7ffffffffffff8, 0, false);
}

static void narrow_stacks_end_at_4_gib(void **state)
{
	struct regs regs = {.sp = 0xffffffff, .word = 4, .mmu = {.mode = MMU_X86_PAE}};

	/* The top table at 0x1000 + 3 * 8 leads through frame 2 to the same last page. */
	put(1, 3, 0x3001);
	regs.mmu.root = 0x1000;
	memset(buffer, 0xee, sizeof(buffer));
	assert_true(copy_by(&arch_x86_32, &regs, 4096, NULL));
	assert_window(0xfffffffc, 4, false);
	assert_int_equal(window.bytes[0], 12);
}

static void the_red_zone_comes_with_the_stack(void **state)
{
	assert_true(copy(0x10ff0, 32));
	assert_int_equal(window.below, RED_ZONE_MAX);
	assert_int_equal(window.bytes[-(int)RED_ZONE_MAX], 8);
	/* From another page, too. */
	assert_true(copy(0x11008, 8));
	assert_window(0x11008, 8, true);
	assert_int_equal(window.below, RED_ZONE_MAX);
	assert_int_equal(window.bytes[-9], 8);
	assert_int_equal(window.bytes[-8], 9);
}

static void a_stack_does_without_a_red_zone_that_is_not_there(void **state)
{
	assert_true(copy(0x10040, 64));
	assert_window(0x10040, 64, true);
	assert_int_equal(window.below, 0);
	assert_true(copy(0x12fc0, 128));
	assert_window(0x12fc0, 64, false);
	assert_int_equal(window.below, RED_ZONE_MAX);
	/* The red zone is there, but no stack. */
	assert_true(copy(0x13040, 8));
	assert_int_equal(window.len + window.below, 0);
	assert_false(window.cut);
	/* A page that is not at hand is named, and all else copied. */
	hidden = 1u << 8;
	assert_false(copy(0x11008, 8));
	assert_int_equal(gfn, 8);
	assert_window(0x11008, 8, true);
	assert_int_equal(window.below, 0);
}

static void only_the_abi_of_64_bits_has_a_red_zone(void **state)
{
	struct regs regs = {.sp = 0x8080, .word = 4};

	assert_true(copy_by(&arch_x86_32, &regs, 16, NULL));
	assert_int_equal(window.below, 0);
	regs = (struct regs){.sp = 0x8080, .word = 8, .isa = ISA_ARM};
	assert_true(copy_by(&arch_arm64, &regs, 16, NULL));
	assert_int_equal(window.below, 0);
}

static void memory_without_paging_is_copied_as_it_is(void **state)
{
	struct regs regs = {.sp = 0x8ff8, .word = 8};

	memset(buffer, 0xee, sizeof(buffer));
	assert_true(copy_by(&arch_x86_64, &regs, 16, NULL));
	assert_window(0x8ff8, 16, true);
	assert_int_equal(window.bytes[8], 9);
}

#define TEST(name) cmocka_unit_test_setup(name, build)

static struct window_trails trails;

static bool copy_again(uint64_t sp, uint32_t want)
{
	struct regs regs = {.sp = sp, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x1000}};

	reads = 0;
	memset(buffer, 0xee, sizeof(buffer));
	return copy_by(&arch_x86_64, &regs, want, &trails);
}

static void what_has_stayed_is_not_looked_up_again(void **state)
{
	window_forget_trails(&trails);
	assert_true(copy_again(0x10ff0, 32));
	assert_true(reads > 0);
	memory[8][0xff8] = 0x77;
	assert_true(copy_again(0x10ff8, 16));
	assert_int_equal(reads, 0);
	assert_window(0x10ff8, 16, true);
	assert_int_equal(window.bytes[0], 0x77);
	assert_int_equal(window.bytes[8], 9);
	/* A page beyond the trail is looked up, and then known. */
	assert_true(copy_again(0x10ff8, 0x1018));
	assert_true(reads > 0);
	assert_int_equal(window.bytes[0x1010], 11);
	assert_true(copy_again(0x10ff8, 0x1018));
	assert_int_equal(reads, 0);
	/* So is another page. */
	assert_true(copy_again(0x11ff8, 8));
	assert_true(reads > 0);
	assert_int_equal(window.bytes[0], 9);
}

static void stacks_side_by_side_are_all_remembered(void **state)
{
	window_forget_trails(&trails);
	assert_true(copy_again(0x10100, 8));
	assert_true(copy_again(0x11100, 8));
	for (unsigned i = 0; i < 2; i++) {
		assert_true(copy_again(0x10100 + i * 0x1000, 8));
		assert_int_equal(reads, 0);
		assert_window(0x10100 + i * 0x1000, 8, true);
	}
}

static void a_stack_that_others_lead_to_is_not_looked_up_again(void **state)
{
	struct regs regs = {.sp = 0x10100, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x1000}};
	struct window_copy copy = {.arch = &arch_x86_64,
				   .regs = &regs,
				   .mem = &physmem,
				   .trails = &trails,
				   .buffer = buffer,
				   .out = &window};

	window_forget_trails(&trails);
	for (unsigned i = 0; i < 2; i++) {
		reads = 0;
		memset(buffer, 0xee, sizeof(buffer));
		assert_true(window_copy_at(&copy, 0x11008, 16));
		assert_window(0x11008, 16, true);
		assert_int_equal(window.below, 0);
	}
	assert_int_equal(reads, 0);
}

/* A vCPU's stack, and another of it in the same pause; the same tables lead there from 512 GiB on. */
static void tables_of_two_stacks_are_compared_to_the_last(void **state)
{
	struct regs regs = {.sp = 0x10100, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x1000}};
	struct window own, other;

	put(1, 1, 0x2001);
	window_forget_trails(&trails);
	for (unsigned i = 0; i < 16; i++) {
		const unsigned far = i / 8;
		struct window_copy copy = {.arch = &arch_x86_64,
					   .regs = &regs,
					   .mem = &physmem,
					   .trails = &trails,
					   .buffer = buffer,
					   .out = &own};

		/* Changed are the last table of the other one, or the first one, and back. */
		put(4, 17, i % 8 == 3 ? 0xd001 : 0x9001);
		put(1, far, i % 8 == 5 ? 0 : 0x2001);
		reads = 0;
		assert_true(window_copy(&copy, 16));
		copy.out = &other;
		copy.buffer = buffer + FRAME_SIZE;
		assert_true(window_copy_at(&copy, far * 0x8000000000 + 0x11008, 16));
		assert_true(i % 8 != 1 || !reads);
		assert_int_equal(own.len, i == 5 ? 0 : 16);
		assert_int_equal(other.len, i % 8 == 5 ? 0 : 16);
		if (other.len)
			assert_int_equal(other.bytes[0], i % 8 == 3 ? 13 : 9);
	}
}

static void a_hole_is_remembered_while_it_is_one(void **state)
{
	window_forget_trails(&trails);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(copy_again(0x12f00, 4096));
		assert_window(0x12f00, 0x100, false);
	}
	assert_int_equal(reads, 0);
	put(4, 19, 0xd001);
	assert_true(copy_again(0x12f00, 4096));
	assert_window(0x12f00, 4096, true);
	assert_int_equal(window.bytes[0x100], 13);
}

static void a_missing_red_zone_is_remembered_while_it_is_missing(void **state)
{
	window_forget_trails(&trails);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(copy_again(0x10008, 16));
		assert_window(0x10008, 16, true);
		assert_int_equal(window.below, 0);
	}
	assert_int_equal(reads, 0);
	/* Farther up on the same page, there is a red zone. */
	assert_true(copy_again(0x10088, 16));
	assert_int_equal(window.below, RED_ZONE_MAX);
	assert_int_equal(window.bytes[-1], 8);
	put(4, 15, 0xd001);
	assert_true(copy_again(0x10008, 16));
	assert_int_equal(window.below, RED_ZONE_MAX);
	assert_int_equal(window.bytes[-9], 13);
}

/* A change in each of the tables, and to a page that was never mapped before. */
static void a_table_that_changes_is_walked_again(void **state)
{
	window_forget_trails(&trails);
	assert_true(copy_again(0x10000, 8));
	put(4, 16, 0xe001);
	assert_true(copy_again(0x10000, 8));
	assert_int_equal(window.bytes[0], 14);
	memset(memory[5], 0, FRAME_SIZE);
	put(5, 16, 0xf001);
	put(3, 0, 0x5001);
	assert_true(copy_again(0x10000, 8));
	assert_int_equal(window.bytes[0], 15);
	put(1, 0, 0);
	assert_true(copy_again(0x10000, 8));
	assert_window(0x10000, 0, false);
	put(1, 0, 0x2001);
	hidden = 1u << 15;
	assert_false(copy_again(0x10000, 8));
	assert_int_equal(gfn, 15);
}

static void a_trail_is_that_of_one_address_space(void **state)
{
	struct regs regs = {.sp = 0x10000, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x6000}};

	window_forget_trails(&trails);
	assert_true(copy_again(0x10000, 8));
	memset(memory[6], 0, FRAME_SIZE);
	assert_true(copy_by(&arch_x86_64, &regs, 8, &trails));
	assert_int_equal(window.len, 0);
	assert_false(window.cut);
}

/* Arm has two top tables, and says in a register how large pages are. */
static void a_trail_is_that_of_one_kind_of_address_space(void **state)
{
	struct regs regs = {.sp = 0x10000, .word = 8, .mmu = {.mode = MMU_X86_4, .root = 0x1000}};

	for (unsigned i = 0; i < 2; i++) {
		window_forget_trails(&trails);
		regs.mmu.root_high = regs.mmu.control = 0;
		assert_true(copy_by(&arch_x86_64, &regs, 8, &trails));
		*(i ? &regs.mmu.root_high : &regs.mmu.control) = 1;
		reads = 0;
		assert_true(copy_by(&arch_x86_64, &regs, 8, &trails));
		assert_true(reads > 0);
	}
}

/* Pages from FAR on are those from 0x10000 on; frame 6 is another top table, without them. */
#define FAR 0xffffffff80010000ull

static struct thread_copy thread;
/* The second piece ends in the next page. */
static const struct thread_request pieces = {.pointer = 0x10, .at = {0x20, 0xff8, 0xff0}};

static bool copy_thread_by(struct window_trails *by, struct regs regs)
{
	struct window_copy how = {
		.arch = &arch_x86_64, .regs = &regs, .mem = &physmem, .trails = by, .out = &window};
	bool whole;

	regs.word = 8;
	regs.mmu.mode = MMU_X86_4;
	thread.there = true;
	whole = window_copy_thread(&how, &pieces, &thread);
	gfn = how.gfn;
	return whole;
}

static bool copy_thread(struct regs regs)
{
	return copy_thread_by(NULL, regs);
}

/* A pointer in frame 8 leads to frame 9, and on to frame 11. */
static void put_thread(void)
{
	put(2, 510, 0x3001);
	put(8, 2, FAR + 0x1000);
}

static void assert_copied(void)
{
	uint8_t expected[THREAD_PIECES][THREAD_PIECE];

	memset(expected, 9, sizeof(expected));
	memset(expected[1] + 8, 11, 8);
	assert_true(thread.there);
	assert_memory_equal(thread.piece, expected, sizeof(expected));
}

static void the_thread_of_a_cpu_is_copied(void **state)
{
	put_thread();
	assert_true(copy_thread((struct regs){.own = {FAR}, .mmu.root = 0x1000}));
	assert_int_equal(thread.own, FAR);
	assert_int_equal(thread.at, FAR + 0x1000);
	assert_copied();
}

static void a_thread_that_was_copied_before_is_found_by_its_trails(void **state)
{
	static const uint64_t gone[][3] = {{4, 18, 0xb001}, {2, 510, 0x3001}};
	static struct window_trails by;
	const struct regs regs = {.own = {FAR}, .mmu.root = 0x1000};

	put_thread();
	window_forget_trails(&by);
	assert_true(copy_thread_by(&by, regs));
	assert_copied();
	reads = 0;
	assert_true(copy_thread_by(&by, regs) && !reads);
	assert_copied();
	/* Its second page has gone from the tables since; or a table that leads to all of its pages has. */
	for (size_t i = 0; i < sizeof(gone) / sizeof(*gone); i++) {
		put((unsigned)gone[i][0], (unsigned)gone[i][1], 0);
		assert_true(copy_thread_by(&by, regs));
		assert_false(thread.there);
		put((unsigned)gone[i][0], (unsigned)gone[i][1], gone[i][2]);
		assert_true(copy_thread_by(&by, regs));
		assert_copied();
	}
}

static void a_programs_own_register_is_not_taken(void **state)
{
	put_thread();
	assert_true(copy_thread((struct regs){.own = {0x10000, FAR}, .mmu.root = 0x1000}));
	assert_int_equal(thread.own, FAR);
	assert_copied();
	assert_true(copy_thread((struct regs){.own = {0x10000, 0}, .mmu.root = 0x1000}));
	assert_false(thread.there);
}

static void the_kernels_tables_are_taken_where_there_are_others(void **state)
{
	put_thread();
	memset(memory[6], 0, FRAME_SIZE);
	assert_true(copy_thread((struct regs){.own = {FAR}, .mmu.root = 0x6000}));
	assert_false(thread.there);
	assert_true(copy_thread(
		(struct regs){.own = {FAR}, .mmu.root = 0x6000, .kernel_root = 0x1000}));
	assert_copied();
}

static void tables_of_programs_are_not_tried_again_while_they_lack_the_kernel(void **state)
{
	struct regs regs = {.own = {FAR}, .mmu.root = 0x6000, .kernel_root = 0x1000, .user = true};
	unsigned first;

	put_thread();
	memset(memory[6], 0, FRAME_SIZE);
	thread.apart = false;
	reads = 0;
	assert_true(copy_thread(regs));
	assert_copied();
	first = reads;
	reads = 0;
	assert_true(copy_thread(regs));
	assert_copied();
	assert_int_equal(reads, first - 1);
	/* Another system, whose tables have it. */
	regs.mmu.root = 0x1000;
	regs.kernel_root = 0x6000;
	assert_true(copy_thread(regs));
	assert_copied();
	assert_false(thread.apart);
}

static void a_thread_that_is_not_there_is_none(void **state)
{
	/* No page, no canonical address, and a page that only the first piece is in. */
	static const uint64_t wild[] = {FAR + 0x10000, 0x8000000000000, FAR + 0x2000};

	put_thread();
	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put(8, 2, wild[i]);
		assert_true(copy_thread((struct regs){.own = {FAR}, .mmu.root = 0x1000}));
		assert_false(thread.there);
	}
}

static void a_frame_of_a_thread_that_is_missing_is_named(void **state)
{
	static const unsigned needed[] = {1, 2, 3, 4, 8, 9, 11};

	put_thread();
	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		hidden = 1u << needed[i];
		assert_false(copy_thread((struct regs){.own = {FAR}, .mmu.root = 0x1000}));
		assert_int_equal(gfn, needed[i]);
		assert_false(thread.there);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_has_stayed_is_not_looked_up_again),
		TEST(a_hole_is_remembered_while_it_is_one),
		TEST(a_missing_red_zone_is_remembered_while_it_is_missing),
		TEST(a_table_that_changes_is_walked_again),
		TEST(a_trail_is_that_of_one_address_space),
		TEST(a_trail_is_that_of_one_kind_of_address_space),
		TEST(stacks_side_by_side_are_all_remembered),
		TEST(a_stack_that_others_lead_to_is_not_looked_up_again),
		TEST(tables_of_two_stacks_are_compared_to_the_last),
		TEST(what_was_asked_for_is_copied),
		TEST(frames_need_not_be_neighbours),
		TEST(a_hole_ends_the_stack),
		TEST(a_misaligned_stack_pointer_is_aligned_down),
		TEST(a_missing_table_or_page_is_named),
		TEST(a_large_page_is_walked_once),
		TEST(the_end_of_the_address_space_is_the_end),
		TEST(no_stack_at_zero_or_at_non_canonical_addresses),
		TEST(narrow_stacks_end_at_4_gib),
		TEST(the_red_zone_comes_with_the_stack),
		TEST(a_stack_does_without_a_red_zone_that_is_not_there),
		TEST(only_the_abi_of_64_bits_has_a_red_zone),
		TEST(memory_without_paging_is_copied_as_it_is),
		TEST(the_thread_of_a_cpu_is_copied),
		TEST(a_thread_that_was_copied_before_is_found_by_its_trails),
		TEST(a_programs_own_register_is_not_taken),
		TEST(the_kernels_tables_are_taken_where_there_are_others),
		TEST(tables_of_programs_are_not_tried_again_while_they_lack_the_kernel),
		TEST(a_thread_that_is_not_there_is_none),
		TEST(a_frame_of_a_thread_that_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
