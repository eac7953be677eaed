/* SPDX-License-Identifier: BSD-3-Clause */
/* Exception handlers in A64 code, above the code that they have interrupted. */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0x400000ull
#define STACK 0x7fff0000ull /* of the interrupted code, */
#define OTHER 0x60000000ull /* and that the handler changes to */
#define MAX   64

/* The functions of the guest, 64 bytes apart; vector goes on in entry and in leave. */
enum {
	START = 0x000,
	MAIN = 0x040,
	BURN = 0x080,
	VECTOR = 0x0c0,
	ENTRY = 0x100,
	LEAVE = 0x140,
	HANDLER = 0x180,
	WORK = 0x1c0,
	TEXT_END = 0x200
};
enum { X29 = 29, X30 = 30, WORDS = 16 };

/* SPSR_EL1: interrupted at EL1 with its own stack, and at EL0. */
#define AT_EL1 0x80000305ull
#define AT_EL0 0x80000000ull

static const uint32_t text[TEXT_END / 4 / WORDS][WORDS] = {
	[START / 64] = {0xd280001d,    /*  0 mov x29, #0 */
			0xd280001e,    /*  4 mov x30, #0 */
			0x9400000e,    /*  8 bl MAIN */
			0x14000000},   /* 12 b 12 */
	[MAIN / 64] = {0xa9bf7bfd,     /*  0 stp x29, x30, [sp, #-16]! */
		       0x910003fd,     /*  4 mov x29, sp */
		       0x9400000e,     /*  8 bl BURN */
		       0xa8c17bfd,     /* 12 ldp x29, x30, [sp], #16 */
		       0xd65f03c0},    /* 16 ret */
	[BURN / 64] = {0xd503201f,     /*  0 nop */
		       0x11000400,     /*  4 add w0, w0, #1 */
		       0xd65f03c0},    /*  8 ret */
	[VECTOR / 64] = {0xd10103ff,   /*  0 sub sp, sp, #64 */
			 0xa9037bfd,   /*  4 stp x29, x30, [sp, #48] */
			 0xa90207e0,   /*  8 stp x0, x1, [sp, #32] */
			 0xd5384020,   /* 12 mrs x0, elr_el1 */
			 0xd5384001,   /* 16 mrs x1, spsr_el1 */
			 0xa90107e0,   /* 20 stp x0, x1, [sp, #16] */
			 0x1400000a},  /* 24 b ENTRY */
	[ENTRY / 64] = {0x94000020,    /*  0 bl HANDLER */
			0x34000040,    /*  4 cbz w0, 12 */
			0xd5033f9f,    /*  8 dsb sy */
			0xa94107e0,    /* 12 ldp x0, x1, [sp, #16] */
			0xd5184020,    /* 16 msr elr_el1, x0 */
			0xd5184001,    /* 20 msr spsr_el1, x1 */
			0x1400000a},   /* 24 b LEAVE */
	[LEAVE / 64] = {0xa94207e0,    /*  0 ldp x0, x1, [sp, #32] */
			0xa9437bfd,    /*  4 ldp x29, x30, [sp, #48] */
			0x910103ff,    /*  8 add sp, sp, #64 */
			0xd69f03e0},   /* 12 eret */
	[HANDLER / 64] = {0xa9bf7bfd,  /*  0 stp x29, x30, [sp, #-16]! */
			  0x910003fd,  /*  4 mov x29, sp */
			  0x9100003f,  /*  8 mov sp, x1 */
			  0xd63f0000,  /* 12 blr x0 */
			  0x910003bf,  /* 16 mov sp, x29 */
			  0xa8c17bfd,  /* 20 ldp x29, x30, [sp], #16 */
			  0xd65f03c0}, /* 24 ret */
	[WORK / 64] = {0x11000400,     /*  0 add w0, w0, #1 */
		       0xd65f03c0},    /*  4 ret */
};

#define IN_START   (TEXT + START + 12)
#define IN_MAIN	   (TEXT + MAIN + 12)
#define IN_ENTRY   (TEXT + ENTRY + 4)
#define IN_HANDLER (TEXT + HANDLER + 16)

/* Offsets on the interrupted stack: the vector's pushed registers, then main's frame. */
enum { FRAME = 0x40, MAIN_FRAME = FRAME + 64 };

static uint64_t stack[64], other[16];
static struct regs regs;
static struct unwinder *unwinder;
static struct frame frames[MAX];
static struct unwind_result out;
static bool others;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (va < TEXT || va - TEXT >= sizeof(text))
		return 0;
	if (len > sizeof(text) - (va - TEXT))
		len = sizeof(text) - (va - TEXT);
	memcpy(buf, (const uint8_t *)text + (va - TEXT), len);
	return len;
}

static bool bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	*start = va & ~63ull;
	*end = *start + 64;
	return va >= TEXT && va < TEXT + sizeof(text);
}

static void put(uint64_t offset, uint64_t first, uint64_t second)
{
	stack[offset / 8] = first;
	stack[offset / 8 + 1] = second;
}

