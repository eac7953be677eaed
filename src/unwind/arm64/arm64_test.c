/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START	  0x400000ull
#define INSNS_MAX (PATHS_STEPS_WITHIN + 2)

static uint32_t text[INSNS_MAX + 16];
static size_t text_len; /* instructions */
static void *scratch;
static struct rule found;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (va < START || va - START >= text_len * 4)
		return 0;
	if (len > text_len * 4 - (va - START))
		len = text_len * 4 - (va - START);
	memcpy(buf, (uint8_t *)text + (va - START), len);
	return len;
}

/* Before the instruction of this number, in a function of `n` of them. */
static enum flow_result follow(uint64_t number, size_t n)
{
	const struct code code = {.read = read_text};
	const struct flow_query query = {.isa = &unwind_arm64,
					 .start = START,
					 .end = START + n * 4,
					 .addr = START + number * 4,
					 .kind = FRAME_PC};
	unsigned steps = UINT_MAX;
	struct code_reader reader = {.code = &code, .scratch = scratch, .steps = &steps};

	memset(&found, 0xee, sizeof(found));
	return unwind_arm64.follow(&query, &reader, &found);
}

static void set_text(const uint32_t *words, size_t n)
{
	memcpy(text, words, n * 4);
	text_len = n;
}

#define TEXT(...)                                                   \
	do {                                                        \
		const uint32_t words_[] = {__VA_ARGS__};            \
		set_text(words_, sizeof(words_) / sizeof(*words_)); \
	} while (0)

/* Places as distances below the CFA; LIVE: still in its register. */
#define LIVE (-1)

static int distance(int32_t at)
{
	return at == RULE_SAME || at == RULE_NOT ? LIVE : -at;
}

#define assert_state(number, d, lr, fp)                                 \
	do {                                                            \
		assert_int_equal(follow(number, text_len), FLOW_FOUND); \
		assert_int_equal(found.cfa_sp, d);                      \
		assert_int_equal(distance(found.ra_at), lr);            \
		assert_int_equal(distance(found.fp_at), fp);            \
	} while (0)

static void a_frame_is_set_up_and_torn_down(void **state)
{
	TEXT(0xd503233f,  /*  0 paciasp */
	     0xa9bd7bfd,  /*  1 stp x29, x30, [sp, #-48]! */
	     0x910003fd,  /*  2 mov x29, sp */
	     0xa90153f3,  /*  3 stp x19, x20, [sp, #16] */
	     0xf90013f5,  /*  4 str x21, [sp, #32] */
	     0x94000040,  /*  5 bl */
	     0xf94013f5,  /*  6 ldr x21, [sp, #32] */
	     0xa94153f3,  /*  7 ldp x19, x20, [sp, #16] */
	     0xa8c37bfd,  /*  8 ldp x29, x30, [sp], #48 */
	     0xd50323bf,  /*  9 autiasp */
	     0xd65f03c0); /* 10 ret */
	assert_state(0, 0, LIVE, LIVE);
	assert_state(1, 0, LIVE, LIVE);
	assert_state(2, 48, 40, 48);
	assert_int_equal(found.cfa_fp, RULE_NOT);
	assert_state(3, 48, 40, 48);
	assert_true(found.chained);
	assert_int_equal(found.cfa_fp, 48);
	assert_state(5, 48, 40, 48);
	assert_state(8, 48, 40, 48);
	assert_state(9, 0, LIVE, LIVE);
	assert_int_equal(found.fp_at, RULE_SAME);
	assert_int_equal(found.cfa_fp, RULE_NOT);
	assert_state(10, 0, LIVE, LIVE);
}

