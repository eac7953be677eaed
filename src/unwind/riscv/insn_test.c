/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ZERO, RA, SP, T0 = 5, S0 = 8, S1, A0, A1, A4 = 14, A5 };

/* Instructions as assembled (riscv64-linux-gnu-as -march=rv64gc), and as decoded. */
static const struct encoded {
	const char *text;
	uint32_t insn;
	struct link_op is;
} all[] = {
	{"addi sp, sp, -2048",
	 0x80010113,
	 {.op = LINK_ADDI, .size = 4, .rd = SP, .rs1 = SP, .imm = -2048}},
	{"addi s0, sp, 2000",
	 0x7d010413,
	 {.op = LINK_ADDI, .size = 4, .rd = S0, .rs1 = SP, .imm = 2000}},
	{"addiw a0, a1, -3",
	 0xffd5851b,
	 {.op = LINK_ADDIW, .size = 4, .rd = A0, .rs1 = A1, .imm = -3}},
	{"add sp, sp, t0", 0x00510133, {.op = LINK_ADD, .size = 4, .rd = SP, .rs1 = SP, .rs2 = T0}},
	{"sub sp, sp, a0", 0x40a10133, {.op = LINK_SUB, .size = 4, .rd = SP, .rs1 = SP, .rs2 = A0}},
	{"andi sp, sp, -128", 0xf8017113, {.op = LINK_OTHER, .size = 4, .rd = SP, .imm = -128}},
	{"slli t0, t0, 12",
	 0x00c29293,
	 {.op = LINK_SLLI, .size = 4, .rd = T0, .rs1 = T0, .imm = 12}},
	{"lui t0, 0xffffb", 0xffffb2b7, {.op = LINK_CONST, .size = 4, .rd = T0, .imm = -20480}},
	{"auipc ra, 0x12345",
	 0x12345097,
	 {.op = LINK_AUIPC, .size = 4, .rd = RA, .imm = 305418240}},
	{"ld ra, 2040(sp)",
	 0x7f813083,
	 {.op = LINK_LOAD, .size = 4, .rd = RA, .rs1 = SP, .imm = 2040}},
	{"lw a0, -4(s0)", 0xffc42503, {.op = LINK_OTHER, .size = 4, .rd = A0, .imm = -4}},
	{"sd s0, -16(sp)",
	 0xfe813823,
	 {.op = LINK_STORE, .size = 4, .rs1 = SP, .rs2 = S0, .imm = -16}},
	{"sw a0, -4(s0)", 0xfea42e23, {.op = LINK_OTHER, .size = 4, .imm = -4}},
	{"fsd fa0, -8(s0)", 0xfea43c27, {.op = LINK_OTHER, .size = 4}},
	{"fld fs2, -8(s0)", 0xff843907, {.op = LINK_OTHER, .size = 4}},
	{"fadd.d fs2, fa0, fa1", 0x02b57953, {.op = LINK_OTHER, .size = 4}},
	{"feq.d a0, fa0, fa1", 0xa2b52553, {.op = LINK_OTHER, .size = 4, .rd = A0}},
	{"fmv.x.d a1, fa0", 0xe20505d3, {.op = LINK_OTHER, .size = 4, .rd = A1}},
	{"fmv.d.x ft2, a0", 0xf2050153, {.op = LINK_OTHER, .size = 4}},
	{"fcvt.d.w ft2, a0", 0xd2050153, {.op = LINK_OTHER, .size = 4}},
	{"fcvt.w.d a0, fa2", 0xc2067553, {.op = LINK_OTHER, .size = 4, .rd = A0}},
	{"fmadd.d ft2, fa0, fa1, fa2", 0x62b57143, {.op = LINK_OTHER, .size = 4}},
	{"amoadd.w a0, a1, (a4)", 0x00b7252f, {.op = LINK_OTHER, .size = 4, .rd = A0}},
	{"jal ra, .+0x1f000", 0x0001f0ef, {.op = LINK_JUMP, .size = 4, .rd = RA, .imm = 126976}},
	{"jal zero, .-0x1f000", 0x800e106f, {.op = LINK_JUMP, .size = 4, .imm = -126976}},
	{"jalr ra, -12(ra)",
	 0xff4080e7,
	 {.op = LINK_JALR, .size = 4, .rd = RA, .rs1 = RA, .imm = -12}},
	{"jalr zero, 8(a5)", 0x00878067, {.op = LINK_JALR, .size = 4, .rs1 = A5, .imm = 8}},
	{"beq a0, a1, .-0x800",
	 0x80b500e3,
	 {.op = LINK_BRANCH, .size = 4, .rs1 = A0, .imm = -2048}},
	{"bltu a0, a1, .+0x7fe",
	 0x7eb56f63,
	 {.op = LINK_BRANCH, .size = 4, .rs1 = A0, .imm = 2046}},
	{"csrr t0, sepc", 0x141022f3, {.op = LINK_READ, .size = 4, .rd = T0, .imm = 321}},
	{"csrw sepc, t0", 0x14129073, {.op = LINK_WRITE, .size = 4, .rs1 = T0, .imm = 321}},
	{"csrrw sp, sscratch, sp",
	 0x14011173,
	 {.op = LINK_WRITE, .size = 4, .rd = SP, .rs1 = SP, .imm = 320}},
	{"csrci sstatus, 2", 0x10017073, {.op = LINK_OTHER, .size = 4, .imm = 256}},
	{"sret", 0x10200073, {.op = LINK_XRET, .size = 4}},
	{"mret", 0x30200073, {.op = LINK_XRET, .size = 4}},
	{"ecall", 0x00000073, {.op = LINK_OTHER, .size = 4}},
	{"fence", 0x0ff0000f, {.op = LINK_OTHER, .size = 4}},
	{"c.addi sp, -32", 0x1101, {.op = LINK_ADDI, .size = 2, .rd = SP, .rs1 = SP, .imm = -32}},
	{"c.addi16sp sp, -496",
	 0x7141,
	 {.op = LINK_ADDI, .size = 2, .rd = SP, .rs1 = SP, .imm = -496}},
	{"c.addi16sp sp, 304",
	 0x6155,
	 {.op = LINK_ADDI, .size = 2, .rd = SP, .rs1 = SP, .imm = 304}},
	{"c.addi4spn s0, sp, 1012",
	 0x1fc0,
	 {.op = LINK_ADDI, .size = 2, .rd = S0, .rs1 = SP, .imm = 1012}},
	{"c.addi4spn a0, sp, 616",
	 0x14a8,
	 {.op = LINK_ADDI, .size = 2, .rd = A0, .rs1 = SP, .imm = 616}},
	{"c.addiw a0, -1", 0x357d, {.op = LINK_ADDIW, .size = 2, .rd = A0, .rs1 = A0, .imm = -1}},
	{"c.li t0, -7", 0x52e5, {.op = LINK_ADDI, .size = 2, .rd = T0, .imm = -7}},
	{"c.lui t0, 0xffffb", 0x72ed, {.op = LINK_CONST, .size = 2, .rd = T0, .imm = -20480}},
	{"c.mv sp, a1", 0x812e, {.op = LINK_ADDI, .size = 2, .rd = SP, .rs1 = A1}},
	{"c.add sp, t0", 0x9116, {.op = LINK_ADD, .size = 2, .rd = SP, .rs1 = SP, .rs2 = T0}},
	{"c.sub s0, a0", 0x8c09, {.op = LINK_SUB, .size = 2, .rd = S0, .rs1 = S0, .rs2 = A0}},
	{"c.and s0, a0", 0x8c69, {.op = LINK_OTHER, .size = 2, .rd = S0}},
	{"c.slli t0, 33", 0x1286, {.op = LINK_SLLI, .size = 2, .rd = T0, .rs1 = T0, .imm = 33}},
	{"c.srli a0, 3", 0x810d, {.op = LINK_OTHER, .size = 2, .rd = A0}},
	{"c.ld s0, 168(a0)", 0x7540, {.op = LINK_LOAD, .size = 2, .rd = S0, .rs1 = A0, .imm = 168}},
	{"c.sd s1, 80(s0)", 0xe824, {.op = LINK_STORE, .size = 2, .rs1 = S0, .rs2 = S1, .imm = 80}},
	{"c.lw s0, 68(a0)", 0x4160, {.op = LINK_OTHER, .size = 2, .rd = S0}},
	{"c.sw s1, 4(s0)", 0xc044, {.op = LINK_OTHER, .size = 2}},
	{"c.fld fs0, 8(a0)", 0x2500, {.op = LINK_OTHER, .size = 2}},
	{"c.ldsp ra, 424(sp)",
	 0x70ba,
	 {.op = LINK_LOAD, .size = 2, .rd = RA, .rs1 = SP, .imm = 424}},
	{"c.sdsp ra, 344(sp)",
	 0xee86,
	 {.op = LINK_STORE, .size = 2, .rs1 = SP, .rs2 = RA, .imm = 344}},
	{"c.lwsp t0, 12(sp)", 0x42b2, {.op = LINK_OTHER, .size = 2, .rd = T0}},
	{"c.swsp t0, 12(sp)", 0xc616, {.op = LINK_OTHER, .size = 2}},
	{"c.j .-1366", 0xb46d, {.op = LINK_JUMP, .size = 2, .imm = -1366}},
	{"c.j .+1364", 0xab91, {.op = LINK_JUMP, .size = 2, .imm = 1364}},
	{"c.beqz a0, .-150", 0xd52d, {.op = LINK_BRANCH, .size = 2, .rs1 = A0, .imm = -150}},
	{"c.bnez a1, .+148", 0xe9d1, {.op = LINK_BRANCH, .size = 2, .rs1 = A1, .imm = 148}},
	{"c.jr ra", 0x8082, {.op = LINK_JALR, .size = 2, .rs1 = RA}},
	{"c.jalr a5", 0x9782, {.op = LINK_JALR, .size = 2, .rd = RA, .rs1 = A5}},
	{"c.ebreak", 0x9002, {.op = LINK_STOP, .size = 2}},
	{"c.nop", 0x0001, {.op = LINK_ADDI, .size = 2}},
	{"unimp", 0xc0001073, {.op = LINK_STOP, .size = 4}},
};