/* burn was interrupted at `pc`, before it could return to main. */
static void interrupt(uint64_t pc, uint64_t spsr)
{
	put(FRAME + 16, pc, spsr);
	put(FRAME + 48, STACK + MAIN_FRAME, IN_MAIN);
	put(MAIN_FRAME, 0, IN_START);
}

static int begin(void **state)
{
	memset(stack, 0, sizeof(stack));
	memset(other, 0, sizeof(other));
	regs = (struct regs){.word = 8, .isa = ISA_ARM, .gp_valid = UINT32_MAX};
	others = true;
	interrupt(TEXT + BURN + 4, AT_EL1);
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

/* On the stack that `sp` is on; the other one is at hand, too, if `others`. */
static void unwind(uint64_t pc, uint64_t sp, uint64_t fp, uint64_t lr)
{
	const bool on_other = sp - OTHER <= sizeof(other);
	const struct window low = {.va = STACK, .len = sizeof(stack), .bytes = (void *)stack};
	struct window window = {.va = sp};
	const struct code code = {.read = read_text, .function = bounds};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.others = &low,
					.n_others = on_other && others,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	if (on_other) {
		window.len = (uint32_t)(OTHER + sizeof(other) - sp);
		window.bytes = (const uint8_t *)other + (sp - OTHER);
	} else {
		window.len = (uint32_t)(STACK + sizeof(stack) - sp);
		window.bytes = (const uint8_t *)stack + (sp - STACK);
	}
	regs.pc = pc;
	regs.sp = regs.gp[31] = sp;
	regs.fp = regs.gp[X29] = fp;
	regs.gp[X30] = lr;
	unwind_stack(&in, frames, &out);
}

static void expect(enum unwind_end end, size_t n, const uint64_t *callers)
{
	assert_int_equal(out.end, end);
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(frames[i + 1].addr, callers[i]);
}

#define EXPECT(end, ...)                                     \
	do {                                                 \
		const uint64_t callers_[] = {__VA_ARGS__};   \
		expect(end, sizeof(callers_) / 8, callers_); \
	} while (0)

static void handlers_stand_on_what_they_interrupt(void **state)
{
	for (uint64_t at = 0; at < 12; at += 4) {
		interrupt(TEXT + BURN + at, AT_EL1);
		/* In the handler's first instruction. */
		unwind(TEXT + HANDLER, STACK + FRAME, STACK + MAIN_FRAME, IN_ENTRY);
		EXPECT(UNWIND_OUTERMOST, IN_ENTRY, TEXT + BURN + at, IN_MAIN, IN_START);
		assert_int_equal(frames[1].kind, FRAME_RETURN);
		assert_int_equal(frames[2].kind, FRAME_PC);
		assert_int_equal(frames[2].trust, TRUST_SURE);
	}
	/* In the code around it. */
	unwind(IN_ENTRY, STACK + FRAME, 0, 0);
	EXPECT(UNWIND_OUTERMOST, TEXT + BURN + 8, IN_MAIN, IN_START);
}

static void main_may_be_interrupted_before_it_has_a_frame(void **state)
{
	put(FRAME + 16, TEXT + MAIN, AT_EL1);
	put(FRAME + 48, 0, IN_START);
	unwind(TEXT + HANDLER, STACK + FRAME, 0, IN_ENTRY);
	EXPECT(UNWIND_OUTERMOST, IN_ENTRY, TEXT + MAIN, IN_START);
}

static void handlers_may_change_to_another_stack(void **state)
{
	const uint64_t frame = STACK + FRAME - 16;

	put(FRAME - 16, STACK + MAIN_FRAME, IN_ENTRY);
	others = false;
	unwind(TEXT + WORK, OTHER + sizeof(other), frame, IN_HANDLER);
	assert_int_equal(out.end, UNWIND_NO_STACK);
	unwind(TEXT + WORK, OTHER + 64, frame, IN_HANDLER);
	EXPECT(UNWIND_BYTES, IN_HANDLER);
	assert_true(out.elsewhere && out.elsewhere <= frame && frame - out.elsewhere < 4096);
	others = true;
	unwind(TEXT + WORK, OTHER + 64, frame, IN_HANDLER);
	EXPECT(UNWIND_OUTERMOST, IN_HANDLER, IN_ENTRY, TEXT + BURN + 4, IN_MAIN, IN_START);
	assert_int_equal(out.others, 1);
}

/* The frame pointer is still the interrupted code's: its record would leave out that code. */
static void what_cannot_be_told_is_not_made_up(void **state)
{
	/* Not saved yet, and restored already. */
	for (uint64_t at = VECTOR; at < VECTOR + 20; at += 4) {
		unwind(TEXT + at, STACK + FRAME, STACK + MAIN_FRAME, IN_MAIN);
		expect(UNWIND_BROKEN, 0, NULL);
	}
	unwind(TEXT + LEAVE + 4, STACK + FRAME, STACK + MAIN_FRAME, IN_MAIN);
	expect(UNWIND_BROKEN, 0, NULL);
	/* But in registers is known, too. */
	regs.gp[0] = TEXT + BURN;
	regs.gp[1] = AT_EL1;
	unwind(TEXT + VECTOR + 20, STACK + FRAME, STACK + MAIN_FRAME, IN_MAIN);
	EXPECT(UNWIND_OUTERMOST, TEXT + BURN, IN_MAIN, IN_START);
	/* No code, and no such state. */
	interrupt(0x1000, AT_EL1);
	unwind(TEXT + HANDLER, STACK + FRAME, STACK + MAIN_FRAME, IN_ENTRY);
	EXPECT(UNWIND_BROKEN, IN_ENTRY);
	interrupt(TEXT + BURN, 0x13);
	unwind(TEXT + HANDLER, STACK + FRAME, STACK + MAIN_FRAME, IN_ENTRY);
	EXPECT(UNWIND_BROKEN, IN_ENTRY);
}

static void kernels_end_where_they_were_entered(void **state)
{
	interrupt(0x1000, AT_EL0);
	unwind(TEXT + HANDLER, STACK + FRAME, 0x12345, IN_ENTRY);
	EXPECT(UNWIND_OUTERMOST, IN_ENTRY);
}

static void registers_tell_what_is_not_saved_yet_and_what_is_given_back(void **state)
{
	regs.has_elr = true;
	regs.elr = TEXT + BURN + 4;
	regs.spsr = AT_EL1;
	unwind(TEXT + VECTOR, STACK + MAIN_FRAME, STACK + MAIN_FRAME, IN_MAIN);
	EXPECT(UNWIND_OUTERMOST, TEXT + BURN + 4, IN_MAIN, IN_START);
	for (uint64_t at = 8; at <= 12; at += 4) {
		unwind(TEXT + LEAVE + at, STACK + FRAME + (at > 8 ? 64 : 0), STACK + MAIN_FRAME,
		       IN_MAIN);
		EXPECT(UNWIND_OUTERMOST, TEXT + BURN + 4, IN_MAIN, IN_START);
	}
	/* Farther out, the saved values count: another handler may have run since. */
	interrupt(TEXT + BURN + 8, AT_EL1);
	unwind(TEXT + HANDLER, STACK + FRAME, STACK + MAIN_FRAME, IN_ENTRY);
	EXPECT(UNWIND_OUTERMOST, IN_ENTRY, TEXT + BURN + 8, IN_MAIN, IN_START);
	/* A program was interrupted. */
	regs.spsr = AT_EL0;
	unwind(TEXT + VECTOR + 4, STACK + FRAME, 0x12345, 0x1234);
	expect(UNWIND_OUTERMOST, 0, NULL);
}

/* A stack that is empty ends at its end: the page behind it may be none. */
static void a_kernel_that_was_entered_just_now_has_no_callers(void **state)
{
	const struct window none = {.va = STACK};
	const struct code code = {.read = read_text, .function = bounds};
	const struct unwind_input in = {.regs = &regs,
					.stack = &none,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	regs.pc = 0xffff800008010480;
	regs.gp[30] = IN_MAIN;
	regs.sp = regs.gp[31] = STACK;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_OUTERMOST, 0, NULL);
	regs.has_elr = true;
	regs.spsr = AT_EL0;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_OUTERMOST, 0, NULL);
	/* Called by the kernel, unless that is hidden from programs. */
	regs.gp[30] = 0xffff800008020000;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_NO_STACK, 0, NULL);
	regs.kernel_root = 0x2000;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_OUTERMOST, 0, NULL);
	regs.kernel_root = 0;
	regs.gp[30] = IN_MAIN;
	/* In its middle, or from the kernel itself. */
	regs.sp = regs.gp[31] = STACK + 0x100;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_NO_STACK, 0, NULL);
	regs.sp = regs.gp[31] = STACK;
	regs.spsr = AT_EL1;
	unwind_stack(&in, frames, &out);
	expect(UNWIND_NO_STACK, 0, NULL);
}

/* Linux's kernel threads, until they become programs: there is nothing to return to yet. */
static void threads_of_a_kernel_end_where_programs_would_be_entered(void **state)
{
	interrupt(0, AT_EL1);
	unwind(TEXT + HANDLER, STACK + FRAME, 0, IN_ENTRY);
	EXPECT(UNWIND_OUTERMOST, IN_ENTRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(handlers_stand_on_what_they_interrupt, begin,
						clean),
		cmocka_unit_test_setup_teardown(main_may_be_interrupted_before_it_has_a_frame,
						begin, clean),
		cmocka_unit_test_setup_teardown(handlers_may_change_to_another_stack, begin, clean),
		cmocka_unit_test_setup_teardown(what_cannot_be_told_is_not_made_up, begin, clean),
		cmocka_unit_test_setup_teardown(kernels_end_where_they_were_entered, begin, clean),
		cmocka_unit_test_setup_teardown(
			registers_tell_what_is_not_saved_yet_and_what_is_given_back, begin, clean),
		cmocka_unit_test_setup_teardown(a_kernel_that_was_entered_just_now_has_no_callers,
						begin, clean),
		cmocka_unit_test_setup_teardown(
			threads_of_a_kernel_end_where_programs_would_be_entered, begin, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
