/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct riscv_regs all(uint8_t privilege)
{
	struct riscv_regs regs = {.pc = 0x80200000,
				  .satp = 8ull << 60 | 0xffffull << 44 | 0x80345,
				  .sepc = 0x80201000,
				  .sstatus = 0x100,
				  .has_sepc = true,
				  .privilege = privilege};

	for (unsigned i = 1; i < RISCV_REGISTERS; i++)
		regs.x[i] = 0x1000 * i;
	return regs;
}

static void registers_have_their_numbers(void **state)
{
	const struct riscv_regs from = all(RISCV_SUPERVISOR);
	struct regs to;

	riscv_regs_convert(&from, &to);
	assert_int_equal(to.isa, ISA_RISCV);
	assert_int_equal(to.word, 8);
	assert_int_equal(to.pc, from.pc);
	assert_int_equal(to.sp, from.x[2]);
	assert_int_equal(to.fp, from.x[8]);
	assert_memory_equal(to.gp, from.x, sizeof(from.x));
	assert_int_equal(to.gp_valid, UINT32_MAX);
	assert_true(to.has_elr);
	assert_int_equal(to.elr, from.sepc);
	assert_false(to.user);
	assert_ptr_equal(arch_of_code(&to), &arch_riscv64);
}

static void satp_says_how_addresses_are_translated(void **state)
{
	static const struct {
		uint64_t mode;
		enum mmu_mode is;
	} modes[] = {{0, MMU_OFF}, {8, MMU_RISCV_39}, {9, MMU_RISCV_48}, {10, MMU_RISCV_57}};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		struct riscv_regs from = all(RISCV_USER);
		struct regs to;

		from.satp = modes[i].mode << 60 | 0xffffull << 44 | 0x80345;
		riscv_regs_convert(&from, &to);
		assert_int_equal(to.mmu.mode, modes[i].is);
		assert_int_equal(to.mmu.root, modes[i].mode ? 0x80345000 : 0);
		assert_true(to.user);
		assert_true(arch_riscv64.modes >> to.mmu.mode & 1);
	}
}

static void firmware_is_not_translated_and_has_no_exception_of_the_supervisor(void **state)
{
	const struct riscv_regs from = all(RISCV_MACHINE);
	struct regs to;

	riscv_regs_convert(&from, &to);
	assert_int_equal(to.mmu.mode, MMU_OFF);
	assert_false(to.has_elr);
	assert_false(to.user);
}

static void every_register_is_shown_by_its_name(void **state)
{
	const struct riscv_regs from = all(RISCV_SUPERVISOR);
	struct registers shown = {0};
	struct regs to;

	riscv_regs_convert(&from, &to);
	arch_riscv64.show(&to, &shown);
	assert_int_equal(shown.n, 1 + 31 + 2);
	assert_string_equal(shown.at[1].name, "ra");
	assert_string_equal(shown.at[8].name, "s0");
	assert_int_equal(shown.at[8].value, from.x[8]);
	assert_string_equal(shown.at[31].name, "t6");
	assert_string_equal(shown.at[33].name, "sepc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_have_their_numbers),
		cmocka_unit_test(satp_says_how_addresses_are_translated),
		cmocka_unit_test(firmware_is_not_translated_and_has_no_exception_of_the_supervisor),
		cmocka_unit_test(every_register_is_shown_by_its_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
