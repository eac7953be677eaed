/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT  0x400000ull
#define STACK 0x7fff0000ull
#define STUBS (TEXT + 0x800) /* the hypercall page */
#define MAX   64
#define NO_FP 2 /* what a frame pointer may hold in code built without */

/* The functions of the guest, 64 bytes apart, and what comes back to them. */
enum {
	START = 0x000,
	MAIN = 0x040,
	F = 0x080,
	LEAF = 0x0c0,
	SAVES = 0x100,
	G = 0x140,
	H = 0x180,
	OMITS = 0x1c0,
	JUMPS = 0x200,
	TEXT_END = 0x240
};
#define IN_START (TEXT + START + 7)
#define IN_MAIN	 (TEXT + MAIN + 9)
#define IN_F	 (TEXT + F + 13)
#define IN_G	 (TEXT + G + 9)
#define IN_H	 (TEXT + H + 6)
#define IN_OMITS (TEXT + OMITS + 10)
#define STUB	 (STUBS + 18 * 32)
#define NO_CALL	 (TEXT + MAIN + 4)

static uint8_t text[0x1000];
static uint64_t stack[512];
static struct unwinder *unwinder;
static struct regs regs;
static struct window window;
static bool symbols, readable;
static struct frame frames[MAX];
static struct unwind_result out;
static size_t max_frames;

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (!readable || va < TEXT || va - TEXT >= sizeof(text))
		return 0;
	if (len > sizeof(text) - (va - TEXT))
		len = sizeof(text) - (va - TEXT);
	memcpy(buf, text + (va - TEXT), len);
	return len;
}

static bool bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	if (va >= STUBS && va < STUBS + 0x800) {
		*start = STUBS;
		*end = STUBS + 0x800;
		return true;
	}
	*start = va & ~63ull;
	*end = *start + 64;
	return va >= TEXT && va < TEXT + TEXT_END;
}

static void code(unsigned at, const char *bytes, size_t len)
{
	memcpy(text + at, bytes, len);
}

static void call(unsigned at, uint64_t target)
{
	int32_t offset = (int32_t)(target - (TEXT + at + 5));

	text[at] = 0xe8;
	memcpy(text + at + 1, &offset, 4);
}

#define CODE(at, bytes) code(at, bytes, sizeof(bytes) - 1)

