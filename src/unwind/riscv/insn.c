/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/riscv/insn.h"

#include "unwind/bits.h"

static int64_t imm_i(uint32_t insn)
{
	return sign_extend(insn >> 20, 12);
}

static int64_t imm_s(uint32_t insn)
{
	return sign_extend(field(insn, 25, 7) << 5 | field(insn, 7, 5), 12);
}

static int64_t imm_b(uint32_t insn)
{
	return sign_extend(field(insn, 31, 1) << 12 | field(insn, 7, 1) << 11 |
				   field(insn, 25, 6) << 5 | field(insn, 8, 4) << 1,
			   13);
}

static int64_t imm_u(uint32_t insn)
{
	return sign_extend(insn & 0xfffff000, 32);
}

static int64_t imm_j(uint32_t insn)
{
	return sign_extend(field(insn, 31, 1) << 20 | field(insn, 12, 8) << 12 |
				   field(insn, 20, 1) << 11 | field(insn, 21, 10) << 1,
			   21);
}

/* Opcodes: bits 6:0. */
enum opcode {
	LOAD = 0x03,
	LOAD_FP = 0x07,
	FENCE = 0x0f,
	OP_IMM = 0x13,
	AUIPC = 0x17,
	OP_IMM_32 = 0x1b,
	STORE = 0x23,
	STORE_FP = 0x27,
	AMO = 0x2f,
	OP = 0x33,
	LUI = 0x37,
	OP_32 = 0x3b,
	OP_FP = 0x53,
	OP_VECTOR = 0x57,
	BRANCH = 0x63,
	JALR = 0x67,
	JAL = 0x6f,
	SYSTEM = 0x73
};

#define DOUBLEWORD 3 /* funct3 of ld and sd */

#define EBREAK 0x00100073u
#define SRET   0x10200073u
#define MRET   0x30200073u
#define UNIMP  0xc0001073u /* a write to a register that can only be read */

/* csrrw, csrrs and csrrc, of a register; the others have a number in place of rs1. */
static void decode_system(uint32_t insn, struct riscv_insn *out)
{
	const unsigned funct3 = field(insn, 12, 3), csrrw = 1, csrrc = 3;

	if (insn == EBREAK || insn == UNIMP) {
		out->op = RISCV_STOP;
		return;
	}
	if (!funct3) {
		out->rd = 0;
		if (insn == SRET || insn == MRET)
			out->op = RISCV_XRET;
		return;
	}
	out->imm = insn >> 20;
	if (funct3 == csrrw)
		out->op = RISCV_CSRW;
	else if (funct3 <= csrrc && !out->rs1)
		out->op = RISCV_CSRR;
}

/* Those with a general register for their result: comparisons, conversions, moves, classes. */
static bool fp_writes_general(uint32_t insn)
{
	const unsigned funct5 = insn >> 27;

	return funct5 == 0x14 || funct5 == 0x18 || funct5 == 0x1c;
}

/* vsetvl and its like; moves of a first element, of counts and of first bits. */
static bool vector_writes_general(uint32_t insn)
{
	const unsigned funct3 = field(insn, 12, 3), configure = 7, of_integers = 2, moves = 0x10;

	return funct3 == configure || (funct3 == of_integers && insn >> 26 == moves);
}

static void decode_op(uint32_t insn, struct riscv_insn *out)
{
	if (!field(insn, 12, 3) && !(insn >> 25))
		out->op = RISCV_ADD;
	else if (!field(insn, 12, 3) && insn >> 25 == 0x20)
		out->op = RISCV_SUB;
}

static void decode_op_imm(uint32_t insn, struct riscv_insn *out)
{
	const unsigned addi = 0, slli = 1;

	out->imm = imm_i(insn);
	if (field(insn, 12, 3) == addi) {
		out->op = RISCV_ADDI;
	} else if (field(insn, 12, 3) == slli && !(insn >> 26)) {
		out->op = RISCV_SLLI;
		out->imm = field(insn, 20, 6);
	}
}

/* Those without a result in a general register. */
static void decode_without_rd(uint32_t insn, struct riscv_insn *out)
{
	out->rd = 0;
	switch (insn & 0x7f) {
	case STORE:
		out->imm = imm_s(insn);
		if (field(insn, 12, 3) == DOUBLEWORD)
			out->op = RISCV_SD;
		break;
	case BRANCH:
		out->op = RISCV_BRANCH;
		out->imm = imm_b(insn);
		break;
	case LOAD_FP:
	case STORE_FP:
	case FENCE:
	case OP_FP:
	case OP_VECTOR:
		break;
	default:
		/* The fused multiplications have bits 6:4 alike. */
		if ((insn & 0x73) != 0x43)
			out->op = RISCV_STOP;
	}
}

