/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86_trap.h"

#include <string.h>

#include "unwind/x86_call.h"

/* How far ahead is looked, in instructions; handlers end sooner, other functions return. */
#define AHEAD_STEPS 200

#define IRET	0xcf
#define SYSCALL 0x05 /* of the second map */
#define MOV_EAX 0xb8

/* Xen's hypercall for what iret does (xen/include/public/xen.h). */
#define HYPERCALL_IRET 23

/* RFLAGS (SDM vol. 3, 2.3): bit 1 is always set, these never. */
#define FLAGS_SET   0x2u
#define FLAGS_CLEAR (~0x3f7fd7ull)

/* How far sp has moved since the beginning, or since it was loaded from the stack. */
struct ahead {
	int64_t sp; /* bytes */
	bool loaded;
	int64_t loaded_from; /* where, from the first sp */
	enum { FP_KEPT, FP_POPPED, FP_LOST } fp;
	int64_t fp_at; /* FP_POPPED: from where, from the same point as sp */
	int64_t eax;   /* the number that was loaded last, as for a hypercall; 0: none */
};

static bool moves_fp_from_stack(const struct x86_insn *insn)
{
	return insn->map == X86_MAP_ONE && insn->opcode == 0x8b && !insn->vector && insn->modrm &&
	       insn->mod != 3 && insn->reg == X86_BP && insn->base == X86_SP && !insn->index;
}

static bool pops_sp(const struct x86_insn *insn)
{
	return insn->map == X86_MAP_ONE && insn->opcode == 0x5c && !insn->extra && !insn->vector;
}

/* Applies one instruction that goes on to the next; false if sp is lost. */
static bool pass(struct ahead *ahead, const struct x86_insn *insn, const struct x86_effect *effect,
		 int64_t word)
{
	if (pops_sp(insn)) {
		*ahead = (struct ahead){.loaded = true, .loaded_from = ahead->sp};
		return true;
	}
	if (moves_fp_from_stack(insn)) {
		ahead->fp = FP_POPPED;
		ahead->fp_at = ahead->sp + insn->disp;
		return true;
	}
	switch (effect->op) {
	case X86_PUSH:
		ahead->sp -= word;
		return true;
	case X86_POP:
		if (effect->reg == X86_BP) {
			ahead->fp = FP_POPPED;
			ahead->fp_at = ahead->sp;
		}
		ahead->sp += word;
		return true;
	case X86_SET_SP:
		ahead->sp += effect->value;
		return effect->base == X86_SP;
	case X86_COPY_SP:
	case X86_LOSE:
		if (effect->reg == X86_BP)
			ahead->fp = FP_LOST;
		return effect->reg != X86_SP;
	case X86_ENTER:
	case X86_LEAVE:
		return false;
	default:
		return true;
	}
}

/* The stub for the hypercall iret pushes registers, and Xen takes the frame from above them. */
static bool is_iret_stub(struct code_reader *reader, uint64_t va, unsigned word)
{
	size_t n;
	const uint8_t *bytes;

	if (va % X86_STUB_SLOT)
		return false;
	bytes = code_at(reader, va, &n);
	if (n < X86_INSN_MAX)
		return false;
	/* push rcx; push r11; push rax; mov eax, 23; syscall - push eax; mov eax, 23; int 0x82 */
	if (word == 8)
		return bytes[0] == 0x51 && bytes[1] == 0x41 && bytes[2] == 0x53 &&
		       bytes[3] == 0x50 && bytes[4] == 0xb8 && bytes[5] == 23 && bytes[9] == 0x0f &&
		       bytes[10] == 0x05;
	return bytes[0] == 0x50 && bytes[1] == 0xb8 && bytes[2] == 23 && bytes[6] == 0xcd &&
	       bytes[7] == 0x82;
}

/* The same stub, in the middle of other code: Linux has it where it returns. */
static bool is_iret_hypercall(const struct ahead *ahead, const struct x86_insn *insn, unsigned word)
{
	return word == 8 && insn->map == X86_MAP_0F && insn->opcode == SYSCALL &&
	       ahead->eax == HYPERCALL_IRET;
}

