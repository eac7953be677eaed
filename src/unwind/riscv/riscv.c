/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/riscv/riscv.h"
#include "unwind/isa.h"
#include "unwind/link.h"

/* Registers; those of three bits are x8 to x15. */
enum { RD = LINK_FIELD, RS1, RS2, LOW, RD_3, LOW_3 };
/* Immediate numbers, by the instructions that have them; compressed ones. */
enum { OF_LOAD = LOW_3 + 1, OF_STORE, OF_BRANCH, OF_LUI, OF_JAL, OF_SLLI, OF_CSR };
enum { OF_C_ADDI = OF_CSR + 1, OF_C_LUI, OF_C_SLLI, OF_C_ADDI16SP, OF_C_ADDI4SPN };
enum { OF_C_LD = OF_C_ADDI4SPN + 1, OF_C_LDSP, OF_C_SDSP, OF_C_J, OF_C_BRANCH };

static const struct link_number numbers[] = {
	[RD - LINK_FIELD] = {.piece = {{7, 5, 0}}},
	[RS1 - LINK_FIELD] = {.piece = {{15, 5, 0}}},
	[RS2 - LINK_FIELD] = {.piece = {{20, 5, 0}}},
	[LOW - LINK_FIELD] = {.piece = {{2, 5, 0}}},
	[RD_3 - LINK_FIELD] = {.plus = 8, .piece = {{7, 3, 0}}},
	[LOW_3 - LINK_FIELD] = {.plus = 8, .piece = {{2, 3, 0}}},
	[OF_LOAD - LINK_FIELD] = {.sign = 12, .piece = {{20, 12, 0}}},
	[OF_STORE - LINK_FIELD] = {.sign = 12, .piece = {{25, 7, 5}, {7, 5, 0}}},
	[OF_BRANCH - LINK_FIELD] = {.sign = 13,
				    .piece = {{31, 1, 12}, {7, 1, 11}, {25, 6, 5}, {8, 4, 1}}},
	[OF_LUI - LINK_FIELD] = {.sign = 32, .piece = {{12, 20, 12}}},
	[OF_JAL - LINK_FIELD] = {.sign = 21,
				 .piece = {{31, 1, 20}, {12, 8, 12}, {20, 1, 11}, {21, 10, 1}}},
	[OF_SLLI - LINK_FIELD] = {.piece = {{20, 6, 0}}},
	[OF_CSR - LINK_FIELD] = {.piece = {{20, 12, 0}}},
	[OF_C_ADDI - LINK_FIELD] = {.sign = 6, .piece = {{12, 1, 5}, {2, 5, 0}}},
	[OF_C_LUI - LINK_FIELD] = {.sign = 18, .piece = {{12, 1, 17}, {2, 5, 12}}},
	[OF_C_SLLI - LINK_FIELD] = {.piece = {{12, 1, 5}, {2, 5, 0}}},
	[OF_C_ADDI16SP -
		LINK_FIELD] = {.sign = 10,
			       .piece = {{12, 1, 9}, {6, 1, 4}, {5, 1, 6}, {3, 2, 7}, {2, 1, 5}}},
	[OF_C_ADDI4SPN - LINK_FIELD] = {.piece = {{11, 2, 4}, {7, 4, 6}, {6, 1, 2}, {5, 1, 3}}},
	[OF_C_LD - LINK_FIELD] = {.piece = {{10, 3, 3}, {5, 2, 6}}},
	[OF_C_LDSP - LINK_FIELD] = {.piece = {{12, 1, 5}, {5, 2, 3}, {2, 3, 6}}},
	[OF_C_SDSP - LINK_FIELD] = {.piece = {{10, 3, 3}, {7, 3, 6}}},
	[OF_C_J - LINK_FIELD] = {.sign = 12,
				 .piece = {{12, 1, 11},
					   {11, 1, 4},
					   {9, 2, 8},
					   {8, 1, 10},
					   {7, 1, 6},
					   {6, 1, 7},
					   {3, 3, 1},
					   {2, 1, 5}}},
	[OF_C_BRANCH -
		LINK_FIELD] = {.sign = 9,
			       .piece = {{12, 1, 8}, {10, 2, 3}, {5, 2, 6}, {3, 2, 1}, {2, 1, 5}}},
};