static void decode_32(uint32_t insn, struct riscv_insn *out)
{
	*out = (struct riscv_insn){.op = RISCV_OTHER,
				   .size = 4,
				   .rd = (uint8_t)field(insn, 7, 5),
				   .rs1 = (uint8_t)field(insn, 15, 5),
				   .rs2 = (uint8_t)field(insn, 20, 5)};
	switch (insn & 0x7f) {
	case LOAD:
		out->imm = imm_i(insn);
		if (field(insn, 12, 3) == DOUBLEWORD)
			out->op = RISCV_LD;
		return;
	case OP_IMM:
		decode_op_imm(insn, out);
		return;
	case OP_IMM_32:
		out->imm = imm_i(insn);
		if (!field(insn, 12, 3))
			out->op = RISCV_ADDIW;
		return;
	case OP:
		decode_op(insn, out);
		return;
	case AUIPC:
	case LUI:
		out->op = (insn & 0x7f) == LUI ? RISCV_LUI : RISCV_AUIPC;
		out->rs1 = out->rs2 = 0;
		out->imm = imm_u(insn);
		return;
	case JALR:
		out->op = RISCV_JALR;
		out->imm = imm_i(insn);
		return;
	case JAL:
		out->op = RISCV_JAL;
		out->rs1 = out->rs2 = 0;
		out->imm = imm_j(insn);
		return;
	case SYSTEM:
		decode_system(insn, out);
		return;
	case AMO:
	case OP_32:
		return;
	}
	if (((insn & 0x7f) == OP_FP && fp_writes_general(insn)) ||
	    ((insn & 0x7f) == OP_VECTOR && vector_writes_general(insn)))
		return;
	decode_without_rd(insn, out);
}

/* The three bits that name one of x8 to x15. */
static uint8_t popular(uint16_t insn, unsigned low)
{
	return (uint8_t)(8 + field(insn, low, 3));
}

static int64_t imm_6(uint16_t insn)
{
	return sign_extend(field(insn, 12, 1) << 5 | field(insn, 2, 5), 6);
}

static struct riscv_insn expanded(enum riscv_op op, unsigned rd, unsigned rs1, int64_t imm)
{
	return (struct riscv_insn){
		.op = (uint8_t)op, .size = 2, .rd = (uint8_t)rd, .rs1 = (uint8_t)rs1, .imm = imm};
}

static struct riscv_insn store(unsigned rs2, unsigned rs1, int64_t imm)
{
	struct riscv_insn insn = expanded(RISCV_SD, 0, rs1, imm);

	insn.rs2 = (uint8_t)rs2;
	return insn;
}

static struct riscv_insn quadrant_0(uint16_t insn)
{
	const unsigned rs1 = popular(insn, 7), other = popular(insn, 2);
	const int64_t of_8 = field(insn, 10, 3) << 3 | field(insn, 5, 2) << 6;
	const unsigned addi4spn = field(insn, 11, 2) << 4 | field(insn, 7, 4) << 6 |
				  field(insn, 6, 1) << 2 | field(insn, 5, 1) << 3;

	switch (insn >> 13) {
	case 0:
		return expanded(addi4spn ? RISCV_ADDI : RISCV_STOP, other, RISCV_SP, addi4spn);
	case 2:
		return expanded(RISCV_OTHER, other, 0, 0); /* c.lw */
	case 3:
		return expanded(RISCV_LD, other, rs1, of_8);
	case 4:
		/* Zcb: c.lbu and its like; c.sb, c.sh. */
		return expanded(RISCV_OTHER, field(insn, 11, 1) ? 0 : other, 0, 0);
	case 7:
		return store(other, rs1, of_8);
	default:
		return expanded(RISCV_OTHER, 0, 0, 0); /* c.fld, c.fsd, c.sw */
	}
}

static int64_t jump_of(uint16_t insn)
{
	return sign_extend(field(insn, 12, 1) << 11 | field(insn, 11, 1) << 4 |
				   field(insn, 9, 2) << 8 | field(insn, 8, 1) << 10 |
				   field(insn, 7, 1) << 6 | field(insn, 6, 1) << 7 |
				   field(insn, 3, 3) << 1 | field(insn, 2, 1) << 5,
			   12);
}