static int build(void **state)
{
	static const char frame[] = "\x55\x48\x89\xe5"; /* push rbp; mov rbp, rsp */

	memset(text, 0xcc, sizeof(text));
	memset(stack, 0, sizeof(stack));
	CODE(START, "\x31\xed"); /* xor ebp, ebp */
	call(START + 2, TEXT + MAIN);
	CODE(MAIN, frame);
	call(MAIN + 4, TEXT + F);
	CODE(MAIN + 9, "\x5d\xc3");
	CODE(F, "\x55\x48\x89\xe5\x48\x83\xec\x20"); /* ...; sub rsp, 32 */
	call(F + 8, TEXT + LEAF);
	CODE(F + 13, "\xc9\xc3");		     /* leave; ret */
	CODE(LEAF, "\x8d\x47\x01\xc3");		     /* lea eax, [rdi+1]; ret */
	CODE(SAVES, "\x53\x50\x31\xc0\x58\x5b\xc3"); /* push rbx, rax; xor; pop rax, rbx; ret */
	CODE(G, frame);
	call(G + 4, STUB);
	CODE(G + 9, "\x5d\xc3");
	CODE(H, "\x55\x48\x89\xe5\xff\xd0\x5d\xc3"); /* ...; call rax; ... */
	CODE(OMITS, "\x53\x48\x83\xec\x10");	     /* push rbx; sub rsp, 16 */
	call(OMITS + 5, TEXT + LEAF);
	CODE(OMITS + 10, "\x48\x83\xc4\x10\x5b\xc3"); /* add rsp, 16; pop rbx; ret */
	CODE(JUMPS, "\xe9\xbb\xfe\xff\xff");	      /* jmp LEAF */
	for (unsigned i = 0; i < 64; i++)
		code(0x800 + i * 32, "\x51\x41\x53\xb8\x12\x00\x00\x00\x0f\x05\x41\x5b\x59\xc3",
		     14);
	symbols = true;
	readable = true;
	max_frames = MAX;
	regs = (struct regs){.word = 8, .sp = STACK};
	window = (struct window){.va = STACK, .len = sizeof(stack), .bytes = (uint8_t *)stack};
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

/* A word of the stack, by its address. */
static uint64_t *at(uint64_t va)
{
	return &stack[(va - STACK) / 8];
}

static void record(uint64_t fp, uint64_t next, uint64_t ret)
{
	*at(fp) = next;
	*at(fp + 8) = ret;
}

static void unwind(uint64_t pc, uint64_t fp)
{
	struct code guest = {.read = read_text, .function = symbols ? bounds : NULL};
	struct unwind_input in = {.regs = &regs,
				  .stack = &window,
				  .code = &guest,
				  .unwinder = unwinder,
				  .max_frames = max_frames};

	regs.pc = pc;
	regs.fp = fp;
	window.va = regs.sp & ~7ull;
	memset(frames, 0xee, sizeof(frames));
	unwind_frame_pointer(&in, frames, &out);
	assert_in_range(out.n, 1, max_frames);
	assert_int_equal(frames[0].addr, pc);
	assert_int_equal(frames[0].kind, FRAME_PC);
	assert_int_equal(frames[0].trust, TRUST_SURE);
	for (size_t i = 1; i < out.n; i++)
		assert_int_equal(frames[i].kind, FRAME_RETURN);
}

static void expect(enum unwind_end end, size_t n, const uint64_t *callers)
{
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(frames[i + 1].addr, callers[i]);
	assert_int_equal(out.end, end);
}

#define EXPECT(end, ...)                                     \
	do {                                                 \
		const uint64_t callers_[] = {__VA_ARGS__};   \
		expect(end, sizeof(callers_) / 8, callers_); \
	} while (0)

#define EXPECT_NONE(end) expect(end, 0, NULL)

static void expect_sure(void)
{
	for (size_t i = 0; i < out.n; i++)
		assert_int_equal(frames[i].trust, TRUST_SURE);
}

static void every_instruction_of_a_function_has_its_caller(void **state)
{
	for (int with = 1; with >= 0; with--) {
		symbols = with;
		memset(stack, 0, sizeof(stack));
		/* In the body: a frame of 32 bytes, then the records. */
		record(STACK + 0x20, STACK + 0x40, IN_MAIN);
		record(STACK + 0x40, 0, IN_START);
		unwind(TEXT + F + 8, STACK + 0x20);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
		/* At the leave. */
		unwind(TEXT + F + 13, STACK + 0x20);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
		/* Before the first instruction, and at the ret. */
		memset(stack, 0, sizeof(stack));
		*at(STACK) = IN_MAIN;
		record(STACK + 0x10, 0, IN_START);
		unwind(TEXT + F, STACK + 0x10);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		unwind(TEXT + F + 14, STACK + 0x10);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
		/* Between push and mov. */
		record(STACK, STACK + 0x10, IN_MAIN);
		record(STACK + 0x10, 0, IN_START);
		unwind(TEXT + F + 1, STACK + 0x10);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
		/* Between mov and sub. */
		unwind(TEXT + F + 4, STACK);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
	}
}

static void a_leaf_without_a_frame_keeps_its_caller(void **state)
{
	for (int with = 1; with >= 0; with--) {
		symbols = with;
		*at(STACK) = IN_F;
		record(STACK + 0x28, STACK + 0x48, IN_MAIN);
		record(STACK + 0x48, 0, IN_START);
		unwind(TEXT + LEAF + 3, STACK + 0x28);
		EXPECT(UNWIND_OUTERMOST, IN_F, IN_MAIN, IN_START);
		expect_sure();
	}
}

static void a_leaf_that_pushes_registers_keeps_its_caller(void **state)
{
	*at(STACK) = IN_OMITS; /* stale: what rax happened to hold */
	*at(STACK + 8) = 77;
	*at(STACK + 0x10) = IN_H;
	record(STACK + 0x18, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	unwind(TEXT + SAVES + 2, STACK + 0x18);
	EXPECT(UNWIND_OUTERMOST, IN_H, IN_MAIN, IN_START);
}

static void the_hypercall_page_keeps_its_caller(void **state)
{
	/* Stopped behind syscall: r11 and rcx lie above the return address. */
	static const unsigned pcs[] = {0, 1, 3, 8, 10, 12, 13}, depth[] = {0, 1, 2, 2, 2, 1, 0};

	for (int with = 1; with >= 0; with--) {
		symbols = with;
		for (size_t i = 0; i < sizeof(pcs) / sizeof(pcs[0]); i++) {
			memset(stack, 0, sizeof(stack));
			*at(STACK) = IN_MAIN; /* if not overwritten: an impossible caller */
			*at(STACK + depth[i] * 8) = IN_G;
			record(STACK + 0x20, STACK + 0x40, IN_MAIN);
			record(STACK + 0x40, 0, IN_START);
			unwind(STUB + pcs[i], STACK + 0x20);
			EXPECT(UNWIND_OUTERMOST, IN_G, IN_MAIN, IN_START);
		}
	}
}

static void the_hypercall_stubs_of_hvm_and_of_32_bits_too(void **state)
{
	uint32_t narrow[8] = {(uint32_t)IN_G, 0, (uint32_t)(STACK + 0x10), 0};

	code(0x800 + 18 * 32, "\xb8\x12\x00\x00\x00\x0f\x01\xd9\xc3\xcc\xcc\xcc\xcc\xcc", 14);
	*at(STACK) = IN_G;
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	unwind(STUB + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_G, IN_MAIN, IN_START);
	code(0x800 + 18 * 32, "\xb8\x12\x00\x00\x00\xcd\x82\xc3\xcc", 9);
	memcpy(stack, narrow, sizeof(narrow));
	regs.word = 4;
	symbols = false;
	unwind(STUB + 7, 0);
	assert_int_equal(out.n, 2);
	assert_int_equal(frames[1].addr, IN_G);
}

static void code_without_frame_pointers_is_followed(void **state)
{
	*at(STACK) = IN_OMITS;
	*at(STACK + 8) = IN_F; /* a local variable that looks like a return address */
	*at(STACK + 8 + 0x18) = IN_H;
	record(STACK + 8 + 0x20, 0, IN_START);
	unwind(TEXT + LEAF, STACK + 8 + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_OMITS, IN_H, IN_START);
	/* The frame pointer may hold anything. */
	*at(STACK + 8 + 0x28) = NO_CALL;
	unwind(TEXT + LEAF, NO_FP);
	EXPECT(UNWIND_BROKEN, IN_OMITS, IN_H);
}

static void a_frame_pointer_that_is_none_adds_no_edge(void **state)
{
	static const uint64_t anything[] = {0,
					    2,
					    0xff,
					    STACK + 3,
					    STACK + 0x100,
					    STACK - 8,
					    UINT64_MAX,
					    0x8000000000000000ull,
					    TEXT};

	memset(stack, 0x5a, sizeof(stack));
	for (size_t i = 0; i < sizeof(anything) / sizeof(anything[0]); i++) {
		unwind(TEXT + F + 8, anything[i]);
		assert_int_equal(out.n, 1);
		assert_int_not_equal(out.end, UNWIND_FRAMES);
	}
	unwind(TEXT + F + 8, NO_FP);
	EXPECT_NONE(UNWIND_BROKEN);
}

static void what_is_no_return_address_ends_the_chain(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, STACK + 0x60, NO_CALL);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
	record(STACK + 0x40, STACK + 0x60, 0x1234567);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
}

static void a_zero_return_address_is_the_end(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, 0);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN);
}

