/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/arch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* push %rbp; mov %rsp,%rbp; call to 0x1000 + 9 + 0x10; a two-byte jump back to 0x1000; no instruction. */
static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xe8, 0x10, 0, 0, 0, 0xeb, 0xf5, 0x0f, 0xff};

#define CODE(at, code, size) \
	(&(struct window){.va = (at), .len = (uint32_t)(size), .bytes = (code)})

static const struct regs wide = {.isa = ISA_X86, .word = 8}, narrow = {.isa = ISA_X86, .word = 4},
			 shortest = {.isa = ISA_X86, .word = 4, .segmented = 16};

static void code_is_shown_with_what_it_leads_to(void **state)
{
	struct disassembler *disassembler = disassembler_open();
	struct code_line lines[8];
	size_t n;

	if (!disassembler) {
		print_message("# no libcapstone here, or none at build time\n");
		skip();
	}
	n = disassemble(disassembler, &wide, CODE(0x1000, code, 11), lines, 8);
	assert_int_equal(n, 4);
	assert_string_equal(lines[0].text, "pushq %rbp");
	assert_string_equal(lines[1].text, "movq %rsp, %rbp");
	assert_int_equal(lines[1].va, 0x1001);
	assert_int_equal(lines[1].len, 3);
	assert_int_equal(lines[2].target, 0x1019);
	assert_int_equal(lines[3].target, 0x1000);
	assert_int_equal(lines[0].target, 0);
	/* In 32-bit mode, 0x48 is an instruction of its own. */
	assert_int_equal(disassemble(disassembler, &narrow, CODE(0x1000, code, 11), lines, 8), 5);
	/* In 16-bit code, a call has three bytes. */
	assert_int_equal(disassemble(disassembler, &shortest, CODE(0x1000, code + 4, 3), lines, 8),
			 1);
	assert_int_equal(disassemble(disassembler, &wide, CODE(0x1000, code, 11), lines, 2), 2);
	assert_int_equal(disassemble(disassembler, &wide, CODE(0x1000, code, 0), lines, 8), 0);
	disassembler_close(disassembler);
}

static void code_is_that_of_the_processor_that_runs_it(void **state)
{
	/* stp x29, x30, [sp, #-16]!; push {r7, lr} of T32, and of A32. */
	static const uint8_t a64[] = {0xfd, 0x7b, 0xbf, 0xa9}, t32[] = {0x80, 0xb5},
			     a32[] = {0x80, 0x40, 0x2d, 0xe9};
	const struct regs arm64 = {.isa = ISA_ARM, .word = 8}, arm32 = {.isa = ISA_ARM, .word = 4},
			  thumb = {.isa = ISA_ARM, .word = 4, .flags = 0x20},
			  none = {.isa = ISAS, .word = 8};
	struct disassembler *disassembler = disassembler_open();
	struct code_line line;

	if (!disassembler) {
		print_message("# no libcapstone here, or none at build time\n");
		skip();
	}
	assert_int_equal(disassemble(disassembler, &arm64, CODE(0x1000, a64, sizeof(a64)), &line,
				     1),
			 1);
	assert_string_equal(line.text, "stp x29, x30, [sp, #-0x10]!");
	assert_int_equal(disassemble(disassembler, &thumb, CODE(0x1000, t32, sizeof(t32)), &line,
				     1),
			 1);
	assert_string_equal(line.text, "push {r7, lr}");
	assert_int_equal(line.len, 2);
	assert_int_equal(disassemble(disassembler, &arm32, CODE(0x1000, a32, sizeof(a32)), &line,
				     1),
			 1);
	assert_string_equal(line.text, "push {r7, lr}");
	assert_int_equal(disassemble(disassembler, &none, CODE(0x1000, a64, sizeof(a64)), &line, 1),
			 0);
	disassembler_close(disassembler);
}

static void the_longest_instructions_have_room(void **state)
{
	struct disassembler *disassembler = disassembler_open();
	uint8_t prefixes[64];
	struct code_line lines[64];

	/* Nothing but prefixes, then a long instruction with as many as fit. */
	memset(prefixes, 0x66, sizeof(prefixes));
	(void)disassemble(disassembler, &wide, CODE(0, prefixes, sizeof(prefixes)), lines, 64);
	memcpy(prefixes + 5, "\x48\xc7\x84\x24\x11\x11\x11\x11\x22\x22\x22\x22", 12);
	(void)disassemble(disassembler, &wide, CODE(UINT64_MAX - 4, prefixes, sizeof(prefixes)),
			  lines, 64);
	disassembler_close(disassembler);
}

static void without_a_disassembler_there_are_no_lines(void **state)
{
	struct code_line line;

	assert_int_equal(disassemble(NULL, &wide, CODE(0, code, sizeof(code)), &line, 1), 0);
	disassembler_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_is_shown_with_what_it_leads_to),
		cmocka_unit_test(code_is_that_of_the_processor_that_runs_it),
		cmocka_unit_test(the_longest_instructions_have_room),
		cmocka_unit_test(without_a_disassembler_there_are_no_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
