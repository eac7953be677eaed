/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/guest_dump_take.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/names/table.h"

#define TEXT 0x1000u

/* push %rbp; mov %rsp,%rbp; mov $0x90909090,%eax; pop %rbp; ret; and filler. */
static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xb8, 0x90, 0x90, 0x90,
			       0x90, 0x5d, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};

static size_t read_code(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			size_t len)
{
	if (va < TEXT || va >= TEXT + sizeof(code))
		return 0;
	if (len > TEXT + sizeof(code) - va)
		len = TEXT + sizeof(code) - va;
	memcpy(buf, code + (va - TEXT), len);
	return len;
}

static const struct target_ops ops = {.scheme = "fake", .read = read_code};

static struct guest_dump_vcpu look(uint64_t pc, const char *table,
				   struct disassembler *disassembler)
{
	const struct regs regs = {.pc = pc, .word = 8};
	struct target target = {.ops = &ops};
	struct guest_dump_vcpu vcpu = {0};
	struct symbols *symbols;
	struct images *images;

	assert_null(nm_read("test", strdup(table), strlen(table), &symbols));
	assert_null(images_new(&images));
	assert_null(images_add_tables(images, "test", symbols, NULL));
	guest_dump_read_code(&target, images, &regs, disassembler, &vcpu);
	images_free(images);
	return vcpu;
}

static const struct code_line *here(const struct guest_dump_vcpu *vcpu)
{
	for (size_t i = 0; i < vcpu->n_code; i++)
		if (vcpu->code[i].here)
			return &vcpu->code[i];
	return NULL;
}

static void instructions_are_counted_from_where_the_function_begins(void **state)
{
	struct disassembler *disassembler = disassembler_open();
	struct guest_dump_vcpu vcpu;

	if (!disassembler)
		skip();
	vcpu = look(TEXT + 9, "1000 T f\n2000 T g\n", disassembler);
	assert_int_equal(vcpu.code[0].va, TEXT);
	assert_int_equal(here(&vcpu)->va, TEXT + 9);
	assert_string_equal(here(&vcpu)->text, "popq %rbp");
	assert_ptr_equal(here(&vcpu), &vcpu.code[3]);
	disassembler_close(disassembler);
}

/* In the middle of an instruction, by the symbols: then these are not believed. */
static void where_that_does_not_fit_only_what_follows_is_shown(void **state)
{
	struct disassembler *disassembler = disassembler_open();
	struct guest_dump_vcpu vcpu;

	if (!disassembler)
		skip();
	vcpu = look(TEXT + 5, "1000 T f\n2000 T g\n", disassembler);
	assert_int_equal(vcpu.code[0].va, TEXT + 5);
	assert_string_equal(vcpu.code[0].text, "nop");
	vcpu = look(TEXT + 4, "3000 T elsewhere\n", disassembler);
	assert_int_equal(vcpu.code[0].va, TEXT + 4);
	disassembler_close(disassembler);
}

static void without_a_disassembler_there_are_the_bytes(void **state)
{
	struct guest_dump_vcpu vcpu = look(TEXT, "1000 T f\n2000 T g\n", NULL);

	assert_int_equal(vcpu.n_code, 2);
	assert_int_equal(here(&vcpu)->va, TEXT);
	assert_memory_equal(here(&vcpu)->bytes, code, 8);
	assert_string_equal(here(&vcpu)->text, "");
}

static void code_that_cannot_be_read_is_none(void **state)
{
	struct disassembler *disassembler = disassembler_open();

	assert_int_equal(look(0x9000, "1000 T f\n", disassembler).n_code, 0);
	assert_int_equal(look(0, "1000 T f\n", disassembler).n_code, 0);
	assert_int_equal(look(UINT64_MAX, "1000 T f\n", disassembler).n_code, 0);
	disassembler_close(disassembler);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_are_counted_from_where_the_function_begins),
		cmocka_unit_test(where_that_does_not_fit_only_what_follows_is_shown),
		cmocka_unit_test(without_a_disassembler_there_are_the_bytes),
		cmocka_unit_test(code_that_cannot_be_read_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