static void a_function_that_was_jumped_to_has_the_jumpers_caller(void **state)
{
	/* main calls JUMPS, which jumps to the leaf. */
	call(MAIN + 4, TEXT + JUMPS);
	*at(STACK) = IN_MAIN;
	record(STACK + 0x10, 0, IN_START);
	for (int i = 0; i < 2; i++) {
		unwind(TEXT + LEAF, STACK + 0x10);
		EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
		expect_sure();
	}
	/* If it does not: who knows. */
	CODE(JUMPS, "\xc3");
	unwind(TEXT + LEAF + 3, STACK + 0x10);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	assert_int_equal(frames[2].trust, TRUST_SURE);
}

static void a_part_that_symbols_do_not_count_to_its_function_is_reached(void **state)
{
	int32_t offset = 0x700 - (F + 15);

	/* F's cold part lies in no function's bounds. */
	CODE(F + 8, "\xeb\x00\xe9"); /* jmp; jmp rel32 */
	memcpy(text + F + 11, &offset, 4);
	CODE(0x700, "\x31\xc0\xc9\xc3"); /* xor eax, eax; leave; ret */
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	unwind(TEXT + 0x702, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
}

static void loops_end(void **state)
{
	/* Records that no code stands behind: without symbols, called through pointers. */
	symbols = false;
	record(STACK + 0x20, STACK + 0x40, IN_H);
	record(STACK + 0x40, STACK + 0x40, IN_H);
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_LOOP);
	assert_int_equal(out.n, 3);
	record(STACK + 0x40, STACK + 0x20, IN_H);
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_LOOP);
	assert_int_equal(out.n, 3);
}

