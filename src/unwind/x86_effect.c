/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86_effect.h"

static struct x86_effect simple(enum x86_op op)
{
	return (struct x86_effect){.op = op, .reg = X86_NO_REG, .base = X86_NO_REG};
}

static struct x86_effect with_reg(enum x86_op op, uint8_t reg)
{
	return (struct x86_effect){.op = op, .reg = reg, .base = X86_NO_REG};
}

static struct x86_effect to(enum x86_op op, const struct x86_insn *insn, uint64_t va, unsigned word)
{
	struct x86_effect effect = simple(op);
	uint64_t target = va + insn->len + (uint64_t)insn->imm;

	effect.value = (int64_t)(word == 4 ? target & 0xffffffff : target);
	return effect;
}

/* An instruction that changes register `reg` in a way that is not followed. */
static struct x86_effect writes(uint8_t reg)
{
	return reg == X86_SP || reg == X86_BP ? with_reg(X86_LOSE, reg) : simple(X86_OTHER);
}

/* ... and whose new value has nothing to do with the old one. */
static struct x86_effect replaces(uint8_t reg)
{
	struct x86_effect effect = writes(reg);

	effect.value = 1;
	return effect;
}

static struct x86_effect writes_rm(const struct x86_insn *insn)
{
	return insn->mod == 3 ? writes(insn->rm) : simple(X86_OTHER);
}

/* dest = source */
static struct x86_effect moves(uint8_t dest, uint8_t source)
{
	struct x86_effect effect = simple(X86_SET_SP);

	if (dest == X86_SP) {
		effect.base = source;
		return effect;
	}
	return source == X86_SP ? with_reg(X86_COPY_SP, dest) : writes(dest);
}

/* lea */
static struct x86_effect computes(const struct x86_insn *insn)
{
	struct x86_effect effect = simple(X86_SET_SP);

	if (insn->base == X86_NO_REG)
		return replaces(insn->reg);
	if (insn->mod == 3 || insn->index)
		return writes(insn->reg);
	if (insn->reg == X86_SP)
		effect.base = insn->base;
	else if (insn->base == X86_SP)
		effect = with_reg(X86_COPY_SP, insn->reg);
	else
		return writes(insn->reg);
	effect.value = insn->disp;
	return effect;
}

/* 80 to 83: arithmetic of a register and a constant; `reg` says which. */
static struct x86_effect adds(const struct x86_insn *insn)
{
	struct x86_effect effect = simple(X86_SET_SP);

	if (insn->opcode == 0x80 || insn->opcode == 0x82 || (insn->reg & 7) == 7)
		return simple(X86_OTHER);
	if (insn->mod != 3 || insn->rm != X86_SP || ((insn->reg & 7) != 0 && (insn->reg & 7) != 5))
		return writes_rm(insn);
	effect.base = X86_SP;
	effect.value = (insn->reg & 7) == 0 ? insn->imm : -insn->imm;
	return effect;
}

/* FF: inc, dec, call, far call, jmp, far jmp, push */
static struct x86_effect group_ff(const struct x86_insn *insn)
{
	struct x86_effect push = simple(X86_PUSH);

	switch (insn->reg & 7) {
	case 0:
	case 1:
		return writes_rm(insn);
	case 2:
		return simple(X86_CALL_INDIRECT);
	case 4:
		return simple(X86_JUMP_INDIRECT);
	case 5:
		return simple(X86_STOP);
	case 6:
		if (insn->mod == 3)
			return with_reg(X86_PUSH, insn->rm);
		if (!insn->index) {
			push.base = insn->base;
			push.value = insn->disp;
		}
		return push;
	}
	return simple(X86_OTHER);
}

/* The regular part of the map: eight operations in six forms each, 00 to 3D. */
static struct x86_effect arithmetic(const struct x86_insn *insn)
{
	if (insn->opcode >= 0x38)
		return simple(X86_OTHER); /* cmp */
	if ((insn->opcode & 7) == 1)
		return writes_rm(insn);
	if ((insn->opcode & 7) == 3)
		return writes(insn->reg);
	return simple(X86_OTHER);
}

static struct x86_effect segment_or_arithmetic(const struct x86_insn *insn)
{
	switch (insn->opcode) {
	case 0x06:
	case 0x0e:
	case 0x16:
	case 0x1e:
		return simple(X86_PUSH);
	case 0x07:
	case 0x17:
	case 0x1f:
		return with_reg(X86_POP, X86_NO_REG);
	}
	return arithmetic(insn);
}

static struct x86_effect two_byte_effect(const struct x86_insn *insn, uint64_t va, unsigned word)
{
	uint8_t op = insn->opcode;

	if ((op & 0xf0) == 0x80)
		return to(X86_BRANCH, insn, va, word);
	if ((op & 0xf0) == 0x40)
		return writes(insn->reg); /* cmov */
	switch (op) {
	case 0x07: /* sysret */
	case 0x0b: /* ud2 */
	case 0x35: /* sysexit */
	case 0xb9: /* ud1 */
		return simple(X86_STOP);
	case 0xa0:
	case 0xa8:
		return simple(X86_PUSH);
	case 0xa1:
	case 0xa9:
		return with_reg(X86_POP, X86_NO_REG);
	case 0xaf:
	case 0xb6:
	case 0xb7:
	case 0xb8:
	case 0xbc:
	case 0xbd:
	case 0xbe:
	case 0xbf:
		return writes(insn->reg);
	}
	return simple(X86_OTHER);
}

