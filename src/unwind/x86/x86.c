/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/x86/x86.h"

#include <string.h>

#include "unwind/walk.h"

bool x86_call_before(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, uint64_t ret,
		     struct call *out)
{
	const unsigned word = isa->word;
	const uint8_t *end = bytes + n;
	struct x86_insn insn;
	int32_t offset;

	*out = (struct call){0};
	if (n >= 5 && end[-5] == 0xe8) {
		memcpy(&offset, end - 4, 4);
		out->direct = true;
		out->target = ret + (uint64_t)(int64_t)offset;
		if (word == 4)
			out->target &= 0xffffffff;
	}
	for (size_t len = 2; len <= X86_CALL_MAX && len <= n && !out->indirect; len++) {
		const uint8_t *from = end - len;

		if ((*from == 0xff || len > 2) && x86_decode(from, len, word, &insn) == len)
			out->indirect = x86_effect(&insn, 0, word).op == X86_CALL_INDIRECT;
	}
	return out->direct || out->indirect;
}

/* xor ebp, ebp: in either direction */
static bool clears_fp(const struct x86_insn *insn)
{
	return insn->map == X86_MAP_ONE && (insn->opcode == 0x31 || insn->opcode == 0x33) &&
	       insn->mod == 3 && insn->reg == X86_BP && insn->rm == X86_BP;
}

static bool pushes_zero(const struct x86_insn *insn)
{
	return insn->map == X86_MAP_ONE && (insn->opcode == 0x6a || insn->opcode == 0x68) &&
	       !insn->imm;
}

/* Do instructions without a jump do both, and is the last of them a call? */
static bool marks_stack(const uint8_t *bytes, size_t n, unsigned word)
{
	bool cleared = false, pushed = false;

	for (;;) {
		struct x86_effect effect;
		struct x86_insn insn;
		size_t len = x86_decode(bytes, n, word, &insn);

		if (!len)
			return false;
		effect = x86_effect(&insn, 0, word);
		if (len == n)
			return cleared && pushed && x86_is_call(&effect);
		if (effect.op >= X86_CALL)
			return false;
		cleared = cleared || clears_fp(&insn);
		pushed = pushed || pushes_zero(&insn);
		bytes += len;
		n -= len;
	}
}

/*
 * Do these `n` bytes of straight code clear the frame pointer, push 0 in place
 * of a return address, and then end in a call?
 */
static bool x86_begins_stack(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (marks_stack(bytes + i, n - i, isa->word))
			return true;
	return false;
}

bool x86_is_hypercall_stub(const uint8_t *slot, unsigned word)
{
	/* The bytes before and behind the hypercall's number, which has four. */
	static const struct {
		unsigned word, n_head, n_tail;
		const char *head, *tail;
	} stubs[] = {
		/* PV: push rcx; push r11; mov eax, n; syscall; pop r11; pop rcx; ret */
		{8, 4, 6, "\x51\x41\x53\xb8", "\x0f\x05\x41\x5b\x59\xc3"},
		/* and for iret: push rcx; push r11; push rax; mov eax, n; syscall */
		{8, 5, 2, "\x51\x41\x53\x50\xb8", "\x0f\x05"},
		/* PV: mov eax, n; int 0x82; ret; and for iret: push eax; mov eax, n; int 0x82 */
		{4, 1, 3, "\xb8", "\xcd\x82\xc3"},
		{4, 2, 2, "\x50\xb8", "\xcd\x82"},
		/* HVM and PVH: mov eax, n; vmcall or vmmcall; ret */
		{0, 1, 4, "\xb8", "\x0f\x01\xc1\xc3"},
		{0, 1, 4, "\xb8", "\x0f\x01\xd9\xc3"},
	};

	for (size_t i = 0; i < sizeof(stubs) / sizeof(*stubs); i++)
		if ((!stubs[i].word || stubs[i].word == word) &&
		    !memcmp(slot, stubs[i].head, stubs[i].n_head) &&
		    !memcmp(slot + stubs[i].n_head + 4, stubs[i].tail, stubs[i].n_tail))
			return true;
	return false;
}

/* x86-64 and x86-32, for the unwinder. */

#define PUSH_BP 0x55

/* DWARF numbers of registers (arch/arch.h). */
enum { FP_64 = 6, SP_64 = 7, PC_64 = 16, FP_32 = 5, SP_32 = 4, PC_32 = 8 };

uint8_t x86_dwarf_number(uint8_t reg, unsigned word)
{
	static const uint8_t wide[8] = {0, 2, 1, 3, SP_64, FP_64, 4, 5};

	if (reg > 15)
		return RULE_NO_REGISTER;
	return word == 8 && reg < 8 ? wide[reg] : reg;
}

/*
 * The CFA is behind the return address's slot, to which a state's offsets refer. Code without frame
 * pointers may keep a pointer to any place of its frame in fp: that is no frame record.
 */
static struct rule rule_of(const struct x86_state *state, int32_t word)
{
	struct rule rule = {.cfa_sp = RULE_NOT,
			    .cfa_fp = state->fp_at ? state->fp_at + word : RULE_NOT,
			    .ra_at = -word,
			    .fp_at = state->fp_lost ? RULE_NOT : RULE_SAME,
			    .origin = x86_dwarf_number(state->origin_reg, (unsigned)word),
			    .copied = state->copied,
			    .chained = state->fp_at == word && state->saved_at == word,
			    .entry = state->entry};

