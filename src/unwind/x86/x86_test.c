/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RET 0x401000ull

static struct call call;

static bool before(const char *bytes, size_t n, unsigned word)
{
	return x86_call_before(word == 8 ? &unwind_x86_64 : &unwind_x86_32, (const uint8_t *)bytes,
			       n, RET, &call);
}

#define BEFORE(bytes, word) before(bytes, sizeof(bytes) - 1, word)

static void direct_calls_have_a_target(void **state)
{
	assert_true(BEFORE("\x90\x90\x90\x90\xe8\x00\x01\x00\x00", 8));
	assert_true(call.direct);
	assert_false(call.indirect);
	assert_int_equal(call.target, RET + 0x100);
	assert_true(BEFORE("\xe8\x00\xff\xff\xff", 8));
	assert_int_equal(call.target, RET - 0x100);
	/* 32-bit code wraps around. */
	assert_true(BEFORE("\xe8\x00\x00\xb0\xff", 4));
	assert_int_equal(call.target, 0xfff01000);
}

static void indirect_calls_are_found_in_every_length(void **state)
{
	assert_true(BEFORE("\xff\xd0", 8));
	assert_true(call.indirect);
	assert_false(call.direct);
	assert_true(BEFORE("\x90\x90\x90\x90\x90\x90\x90\xff\xd3", 8));
	assert_true(BEFORE("\x90\x90\x90\x90\x90\x90\x41\xff\xd4", 8)); /* call r12 */
	assert_true(BEFORE("\x90\x90\x90\x90\x90\x90\xff\x50\x18", 8)); /* call [rax+24] */
	assert_true(BEFORE("\x90\x90\x90\x90\x90\xff\x54\x24\x08", 8)); /* call [rsp+8] */
	assert_true(BEFORE("\x90\x90\x90\xff\x15\x10\x20\x00\x00", 8)); /* call [rip+...] */
	assert_true(BEFORE("\x90\x90\xff\x14\xc5\x00\x10\x40\x00", 8)); /* call [rax*8+...] */
	assert_true(BEFORE("\x90\x41\xff\x94\x24\x00\x01\x00\x00", 8)); /* call [r12+...] */
	assert_true(BEFORE("\x90\x90\x90\x90\x90\x3e\x41\xff\xd3", 8)); /* notrack call r11 */
	assert_true(BEFORE("\x90\x90\x90\xff\x15\x10\x20\x00\x00", 4)); /* call [...] */
	assert_true(call.indirect);
}

static void other_instructions_are_no_calls(void **state)
{
	assert_false(BEFORE("\x90\x90\x90\x90\x90\x90\x90\x90\x90", 8));
	assert_false(BEFORE("\x90\x90\x90\x90\xe9\x00\x01\x00\x00", 8)); /* jmp */
	assert_false(BEFORE("\x90\x90\x90\x90\x90\x90\x90\xff\xe0", 8)); /* jmp rax */
	assert_false(BEFORE("\x90\x90\x90\x90\x90\x90\x90\xff\xf0", 8)); /* push rax */
	assert_false(BEFORE("\x90\x90\x90\x90\x90\x90\x90\x0f\x05", 8)); /* syscall */
	assert_false(BEFORE("", 8));
	assert_false(BEFORE("\xe8\x00\x00", 8));
}

static void both_readings_are_kept(void **state)
{
	/* mov eax, 0xd0ff0001 read from its last byte but five, or call rax at its end */
	assert_true(BEFORE("\x90\x90\x90\x90\xe8\x01\x00\xff\xd0", 8));
	assert_true(call.direct);
	assert_true(call.indirect);
}

static bool stub(const char *bytes, size_t n, unsigned word)
{
	uint8_t slot[X86_STUB_SLOT];

	memset(slot, 0xcc, sizeof(slot));
	memcpy(slot, bytes, n);
	return x86_is_hypercall_stub(slot, word);
}

#define STUB(bytes, word) stub(bytes, sizeof(bytes) - 1, word)

static void hypercall_stubs_are_recognized(void **state)
{
	assert_true(STUB("\x51\x41\x53\xb8\x12\x00\x00\x00\x0f\x05\x41\x5b\x59\xc3", 8));
	assert_true(STUB("\x51\x41\x53\x50\xb8\x17\x00\x00\x00\x0f\x05", 8));
	assert_true(STUB("\xb8\x1d\x00\x00\x00\x0f\x01\xc1\xc3", 8));
	assert_true(STUB("\xb8\x1d\x00\x00\x00\x0f\x01\xd9\xc3", 8));
	assert_true(STUB("\xb8\x1d\x00\x00\x00\x0f\x01\xd9\xc3", 4));
	assert_true(STUB("\xb8\x1d\x00\x00\x00\xcd\x82\xc3", 4));
	assert_true(STUB("\x50\xb8\x17\x00\x00\x00\xcd\x82", 4));
	assert_false(STUB("\xb8\x1d\x00\x00\x00\xcd\x80\xc3", 4));
	assert_false(STUB("\x51\x41\x53\xb8\x12\x00\x00\x00\x0f\x05\xc3", 8));
	assert_false(STUB("\xb8\x1d\x00\x00\x00\x0f\x05\xc3", 8));
}

