/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks over interrupted code by following the handler's code: there are no tables. */
#include "unwind/guest_testing.h"

/* An interrupt handler: saves the registers that it uses, calls a C function, returns with iret. */
#define ENTRY	  0x400
#define IN_ENTRY  (TEXT + ENTRY + 8)
#define HANDLER	  0x440
#define IRET_STUB (STUBS + 23 * 32)

/* An interrupt of the leaf, which F had called; the handler is at work. */
static void interrupted(uint64_t frame)
{
	*at(frame) = TEXT + LEAF;
	*at(frame + 8) = 0xe033;
	*at(frame + 16) = 0x246;
	*at(frame + 24) = STACK + 0x200;
	*at(frame + 32) = 0xe02b;
	*at(STACK + 0x200) = IN_F;
	record(STACK + 0x230, STACK + 0x250, IN_MAIN);
	record(STACK + 0x250, 0, IN_START);
}

static void expect_interrupted(void)
{
	static const uint64_t chain[] = {IN_ENTRY, TEXT + LEAF, IN_F, IN_MAIN, IN_START};

	assert_int_equal(out.n, 6);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(frames[i + 1].addr, chain[i]);
	assert_int_equal(frames[2].kind, FRAME_PC);
	assert_int_equal(frames[3].kind, FRAME_RETURN);
	assert_int_equal(out.end, UNWIND_OUTERMOST);
	expect_sure();
}

static void a_handler_that_ends_in_iret_stands_on_what_it_interrupted(void **state)
{
	CODE(ENTRY, "\x50\x51\x55"); /* push rax, rcx, rbp */
	call(ENTRY + 3, TEXT + HANDLER);
	CODE(ENTRY + 8, "\x5d\x59\x58\x48\xcf"); /* pop rbp, rcx, rax; iretq */
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	for (int with = 0; with < 2; with++) {
		symbols = with;
		*at(STACK) = IN_ENTRY;
		*at(STACK + 8) = STACK + 0x230; /* the interrupted code's frame pointer */
		interrupted(STACK + 32);
		unwind_anywhere(TEXT + HANDLER, NO_FP);
		if (with)
			expect_interrupted();
		else /* how the leaf got there is not known */
			assert_int_equal(frames[2].addr, TEXT + LEAF);
	}
	/* Each of its instructions has the same frame above it. */
	symbols = true;
	*at(STACK) = STACK + 0x230;
	interrupted(STACK + 24);
	unwind_anywhere(TEXT + ENTRY + 8, NO_FP);
	assert_int_equal(frames[1].addr, TEXT + LEAF);
	assert_int_equal(frames[2].addr, IN_F);
	interrupted(STACK + 8);
	unwind_anywhere(TEXT + ENTRY + 10, STACK + 0x230);
	assert_int_equal(frames[1].addr, TEXT + LEAF);
	assert_int_equal(frames[4].addr, IN_START);
}

static void a_handler_may_return_through_the_hypercall_page(void **state)
{
	code(0x800 + 23 * 32, "\x51\x41\x53\x50\xb8\x17\x00\x00\x00\x0f\x05", 11);
	CODE(ENTRY, "\x90\x90\x55"); /* Xen has pushed rcx and r11; push rbp */
	call(ENTRY + 3, TEXT + HANDLER);
	/* pop rbp, rcx, r11; push 0; jmp the stub */
	CODE(ENTRY + 8, "\x5d\x59\x41\x5b\x6a\x00\xe9");
	memcpy(text + ENTRY + 15, &(int32_t){(int32_t)(IRET_STUB - (TEXT + ENTRY + 19))}, 4);
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	*at(STACK) = IN_ENTRY;
	*at(STACK + 8) = STACK + 0x230;
	interrupted(STACK + 32);
	unwind_anywhere(TEXT + HANDLER, NO_FP);
	expect_interrupted();
}

static void a_pv_kernel_is_entered_with_two_registers_above_the_frame(void **state)
{
	CODE(ENTRY, "\x59\x41\x5b"); /* pop rcx; pop r11 */
	*at(STACK) = IN_MAIN;	     /* the program's, which may look like anything */
	*at(STACK + 8) = IN_START;
	interrupted(STACK + 16);
	unwind_anywhere(TEXT + ENTRY, STACK + 0x230);
	EXPECT(UNWIND_OUTERMOST, TEXT + LEAF, IN_F, IN_MAIN, IN_START);
	expect_sure();
	*at(STACK + 32) = 0; /* flags cannot be 0 */
	unwind_anywhere(TEXT + ENTRY, STACK + 0x230);
	assert_int_not_equal(frames[1].addr, TEXT + LEAF);
}

static void a_handler_may_return_by_hypercall(void **state)
{
	/* pop rbp; push 0, rcx, r11, rax; mov eax, 23; syscall */
	CODE(ENTRY, "\x5d\x6a\x00\x51\x41\x53\x50\xb8\x17\x00\x00\x00\x0f\x05");
	*at(STACK) = STACK + 0x230;
	interrupted(STACK + 8);
	unwind_anywhere(TEXT + ENTRY, NO_FP);
	EXPECT(UNWIND_OUTERMOST, TEXT + LEAF, IN_F, IN_MAIN, IN_START);
	expect_sure();
	/* Another hypercall does not return there. */
	text[ENTRY + 8] = 24;
	unwinder_free(unwinder);
	assert_null(unwinder_new(&unwinder));
	unwind_anywhere(TEXT + ENTRY, NO_FP);
	assert_true(out.n < 2 || frames[1].addr != TEXT + LEAF);
}

