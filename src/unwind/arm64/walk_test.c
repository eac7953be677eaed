/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0x400000ull
#define STACK 0x7fff0000ull
#define MAX   64
/* Addresses of 39 bits; a signed one has these bits above. */
#define MMU_39_BITS 25
#define SIGNATURE   0x0055000000000000ull

/* The functions of the guest, 64 bytes apart. */
enum { START = 0x000, MAIN = 0x040, F = 0x080, LEAF = 0x0c0, OMITS = 0x100, TEXT_END = 0x140 };
enum { X29 = 29, X30 = 30, WORDS = 16 };

#define IN_START (TEXT + START + 12)
#define IN_MAIN	 (TEXT + MAIN + 12)
#define IN_F	 (TEXT + F + 20)
#define IN_OMITS (TEXT + OMITS + 8)

static const uint32_t text[TEXT_END / 4 / WORDS][WORDS] = {
	[START / 64] = {0xd280001d,  /*  0 mov x29, #0 */
			0xd280001e,  /*  4 mov x30, #0 */
			0x9400000e,  /*  8 bl MAIN */
			0x14000000}, /* 12 b 12 */
	[MAIN / 64] = {0xa9bf7bfd,   /*  0 stp x29, x30, [sp, #-16]! */
		       0x910003fd,   /*  4 mov x29, sp */
		       0x9400000e,   /*  8 bl F */
		       0x52800000,   /* 12 mov w0, #0 */
		       0xa8c17bfd,   /* 16 ldp x29, x30, [sp], #16 */
		       0xd65f03c0},  /* 20 ret */
	[F / 64] = {0xd503233f,	     /*  0 paciasp */
		    0xa9be7bfd,	     /*  4 stp x29, x30, [sp, #-32]! */
		    0x910003fd,	     /*  8 mov x29, sp */
		    0xf9000bf3,	     /* 12 str x19, [sp, #16] */
		    0x9400000c,	     /* 16 bl LEAF */
		    0xf9400bf3,	     /* 20 ldr x19, [sp, #16] */
		    0xa8c27bfd,	     /* 24 ldp x29, x30, [sp], #32 */
		    0xd65f0bff},     /* 28 retaa */
	[LEAF / 64] = {0x11000400,   /*  0 add w0, w0, #1 */
		       0xd65f03c0},  /*  4 ret */
	[OMITS / 64] = {0xf81e0ffe,  /*  0 str x30, [sp, #-32]! */
			0xd63f0060,  /*  4 blr x3 */
			0xf84207fe,  /*  8 ldr x30, [sp], #32 */
			0x17ffffed}, /* 12 b LEAF */
};

static uint64_t stack[64];
static struct regs regs;
static struct unwinder *unwinder;
static struct frame frames[MAX];
static struct unwind_result out;
static bool symbols, readable;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (!readable || va < TEXT || va - TEXT >= sizeof(text))
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

static int begin(void **state)
{
	memset(stack, 0, sizeof(stack));
	regs = (struct regs){.word = 8, .isa = ISA_ARM, .sp = STACK, .gp_valid = UINT32_MAX};
	regs.mmu = (struct mmu){.mode = MMU_ARM64, .control = MMU_39_BITS};
	symbols = readable = true;
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

static void record(uint64_t fp, uint64_t next, uint64_t ret)
{
	stack[(fp - STACK) / 8] = next;
	stack[(fp - STACK) / 8 + 1] = ret;
}

static void unwind(uint64_t pc, uint64_t sp, uint64_t fp, uint64_t lr)
{
	const uint64_t above = sp - STACK;
	const struct window window = {.va = sp,
				      .len = (uint32_t)(sizeof(stack) - above),
				      .bytes = (const uint8_t *)stack + above};
	const struct code code = {.read = read_text, .function = symbols ? bounds : NULL};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	regs.pc = pc;
	regs.sp = sp;
	regs.fp = regs.gp[X29] = fp;
	regs.gp[X30] = lr;
	memset(frames, 0xee, sizeof(frames));
	unwind_stack(&in, frames, &out);
	assert_int_equal(frames[0].addr, pc);
	assert_int_equal(frames[0].kind, FRAME_PC);
}

static void expect(enum unwind_end end, size_t n, const uint64_t *callers)
{
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(frames[i + 1].addr, callers[i]);
		assert_int_equal(frames[i + 1].kind, FRAME_RETURN);
	}
	assert_int_equal(out.end, end);
}

