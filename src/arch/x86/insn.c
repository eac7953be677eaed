/* SPDX-License-Identifier: BSD-3-Clause */
#include "arch/x86/x86.h"

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
			       "nnmmppppzw1b...."
			       "1111111111111111"
			       "bwbbmmmmmmmmmmmm"
			       "..........f....."
			       "oooo....1z......"
			       "11111111vvvvvvvv"
			       "bb2.mmbwe.2..1n."
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
	for (size_t i = 0; i < size; i++)
		value |= (uint64_t)in->bytes[in->at + i] << (8 * i);
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

static bool has_modrm(char what)
{
	return what == 'm' || what == 'b' || what == 'w' || what == 'g' || what == 'G';
}

static bool take_operands(struct reader *in, struct x86_insn *insn, char what)
{
	size_t z = insn->narrow && !in->rex_w ? 2 : 4;

	if (has_modrm(what))
		take_modrm(in, insn);
	if (what == 'g' || what == 'G')
		what = insn->reg & 6 ? 'm' : what == 'g' ? '1' : 'z';
	if (in->wide && (what == 'n' || what == 'N' || what == 'f'))
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
	else
		known = take_operands(&in, insn, one_byte[byte]);
	if (byte == 0x8f && insn->map == X86_MAP_ONE && (insn->reg & 7))
		known = false; /* XOP */
	if (!known || in.over)
		return 0;
	insn->len = (uint8_t)in.at;
	return in.at;
}
