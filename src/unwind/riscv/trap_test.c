/* SPDX-License-Identifier: BSD-3-Clause */
/* A trap handler of firmware, in machine mode, as OpenSBI has it. */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arch/riscv/riscv.h"

#define TEXT  0x80000000ull
#define STACK 0x80100000ull
#define MAX   16

/* Functions, 64 bytes apart; trap goes on in leave. */
enum {
	START = 0x000,
	MAIN = 0x040,
	BURN = 0x080,
	TRAP = 0x0c0,
	LEAVE = 0x100,
	HANDLER = 0x140,
	ENTRY = 0x180,
	BOOT = 0x1c0,
	SWAP = 0x200,
	TEXT_END = 0x240
};

static const uint32_t text[TEXT_END / 64][16] = {
	[START / 64] = {0x00000413,    /*  0 li s0, 0 */
			0x00000093,    /*  4 li ra, 0 */
			0x038000ef,    /*  8 jal MAIN */
			0x0000006f},   /* 12 j 12 */
	[MAIN / 64] = {0xff010113,     /*  0 addi sp, sp, -16 */
		       0x00113423,     /*  4 sd ra, 8(sp) */
		       0x038000ef,     /*  8 jal BURN */
		       0x00813083,     /* 12 ld ra, 8(sp) */
		       0x01010113,     /* 16 addi sp, sp, 16 */
		       0x00008067},    /* 20 ret */
	[BURN / 64] = {0x00000013,     /*  0 nop */
		       0x00150513,     /*  4 addi a0, a0, 1 */
		       0x00008067},    /*  8 ret */
	[TRAP / 64] = {0xfd010113,     /*  0 addi sp, sp, -48 */
		       0x00513023,     /*  4 sd t0, 0(sp) */
		       0x00113423,     /*  8 sd ra, 8(sp) */
		       0x00a13823,     /* 12 sd a0, 16(sp) */
		       0x341022f3,     /* 16 csrr t0, mepc */
		       0x00513c23,     /* 20 sd t0, 24(sp) */
		       0x300022f3,     /* 24 csrr t0, mstatus */
		       0x02513023,     /* 28 sd t0, 32(sp) */
		       0x03010293,     /* 32 addi t0, sp, 48 */
		       0x02513423,     /* 36 sd t0, 40(sp) */
		       0x00010513,     /* 40 mv a0, sp */
		       0x054000ef,     /* 44 jal HANDLER, which returns a0 */
		       0x0100006f},    /* 48 j LEAVE */
	[LEAVE / 64] = {0x01853283,    /*  0 ld t0, 24(a0) */
			0x34129073,    /*  4 csrw mepc, t0 */
			0x02053283,    /*  8 ld t0, 32(a0) */
			0x30029073,    /* 12 csrw mstatus, t0 */
			0x00853083,    /* 16 ld ra, 8(a0) */
			0x02853103,    /* 20 ld sp, 40(a0) */
			0x00053283,    /* 24 ld t0, 0(a0) */
			0x01053503,    /* 28 ld a0, 16(a0) */
			0x30200073},   /* 32 mret */
	[HANDLER / 64] = {0x00000013,  /*  0 nop */
			  0x00008067}, /*  4 ret */
	[ENTRY / 64] = {0x00000093,    /*  0 li ra, 0 */
			0x03c000ef},   /*  4 jal BOOT */
	[BOOT / 64] = {0xff010113,     /*  0 addi sp, sp, -16 */
		       0x00113423,     /*  4 sd ra, 8(sp) */
		       0xf79ff0ef,     /*  8 jal HANDLER */
		       0x30200073},    /* 12 mret */
	[SWAP / 64] = {0x34011173,     /*  0 csrrw sp, mscratch, sp */
		       0x00011663,     /*  4 bnez sp, 16: from a program */
		       0x34011173,     /*  8 csrrw sp, mscratch, sp */
		       0xeb5ff06f},    /* 12 j TRAP */
};

#define IN_START (TEXT + START + 12)
#define IN_MAIN	 (TEXT + MAIN + 12)
#define IN_TRAP	 (TEXT + TRAP + 48)
#define IN_ENTRY (TEXT + ENTRY + 8)
#define IN_BOOT	 (TEXT + BOOT + 12)

enum { A0 = 10 };

/* mstatus: interrupted in machine mode, and in the supervisor's. */
#define FROM_MACHINE	RISCV_MSTATUS_MPP
#define FROM_SUPERVISOR (1u << 11)

/* Offsets on the stack: what the trap has saved, and main's frame. */
enum { SAVED = 0x40, MAIN_FRAME = SAVED + 48, WORDS = 32 };

static uint64_t stack[WORDS];
static struct regs regs;
static struct unwinder *unwinder;
static struct frame frames[MAX];
static struct unwind_result out;

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

static int begin(void **state)
{
	memset(stack, 0, sizeof(stack));
	regs = (struct regs){.word = 8,
			     .isa = ISA_RISCV,
			     .gp_valid = UINT32_MAX,
			     .flags = RISCV_IN_MACHINE,
			     .has_elr = true};
	stack[MAIN_FRAME / 8 + 1] = IN_START;
	assert_null(unwinder_new(&unwinder));
	return 0;
}