/*
 * Is this where Xen enters a PV kernel on x86-64? It has pushed rcx and r11
 * above the frame, and they are popped first.
 */
static bool is_pv_entry(struct code_reader *reader, uint64_t va, unsigned word)
{
	static const uint8_t pops[] = {0x59, 0x41, 0x5b};
	size_t n;
	const uint8_t *bytes = code_at(reader, va, &n);

	return word == 8 && n >= sizeof(pops) && !memcmp(bytes, pops, sizeof(pops));
}

/*
 * The frame stands at `frame`, counted as sp is: fills in the row. 32-bit code
 * that interrupts its like has no stack pointer pushed, its stack goes on
 * behind the three words.
 */
static void found(const struct ahead *ahead, int64_t frame, unsigned word, struct row *row)
{
	int64_t cfa = frame, ra_at = 0;

	if (ahead->loaded) {
		cfa = ahead->loaded_from;
		ra_at = frame;
	} else if (word == 4) {
		cfa = frame + 3 * 4;
		ra_at = -3 * 4;
	}
	if (cfa < 0 || frame < 0 || frame > INT16_MAX / 2 || cfa > INT16_MAX / 2 ||
	    ahead->fp_at < 0 || ahead->fp_at > INT16_MAX / 2 || (ahead->loaded && word == 4))
		return;
	*row = (struct row){.kind = ROW_TRAP,
			    .base = ahead->loaded ? ROW_PLUS_DEREF : ROW_PLUS,
			    .cfa_reg = word == 8 ? 7 : 4, /* sp */
			    .cfa_offset = (int32_t)cfa,
			    .ra_at = (int16_t)ra_at,
			    .fp_at = (int16_t)(ahead->fp_at - frame + ra_at),
			    .sp_at = word == 4 ? ROW_SAME : (int16_t)(ra_at + 3 * 8)};
	if (ahead->fp == FP_KEPT)
		row->fp_at = ahead->loaded ? ROW_LOST : ROW_SAME;
	else if (ahead->fp == FP_LOST)
		row->fp_at = ROW_LOST;
}

void x86_trap_ahead(struct code_reader *reader, uint64_t va, uint64_t end, unsigned word,
		    unsigned *steps, struct row *row)
{
	struct ahead ahead = {0};

	*row = (struct row){.kind = ROW_NONE};
	if (is_pv_entry(reader, va, word)) {
		found(&ahead, 16, word, row);
		return;
	}
	for (unsigned i = 0; i < AHEAD_STEPS && *steps; i++, --*steps) {
		struct x86_insn insn;
		struct x86_effect effect;
		size_t n;
		const uint8_t *bytes = code_at(reader, va, &n);

		if (!x86_decode(bytes, n, word, &insn))
			return;
		effect = x86_effect(&insn, va, word);
		va += insn.len;
		/* A call at the end of a function never returns. */
		if (va == end && effect.op != X86_STOP && effect.op != X86_JUMP)
			return;
		if (effect.op == X86_STOP) {
			if (insn.map == X86_MAP_ONE && insn.opcode == IRET && !insn.narrow)
				found(&ahead, ahead.sp, word, row);
			return;
		}
		if (is_iret_hypercall(&ahead, &insn, word)) {
			/* rax, r11, rcx and flags */
			found(&ahead, ahead.sp + 32, word, row);
			return;
		}
		if (insn.map == X86_MAP_ONE && insn.opcode == MOV_EAX && !insn.extra)
			ahead.eax = insn.imm;
		if (effect.op == X86_JUMP_INDIRECT)
			return;
		if (effect.op != X86_JUMP) {
			if (!pass(&ahead, &insn, &effect, word))
				return;
			continue;
		}
		va = (uint64_t)effect.value;
		if (is_iret_stub(reader, va, word)) {
			/* x86-64: flags of the hypercall; x86-32: eax, which the stub pushes. */
			found(&ahead, ahead.sp + (word == 8 ? 8 : 0), word, row);
			return;
		}
	}
}

bool x86_is_iret(const struct x86_iret *frame)
{
	return frame->flags & FLAGS_SET && !(frame->flags & FLAGS_CLEAR) && frame->cs & 0xffff;
}
