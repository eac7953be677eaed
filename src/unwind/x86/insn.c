/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/insn.h"

#include <string.h>

/*
 * Operands of each opcode (SDM vol. 2, appendix A), 16 to a line:
 *   .  nothing          m  ModRM             p  a prefix: not an opcode
 *   1  imm8             b  ModRM, imm8       n  only in 32-bit code, nothing follows
 *   2  imm16            w  ModRM, imm16/32   N  only in 32-bit code, imm8
 *   z  imm16/32         v  imm16/32/64       f  far address, 32-bit code only
 *   r  relative 16/32   o  address           e  imm16, imm8
 *   g  ModRM, imm8 if its reg field is 0 or 1      ?  unknown
 *   G  ModRM, imm16/32 if its reg field is 0 or 1
 */
static const char one_byte[] = "mmmm1znnmmmm1zn?"
			       "mmmm1znnmmmm1znn"
			       "mmmm1zpnmmmm1zpn"
			       "mmmm1zpnmmmm1zpn"
			       "nnnnnnnnnnnnnnnn"
			       "................"
			       "nn?mppppzw1b...."
			       "1111111111111111"
			       "bwbbmmmmmmmmmmmm"
			       "..........f....."
			       "oooo....1z......"
			       "11111111vvvvvvvv"
			       "bb2.??bwe.2..1n."
			       "mmmmNN?.mmmmmmmm"
			       "11111111rrf1...."
			       "p.pp..gG......mm";

static const char two_bytes[] = "mmmm?....."
				"?.?m.b"
				"mmmmmmmmmmmmmmmm"
				"mmmm????mmmmmmmm"
				"......?.????????"
				"mmmmmmmmmmmmmmmm"
				"mmmmmmmmmmmmmmmm"
				"mmmmmmmmmmmmmmmm"
				"bbbbmmm.mm??mmmm"
				"rrrrrrrrrrrrrrrr"
				"mmmmmmmmmmmmmmmm"
				"...mbm??...mbmmm"
				"mmmmmmmmmmbmmmmm"
				"mmbmbbbm........"
				"mmmmmmmmmmmmmmmm"
				"mmmmmmmmmmmmmmmm"
				"mmmmmmmmmmmmmmmm";

struct reader {
	const uint8_t *bytes;
	size_t n, at;
	bool over; /* read past the end */
	bool wide; /* 64-bit code */
	bool rex_w, rex_r, rex_x, rex_b;
	bool narrow_address; /* prefix 67 */
};

static uint64_t take(struct reader *in, size_t size)
{
	uint64_t value = 0;

	if (in->at + size > in->n) {
		in->over = true;
		return 0;
	}
	memcpy(&value, in->bytes + in->at, size);
	in->at += size;
	return value;
}

static int64_t take_signed(struct reader *in, size_t size)
{
	unsigned shift = 64 - 8 * (unsigned)size;

	return (int64_t)(take(in, size) << shift) >> shift;
}

static void take_rex(struct reader *in, uint8_t rex)
{
	in->rex_w = rex & 8;
	in->rex_r = rex & 4;
	in->rex_x = rex & 2;
	in->rex_b = rex & 1;
}

/* Memory operands of 16-bit addressing say nothing about the stack: only their length counts. */
static void take_memory_16(struct reader *in, struct x86_insn *insn, uint8_t rm)
{
	insn->base = X86_NO_REG;
	insn->index = true;
	take(in, insn->mod == 1 ? 1 : insn->mod == 2 || rm == 6 ? 2 : 0);
}

