/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arm/arm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* EL1 with its own stack pointer; Supervisor mode. */
#define EL1H 0x5u
#define SVC  (ARM_PSTATE_WIDTH32 | 0x3u)

static struct arm_regs all(bool wide)
{
	struct arm_regs regs = {.sp = 0x1000,
				.pc = 0x2000,
				.sctlr = 1,
				.ttbr0 = 0x3000,
				.ttbr1 = 0x4000,
				.control = 7,
				.wide = wide};

	for (unsigned i = 0; i < 31; i++)
		regs.r[i] = 0x100 + i;
	regs.pstate = wide ? EL1H : SVC;
	return regs;
}

static void of_64_bits(void **state)
{
	const struct arm_regs from = all(true);
	struct regs to;

	arm_regs_convert(&from, &to);
	assert_int_equal(to.word, 8);
	assert_int_equal(to.isa, ISA_ARM);
	assert_int_equal(to.pc, from.pc);
	assert_int_equal(to.fp, from.r[29]);
	assert_int_equal(to.gp[30], from.r[30]);
	assert_int_equal(to.gp[31], from.sp);
	assert_int_equal(to.mmu.mode, MMU_ARM64);
	assert_int_equal(to.mmu.root, from.ttbr0);
	assert_int_equal(to.mmu.root_high, from.ttbr1);
	assert_int_equal(to.mmu.control, from.control);
	assert_false(to.user);
	assert_int_equal(to.kernel_root, 0);
}

static void of_a_program_whose_tables_lack_the_kernel(void **state)
{
	struct arm_regs from = all(true);
	struct regs to;
	struct mmu mmu;

	from.ttbr1 = 0x0011000000004000ull;
	from.pstate = 0;
	arm_regs_convert(&from, &to);
	assert_true(to.user);
	assert_true(to.kernel_root == 0x0010000000006000ull);
	mmu = to.mmu;
	mmu_use_kernel(&mmu, to.kernel_root);
	assert_true(mmu.root == from.ttbr0 && mmu.root_high == to.kernel_root);
}

static void of_32_bits(void **state)
{
	struct arm_regs from = all(false);
	struct regs to;

	arm_regs_convert(&from, &to);
	assert_int_equal(to.word, 4);
	assert_int_equal(to.fp, from.r[11]);
	assert_int_equal(to.gp[13], from.sp);
	assert_int_equal(to.gp[14], from.r[14]);
	assert_int_equal(to.gp[15], from.pc);
	assert_int_equal(to.mmu.mode, MMU_ARM_SHORT);
	assert_false(to.user);
	from.pstate |= ARM_PSTATE_T;
	from.control |= ARM_TTBCR_EAE;
	arm_regs_convert(&from, &to);
	assert_int_equal(to.fp, from.r[7]);
	assert_int_equal(to.mmu.mode, MMU_ARM_LPAE);
}

static void in_user_mode(void **state)
{
	struct arm_regs from = all(true);
	struct regs to;

	from.pstate = 0;
	arm_regs_convert(&from, &to);
	assert_true(to.user);
	/* A program of 32 bits above a kernel of 64. */
	from.pstate = ARM_PSTATE_WIDTH32;
	arm_regs_convert(&from, &to);
	assert_true(to.user);
	assert_int_equal(to.word, 4);
	assert_int_equal(to.mmu.mode, MMU_ARM64);
}

static void with_the_mmu_off(void **state)
{
	struct arm_regs from = all(true);
	struct regs to;

	from.sctlr = 0;
	arm_regs_convert(&from, &to);
	assert_int_equal(to.mmu.mode, MMU_OFF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_64_bits),
		cmocka_unit_test(of_a_program_whose_tables_lack_the_kernel),
		cmocka_unit_test(of_32_bits),
		cmocka_unit_test(in_user_mode),
		cmocka_unit_test(with_the_mmu_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