	if (state->depth != X86_LOST) {
		rule.cfa_sp = state->depth + word;
		rule.discards = state->depth < 0;
	}
	if (state->saved_at)
		rule.fp_at = -word - state->saved_at;
	if (state->origin_at)
		rule.origin_at = -word - state->origin_at;
	return rule;
}

static enum flow_result follow(const struct flow_query *query, struct code_reader *reader,
			       struct rule *out)
{
	struct x86_state state;
	enum flow_result flow = x86_flow(query, reader, &state);

	if (flow == FLOW_FOUND || flow == FLOW_GUESSED)
		*out = rule_of(&state, query->isa->word);
	return flow;
}

/* Bounds of a stub in the hypercall page; symbols name one of them at most. */
static bool stub_bounds(const struct unwind_isa *isa, struct code_reader *reader, uint64_t va,
			uint64_t *start, uint64_t *end)
{
	const struct code *code = reader->code;
	uint8_t slot[X86_STUB_SLOT];

	*start = va & ~(X86_STUB_SLOT - 1ull);
	*end = *start + X86_STUB_SLOT;
	return code->read(code->ctx, *start, slot, sizeof(slot)) == sizeof(slot) &&
	       x86_is_hypercall_stub(slot, isa->word);
}

/* RFLAGS (SDM vol. 3, 2.3): bit 1 is always set, these never. */
#define FLAGS_SET   0x2u
#define FLAGS_CLEAR (~0x3f7fd7ull)

/*
 * Do the words from `slot` on make a frame as the processor or Xen pushes it: pc, cs, flags (SDM vol. 3, 6.14;
 * Xen public/arch-x86)?
 */
static bool is_pushed(struct walk *walk, const struct row_caller *caller)
{
	uint64_t cs, flags;

	return walk_load(walk, caller->slot + walk->word, &cs) &&
	       walk_load(walk, caller->slot + 2 * walk->word, &flags) && flags & FLAGS_SET &&
	       !(flags & FLAGS_CLEAR) && cs & 0xffff;
}

static bool pushed(struct walk *walk, const struct row *row, const struct row_caller *caller)
{
	return row->kind != ROW_TRAP || row->sp_at - row->ra_at != 3 * (int)walk->word ||
	       is_pushed(walk, caller);
}

/* Privilege of a selector; programs have the least (SDM vol. 3, 3.4.2). */
#define RPL 3u

static enum found interrupted(struct walk *walk, const struct row *trap, uint8_t *trust)
{
	struct row_caller caller;
	uint64_t cs;

	if (!rule_apply(walk, NULL, trap, &caller) || !is_pushed(walk, &caller) ||
	    !pc_info_at(walk->in->unwinder, caller.pc, FRAME_PC)->readable)
		return FOUND_NONE;
	/* 32-bit code that interrupts a program has its stack pointer pushed, too: the handler's stack is whole. */
	if (walk->word == 4 && !walk->in->regs->user &&
	    walk_load(walk, caller.slot + walk->word, &cs) && (cs & RPL) == RPL)
		return walk_end(walk, UNWIND_OUTERMOST);
	*trust = TRUST_SURE;
	return rule_go_to_interrupted(walk, &caller);
}

static bool pushes_fp(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	return n && *bytes == PUSH_BP;
}

/* Does it load sp with a fixed address, or from there, as an entry does? */
static bool takes_stack(const struct x86_insn *insn)
{
	return insn->map == X86_MAP_ONE &&
	       (insn->opcode == X86_MOV_FROM || insn->opcode == X86_LEA) && !insn->vector &&
	       insn->mod == 0 && insn->reg == X86_SP && insn->base == X86_NO_REG && !insn->index;
}

static bool makes_frame(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	struct x86_insn insn;
	struct x86_effect effect;

	if (!x86_decode(bytes, n, isa->word, &insn))
		return false;
	effect = x86_effect(&insn, 0, isa->word);
	return x86_begins_function(&insn, &effect, false, isa->word) || takes_stack(&insn);
}

/* Compilers align functions to 16 bytes; else most of them stand behind one that returns. */
static bool may_begin(const uint8_t *bytes, size_t n, uint64_t va)
{
	return !(va % 16) || (n && bytes[n - 1] == X86_RET);
}

/* What both have alike. */
#define X86                                                                              \
	.isa = ISA_X86, .address = UINT64_MAX, .sets_up_frame = pushes_fp,               \
	.makes_frame = makes_frame, .may_begin = may_begin, .call_max = X86_CALL_MAX,    \
	.call_before = x86_call_before, .begins_stack = x86_begins_stack, .marking = 16, \
	.follow = follow, .bounds = stub_bounds, .find_return = x86_find_return,         \
	.handler = x86_find_trap, .interrupted = interrupted, .pushed = pushed

const struct unwind_isa unwind_x86_64 = {
	X86,	     .word = 8,	  .sp = SP_64,
	.fp = FP_64, .ra = PC_64, .record = {.fp_at = 0, .ra_at = 8, .size = 16},
};

const struct unwind_isa unwind_x86_32 = {
	X86,	     .word = 4,	  .sp = SP_32,
	.fp = FP_32, .ra = PC_32, .record = {.fp_at = 0, .ra_at = 4, .size = 8},
};