struct bytes {
	const uint8_t *at;
	size_t n;
};

static size_t read_bytes(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct bytes *bytes = ctx;
	const size_t offset = (size_t)(va - RET);

	if (offset >= bytes->n)
		return 0;
	if (len > bytes->n - offset)
		len = bytes->n - offset;
	memcpy(buf, bytes->at + offset, len);
	return len;
}

/* Where the caller of the code behind a call is, from the stack pointer on; 0: nothing tells. */
static int32_t returns_from(const char *text, size_t n)
{
	struct bytes bytes = {(const uint8_t *)text, n};
	const struct code code = {.ctx = &bytes, .read = read_bytes};
	unsigned steps = 1000;
	struct code_reader reader = {.code = &code,
				     .scratch = calloc(1, sizeof(struct paths_scratch)),
				     .steps = &steps};
	struct rule rule;
	const struct flow_query query = {.isa = &unwind_x86_64, .addr = RET, .kind = FRAME_RETURN};
	const bool found = x86_find_return(&query, &reader, &rule) == PATHS_RETURN;

	free(reader.scratch);
	assert_in_range(steps, 1, 999);
	return found ? rule.cfa_sp : 0;
}

#define RETURNS_FROM(bytes) returns_from(bytes, sizeof(bytes) - 1)

#define SUB_32	   "\x48\x83\xec\x20"
#define ADD_32	   "\x48\x83\xc4\x20"
#define CALL_0	   "\xe8\x00\x00\x00\x00"
#define ADD_40_RET "\x48\x83\xc4\x28\xc3"

static void room_for_arguments_behind_a_call_begins_no_function(void **state)
{
	assert_int_equal(RETURNS_FROM(SUB_32 CALL_0 ADD_32 ADD_40_RET), 48);
	/* push rbx; pop rbx */
	assert_int_equal(RETURNS_FROM("\x53" SUB_32 CALL_0 ADD_32 "\x5b" CALL_0 SUB_32
				      "\x90" ADD_32 ADD_40_RET),
			 48);
}

static void a_function_behind_a_call_that_never_returns_tells_nothing(void **state)
{
	assert_int_equal(RETURNS_FROM(SUB_32 CALL_0 ADD_32 "\xc3"), 0);
	assert_int_equal(RETURNS_FROM("\x53" SUB_32 CALL_0 ADD_32 "\x5b\xc3"), 0);
	/* nop: what stands behind it is jumped to from elsewhere */
	assert_int_equal(RETURNS_FROM("\x90" ADD_40_RET), 0);
}

#define STEPS 1000

/* The row of the code from `at` on, which ends in a return from an interrupt; how many steps that took. */
static unsigned trap_of(const struct unwind_isa *isa, const char *text, size_t n, size_t at,
			struct row *row)
{
	struct bytes bytes = {(const uint8_t *)text, n};
	const struct code code = {.ctx = &bytes, .read = read_bytes};
	unsigned steps = STEPS;
	struct code_reader reader = {.code = &code, .steps = &steps};

	x86_find_trap(isa, &reader, RET + at, 0, row);
	return STEPS - steps;
}

static unsigned trap_at(const char *text, size_t n, size_t at, struct row *row)
{
	return trap_of(&unwind_x86_64, text, n, at, row);
}

static void a_handler_keeps_the_frame_pointer_until_it_has_saved_it(void **state)
{
	/* 0 cld; 1 sub rsp, 120; 5 mov [rsp+40], rbp; 10 call rax; 12 mov rbp, [rsp+40]; 17 add rsp, 136; 24 iretq */
	static const char text[] = "\xfc\x48\x83\xec\x78\x48\x89\x6c\x24\x28\xff\xd0"
				   "\x48\x8b\x6c\x24\x28\x48\x81\xc4\x88\x00\x00\x00\x48\xcf";
	struct row row;

	trap_at(text, sizeof(text) - 1, 0, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.cfa_offset, 16);
	assert_int_equal(row.fp_at, ROW_SAME);
	trap_at(text, sizeof(text) - 1, 5, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.cfa_offset, 136);
	assert_int_equal(row.fp_at, ROW_SAME);
	trap_at(text, sizeof(text) - 1, 10, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.cfa_offset, 136);
	assert_int_equal(row.fp_at, 40 - 136);
}