/* The first that fits is it. */
static const struct link_shape wide[] = {
	{0x0000707f, 0x00003003, LINK_LOAD, OF_LOAD, RD, RS1, RS2},
	{0x0000707f, 0x00003023, LINK_STORE, OF_STORE, 0, RS1, RS2},
	{0x0000707f, 0x00000013, LINK_ADDI, OF_LOAD, RD, RS1, RS2},
	{0x0000007f, 0x00000063, LINK_BRANCH, OF_BRANCH, 0, RS1, RS2},
	{0x0000007f, 0x0000006f, LINK_JUMP, OF_JAL, RD, 0, 0},
	{0x0000007f, 0x00000067, LINK_JALR, OF_LOAD, RD, RS1, RS2},
	{0x0000007f, 0x00000017, LINK_AUIPC, OF_LUI, RD, 0, 0},
	{0x0000007f, 0x00000037, LINK_CONST, OF_LUI, RD, 0, 0},
	{0xfe00707f, 0x00000033, LINK_ADD, 0, RD, RS1, RS2},
	{0xfe00707f, 0x40000033, LINK_SUB, 0, RD, RS1, RS2},
	{0x0000707f, 0x0000001b, LINK_ADDIW, OF_LOAD, RD, RS1, RS2},
	{0xfc00707f, 0x00001013, LINK_SLLI, OF_SLLI, RD, RS1, RS2},
	/* Other loads, stores and sums; atomic ones. */
	{0x0000007f, 0x00000003, LINK_OTHER, OF_LOAD, RD, RS1, RS2},
	{0x0000007f, 0x00000023, LINK_OTHER, OF_STORE, 0, RS1, RS2},
	{0x00000077, 0x00000013, LINK_OTHER, OF_LOAD, RD, RS1, RS2},
	{0x00000077, 0x00000033, LINK_OTHER, 0, RD, RS1, RS2},
	{0x0000007f, 0x0000002f, LINK_OTHER, 0, RD, RS1, RS2},
	/* ebreak, unimp (a write to a register that can only be read), sret, mret, ecall and their like */
	{0xffffffff, 0x00100073, LINK_STOP, 0, 0, RS1, RS2},
	{0xffffffff, 0xc0001073, LINK_STOP, 0, 0, RS1, RS2},
	{0xdfffffff, 0x10200073, LINK_XRET, 0, 0, RS1, RS2},
	{0x0000707f, 0x00000073, LINK_OTHER, 0, 0, RS1, RS2},
	/* csrrw; csrrs and csrrc that only read; the others may have a number in place of rs1 */
	{0x0000707f, 0x00001073, LINK_WRITE, OF_CSR, RD, RS1, RS2},
	{0x000ff07f, 0x00002073, LINK_READ, OF_CSR, RD, RS1, RS2},
	{0x000ff07f, 0x00003073, LINK_READ, OF_CSR, RD, RS1, RS2},
	{0x0000007f, 0x00000073, LINK_OTHER, OF_CSR, RD, RS1, RS2},
	/* Instructions of floating point with a general register for their result: comparisons, conversions, moves. */
	{0xf800007f, 0xa0000053, LINK_OTHER, 0, RD, RS1, RS2},
	{0xd800007f, 0xc0000053, LINK_OTHER, 0, RD, RS1, RS2},
	/* vsetvl and its like; moves of a vector's first element, of counts and of first bits. */
	{0x0000707f, 0x00007057, LINK_OTHER, 0, RD, RS1, RS2},
	{0xfc00707f, 0x40002057, LINK_OTHER, 0, RD, RS1, RS2},
	/* The others of both, their loads and stores, fused multiplications, and fences. */
	{0x0000007b, 0x00000053, LINK_OTHER, 0, 0, RS1, RS2},
	{0x0000005f, 0x00000007, LINK_OTHER, 0, 0, RS1, RS2},
	{0x00000073, 0x00000043, LINK_OTHER, 0, 0, RS1, RS2},
	{0x0000007f, 0x0000000f, LINK_OTHER, 0, 0, RS1, RS2},
	{0x00000000, 0x00000000, LINK_STOP, 0, 0, RS1, RS2},
};