/* The code goes on behind a label of the next symbol, which nothing calls. */
static void a_handler_may_fall_through_into_the_next_label(void **state)
{
	CODE(ENTRY, "\x50\x51\x55");
	call(ENTRY + 3, TEXT + HANDLER);
	CODE(ENTRY + 8, "\x65\xff\x0c\x25\x00\x00\x00\x00"); /* decl gs:0 */
	CODE(ENTRY + 16, "\x5d\x59\x58\x48\xcf");	     /* pop rbp, rcx, rax; iretq */
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	label = TEXT + ENTRY + 16;
	*at(STACK) = IN_ENTRY;
	*at(STACK + 8) = STACK + 0x230;
	interrupted(STACK + 32);
	unwind_anywhere(TEXT + HANDLER, NO_FP);
	label = 0;
	expect_interrupted();
}

static void a_handler_may_have_a_stack_of_its_own(void **state)
{
	/* mov rsp, rdi; ...; call; pop rsp: the interrupted stack is above. */
	uint64_t words[16] = {IN_ENTRY, STACK + 0x100};
	struct window irq = {.va = 0x10000, .len = sizeof(words), .bytes = (uint8_t *)words};

	CODE(ENTRY, "\x90\x90\x90");
	call(ENTRY + 3, TEXT + HANDLER);
	CODE(ENTRY + 8, "\x5c\x5d\x48\xcf"); /* pop rsp; pop rbp; iretq */
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	*at(STACK + 0x100) = STACK + 0x230;
	interrupted(STACK + 0x108);
	second = &window;
	unwind_on(&irq, TEXT + HANDLER, NO_FP);
	expect_interrupted();
	/* Without the second stack, it is asked for. */
	second = NULL;
	unwind_on(&irq, TEXT + HANDLER, NO_FP);
	assert_int_equal(out.end, UNWIND_BYTES);
	assert_in_range(out.elsewhere, STACK, STACK + 0x100);
}

static void what_is_no_frame_of_an_interrupt_is_not_taken_for_one(void **state)
{
	CODE(ENTRY, "\x50\x51\x55");
	call(ENTRY + 3, TEXT + HANDLER);
	CODE(ENTRY + 8, "\x5d\x59\x58\x48\xcf");
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	*at(STACK) = IN_ENTRY;
	interrupted(STACK + 32);
	*at(STACK + 48) = 0; /* flags cannot be 0 */
	unwind_anywhere(TEXT + HANDLER, NO_FP);
	EXPECT(UNWIND_BROKEN, IN_ENTRY);
}

/* OVMF's: hooked, or with a shadow stack, it ends otherwise; its beginning is not known. */
static void write_forked_handler(void)
{
	/* push rax; sub rsp, 32 */
	CODE(ENTRY, "\x50\x48\x83\xec\x20");
	call(ENTRY + 5, TEXT + HANDLER);
	/* mov rsp, rbp; pop rbp; add rsp, 16; cmp [rsp-32], 0; je 36; jmp [rsp-32] */
	CODE(ENTRY + 10, "\x48\x89\xec\x5d\x48\x83\xc4\x10\x48\x83\x7c\x24\xe0\x00\x74\x0a"
			 "\xff\x64\x24\xe0");
	/* cmp [rip], 0; je 54; push rax; mov rax, rsp; popf; nop; lretq; iretq */
	CODE(ENTRY + 36, "\x48\x83\x3d\x00\x00\x00\x00\x00\x74\x08\x50\x48\x89\xe0\x9d\x90"
			 "\x48\xcb\x48\xcf");
	symbols = false;
	interrupted(STACK);
}

static void a_handler_may_end_in_several_ways(void **state)
{
	write_forked_handler();
	for (unsigned at = 18; at <= 36; at += 18) {
		unwind_anywhere(TEXT + ENTRY + at, STACK + 0x230);
		assert_int_equal(frames[1].addr, TEXT + LEAF);
		assert_int_equal(frames[1].kind, FRAME_PC);
		assert_int_equal(frames[1].trust, TRUST_SURE);
	}
}

static void a_handler_may_give_back_its_stack_by_the_frame_pointer(void **state)
{
	const uint64_t fp = STACK + 0x40;

	write_forked_handler();
	CODE(HANDLER, "\x8d\x47\x01\xc3");
	*at(STACK) = TEXT + ENTRY + 10;
	*at(fp) = STACK + 0x230;
	interrupted(fp + 24);
	unwind_anywhere(TEXT + HANDLER, fp);
	assert_int_equal(frames[1].addr, TEXT + ENTRY + 10);
	assert_int_equal(frames[2].addr, TEXT + LEAF);
	assert_int_equal(frames[2].kind, FRAME_PC);
}

static void a_push_amid_code_begins_no_stack(void **state)
{
	write_forked_handler();
	CODE(ENTRY + 54, "\xf4\xf4"); /* hlt: how it returns is not known */
	unwind_anywhere(TEXT + ENTRY + 36, NO_FP);
	assert_int_not_equal(out.end, UNWIND_OUTERMOST);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, build, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_handler_that_ends_in_iret_stands_on_what_it_interrupted),
		TEST(a_handler_may_return_through_the_hypercall_page),
		TEST(a_pv_kernel_is_entered_with_two_registers_above_the_frame),
		TEST(a_handler_may_return_by_hypercall),
		TEST(a_handler_may_fall_through_into_the_next_label),
		TEST(a_handler_may_have_a_stack_of_its_own),
		TEST(a_handler_may_end_in_several_ways),
		TEST(a_handler_may_give_back_its_stack_by_the_frame_pointer),
		TEST(a_push_amid_code_begins_no_stack),
		TEST(what_is_no_frame_of_an_interrupt_is_not_taken_for_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