static unsigned decode(const uint8_t *bytes, size_t n, struct link_op *op)
{
	return unwind_riscv64.link_code->decode(bytes, n, op);
}

static void every_form_is_decoded(void **state)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		const struct encoded *from = &all[i];
		struct link_op insn;

		print_message("# %s\n", from->text);
		assert_true(decode((const uint8_t *)&from->insn, from->is.size, &insn));
		assert_int_equal(insn.op, from->is.op);
		assert_int_equal(insn.size, from->is.size);
		assert_int_equal(insn.rd, from->is.rd);
		assert_int_equal(insn.imm, from->is.imm);
		if (insn.op != LINK_OTHER)
			assert_int_equal(insn.rs1, from->is.rs1);
		if (insn.op == LINK_STORE || insn.op == LINK_ADD || insn.op == LINK_SUB)
			assert_int_equal(insn.rs2, from->is.rs2);
	}
}

static void what_is_cut_off_or_longer_than_any_is_none(void **state)
{
	static const uint8_t wide[] = {0xef, 0x00, 0x00, 0x00}, longer[] = {0x1f, 0, 0, 0};
	struct link_op insn;

	assert_true(decode(wide, 4, &insn));
	for (size_t n = 0; n < 4; n++)
		assert_false(decode(wide, n, &insn));
	assert_false(decode(longer, sizeof(longer), &insn));
}

static void any_bytes_do_no_harm(void **state)
{
	struct link_op insn;

	for (uint32_t i = 0; i < 1u << 16; i++) {
		const uint32_t bytes = i | i << 16;

		if (!decode((const uint8_t *)&bytes, 4, &insn))
			continue;
		assert_true(insn.size == ((i & 3) == 3 ? 4 : 2));
		assert_true(insn.rd < 32 && insn.rs1 < 32 && insn.rs2 < 32);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form_is_decoded),
		cmocka_unit_test(what_is_cut_off_or_longer_than_any_is_none),
		cmocka_unit_test(any_bytes_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
