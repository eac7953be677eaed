/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86_registers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

	register_bits_text(&x86_rflags, 0x246, text);
	assert_string_equal(text, "IF ZF PF");
	register_bits_text(&x86_rflags, 0x3002, text);
	assert_string_equal(text, "IOPL=3");
	register_bits_text(&x86_rflags, 0x2, text);
	assert_string_equal(text, "");
	register_bits_text(&x86_cr0, 0x80050033, text);
	assert_string_equal(text, "PG AM WP NE ET MP PE");
	register_bits_text(&x86_efer, 0xd01, text);
	assert_string_equal(text, "NXE LMA LME SCE");
}

static void no_value_is_too_much(void **state)
{
	const struct register_bits *const all[] = {&x86_rflags, &x86_cr0, &x86_cr4, &x86_efer};
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
	/* What was not read is not shown as 0. */
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
		cmocka_unit_test(flags_are_spelled_out),
		cmocka_unit_test(no_value_is_too_much),
		cmocka_unit_test(registers_have_their_names_by_dwarfs_numbers),
		cmocka_unit_test(segments_say_what_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