static void a_frame_record_can_lie_above_the_locals(void **state)
{
	TEXT(0xd10103ff,  /* 0 sub sp, sp, #64 */
	     0x6d0127e8,  /* 1 stp d8, d9, [sp, #16] */
	     0xa9037bfd,  /* 2 stp x29, x30, [sp, #48] */
	     0x9100c3fd,  /* 3 add x29, sp, #48 */
	     0x94000040,  /* 4 bl */
	     0xa9437bfd,  /* 5 ldp x29, x30, [sp, #48] */
	     0x6d4127e8,  /* 6 ldp d8, d9, [sp, #16] */
	     0x910103ff,  /* 7 add sp, sp, #64 */
	     0xd65f0bff); /* 8 retaa */
	assert_state(1, 64, LIVE, LIVE);
	assert_state(2, 64, LIVE, LIVE);
	assert_state(3, 64, 8, 16);
	assert_state(4, 64, 8, 16);
	assert_true(found.chained);
	assert_int_equal(found.cfa_fp, 16);
	assert_state(6, 64, LIVE, LIVE);
	assert_state(8, 0, LIVE, LIVE);
}

static void code_without_a_frame_pointer_is_counted(void **state)
{
	TEXT(0xf81f0ffe,  /* 0 str x30, [sp, #-16]! */
	     0x94000040,  /* 1 bl */
	     0xf84107fe,  /* 2 ldr x30, [sp], #16 */
	     0xd65f03c0); /* 3 ret */
	assert_state(1, 16, 16, LIVE);
	assert_state(2, 16, 16, LIVE);
	assert_state(3, 0, LIVE, LIVE);
	assert_int_equal(found.fp_at, RULE_SAME);
	assert_int_equal(found.cfa_fp, RULE_NOT);
	TEXT(0xa9be4ffe,  /* 0 stp x30, x19, [sp, #-32]! */
	     0xfd000be8,  /* 1 str d8, [sp, #16] */
	     0x94000040,  /* 2 bl */
	     0xfd400be8,  /* 3 ldr d8, [sp, #16] */
	     0xa8c24ffe,  /* 4 ldp x30, x19, [sp], #32 */
	     0x14000400); /* 5 b, to another function */
	assert_state(1, 32, 32, LIVE);
	assert_state(4, 32, 32, LIVE);
	assert_state(5, 0, LIVE, LIVE);
}

static void a_leaf_keeps_the_return_address_in_its_register(void **state)
{
	TEXT(0xd10083ff,  /* 0 sub sp, sp, #32 */
	     0xb9000fe0,  /* 1 str w0, [sp, #12] */
	     0x11000400,  /* 2 add w0, w0, #1 */
	     0x910083ff,  /* 3 add sp, sp, #32 */
	     0xd65f03c0); /* 4 ret */
	for (unsigned i = 1; i < 4; i++)
		assert_state(i, 32, LIVE, LIVE);
	assert_state(4, 0, LIVE, LIVE);
}

static void what_is_stored_again_does_not_move_the_return_address(void **state)
{
	TEXT(0xa9be7bfd,  /* 0 stp x29, x30, [sp, #-32]! */
	     0x910003fd,  /* 1 mov x29, sp */
	     0xf9000ffe,  /* 2 str x30, [sp, #24] */
	     0xa9017bfd,  /* 3 stp x29, x30, [sp, #16] */
	     0xf9400ffe,  /* 4 ldr x30, [sp, #24] */
	     0xa8c27bfd,  /* 5 ldp x29, x30, [sp], #32 */
	     0xd65f03c0); /* 6 ret */
	assert_state(4, 32, 24, 32);
	assert_state(5, 32, 24, 32);
	assert_state(6, 0, LIVE, LIVE);
}