static void a_handler_that_may_take_another_stack_is_followed_to_where_it_pops_its_own(void **state)
{
	/* 0 cmovz rsp, rax; 4 push rdi; 5 call rax; 7 pop rsp; 8 add rsp, 120; 12 iretq */
	static const char text[] = "\x48\x0f\x44\xe0\x57\xff\xd0\x5c\x48\x83\xc4\x78\x48\xcf";
	struct row row;

	trap_at(text, sizeof(text) - 1, 0, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.base, ROW_PLUS);
	assert_int_equal(row.cfa_offset, 120);
	/* Which stack it is on is not known: without a pop, */
	trap_at("\x48\x0f\x44\xe0\x48\xcf", 6, 0, &row);
	assert_int_equal(row.kind, ROW_NONE);
	/* and then */
	trap_at(text, sizeof(text) - 1, 4, &row);
	assert_int_equal(row.kind, ROW_NONE);
	/* until what it pushed is there. */
	trap_at(text, sizeof(text) - 1, 7, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.base, ROW_PLUS_DEREF);
	assert_int_equal(row.ra_at, 120);
}

static void a_handler_may_begin_by_taking_the_stack_that_it_is_given(void **state)
{
	/* 0 mov rsp, rdi; 3 add rsp, 120; 7 iretq */
	static const char text[] = "\x48\x89\xfc\x48\x83\xc4\x78\x48\xcf";
	struct row row;

	trap_at(text, sizeof(text) - 1, 0, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.cfa_reg, 5); /* rdi */
	assert_int_equal(row.cfa_offset, 120);
	trap_at(text, sizeof(text) - 1, 3, &row);
	assert_int_equal(row.cfa_reg, 7); /* rsp */
	assert_int_equal(row.cfa_offset, 120);
	/* Ahead of it, the register may be another value still. */
	trap_at("\x90\x48\x89\xfc\x48\xcf", 6, 0, &row);
	assert_int_equal(row.kind, ROW_NONE);
}

static void a_handler_may_save_all_registers_at_once(void **state)
{
	/* 0 push ds; 1 pusha; 2 call eax; 4 popa; 5 pop ds; 6 add esp, 8; 9 iret */
	static const char text[] = "\x1e\x60\xff\xd0\x61\x1f\x83\xc4\x08\xcf";
	struct row row;

	trap_of(&unwind_x86_32, text, sizeof(text) - 1, 4, &row);
	assert_int_equal(row.kind, ROW_TRAP);
	assert_int_equal(row.cfa_offset, 8 * 4 + 4 + 8 + 3 * 4);
	assert_int_equal(row.ra_at, -3 * 4);
	assert_int_equal(row.fp_at, 2 * 4 - row.cfa_offset);
	trap_of(&unwind_x86_32, text, sizeof(text) - 1, 0, &row);
	assert_int_equal(row.cfa_offset, 8 + 3 * 4);
	assert_int_equal(row.fp_at, ROW_SAME);
}

static void a_loop_is_followed_for_few_turns(void **state)
{
	/* 0 nop; 1 nop; 2 jmp 0 */
	static const char text[] = "\x90\x90\xeb\xfc";
	struct row row;

	assert_in_range(trap_at(text, sizeof(text) - 1, 1, &row), 1, 12);
	assert_int_equal(row.kind, ROW_NONE);
}

static size_t read_low(void *ctx, uint64_t va, void *buf, size_t len)
{
	return read_bytes(ctx, va + RET, buf, len);
}

static void code_at_address_0_is_followed(void **state)
{
	/* 0 push rbp; 1 jmp 5; 3 nop; 4 nop; 5 jmp 0; 7 nop */
	struct bytes bytes = {(const uint8_t *)"\x55\xeb\x02\x90\x90\xeb\xf9\x90", 8};
	const struct code code = {.ctx = &bytes, .read = read_low};
	unsigned steps = 1000;
	struct code_reader reader = {.code = &code,
				     .scratch = calloc(1, sizeof(struct paths_scratch)),
				     .steps = &steps};
	const struct flow_query query = {.isa = &unwind_x86_64,
					 .end = 8,
					 .addr = 5,
					 .kind = FRAME_PC};
	struct x86_state found;

	assert_int_equal(x86_flow(&query, &reader, &found), FLOW_FOUND);
	assert_int_equal(found.depth, 8);
	free(reader.scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(direct_calls_have_a_target),
		cmocka_unit_test(indirect_calls_are_found_in_every_length),
		cmocka_unit_test(other_instructions_are_no_calls),
		cmocka_unit_test(both_readings_are_kept),
		cmocka_unit_test(hypercall_stubs_are_recognized),
		cmocka_unit_test(room_for_arguments_behind_a_call_begins_no_function),
		cmocka_unit_test(a_function_behind_a_call_that_never_returns_tells_nothing),
		cmocka_unit_test(a_handler_keeps_the_frame_pointer_until_it_has_saved_it),
		cmocka_unit_test(
			a_handler_that_may_take_another_stack_is_followed_to_where_it_pops_its_own),
		cmocka_unit_test(a_handler_may_begin_by_taking_the_stack_that_it_is_given),
		cmocka_unit_test(a_handler_may_save_all_registers_at_once),
		cmocka_unit_test(a_loop_is_followed_for_few_turns),
		cmocka_unit_test(code_at_address_0_is_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
