/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

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
	x86_regs_convert(&from, &to);
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
	assert_int_equal(regs.segmented, 32);
	/* Long code in a processor that is not in long mode is not 64-bit code. */
	assert_int_equal(take(PG, PAE, 0, true).word, 4);
}

static void real_mode_has_short_stack_pointers(void **state)
{
	const struct x86_regs from = {.gp = {[4] = 0xdead1234, [5] = 0xbeef5678},
				      .rip = 0x9abc,
				      .cs_base = 0xf0000,
				      .ss_base = 0x20000,
				      .cs_short = true,
				      .ss_short = true};
	struct regs regs;

	x86_regs_convert(&from, &regs);
	assert_int_equal(regs.segmented, 16);
	assert_int_equal(regs.pc, 0xf9abc);
	assert_int_equal(regs.sp, 0x21234);
	assert_int_equal(regs.fp, 0x25678);
}

static void only_segments_without_a_base_have_linear_addresses(void **state)
{
	struct x86_regs from = {.cs_base = 0};
	struct regs regs;

	x86_regs_convert(&from, &regs);
	assert_int_equal(regs.segmented, 0);
	from.cs_short = true;
	x86_regs_convert(&from, &regs);
	assert_int_equal(regs.segmented, 16);
	/* The processor knows no bases in 64-bit code, and its segments are not 32-bit ones. */
	from = (struct x86_regs){.cs_base = 16, .cs_short = true, .cs_long = true, .efer = LMA};
	x86_regs_convert(&from, &regs);
	assert_int_equal(regs.segmented, 0);
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

static const struct register_value *find(const struct registers *registers, const char *name)
{
	for (size_t i = 0; i < registers->n; i++)
		if (!strcmp(registers->at[i].name, name))
			return &registers->at[i];
	return NULL;
}

static void flags_are_spelled_out(void **state)
{
	char text[REGISTER_BITS_TEXT];

	register_bits_text(x86_rflags, 0x246, text);
	assert_string_equal(text, "IF ZF PF");
	register_bits_text(x86_rflags, 0x3002, text);
	assert_string_equal(text, "IOPL=3");
	register_bits_text(x86_rflags, 0x2, text);
	assert_string_equal(text, "");
	register_bits_text(x86_cr0, 0x80050033, text);
	assert_string_equal(text, "PG AM WP NE ET MP PE");
	register_bits_text(x86_efer, 0xd01, text);
	assert_string_equal(text, "NXE LMA LME SCE");
}

static void no_value_is_too_much(void **state)
{
	const struct register_bit *const all[] = {x86_rflags, x86_cr0, x86_cr4, x86_efer};
	struct registers registers = {0};
	char text[REGISTER_BITS_TEXT];

	for (size_t i = 0; i < 4; i++) {
		register_bits_text(all[i], UINT64_MAX, text);
		assert_true(strlen(text) < sizeof(text) - 1);
	}
	for (int i = 0; i < 2 * REGISTERS_MAX; i++) {
		registers_add(&registers, REGISTER_GENERAL, "x", 8, 0, NULL);
		registers_segment(&registers, &(struct register_segment){.name = "cs"});
	}
	assert_int_equal(registers.n, REGISTERS_MAX);
	assert_int_equal(registers.n_segments, SEGMENTS_MAX);
}

static void registers_have_their_names_by_dwarfs_numbers(void **state)
{
	struct regs regs = {.pc = 0x1000, .word = 8, .gp_valid = 0xffff};
	struct registers wide = {0}, narrow = {0};

	for (unsigned i = 0; i < 16; i++)
		regs.gp[i] = 0xf00000000ull + i;
	x86_registers_general(&regs, 0x1000, &wide);
	assert_int_equal(wide.n, 18);
	assert_string_equal(wide.at[0].name, "rip");
	assert_int_equal(find(&wide, "rdx")->value, 0xf00000001);
	assert_int_equal(find(&wide, "rbx")->value, 0xf00000003);
	assert_int_equal(find(&wide, "r15")->value, 0xf0000000f);
	regs.word = 4;
	regs.gp_valid = 0xff & ~(1 << 2);
	x86_registers_general(&regs, 0x1000, &narrow);
	assert_int_equal(find(&narrow, "ecx")->value, 1);
	assert_int_equal(find(&narrow, "esp")->value, 4);
	assert_int_equal(find(&narrow, "edi")->bytes, 4);
	/* Registers that were not read are left out, not shown as 0. */
	assert_null(find(&narrow, "edx"));
}

static void segments_say_what_they_are(void **state)
{
	char text[X86_SEGMENT_TEXT];

	x86_segment_text(0xa9b, text);
	assert_string_equal(text, "64-bit code, ring 0");
	x86_segment_text(0xcfb, text);
	assert_string_equal(text, "32-bit code, ring 3");
	x86_segment_text(0xc93, text);
	assert_string_equal(text, "data, ring 0");
	x86_segment_text(0x8b, text);
	assert_string_equal(text, "TSS, ring 0");
	x86_segment_text(0, text);
	assert_string_equal(text, "not present");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_mode_has_all_registers_by_dwarf_number),
		cmocka_unit_test(other_code_is_of_32_bits_and_in_segments),
		cmocka_unit_test(real_mode_has_short_stack_pointers),
		cmocka_unit_test(only_segments_without_a_base_have_linear_addresses),
		cmocka_unit_test(control_registers_tell_the_tables),
		cmocka_unit_test(flags_are_spelled_out),
		cmocka_unit_test(no_value_is_too_much),
		cmocka_unit_test(registers_have_their_names_by_dwarfs_numbers),
		cmocka_unit_test(segments_say_what_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