static void each_path_has_its_own_state(void **state)
{
	TEXT(0xb40000c0,  /*  0 cbz x0, 6 */
	     0xa9bf7bfd,  /*  1 stp x29, x30, [sp, #-16]! */
	     0x94000040,  /*  2 bl */
	     0x37180080,  /*  3 tbnz w0, #3, 7 */
	     0xa8c17bfd,  /*  4 ldp x29, x30, [sp], #16 */
	     0xd65f03c0,  /*  5 ret */
	     0x52800000,  /*  6 mov w0, #0 */
	     0xd65f03c0,  /*  7 ret */
	     0xd503201f); /* 8 nop, never reached */
	assert_state(3, 16, 8, 16);
	assert_state(5, 0, LIVE, LIVE);
	assert_state(6, 0, LIVE, LIVE);
	assert_int_equal(follow(8, text_len), FLOW_UNKNOWN);
	TEXT(0xa9bf7bfd,  /* 0 stp x29, x30, [sp, #-16]! */
	     0x54000080,  /* 1 b.eq 5 */
	     0xa8c17bfd,  /* 2 ldp x29, x30, [sp], #16 */
	     0xd65f03c0,  /* 3 ret */
	     0xd503201f,  /* 4 nop, never reached */
	     0x17fffffd,  /* 5 b 2 */
	     0xd503201f); /* 6 nop, never reached */
	assert_state(5, 16, 8, 16);
	assert_state(2, 16, 8, 16);
	assert_int_equal(follow(4, text_len), FLOW_UNKNOWN);
	assert_int_equal(follow(6, text_len), FLOW_UNKNOWN);
}

/* sp moves by an unknown distance: x29 tells where the frame is. */
static void assert_by_frame_pointer(uint64_t number)
{
	assert_int_equal(follow(number, text_len), FLOW_FOUND);
	assert_int_equal(found.cfa_sp, RULE_NOT);
	assert_int_equal(found.cfa_fp, 16);
	assert_int_equal(distance(found.ra_at), 8);
	assert_int_equal(distance(found.fp_at), 16);
}

static void a_moved_stack_pointer_comes_back_by_the_frame_pointer(void **state)
{
	TEXT(0xa9bf7bfd,  /* 0 stp x29, x30, [sp, #-16]! */
	     0x910003fd,  /* 1 mov x29, sp */
	     0xcb2063ff,  /* 2 sub sp, sp, x0 */
	     0x94000040,  /* 3 bl */
	     0x910003bf,  /* 4 mov sp, x29 */
	     0xa8c17bfd,  /* 5 ldp x29, x30, [sp], #16 */
	     0xd65f03c0); /* 6 ret */
	assert_state(2, 16, 8, 16);
	assert_by_frame_pointer(3);
	assert_by_frame_pointer(4);
	assert_state(5, 16, 8, 16);
	assert_state(6, 0, LIVE, LIVE);
	TEXT(0xa9bf7bfd,  /* 0 stp x29, x30, [sp, #-16]! */
	     0x910003fd,  /* 1 mov x29, sp */
	     0xd10143e9,  /* 2 sub x9, sp, #80 */
	     0x927be93f,  /* 3 and sp, x9, #0xffffffffffffffe0 */
	     0x94000040,  /* 4 bl */
	     0x910003bf,  /* 5 mov sp, x29 */
	     0xa8c17bfd,  /* 6 ldp x29, x30, [sp], #16 */
	     0xd65f03c0); /* 7 ret */
	assert_state(3, 16, 8, 16);
	assert_by_frame_pointer(4);
	assert_state(6, 16, 8, 16);
	assert_state(7, 0, LIVE, LIVE);
}

static void a_frame_pointer_with_another_use_is_lost(void **state)
{
	TEXT(0xaa0103fd,  /* 0 mov x29, x1 */
	     0x910023bd,  /* 1 add x29, x29, #8 */
	     0xd503201f,  /* 2 nop */
	     0xd65f03c0); /* 3 ret */
	for (unsigned i = 1; i < 4; i++) {
		assert_state(i, 0, LIVE, LIVE);
		assert_int_equal(found.fp_at, RULE_NOT);
		assert_int_equal(found.cfa_fp, RULE_NOT);
	}
}