static void take_modrm(struct reader *in, struct x86_insn *insn)
{
	uint8_t byte = (uint8_t)take(in, 1), rm = byte & 7, sib;

	insn->modrm = true;
	insn->mod = byte >> 6;
	insn->reg = (byte >> 3 & 7) | (in->rex_r ? 8 : 0);
	insn->rm = rm | (in->rex_b ? 8 : 0);
	if (insn->mod == 3)
		return;
	if (!in->wide && in->narrow_address) {
		take_memory_16(in, insn, rm);
		return;
	}
	insn->base = insn->rm;
	if (rm == 4) {
		sib = (uint8_t)take(in, 1);
		rm = sib & 7;
		insn->base = rm | (in->rex_b ? 8 : 0);
		insn->index = ((sib >> 3 & 7) | (in->rex_x ? 8 : 0)) != 4;
	}
	if (insn->mod == 0 && rm == 5) {
		insn->base = X86_NO_REG;
		insn->disp = (int32_t)take(in, 4);
	} else if (insn->mod == 1) {
		insn->disp = (int32_t)take_signed(in, 1);
	} else if (insn->mod == 2) {
		insn->disp = (int32_t)take(in, 4);
	}
}

static bool take_operands(struct reader *in, struct x86_insn *insn, char what)
{
	size_t z = insn->narrow && !in->rex_w ? 2 : 4;

	if (strchr("mbwgG", what))
		take_modrm(in, insn);
	if (what == 'g' || what == 'G')
		what = insn->reg & 6 ? 'm' : what == 'g' ? '1' : 'z';
	if (in->wide && strchr("nNf", what))
		return false;
	switch (what) {
	case '1':
	case 'b':
	case 'N':
		insn->imm = take_signed(in, 1);
		return true;
	case '2':
		insn->imm = take_signed(in, 2);
		return true;
	case 'z':
	case 'w':
		insn->imm = take_signed(in, z);
		return true;
	case 'r': /* in 64-bit code the prefix does not shorten it */
		insn->imm = take_signed(in, in->wide ? 4 : z);
		return true;
	case 'v':
		insn->imm = take_signed(in, in->rex_w ? 8 : z);
		return true;
	case 'o':
		take(in, (in->wide ? 8 : 4) >> (in->narrow_address ? 1 : 0));
		return true;
	case 'f':
		take(in, z + 2);
		return true;
	case 'e':
		insn->imm = (int64_t)take(in, 3);
		return true;
	case 'm':
	case '.':
	case 'n':
		return true;
	}
	return false;
}

/* The payload of VEX and EVEX stands for prefixes and REX; then comes the opcode. */
static bool take_vector(struct reader *in, struct x86_insn *insn, uint8_t first)
{
	uint8_t payload = (uint8_t)take(in, 1), map = 1;
	char what = 'm';

	insn->vector = true;
	in->rex_r = !(payload & 0x80);
	if (first != 0xc5) {
		in->rex_x = !(payload & 0x40);
		in->rex_b = !(payload & 0x20);
		map = payload & (first == 0x62 ? 7 : 31);
		take(in, first == 0x62 ? 2 : 1);
	}
	if (!in->wide)
		in->rex_r = in->rex_x = in->rex_b = false;
	insn->opcode = (uint8_t)take(in, 1);
	if (map == 0 || map > 6 || map == 4)
		return false;
	insn->map = map < 4 ? map : X86_MAP_MORE;
	if (map == 3 || (map == 1 && two_bytes[insn->opcode] == 'b'))
		what = 'b';
	if (map == 1 && insn->opcode == 0x77)
		what = '.';
	return take_operands(in, insn, what);
}

static bool take_0f(struct reader *in, struct x86_insn *insn)
{
	insn->map = X86_MAP_0F;
	insn->opcode = (uint8_t)take(in, 1);
	if (insn->opcode == 0x38 || insn->opcode == 0x3a) {
		bool immediate = insn->opcode == 0x3a;

		insn->map = immediate ? X86_MAP_0F3A : X86_MAP_0F38;
		insn->opcode = (uint8_t)take(in, 1);
		return take_operands(in, insn, immediate ? 'b' : 'm');
	}
	return take_operands(in, insn, two_bytes[insn->opcode]);
}

