/* SPDX-License-Identifier: BSD-3-Clause */

/* Unwinding 32-bit Arm at every instruction of real programs, in A32 and T32 code. */

#include "unwind/emulated_testing.h"

#include "unwind/arm32/insn.h"

#define CPSR_T 0x20u

static struct stepped stepped;

static void take_registers(struct stepped *at)
{
	uint32_t r[ARM_REGISTERS];

	assert_true(gdb_bytes(at->gdb, 0, r, sizeof(r)));
	assert_true(gdb_bytes(at->gdb, sizeof(r), &at->flags, 4));
	for (unsigned i = 0; i < ARM_REGISTERS; i++)
		at->r[i] = r[i];
}

static uint64_t link_register(const struct stepped *at)
{
	uint16_t half;

	if (!(at->flags & CPSR_T))
		return at->r[ARM_PC] + 4;
	assert_int_equal(read_emulated(at->pid, at->r[ARM_PC], &half, 2), 2);
	return at->r[ARM_PC] + (half >= 0xe800 ? 4 : 2) + 1;
}

static void fill(const struct stepped *at, struct regs *regs)
{
	regs->flags = at->flags;
	regs->word = 4;
	regs->isa = ISA_ARM;
	regs->gp_valid = 0xffff;
	memcpy(regs->gp, at->r, ARM_REGISTERS * sizeof(*at->r));
}

static const struct machine arm = {.emulator = "qemu-arm",
				   .cpu = "max",
				   .name = "32-bit Arm",
				   .sp = ARM_SP,
				   .lr = ARM_LR,
				   .pc = ARM_PC,
				   .take_registers = take_registers,
				   .link = link_register,
				   .fill = fill};

/* Never a false caller, nor a chain said to be whole that is not; and so many of 100 that are cut. */
static void check_most(const struct way *way, unsigned long cut)
{
	assert_int_equal(way->of[IMPOSSIBLE] + way->of[LIE], 0);
	assert_true(way->of[TRUNCATED] * 100 <= stepped.steps * cut);
}

/* With symbols, every instruction of every function has all of its callers; by .debug_frame, too. */
static void every_instruction_has_its_callers(void **state)
{
	struct way ways[] = {{.named = true}, {.method = UNWIND_CFI}};

	stepped = (struct stepped){.machine = &arm};
	walk_through(&stepped, *state, ways, 2);
	assert_int_equal(ways[0].of[WHOLE] + ways[0].of[NO_RETURN], stepped.steps);
	check_most(&ways[1], 1);
}

/*
 * With tables for exceptions and nothing else. Of some functions that are
 * called by their addresses nothing says where they start.
 */
static void tables_for_exceptions_stand_in_for_symbols(void **state)
{
	struct way ways[] = {{.method = UNWIND_AUTO}, {.method = UNWIND_CFI}};

	stepped = (struct stepped){.machine = &arm};
	walk_through(&stepped, *state, ways, 2);
	check_most(&ways[0], 6);
	check_most(&ways[1], 6);
}

#define PROGRAM(name) cmocka_unit_test_prestate(every_instruction_has_its_callers, "stepped-" name)
#define PROGRAMS(set)                                                                      \
	PROGRAM(set "-gcc-O0-fp"), PROGRAM(set "-gcc-O2-fp"), PROGRAM(set "-gcc-O2-nofp"), \
		PROGRAM(set "-gcc-Os-nofp"), PROGRAM(set "-clang-O2-fp"),                  \
		PROGRAM(set "-clang-O2-nofp")
#define EXIDX(name)                                                           \
	cmocka_unit_test_prestate(tables_for_exceptions_stand_in_for_symbols, \
				  "stepped-" name "-exidx")
#define ALL_EXIDX(set)                                                                 \
	EXIDX(set "-gcc-O2-fp"), EXIDX(set "-gcc-O2-nofp"), EXIDX(set "-gcc-Os-nofp"), \
		EXIDX(set "-clang-O2-nofp")

static int run(void)
{
	const struct CMUnitTest tests[] = {PROGRAMS("arm"), PROGRAMS("thumb"), ALL_EXIDX("arm"),
					   ALL_EXIDX("thumb")};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_emulated(&arm, run);
}
