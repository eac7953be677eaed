/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86_regs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PG   (1ull << 31)
#define PAE  (1ull << 5)
#define PSE  (1ull << 4)
#define LA57 (1ull << 12)
#define LMA  (1ull << 10)

/* Registers that tell their number, in the mode that the control registers say. */
static struct regs take(uint64_t cr0, uint64_t cr4, uint64_t efer, bool cs_long)
{
	struct x86_regs from = {.rip = 0xffffffff81000000ull,
				.rflags = 0x202,
				.cr0 = cr0,
				.cr3 = 0x8000000012345fffull,
				.cr4 = cr4,
				.efer = efer,
				.cs_base = 0x10,
				.ss_base = 0x20,
				.cs_long = cs_long,
				.cpl = 3};
	struct regs to;

	for (unsigned i = 0; i < 16; i++)
		from.gp[i] = 0xffffffff00000100ull + i;
	x86_regs_take(&from, &to);
	return to;
}

static void long_mode_has_all_registers_by_dwarf_number(void **state)
{
	const unsigned number[] = {0, 2, 1, 3, 6, 7, 5, 4};
	struct regs regs = take(PG, PAE, LMA, true);

	assert_int_equal(regs.word, 8);
	assert_int_equal(regs.pc, 0xffffffff81000000ull);
	assert_int_equal(regs.sp, 0xffffffff00000104ull);
	assert_int_equal(regs.fp, 0xffffffff00000105ull);
	assert_int_equal(regs.gp_valid, 0xffff);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(regs.gp[i], 0xffffffff00000100ull + (i < 8 ? number[i] : i));
	assert_true(regs.user);
}

static void other_code_is_of_32_bits_and_in_segments(void **state)
{
	struct regs regs = take(PG, PAE, LMA, false);

	assert_int_equal(regs.word, 4);
	assert_int_equal(regs.pc, 0x81000010);
	assert_int_equal(regs.sp, 0x124);
	assert_int_equal(regs.fp, 0x125);
	assert_int_equal(regs.gp_valid, 0xff);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(regs.gp[i], 0x100 + i);
	/* Code that says it is long is not when the processor is not in long mode. */
	assert_int_equal(take(PG, PAE, 0, true).word, 4);
}

static void control_registers_tell_the_tables(void **state)
{
	const struct {
		uint64_t cr0, cr4, efer;
		enum mmu_mode mode;
		uint64_t root;
	} modes[] = {
		{0, PAE, 0, MMU_OFF, 0x12345000},
		{PG, 0, 0, MMU_X86_32, 0x12345000},
		{PG, PAE, 0, MMU_X86_PAE, 0x12345fe0},
		{PG, PAE, LMA, MMU_X86_4, 0x12345000},
		{PG, PAE | LA57, LMA, MMU_X86_5, 0x12345000},
	};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		struct regs regs = take(modes[i].cr0, modes[i].cr4, modes[i].efer, true);

		assert_int_equal(regs.mmu.mode, modes[i].mode);
		assert_int_equal(regs.mmu.root, modes[i].root);
	}
	assert_false(take(PG, 0, 0, false).mmu.pse);
	assert_true(take(PG, PSE, 0, false).mmu.pse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_mode_has_all_registers_by_dwarf_number),
		cmocka_unit_test(other_code_is_of_32_bits_and_in_segments),
		cmocka_unit_test(control_registers_tell_the_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