/* Takes prefixes; returns the first byte that is none. */
static uint8_t take_prefixes(struct reader *in, struct x86_insn *insn)
{
	for (;;) {
		uint8_t byte = (uint8_t)take(in, 1);

		if (in->over)
			return 0;
		if (in->wide && (byte & 0xf0) == 0x40) {
			take_rex(in, byte);
			continue;
		}
		if (one_byte[byte] != 'p')
			return byte;
		take_rex(in, 0); /* counts only right before the opcode */
		if (byte == 0x66)
			insn->narrow = true;
		if (byte == 0x67)
			in->narrow_address = true;
	}
}

size_t x86_decode(const uint8_t *bytes, size_t n, unsigned word, struct x86_insn *insn)
{
	struct reader in = {.bytes = bytes, .wide = word == 8};
	bool known;
	uint8_t byte;

	in.n = n < X86_INSN_MAX ? n : X86_INSN_MAX;
	*insn = (struct x86_insn){.base = X86_NO_REG, .rm = X86_NO_REG, .reg = X86_NO_REG};
	byte = take_prefixes(&in, insn);
	insn->opcode = byte;
	insn->extra = in.rex_b ? 8 : 0;
	if (in.over)
		return 0;
	if (byte == 0x0f)
		known = take_0f(&in, insn);
	else if ((byte == 0xc4 || byte == 0xc5 || byte == 0x62) &&
		 (in.wide || (in.at < in.n && bytes[in.at] >= 0xc0)))
		known = take_vector(&in, insn, byte);
	else if (byte == 0xc4 || byte == 0xc5 || byte == 0x62)
		known = take_operands(&in, insn, 'm');
	else
		known = take_operands(&in, insn, one_byte[byte]);
	if (byte == 0x8f && insn->map == X86_MAP_ONE && (insn->reg & 7))
		known = false; /* XOP */
	if (!known || in.over)
		return 0;
	insn->len = (uint8_t)in.at;
	return in.at;
}

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

/* ... and whose new value does not depend on the old one. */
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

/* 81 and 83: arithmetic of a register and a constant; `reg` says which. */
static struct x86_effect adds(const struct x86_insn *insn)
{
	struct x86_effect effect = simple(X86_SET_SP);

	if ((insn->reg & 7) == 7)
		return simple(X86_OTHER); /* cmp */
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

/* An exchange: if either is the stack pointer, its change counts. */
static struct x86_effect exchanges(const struct x86_insn *insn)
{
	if (insn->reg == X86_SP || (insn->mod == 3 && insn->rm == X86_SP))
		return with_reg(X86_LOSE, X86_SP);
	return insn->reg == X86_BP ? writes(X86_BP) : writes_rm(insn);
}

static struct x86_effect enters(const struct x86_insn *insn)
{
	struct x86_effect enter = simple(X86_ENTER);