static const struct link_shape narrow[] = {
	{0xffe3, 0x0000, LINK_STOP, 0, LOW_3, RISCV_SP, 0}, /* no instruction */
	{0xe003, 0x0000, LINK_ADDI, OF_C_ADDI4SPN, LOW_3, RISCV_SP, 0},
	{0xe003, 0x4000, LINK_OTHER, 0, LOW_3, 0, 0}, /* c.lw */
	{0xe003, 0x6000, LINK_LOAD, OF_C_LD, LOW_3, RD_3, 0},
	{0xe803, 0x8000, LINK_OTHER, 0, LOW_3, 0, 0}, /* Zcb: c.lbu and its like */
	{0xe003, 0xe000, LINK_STORE, OF_C_LD, 0, RD_3, LOW_3},
	{0xe003, 0x0001, LINK_ADDI, OF_C_ADDI, RD, RD, 0},
	{0xe003, 0x2001, LINK_ADDIW, OF_C_ADDI, RD, RD, 0},
	{0xe003, 0x4001, LINK_ADDI, OF_C_ADDI, RD, RISCV_ZERO, 0}, /* c.li */
	{0xef83, 0x6101, LINK_ADDI, OF_C_ADDI16SP, RISCV_SP, RISCV_SP, 0},
	{0xe003, 0x6001, LINK_CONST, OF_C_LUI, RD, 0, 0},
	{0xfc63, 0x8c01, LINK_SUB, 0, RD_3, RD_3, LOW_3},
	{0xe003, 0x8001, LINK_OTHER, 0, RD_3, RD_3, 0}, /* cannot compute a stack pointer */
	{0xe003, 0xa001, LINK_JUMP, OF_C_J, RISCV_ZERO, 0, 0},
	{0xc003, 0xc001, LINK_BRANCH, OF_C_BRANCH, 0, RD_3, 0},
	{0xe003, 0x0002, LINK_SLLI, OF_C_SLLI, RD, RD, 0},
	{0xe003, 0x4002, LINK_OTHER, 0, RD, 0, 0}, /* c.lwsp */
	{0xe003, 0x6002, LINK_LOAD, OF_C_LDSP, RD, RISCV_SP, 0},
	{0xefff, 0x8002, LINK_STOP, 0, 0, 0, 0}, /* c.ebreak */
	{0xf07f, 0x8002, LINK_JALR, 0, RISCV_ZERO, RD, 0},
	{0xf07f, 0x9002, LINK_JALR, 0, RISCV_RA, RD, 0},
	{0xf003, 0x8002, LINK_ADDI, 0, RD, LOW, 0}, /* c.mv */
	{0xf003, 0x9002, LINK_ADD, 0, RD, RD, LOW},
	{0xe003, 0xe002, LINK_STORE, OF_C_SDSP, 0, RISCV_SP, LOW},
	/* Stores that are narrower, or of floating point; and its loads. */
	{0x0000, 0x0000, LINK_OTHER, 0, 0, 0, 0},
};

/*
 * RV64GC instructions, compressed ones expanded (RISC-V Instruction Set Manual,
 * volume I): those that move the stack pointer, keep registers, or jump. Each is one operation.
 */
