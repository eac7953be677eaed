/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

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

	if (dest != X86_SP)
		return source == X86_SP ? with_reg(X86_COPY_SP, dest) : writes(dest);
	effect.base = source;
	return effect;
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
 *   w  writes register      X  pusha, popa      E  enter      A  lea
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
		return word == 8 ? with_reg(X86_LOSE, X86_SP)
				 : simple(insn->opcode & 1 ? X86_POP_ALL : X86_PUSH_ALL);
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
	if (insn->narrow && effect.op >= X86_PUSH && effect.op <= X86_POP_ALL)
		return with_reg(X86_LOSE, X86_SP);
	if (insn->narrow && (effect.op == X86_SET_SP || effect.op == X86_COPY_SP))
		return effect.op == X86_SET_SP ? with_reg(X86_LOSE, X86_SP) : writes(effect.reg);
	return effect;
}

bool x86_is_call(const struct x86_effect *effect)
{
	return effect->op == X86_CALL || effect->op == X86_CALL_INDIRECT;
}

#define RET_BYTES 0xc2
#define INT3	  0xcc
#define UD2	  0x0b /* of the second map */

static bool is_trap(const struct x86_insn *insn)
{
	return insn->opcode == (insn->map == X86_MAP_0F ? UD2 : INT3);
}

enum path x86_path(const struct x86_insn *insn, const struct x86_effect *effect)
{
	const bool returns = insn->map == X86_MAP_ONE && !insn->vector &&
			     (insn->opcode == X86_RET || insn->opcode == RET_BYTES);

	switch (effect->op) {
	case X86_CALL:
	case X86_CALL_INDIRECT:
		return PATH_CALL;
	case X86_BRANCH:
		return PATH_BRANCH;
	case X86_JUMP:
		return PATH_JUMP;
	case X86_JUMP_INDIRECT:
		return PATH_TABLE;
	case X86_STOP:
		return returns ? PATH_RETURN : is_trap(insn) ? PATH_TRAP : PATH_END;
	default:
		return PATH_ON;
	}
}

bool x86_asks_where_it_is(const struct x86_effect *effect, uint64_t next, unsigned word)
{
	return effect->op == X86_CALL && word == 4 && (uint64_t)effect->value == next;
}

bool x86_is_padding(const struct x86_insn *insn)
{
	return (insn->map == X86_MAP_0F && insn->opcode == 0x1f) ||
	       (insn->map == X86_MAP_ONE && insn->opcode == 0x90);
}

bool x86_begins_function(const struct x86_insn *insn, const struct x86_effect *effect, bool framed,
			 unsigned word)
{
	/* endbr; push of fp */
	if ((insn->map == X86_MAP_0F && insn->opcode == 0x1e) ||
	    (effect->op == X86_PUSH && effect->reg == X86_BP))
		return true;
	/* Code with frame pointers begins like that; within a frame, arguments may be pushed. */
	if (framed)
		return false;
	if (effect->op == X86_PUSH)
		return word == 8 || effect->reg == X86_BX || effect->reg == X86_SI ||
		       effect->reg == X86_DI;
	return word == 8 && effect->op == X86_SET_SP && effect->base == X86_SP && effect->value < 0;
}