static int64_t branch_of(uint16_t insn)
{
	return sign_extend(field(insn, 12, 1) << 8 | field(insn, 10, 2) << 3 |
				   field(insn, 5, 2) << 6 | field(insn, 3, 2) << 1 |
				   field(insn, 2, 1) << 5,
			   9);
}

static struct riscv_insn lui_or_addi16sp(uint16_t insn, unsigned rd)
{
	const int64_t addi16sp =
		sign_extend(field(insn, 12, 1) << 9 | field(insn, 6, 1) << 4 |
				    field(insn, 5, 1) << 6 | field(insn, 3, 2) << 7 |
				    field(insn, 2, 1) << 5,
			    10);

	if (rd == RISCV_SP)
		return expanded(RISCV_ADDI, rd, rd, addi16sp);
	return expanded(RISCV_LUI, rd, 0, imm_6(insn) * 4096);
}

static struct riscv_insn arithmetic(uint16_t insn)
{
	const unsigned rd = popular(insn, 7);
	struct riscv_insn out = expanded(RISCV_OTHER, rd, rd, 0);

	/* c.sub; the others cannot compute a stack pointer. */
	if (field(insn, 10, 3) == 3 && !field(insn, 5, 2)) {
		out.op = RISCV_SUB;
		out.rs2 = popular(insn, 2);
	}
	return out;
}

static struct riscv_insn quadrant_1(uint16_t insn)
{
	const unsigned rd = field(insn, 7, 5);

	switch (insn >> 13) {
	case 0:
		return expanded(RISCV_ADDI, rd, rd, imm_6(insn));
	case 1:
		return expanded(RISCV_ADDIW, rd, rd, imm_6(insn));
	case 2:
		return expanded(RISCV_ADDI, rd, RISCV_ZERO, imm_6(insn));
	case 3:
		return lui_or_addi16sp(insn, rd);
	case 4:
		return arithmetic(insn);
	case 5:
		return expanded(RISCV_JAL, RISCV_ZERO, 0, jump_of(insn));
	default:
		return expanded(RISCV_BRANCH, 0, popular(insn, 7), branch_of(insn));
	}
}

/* c.jr, c.mv, c.ebreak, c.jalr, c.add */
static struct riscv_insn jump_or_move(uint16_t insn)
{
	const unsigned rd = field(insn, 7, 5), rs2 = field(insn, 2, 5);
	const bool second = field(insn, 12, 1);
	struct riscv_insn out;

	if (!rs2 && !rd)
		return expanded(RISCV_STOP, 0, 0, 0);
	if (!rs2)
		return expanded(RISCV_JALR, second ? RISCV_RA : RISCV_ZERO, rd, 0);
	if (!second)
		return expanded(RISCV_ADDI, rd, rs2, 0);
	out = expanded(RISCV_ADD, rd, rd, 0);
	out.rs2 = (uint8_t)rs2;
	return out;
}

static struct riscv_insn quadrant_2(uint16_t insn)
{
	const unsigned rd = field(insn, 7, 5);

	switch (insn >> 13) {
	case 0:
		return expanded(RISCV_SLLI, rd, rd, field(insn, 12, 1) << 5 | field(insn, 2, 5));
	case 2:
		return expanded(RISCV_OTHER, rd, 0, 0); /* c.lwsp */
	case 3:
		return expanded(RISCV_LD, rd, RISCV_SP,
				field(insn, 12, 1) << 5 | field(insn, 5, 2) << 3 |
					field(insn, 2, 3) << 6);
	case 4:
		return jump_or_move(insn);
	case 7:
		return store(field(insn, 2, 5), RISCV_SP,
			     field(insn, 10, 3) << 3 | field(insn, 7, 3) << 6);
	default:
		return expanded(RISCV_OTHER, 0, 0, 0); /* c.fldsp, c.fsdsp, c.swsp */
	}
}

bool riscv_decode(const uint8_t *bytes, size_t n, struct riscv_insn *out)
{
	uint32_t insn;

	if (n < 2)
		return false;
	insn = bytes[0] | (uint32_t)bytes[1] << 8;
	switch (insn & 3) {
	case 0:
		*out = quadrant_0((uint16_t)insn);
		return true;
	case 1:
		*out = quadrant_1((uint16_t)insn);
		return true;
	case 2:
		*out = quadrant_2((uint16_t)insn);
		return true;
	}
	/* Bits 4:2 all set: longer than 32 bits. */
	if (n < 4 || (insn >> 2 & 7) == 7)
		return false;
	decode_32(insn | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24, out);
	return true;
}