	enter.value = insn->imm & 0xffff;
	return insn->imm >> 16 ? with_reg(X86_LOSE, X86_SP) : enter;
}

/*
 * Effects of each opcode, 16 to a line:
 *   .  none of interest     P  push             B  branch     a  arithmetic with a constant
 *   m  writes its ModRM     p  push register    J  jump       x  xchg
 *   r  writes its reg       Q  pop              C  call       M  mov to its ModRM
 *   R  so in 64-bit code    q  pop register     S  stop       L  mov to its reg
 *   w  writes register      X  all registers    E  enter      A  lea
 *   W  replaces register    O  pop ModRM        V  leave      F  group FF
 */
static const char one_byte_effects[] = ".m.r..PQ.m.r..P."
				       ".m.r..PQ.m.r..PQ"
				       ".m.r.....m.r...."
				       ".m.r............"
				       "wwwwwwwwwwwwwwww"
				       "ppppppppqqqqqqqq"
				       "XX.R....PrPr...."
				       "BBBBBBBBBBBBBBBB"
				       ".a.a...x.M.L.A.O"
				       ".wwwwwww....PQ.."
				       "................"
				       "........WWWWWWWW"
				       ".mSS...mEVSSS..S"
				       ".m.m............"
				       "BBBB....CJSJ...."
				       "...............F";

static const char two_byte_effects[] = ".......S...S...."
				       "................"
				       "................"
				       ".....S.........."
				       "rrrrrrrrrrrrrrrr"
				       "................"
				       "................"
				       "................"
				       "BBBBBBBBBBBBBBBB"
				       "................"
				       "PQ......PQ.....r"
				       "......rrrS..rrrr"
				       "................"
				       "................"
				       "................"
				       "................";

static struct x86_effect effect_of(char what, const struct x86_insn *insn, uint64_t va,
				   unsigned word)
{
	const uint8_t low = (insn->opcode & 7) | insn->extra;

	switch (what) {
	case 'm':
		return writes_rm(insn);
	case 'r':
		return writes(insn->reg);
	case 'R':
		return word == 8 ? writes(insn->reg) : simple(X86_OTHER);
	case 'w':
		return writes(low);
	case 'W':
		return replaces(low);
	case 'P':
		return simple(X86_PUSH);
	case 'p':
		return with_reg(X86_PUSH, low);
	case 'Q':
		return with_reg(X86_POP, X86_NO_REG);
	case 'q':
		return low == X86_SP ? replaces(X86_SP) : with_reg(X86_POP, low);
	case 'O':
		return with_reg(X86_POP, insn->mod == 3 ? insn->rm : X86_NO_REG);
	case 'X':
		return with_reg(X86_LOSE, X86_SP);
	case 'B':
		return to(X86_BRANCH, insn, va, word);
	case 'J':
		return to(X86_JUMP, insn, va, word);
	case 'C':
		return to(X86_CALL, insn, va, word);
	case 'S':
		return simple(X86_STOP);
	case 'E':
		return enters(insn);
	case 'V':
		return simple(X86_LEAVE);
	case 'a':
		return adds(insn);
	case 'x':
		return exchanges(insn);
	case 'M':
		return insn->mod == 3 ? moves(insn->rm, insn->reg) : simple(X86_OTHER);
	case 'L':
		return insn->mod == 3 ? moves(insn->reg, insn->rm) : replaces(insn->reg);
	case 'A':
		return computes(insn);
	case 'F':
		return group_ff(insn);
	}
	return simple(X86_OTHER);
}

struct x86_effect x86_effect(const struct x86_insn *insn, uint64_t va, unsigned word)
{
	const char *effects = insn->map == X86_MAP_ONE ? one_byte_effects : two_byte_effects;
	struct x86_effect effect;

	if (insn->vector || insn->map > X86_MAP_0F)
		return simple(X86_OTHER);
	effect = effect_of(effects[insn->opcode], insn, va, word);
	/* Half-words on the stack are nothing that compilers do. */
	if (insn->narrow && (effect.op == X86_PUSH || effect.op == X86_POP))
		return with_reg(X86_LOSE, X86_SP);
	if (insn->narrow && (effect.op == X86_SET_SP || effect.op == X86_COPY_SP))
		return effect.op == X86_SET_SP ? with_reg(X86_LOSE, X86_SP) : writes(effect.reg);
	return effect;
}

bool x86_is_call(const struct x86_effect *effect)
{
	return effect->op == X86_CALL || effect->op == X86_CALL_INDIRECT;
}

bool x86_is_padding(const struct x86_insn *insn)
{
	return (insn->map == X86_MAP_0F && insn->opcode == 0x1f) ||
	       (insn->map == X86_MAP_ONE && insn->opcode == 0x90);
}

bool x86_begins_function(const struct x86_insn *insn, const struct x86_effect *effect, bool framed,
			 unsigned word)
{
	if (insn->map == X86_MAP_0F && insn->opcode == 0x1e)
		return true; /* endbr */
	if (effect->op == X86_PUSH && effect->reg == X86_BP)
		return true;
	/* Code with frame pointers begins like that; within a frame, arguments may be pushed. */
	if (framed)
		return false;
	if (effect->op == X86_PUSH)
		return word == 8 || effect->reg == X86_BX || effect->reg == X86_SI ||
		       effect->reg == X86_DI;
	return word == 8 && effect->op == X86_SET_SP && effect->base == X86_SP && effect->value < 0;
}