#define EXPECT(end, ...)                                     \
	do {                                                 \
		const uint64_t callers_[] = {__VA_ARGS__};   \
		expect(end, sizeof(callers_) / 8, callers_); \
	} while (0)

static void expect_sure(void)
{
	for (size_t i = 0; i < out.n; i++)
		assert_int_equal(frames[i].trust, TRUST_SURE);
}

/* Stores the frame records of main and its caller, from `base` on. */
static void main_called(uint64_t base)
{
	record(base, 0, IN_START);
}

static void every_instruction_of_a_function_has_its_callers(void **state)
{
	const uint64_t base = STACK + 64, own = base - 32;

	main_called(base);
	record(own, base, IN_MAIN | SIGNATURE);
	for (unsigned at = 0; at <= 28; at += 4) {
		const bool framed = at > 4 && at <= 24;
		const uint64_t fp = at > 8 && at <= 24 ? own : base;
		const uint64_t lr = at == 0 ? IN_MAIN : IN_MAIN | SIGNATURE;

		/* Behind the call, the link register holds the call's return address. */
		unwind(TEXT + F + at, framed ? own : base, fp, at == 20 ? IN_F : lr);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
	}
}

static void a_leaf_has_its_caller_in_the_link_register(void **state)
{
	const uint64_t base = STACK + 64;

	main_called(base);
	record(base - 32, base, IN_MAIN | SIGNATURE);
	for (unsigned at = 0; at <= 4; at += 4) {
		unwind(TEXT + LEAF + at, base - 32, base - 32, IN_F);
		EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
		expect_sure();
	}
}

static void code_without_a_frame_pointer_has_its_caller(void **state)
{
	const uint64_t base = STACK + 64;

	main_called(base);
	stack[(base - 32 - STACK) / 8] = IN_MAIN;
	unwind(TEXT + LEAF, base - 32, base, IN_OMITS);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_MAIN, IN_START);
	/* After the jump at its end, its caller is the leaf's. */
	unwind(TEXT + LEAF, base, base, IN_MAIN);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
}

static void without_code_frame_records_lead_on(void **state)
{
	const uint64_t base = STACK + 64;

	main_called(base);
	record(base - 32, base, IN_MAIN | SIGNATURE);
	readable = false;
	/* In a leaf's the link register shows the caller; in F's own body it shows F. */
	unwind(TEXT + LEAF, base - 32, base - 32, IN_F);
	EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	unwind(TEXT + F + 20, base - 32, base - 32, IN_F);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	/* Without symbols nothing says that it is a leaf. */
	symbols = false;
	unwind(TEXT + LEAF, base - 32, base - 32, IN_F);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void chains_that_are_none_end(void **state)
{
	const uint64_t base = STACK + 64;

	symbols = false;
	/* That MAIN called F proves itself; its own record is none. */
	record(base, base, IN_MAIN);
	unwind(TEXT + F + 20, STACK, base, 0);
	EXPECT(UNWIND_LOOP, IN_MAIN);
	record(base, STACK, IN_MAIN);
	unwind(TEXT + F + 20, STACK, base, 0);
	EXPECT(UNWIND_LOOP, IN_MAIN);
	/* No call stands before this one. */
	record(base, base + 16, TEXT + F);
	unwind(TEXT + F + 20, STACK, base, 0);
	expect(UNWIND_BROKEN, 0, NULL);
	unwind(TEXT + F + 20, STACK, base + 4, 0);
	expect(UNWIND_BROKEN, 0, NULL);
	/* Behind a call F has a record, and so no 0 to point to the next. */
	unwind(TEXT + F + 20, STACK, 0, 0);
	expect(UNWIND_BROKEN, 0, NULL);
	/* Above the copied window. */
	record(base, STACK + sizeof(stack), IN_MAIN);
	unwind(TEXT + F + 20, STACK, base, 0);
	assert_int_equal(out.n, 2);
	assert_int_not_equal(out.end, UNWIND_OUTERMOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_instruction_of_a_function_has_its_callers,
						begin, clean),
		cmocka_unit_test_setup_teardown(a_leaf_has_its_caller_in_the_link_register, begin,
						clean),
		cmocka_unit_test_setup_teardown(code_without_a_frame_pointer_has_its_caller, begin,
						clean),
		cmocka_unit_test_setup_teardown(without_code_frame_records_lead_on, begin, clean),
		cmocka_unit_test_setup_teardown(chains_that_are_none_end, begin, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