static void a_frame_above_the_window_asks_for_more(void **state)
{
	record(STACK + 0x20, STACK + 0x8000, IN_MAIN);
	window.cut = true;
	unwind(TEXT + F + 8, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_BYTES);
	assert_int_equal(out.n, 2);
	assert_in_range(out.want, 0x8010, 0x9000);
	/* Not if the guest has no memory there. */
	window.cut = false;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_BROKEN, IN_MAIN);
	assert_int_equal(out.want, 0);
}

static void frames_are_bounded(void **state)
{
	for (unsigned i = 0; i < 200; i++)
		record(STACK + 0x20 + i * 16, STACK + 0x30 + i * 16, IN_H);
	max_frames = 7;
	unwind(TEXT + H + 6, STACK + 0x20);
	assert_int_equal(out.end, UNWIND_FRAMES);
	assert_int_equal(out.n, 7);
	max_frames = 1;
	unwind(TEXT + H + 6, STACK + 0x20);
	EXPECT_NONE(UNWIND_FRAMES);
}

static void a_guest_that_was_not_started_has_no_stack(void **state)
{
	regs.sp = 0;
	unwind(TEXT, 0);
	EXPECT_NONE(UNWIND_NO_STACK);
	regs.sp = STACK;
	window.len = 0;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT_NONE(UNWIND_NO_STACK);
}

static void without_code_all_callers_are_guesses(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	readable = false;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	assert_int_equal(frames[1].trust, TRUST_GUESS);
	assert_int_equal(frames[2].trust, TRUST_GUESS);
	/* What could not be read may become readable. */
	readable = true;
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
}

static void code_that_changes_is_looked_at_again(void **state)
{
	record(STACK + 0x20, STACK + 0x40, IN_MAIN);
	record(STACK + 0x40, 0, IN_START);
	memset(text + MAIN, 0, 64);
	unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT_NONE(UNWIND_BROKEN);
	CODE(MAIN, "\x55\x48\x89\xe5");
	call(MAIN + 4, TEXT + F);
	for (int i = 0; i < 4096; i++)
		unwind(TEXT + F + 8, STACK + 0x20);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void a_misaligned_stack_pointer_is_no_place_to_count_from(void **state)
{
	regs.sp = STACK + 3;
	*at(STACK) = IN_F;
	record(STACK + 0x28, STACK + 0x48, IN_MAIN);
	record(STACK + 0x48, 0, IN_START);
	unwind(TEXT + F + 8, STACK + 0x28);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
}

static void narrow_code_is_unwound_by_narrow_words(void **state)
{
	uint32_t narrow[16] = {0};

	/* push ebp; mov ebp, esp; call; and the caller's */
	CODE(MAIN, "\x55\x89\xe5\x90");
	CODE(F, "\x55\x89\xe5\x83\xec\x08\x90\x90");
	narrow[2] = (uint32_t)(STACK + 0x18);
	narrow[3] = (uint32_t)IN_MAIN;
	narrow[6] = 0;
	narrow[7] = (uint32_t)IN_START;
	memcpy(stack, narrow, sizeof(narrow));
	regs.word = 4;
	unwind(TEXT + F + 6, STACK + 8);
	EXPECT(UNWIND_OUTERMOST, IN_MAIN, IN_START);
	expect_sure();
}

static void ends_have_names(void **state)
{
	for (int i = 0; i < UNWIND_ENDS; i++)
		assert_string_not_equal(unwind_end_text((enum unwind_end)i), "unknown");
	assert_string_equal(unwind_end_text(UNWIND_ENDS), "unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, build, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_instruction_of_a_function_has_its_caller),
		TEST(a_leaf_without_a_frame_keeps_its_caller),
		TEST(a_leaf_that_pushes_registers_keeps_its_caller),
		TEST(the_hypercall_page_keeps_its_caller),
		TEST(the_hypercall_stubs_of_hvm_and_of_32_bits_too),
		TEST(code_without_frame_pointers_is_followed),
		TEST(a_frame_pointer_that_is_none_adds_no_edge),
		TEST(what_is_no_return_address_ends_the_chain),
		TEST(a_zero_return_address_is_the_end),
		TEST(a_function_that_was_jumped_to_has_the_jumpers_caller),
		TEST(a_part_that_symbols_do_not_count_to_its_function_is_reached),
		TEST(loops_end),
		TEST(a_frame_above_the_window_asks_for_more),
		TEST(frames_are_bounded),
		TEST(a_guest_that_was_not_started_has_no_stack),
		TEST(without_code_all_callers_are_guesses),
		TEST(code_that_changes_is_looked_at_again),
		TEST(a_misaligned_stack_pointer_is_no_place_to_count_from),
		TEST(narrow_code_is_unwound_by_narrow_words),
		TEST(ends_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