static unsigned decode(const uint8_t *bytes, size_t n, struct link_op *out)
{
	const struct link_shape *shapes = narrow;
	uint32_t insn;

	if (n < 2)
		return 0;
	insn = bytes[0] | (uint32_t)bytes[1] << 8;
	if ((insn & 3) == 3) {
		/* Bits 4:2 all set: longer than 32 bits. */
		if (n < 4 || (insn >> 2 & 7) == 7)
			return 0;
		insn |= (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
		shapes = wide;
	}
	link_decode(shapes, numbers, insn, out);
	out->size = shapes == wide ? 4 : 2;
	return 1;
}

/* A call and, if it goes far, the auipc before it. */
#define CALL_MAX 8

/* The other register that return addresses are put in; that of a function's argument and result. */
enum { T0 = 5, A0 = 10 };

/* mv a0, sp: in 2 bytes, by add, and by addi; behind it a call of 4 or 8 bytes. */
static bool gives_frame(struct code_reader *reader, uint64_t ret)
{
	for (unsigned call = 4; call <= CALL_MAX; call += 4) {
		uint32_t insn;
		size_t n;
		const uint8_t *bytes = code_at(reader, ret - call - 4, &n);

		if (n < 4)
			continue;
		memcpy(&insn, bytes, sizeof(insn));
		if (insn >> 16 == 0x850a || insn == 0x00010533 || insn == 0x00010513)
			return true;
	}
	return false;
}

/* Control registers (RISC-V Instruction Set Manual, volume II, "CSR Listing"). */
enum { CSR_SSTATUS = 0x100, CSR_SSCRATCH = 0x140, CSR_SEPC };
enum { CSR_MSTATUS = 0x300, CSR_MSCRATCH = 0x340, CSR_MEPC };

static struct handler_value *control(struct handler_run *run, int64_t number)
{
	if (number == CSR_SEPC || number == CSR_MEPC)
		return &run->pc;
	if (number == CSR_SSCRATCH || number == CSR_MSCRATCH)
		return &run->other_sp;
	return number == CSR_SSTATUS || number == CSR_MSTATUS ? &run->status : NULL;
}

/*
 * A handler that gives its frame to the function that it calls may get it back
 * in the same register, and restores from there (OpenSBI's _trap_handler).
 */
static const struct link_code link_code = {
	.decode = decode,
	.unit = 2,
	.zero = RISCV_ZERO,
	.other_ra = T0,
	/* RISC-V ELF psABI, "Integer Register Convention" */
	.call_changes = 0xf003fce2,
	.kept = 0x0ffc0300,
	.control = control,
	.frame = A0,
	.gives_frame = gives_frame,
};

/* Was whoever the trap interrupted less privileged than the handler? */
static bool from_below(const struct walk *walk, uint64_t status)
{
	if (walk->in->regs->flags & RISCV_IN_MACHINE)
		return (status & RISCV_MSTATUS_MPP) != RISCV_MSTATUS_MPP;
	return !(status & RISCV_SSTATUS_SPP);
}

static enum found interrupted(struct walk *walk, const struct row *trap, uint8_t *trust)
{
	const struct regs *regs = walk->in->regs;
	struct handler_run run;

	if (!handler_run(&run, walk))
		return handler_end(walk, UNWIND_BROKEN);
	/* Ahead of its saves, the handler's stack may not be known yet, but who was interrupted is. */
	if (!run.status.known && walk->at.first && regs->has_elr)
		run.status = (struct handler_value){regs->spsr, true};
	/* A program, or what firmware serves: the handler's stack is whole. */
	if (run.status.known && from_below(walk, run.status.is))
		return handler_end(walk, UNWIND_OUTERMOST);
	return handler_leave(&run, run.x[RISCV_SP], trust);
}

/* Frame records lie below where s0 points. */
const struct unwind_isa unwind_riscv64 = {
	LINK_ISA,
	.isa = ISA_RISCV,
	.word = 8,
	.sp = RISCV_SP,
	.fp = RISCV_S0,
	.ra = RISCV_RA,
	.ends_untold = true,
	.call_max = CALL_MAX,
	.record = {.fp_at = -16, .ra_at = -8},
};