static void large_frames_are_counted(void **state)
{
	TEXT(0xd14043ff,  /* 0 sub sp, sp, #16, lsl #12 */
	     0xd10043ff,  /* 1 sub sp, sp, #16 */
	     0xa9007bfd,  /* 2 stp x29, x30, [sp] */
	     0xa9407bfd,  /* 3 ldp x29, x30, [sp] */
	     0x910043ff,  /* 4 add sp, sp, #16 */
	     0x914043ff,  /* 5 add sp, sp, #16, lsl #12 */
	     0xd65f03c0); /* 6 ret */
	assert_state(3, 65552, 65544, 65552);
	assert_state(5, 65536, LIVE, LIVE);
	assert_state(6, 0, LIVE, LIVE);
}

static void what_follows_the_end_is_another_function(void **state)
{
	TEXT(0x94000040,  /* 0 bl, does not return */
	     0xd4200020,  /* 1 brk #1 */
	     0xd503201f,  /* 2 nop: of the next function */
	     0xd61f0060,  /* 3 br x3 */
	     0xd503201f); /* 4 nop */
	assert_state(1, 0, LIVE, LIVE);
	assert_int_equal(follow(2, text_len), FLOW_UNKNOWN);
	assert_int_equal(follow(1, 1), FLOW_UNKNOWN);
	text[1] = 0xd503201f; /* nop */
	assert_state(3, 0, LIVE, LIVE);
	assert_int_equal(follow(4, text_len), FLOW_UNKNOWN);
}

static void code_that_no_branch_leads_to_is_a_case_of_a_jump_by_table(void **state)
{
	TEXT(0xa9be7bfd,  /* 0 stp x29, x30, [sp, #-32]! */
	     0x54000060,  /* 1 b.eq 4 */
	     0xd61f0000,  /* 2 br x0 */
	     0x94000040,  /* 3 bl: a case */
	     0xa8c27bfd,  /* 4 ldp x29, x30, [sp], #32 */
	     0xd65f03c0,  /* 5 ret */
	     0x94000040,  /* 6 bl: a case */
	     0x17fffffd,  /* 7 b 4 */
	     0xd10083ff,  /* 8 sub sp, sp, #32: a case */
	     0x94000040,  /* 9 bl */
	     0x910083ff,  /* 10 add sp, sp, #32 */
	     0x17fffff9); /* 11 b 4 */
	assert_int_equal(follow(5, text_len), FLOW_FOUND);
	for (uint64_t number = 3; number < text_len; number++) {
		const bool branched = number == 4 || number == 5;

		assert_int_equal(follow(number, text_len), branched ? FLOW_FOUND : FLOW_GUESSED);
		assert_int_equal(found.cfa_sp, number == 5		     ? 0
					       : number == 9 || number == 10 ? 64
									     : 32);
		assert_int_equal(distance(found.ra_at), number == 5 ? LIVE : 24);
	}
	/* A jump to a signed address, braa x0, x1. */
	text[2] = 0xd71f0801;
	assert_int_equal(follow(6, text_len), FLOW_GUESSED);
}

/* The target of a call; 0: of one by a register; 1: it is none. */
static uint64_t called_by(uint32_t insn)
{
	struct call call;

	if (!unwind_arm64.call_before(&unwind_arm64, (const uint8_t *)&insn, 4, START + 4, &call))
		return 1;
	assert_true(call.direct != call.indirect);
	return call.direct ? call.target : 0;
}

static void calls_are_told_from_jumps(void **state)
{
	assert_int_equal(called_by(0x94000040), START + 256); /* bl, 256 bytes on */
	assert_int_equal(called_by(0x97ffffff), START - 4);   /* bl, 4 bytes back */
	assert_int_equal(called_by(0xd63f0060), 0);	      /* blr x3 */
	assert_int_equal(called_by(0xd73f0864), 0);	      /* blraa x3, x4 */
	assert_int_equal(called_by(0xd63f087f), 0);	      /* blraaz x3 */
	assert_int_equal(called_by(0xd61f0060), 1);	      /* br x3 */
	assert_int_equal(called_by(0x14000004), 1);	      /* b */
	assert_int_equal(called_by(0xd65f03c0), 1);	      /* ret */
	assert_int_equal(called_by(0xd65f0bff), 1);	      /* retaa */
	assert_int_equal(called_by(0xd71f0864), 1);	      /* braa x3, x4 */
	assert_int_equal(called_by(0xd503201f), 1);	      /* nop */
}