static struct x86_effect high_half_effect(const struct x86_insn *insn, uint64_t va, unsigned word)
{
	switch (insn->opcode) {
	case 0xc1:
	case 0xc7:
	case 0xd1:
	case 0xd3:
		return writes_rm(insn);
	case 0xc2: /* ret */
	case 0xc3:
	case 0xca:
	case 0xcb:
	case 0xcc: /* int3 */
	case 0xcf: /* iret */
	case 0xea:
		return simple(X86_STOP);
	case 0xc8: {
		struct x86_effect enter = simple(X86_ENTER);

		enter.value = insn->imm & 0xffff;
		return insn->imm >> 16 ? with_reg(X86_LOSE, X86_SP) : enter;
	}
	case 0xc9:
		return simple(X86_LEAVE);
	case 0xe0:
	case 0xe1:
	case 0xe2:
	case 0xe3:
		return to(X86_BRANCH, insn, va, word);
	case 0xe8:
		return to(X86_CALL, insn, va, word);
	case 0xe9:
	case 0xeb:
		return to(X86_JUMP, insn, va, word);
	case 0xff:
		return group_ff(insn);
	}
	if ((insn->opcode & 0xf8) == 0xb8)
		return replaces((insn->opcode & 7) | insn->extra);
	return simple(X86_OTHER);
}

static struct x86_effect low_half_effect(const struct x86_insn *insn, uint64_t va, unsigned word)
{
	uint8_t op = insn->opcode, low = (op & 7) | insn->extra;

	if (op < 0x40)
		return segment_or_arithmetic(insn);
	if (op < 0x50)
		return writes(low); /* inc and dec, 32-bit code */
	if (op < 0x58)
		return with_reg(X86_PUSH, low);
	if (op < 0x60)
		return low == X86_SP ? replaces(X86_SP) : with_reg(X86_POP, low);
	if ((op & 0xf0) == 0x70)
		return to(X86_BRANCH, insn, va, word);
	switch (op) {
	case 0x60:
	case 0x61:
		return with_reg(X86_LOSE, X86_SP); /* pusha, popa */
	case 0x63:
		return word == 8 ? writes(insn->reg) : simple(X86_OTHER);
	case 0x68:
	case 0x6a:
		return simple(X86_PUSH);
	case 0x69:
	case 0x6b:
		return writes(insn->reg);
	}
	return simple(X86_OTHER);
}

static struct x86_effect middle_effect(const struct x86_insn *insn)
{
	switch (insn->opcode) {
	case 0x80:
	case 0x81:
	case 0x82:
	case 0x83:
		return adds(insn);
	case 0x87: /* xchg: if either is the stack pointer, that is what counts */
		if (insn->reg == X86_SP || (insn->mod == 3 && insn->rm == X86_SP))
			return with_reg(X86_LOSE, X86_SP);
		return insn->reg == X86_BP ? writes(X86_BP) : writes_rm(insn);
	case 0x89:
		return insn->mod == 3 ? moves(insn->rm, insn->reg) : simple(X86_OTHER);
	case 0x8b:
		return insn->mod == 3 ? moves(insn->reg, insn->rm) : replaces(insn->reg);
	case 0x8d:
		return computes(insn);
	case 0x8f:
		return with_reg(X86_POP, insn->mod == 3 ? insn->rm : X86_NO_REG);
	case 0x9c:
		return simple(X86_PUSH);
	case 0x9d:
		return with_reg(X86_POP, X86_NO_REG);
	}
	if (insn->opcode >= 0x91 && insn->opcode <= 0x97)
		return writes((insn->opcode & 7) | insn->extra);
	return simple(X86_OTHER);
}

struct x86_effect x86_effect(const struct x86_insn *insn, uint64_t va, unsigned word)
{
	struct x86_effect effect = simple(X86_OTHER);

	if (insn->vector)
		return effect;
	if (insn->map == X86_MAP_0F)
		effect = two_byte_effect(insn, va, word);
	else if (insn->map == X86_MAP_ONE && insn->opcode < 0x80)
		effect = low_half_effect(insn, va, word);
	else if (insn->map == X86_MAP_ONE && insn->opcode < 0xb0)
		effect = middle_effect(insn);
	else if (insn->map == X86_MAP_ONE)
		effect = high_half_effect(insn, va, word);
	/* Half-words on the stack are nothing that compilers do. */
	if (insn->narrow && (effect.op == X86_PUSH || effect.op == X86_POP))
		return with_reg(X86_LOSE, X86_SP);
	if (insn->narrow && (effect.op == X86_SET_SP || effect.op == X86_COPY_SP))
		return effect.op == X86_SET_SP ? with_reg(X86_LOSE, X86_SP) : writes(effect.reg);
	return effect;
}
