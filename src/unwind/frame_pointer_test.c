/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Return addresses that are found by the code, that prove themselves, or that
 * are in a frame record.
 */
#include "unwind/guest_testing.h"

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
	*at(STACK) = IN_OMITS; /* stale: a former value of rax */
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

static void a_pointer_into_the_frame_in_rbp_makes_no_record(void **state)
{
	/* push r12, rbp; sub rsp, 16; lea rbp, [rsp+8]; call */
	CODE(SAVES, "\x41\x54\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x08");
	call(SAVES + 12, TEXT + LEAF);
	CODE(SAVES + 17, "\x48\x83\xc4\x10\x5d\x41\x5c\xc3");
	call(OMITS + 5, TEXT + SAVES);
	*at(STACK) = TEXT + SAVES + 17;
	*at(STACK + 0x18) = 0; /* rbp of what was called through a pointer: no end of a chain */
	*at(STACK + 0x28) = IN_OMITS;
	*at(STACK + 0x48) = IN_H;
	symbols = false;
	unwind(TEXT + LEAF, STACK + 0x10);
	assert_in_range(out.n, 4, MAX);
	assert_int_equal(frames[1].addr, TEXT + SAVES + 17);
	assert_int_equal(frames[2].addr, IN_OMITS);
	assert_int_equal(frames[3].addr, IN_H);
	/* A caller that is not there is missing. */
	*at(STACK + 0x48) = NO_CALL;
	unwind(TEXT + LEAF, STACK + 0x10);
	EXPECT(UNWIND_BROKEN, TEXT + SAVES + 17, IN_OMITS);
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
	/* JUMPS does not jump to the leaf: its caller is a guess. */
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

/* A trap of narrow code, of the kernel itself or of a program, whose stack pointer is pushed, too. */
static void a_handler_of_narrow_code_knows_a_program_by_its_privilege(void **state)
{
	uint32_t narrow[16] = {(uint32_t)(TEXT + G + 5), [3] = (uint32_t)(STACK + 0x38)};

	CODE(MAIN, "\x55\x89\xe5\x90");
	CODE(F, "\x55\x89\xe5\x83\xec\x08\x90\x90");
	CODE(G, "\x60"); /* pusha; call LEAF; popa; iret */
	call(G + 1, TEXT + LEAF);
	CODE(G + 6, "\x61\xcf");
	narrow[0] = (uint32_t)(TEXT + G + 6);
	narrow[9] = (uint32_t)(TEXT + F + 6);
	narrow[10] = 8;
	narrow[11] = 0x246;
	narrow[14] = 0;
	narrow[15] = (uint32_t)IN_MAIN;
	memcpy(stack, narrow, sizeof(narrow));
	regs.word = 4;
	unwind_anywhere(TEXT + LEAF, 0);
	EXPECT(UNWIND_OUTERMOST, TEXT + G + 6, TEXT + F + 6, IN_MAIN);
	((uint32_t *)stack)[10] = 0x1b;
	unwind_anywhere(TEXT + LEAF, 0);
	EXPECT(UNWIND_OUTERMOST, TEXT + G + 6);
}

/*
 * Pops the registers of a thread switch: the function's own return address is
 * gone, or never was.
 */
static void what_begins_a_thread_has_no_caller(void **state)
{
	/* pop rdi; pop rbx; push 0; xor ebp, ebp; call rbx */
	CODE(OMITS, "\x5f\x5b\x6a\x00\x31\xed\xff\xd3");
	call(MAIN + 4, TEXT + OMITS);
	*at(STACK) = TEXT + OMITS + 8;
	*at(STACK + 0x20) = IN_MAIN; /* left there by another */
	unwind(TEXT + LEAF, NO_FP);
	EXPECT(UNWIND_OUTERMOST, TEXT + OMITS + 8);
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
		TEST(a_pointer_into_the_frame_in_rbp_makes_no_record),
		TEST(a_function_that_was_jumped_to_has_the_jumpers_caller),
		TEST(a_part_that_symbols_do_not_count_to_its_function_is_reached),
		TEST(narrow_code_is_unwound_by_narrow_words),
		TEST(a_handler_of_narrow_code_knows_a_program_by_its_privilege),
		TEST(what_begins_a_thread_has_no_caller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