static void searches_are_bounded(void **state)
{
	const struct code code = {.read = read_text};
	unsigned steps = UINT_MAX;
	struct code_reader reader = {.code = &code, .scratch = scratch, .steps = &steps};
	struct flow_query query = {.isa = &unwind_arm64,
				   .start = START,
				   .end = START + 8,
				   .addr = START + 4,
				   .kind = FRAME_PC};

	/* A long row of branches, each to the next but one: none is followed twice. */
	text_len = INSNS_MAX;
	for (size_t i = 0; i < text_len; i++)
		text[i] = 0x54000040;
	assert_state(PATHS_STEPS_WITHIN, 0, LIVE, LIVE);
	/* All far away: more than can be kept open. */
	for (size_t i = 0; i < text_len; i++)
		text[i] = 0x54000040 | (uint32_t)(i % 4096 * 2 + 2) << 5;
	assert_state(PATHS_STEPS_WITHIN, 0, LIVE, LIVE);
	/* More instructions than are followed. */
	for (size_t i = 0; i < text_len; i++)
		text[i] = 0xd503201f;
	assert_state(PATHS_STEPS_WITHIN, 0, LIVE, LIVE);
	assert_int_equal(follow(PATHS_STEPS_WITHIN + 1, text_len), FLOW_UNKNOWN);
	/* An endless loop, and a stack without bounds. */
	TEXT(0x14000000,  /* 0 b 0 */
	     0xd503201f); /* 1 nop */
	assert_int_equal(follow(1, text_len), FLOW_UNKNOWN);
	TEXT(0xd17fffff,  /* 0 sub sp, sp, #4095, lsl #12 */
	     0xd503201f); /* 1 nop */
	assert_int_equal(follow(1, text_len), FLOW_UNKNOWN);
	/* Code that cannot be read to its end, at all, or stands where none can. */
	TEXT(0xd503201f); /* 0 nop */
	assert_int_equal(follow(1, 2), FLOW_UNKNOWN);
	text_len = 0;
	assert_int_equal(follow(0, 1), FLOW_UNKNOWN);
	query.start += 2;
	query.end += 2;
	assert_int_equal(unwind_arm64.follow(&query, &reader, &found), FLOW_UNKNOWN);
}

static int new_scratch(void **state)
{
	scratch = calloc(1, sizeof(struct paths_scratch));
	return scratch ? 0 : -1;
}

static int free_scratch(void **state)
{
	free(scratch);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_set_up_and_torn_down),
		cmocka_unit_test(a_frame_record_can_lie_above_the_locals),
		cmocka_unit_test(code_without_a_frame_pointer_is_counted),
		cmocka_unit_test(a_leaf_keeps_the_return_address_in_its_register),
		cmocka_unit_test(what_is_stored_again_does_not_move_the_return_address),
		cmocka_unit_test(each_path_has_its_own_state),
		cmocka_unit_test(a_moved_stack_pointer_comes_back_by_the_frame_pointer),
		cmocka_unit_test(a_frame_pointer_with_another_use_is_lost),
		cmocka_unit_test(large_frames_are_counted),
		cmocka_unit_test(what_follows_the_end_is_another_function),
		cmocka_unit_test(code_that_no_branch_leads_to_is_a_case_of_a_jump_by_table),
		cmocka_unit_test(calls_are_told_from_jumps),
		cmocka_unit_test(searches_are_bounded),
	};

	return cmocka_run_group_tests(tests, new_scratch, free_scratch);
}