static int clean(void **state)
{
	unwinder_free(unwinder);
	return 0;
}

/* burn was interrupted at `pc`; the trap has saved that, and mstatus, and changed both since. */
static void interrupt(uint64_t pc, uint64_t mstatus)
{
	stack[SAVED / 8 + 1] = IN_MAIN;
	stack[SAVED / 8 + 3] = pc;
	stack[SAVED / 8 + 4] = mstatus;
	stack[SAVED / 8 + 5] = STACK + MAIN_FRAME;
}

static void unwind(uint64_t pc, uint64_t sp, uint64_t ra)
{
	const struct code code = {.read = read_text, .function = bounds};
	const struct window window = {.va = sp,
				      .len = (uint32_t)(STACK + sizeof(stack) - sp),
				      .bytes = (const uint8_t *)stack + (sp - STACK)};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = unwinder,
					.max_frames = MAX};

	regs.pc = pc;
	regs.sp = regs.gp[RISCV_SP] = sp;
	regs.gp[RISCV_RA] = ra;
	unwind_stack(&in, frames, &out);
}

static void expect(size_t n, const uint64_t *callers)
{
	assert_int_equal(out.end, UNWIND_OUTERMOST);
	assert_int_equal(out.n, n + 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(frames[i + 1].addr, callers[i]);
}

#define EXPECT(...)                                      \
	do {                                             \
		const uint64_t all[] = {__VA_ARGS__};    \
		expect(sizeof(all) / sizeof(*all), all); \
	} while (0)

static void a_trap_from_firmware_stands_on_what_it_interrupted(void **state)
{
	for (uint64_t at = 0; at < 12; at += 4) {
		interrupt(TEXT + BURN + at, FROM_MACHINE);
		unwind(TEXT + HANDLER, STACK + SAVED, IN_TRAP);
		EXPECT(IN_TRAP, TEXT + BURN + at, IN_MAIN, IN_START);
		assert_int_equal(frames[2].kind, FRAME_PC);
	}
}

static void its_frame_may_come_back_from_the_function_it_calls(void **state)
{
	interrupt(TEXT + BURN, FROM_MACHINE);
	regs.gp[A0] = STACK + SAVED;
	unwind(TEXT + LEAVE, STACK + SAVED, IN_TRAP);
	EXPECT(TEXT + BURN, IN_MAIN, IN_START);
}

/* The trap has saved nothing yet, or has given all back. */
static void its_first_and_last_instructions_are_told_by_the_processors_registers(void **state)
{
	regs.elr = TEXT + BURN + 4;
	regs.spsr = FROM_MACHINE;
	unwind(TEXT + TRAP, STACK + MAIN_FRAME, IN_MAIN);
	EXPECT(TEXT + BURN + 4, IN_MAIN, IN_START);
	unwind(TEXT + LEAVE + 32, STACK + MAIN_FRAME, IN_MAIN);
	EXPECT(TEXT + BURN + 4, IN_MAIN, IN_START);
}

static void a_trap_from_below_is_outermost(void **state)
{
	interrupt(0x1000, FROM_SUPERVISOR);
	unwind(TEXT + HANDLER, STACK + SAVED, IN_TRAP);
	EXPECT(IN_TRAP);
	/* Its stack is not known. */
	regs.spsr = FROM_SUPERVISOR;
	regs.gp_valid &= ~(1u << RISCV_SP);
	unwind(TEXT + TRAP, STACK + MAIN_FRAME, 0x2000);
	expect(0, NULL);
}

/* As in lk: 0 in mscratch tells that the kernel itself was interrupted. */
static void a_trap_that_asks_by_the_stack_pointer_where_it_came_from_stands_on_that(void **state)
{
	regs.elr = TEXT + BURN + 4;
	regs.spsr = FROM_MACHINE;
	unwind(TEXT + SWAP, STACK + MAIN_FRAME, IN_MAIN);
	EXPECT(TEXT + BURN + 4, IN_MAIN, IN_START);
	regs.spsr = FROM_SUPERVISOR;
	unwind(TEXT + SWAP, STACK + MAIN_FRAME, 0x2000);
	expect(0, NULL);
}

/* The kernel that it starts by mret goes on with its stack. */
static void what_leaves_like_a_handler_but_was_called_has_a_caller(void **state)
{
	stack[SAVED / 8 + 1] = IN_ENTRY;
	unwind(TEXT + HANDLER, STACK + SAVED, IN_BOOT);
	EXPECT(IN_BOOT, IN_ENTRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_trap_from_firmware_stands_on_what_it_interrupted,
						begin, clean),
		cmocka_unit_test_setup_teardown(its_frame_may_come_back_from_the_function_it_calls,
						begin, clean),
		cmocka_unit_test_setup_teardown(
			its_first_and_last_instructions_are_told_by_the_processors_registers, begin,
			clean),
		cmocka_unit_test_setup_teardown(a_trap_from_below_is_outermost, begin, clean),
		cmocka_unit_test_setup_teardown(
			a_trap_that_asks_by_the_stack_pointer_where_it_came_from_stands_on_that,
			begin, clean),
		cmocka_unit_test_setup_teardown(
			what_leaves_like_a_handler_but_was_called_has_a_caller, begin, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