/* A call of 4 bytes at `pc`, with the instruction before it. */
static bool wide_call(const uint8_t *bytes, size_t n, uint64_t pc, struct call *out)
{
	struct riscv_insn insn, before;

	if (!riscv_decode(bytes + n - 4, 4, &insn) || insn.size != 4 || insn.rd != RISCV_RA)
		return false;
	if (insn.op == RISCV_JAL) {
		out->direct = true;
		out->target = pc + (uint64_t)insn.imm;
		return true;
	}
	if (insn.op != RISCV_JALR)
		return false;
	if (n >= RISCV_CALL_MAX && riscv_decode(bytes + n - RISCV_CALL_MAX, 4, &before) &&
	    before.op == RISCV_AUIPC && before.rd == insn.rs1) {
		out->direct = true;
		out->target = pc - 4 + (uint64_t)before.imm + (uint64_t)insn.imm;
		return true;
	}
	out->indirect = true;
	return true;
}

bool riscv_call_before(const uint8_t *bytes, size_t n, uint64_t ret, unsigned word,
		       struct call *out)
{
	struct riscv_insn insn;

	*out = (struct call){0};
	if (n < 2 || ret % 2)
		return false;
	if (n >= 4)
		wide_call(bytes, n, ret - 4, out);
	/* The end of a longer instruction may look like one, too. */
	if (riscv_decode(bytes + n - 2, 2, &insn) && insn.op == RISCV_JALR && insn.rd == RISCV_RA)
		out->indirect = true;
	return out->direct || out->indirect;
}

bool riscv_makes_frame(const uint8_t *bytes, size_t n)
{
	struct riscv_insn insn;

	return riscv_decode(bytes, n, &insn) && insn.op == RISCV_ADDI && insn.rd == RISCV_SP &&
	       insn.rs1 == RISCV_SP && insn.imm < 0;
}

bool riscv_begins(const uint8_t *bytes, size_t n, bool *called)
{
	struct riscv_insn insn;

	if (!riscv_decode(bytes, n, &insn))
		return true;
	*called = insn.op == RISCV_ADDI && !insn.rd;
	return insn.op == RISCV_STOP || riscv_makes_frame(bytes, n);
}

/* Registers that a function keeps for its caller, where it may keep its own stack pointer. */
#define KEPT 0x0ffc0300u

/* The stack pointer is made from another register, or the link register is cleared. */
static bool drops_way_back(const struct riscv_insn *insn)
{
	const bool sum = insn->op == RISCV_ADDI || insn->op == RISCV_ADD;

	if (insn->rd == RISCV_RA)
		return insn->op == RISCV_ADDI && !insn->rs1;
	return insn->rd == RISCV_SP && sum && insn->rs1 != RISCV_SP &&
	       (insn->op == RISCV_ADDI || insn->rs2 != RISCV_SP) && !(KEPT >> insn->rs1 & 1);
}

/* From here on, if that is where an instruction begins: one ends with the last byte, and is a call. */
static bool drops_from(const uint8_t *bytes, size_t n, bool *drops)
{
	struct riscv_insn insn;

	for (*drops = false; n && riscv_decode(bytes, n, &insn);
	     bytes += insn.size, n -= insn.size) {
		const bool jumps_on =
			insn.rd == RISCV_ZERO && (insn.op == RISCV_JAL || insn.op == RISCV_JALR);

		if (jumps_on || insn.op == RISCV_STOP || insn.op == RISCV_XRET)
			*drops = false;
		else if (drops_way_back(&insn))
			*drops = true;
	}
	return !n;
}

/* Instructions begin where an even number of bytes is left: the first of several are tried, and have to agree. */
#define BEGINNINGS 8

bool riscv_begins_stack(const uint8_t *bytes, size_t n, unsigned word)
{
	bool any = false, drops;

	for (size_t at = n % 2; at < n && at < BEGINNINGS; at += 2) {
		if (!drops_from(bytes + at, n - at, &drops))
			continue;
		if (!drops)
			return false;
		any = true;
	}
	return any;
}

bool riscv_sets_up_frame(const uint8_t *bytes, size_t n)
{
	struct riscv_insn insn;

	return riscv_decode(bytes, n, &insn) && insn.op == RISCV_ADDI && insn.rd == RISCV_S0 &&
	       insn.rs1 == RISCV_SP && insn.imm > 0;
}
