/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The end of an exception handler, run in advance: how it gives back what it
 * has saved tells where the interrupted code's registers are, whatever its
 * frame looks like. Of values that cannot be told nothing is claimed.
 */

#include "arch/arm64_mmu.h"
#include "unwind/arm64_access.h"
#include "unwind/arm64_frame.h"

/* Words that it may have stored on its way. */
#define STORES 40
#define CHUNK  64 /* instructions that are read at once */

/* Instructions (DDI 0487, C6.2): the register is in the lowest bits of all that move one. */
#define ERET   0xd69f03e0u
#define ERETAA 0xd69f0bffu
#define ERETAB 0xd69f0fffu

/* System registers that matter, as above, from their encodings (DDI 0487, C5.2). */
enum { ELR, SPSR, SP_EL0, SPECIALS };
static const uint32_t special_encoding[SPECIALS] = {0x4020, 0x4000, 0x4100};

/* SPSR_EL1 (DDI 0487, C5.2.20): what was interrupted, and on whose stack it was. */
#define SPSR_MODE 0x1fu
enum { MODE_EL0 = 0, MODE_EL1_SP0 = 4, MODE_EL1 = 5 };

/* Registers that a call may change (AAPCS64, 6.1.1), and x30. */
#define CALL_CHANGES 0x4007ffffu

struct value {
	uint64_t is;
	bool known;
};

struct fetch {
	const struct code *code;
	uint64_t start;
	uint32_t n, insn[CHUNK];
};

struct run {
	struct walk *walk;
	struct value x[32]; /* the last is sp */
	struct value special[SPECIALS];
	struct {
		uint64_t va;
		struct value value;
	} store[STORES];
	unsigned n;
};

static bool fetch(struct fetch *from, uint64_t va, uint32_t *insn)
{
	if (va & 3)
		return false;
	if (va - from->start >= 4ull * from->n) {
		from->start = va;
		from->n = (uint32_t)(from->code->read(from->code->ctx, va, from->insn,
						      sizeof(from->insn)) /
				     4);
	}
	if (!from->n)
		return false;
	*insn = from->insn[(va - from->start) / 4];
	return true;
}

static bool is_eret(uint32_t insn)
{
	return insn == ERET || insn == ERETAA || insn == ERETAB;
}

/* Does it go to another place for good? Then *target is that, 0: not known. */
static bool leaves(uint32_t insn, uint64_t pc, uint64_t *target)
{
	*target = 0;
	if ((insn & 0xfc000000) == 0x14000000) {
		*target = pc + (uint64_t)(arm64_sign_extend(arm64_field(insn, 0, 26), 26) * 4);
		return true;
	}
	/* br, ret and their like; brk and udf. */
	return ((insn & 0xfe000000) == 0xd6000000 && !(insn >> 21 & 1)) ||
	       (insn & 0xffe0001f) == 0xd4200000 || !(insn >> 16);
}

static bool is_call(uint32_t insn)
{
	uint64_t target;

	return arm64_is_call(insn, 0, &target);
}

bool arm64_leads_to_eret(const struct code *code, uint64_t pc, uint64_t end)
{
	struct fetch from = {.code = code};
	uint64_t target;
	uint32_t insn;

	for (unsigned i = 0; i < ARM64_ERET_STEPS && fetch(&from, pc, &insn); i++) {
		if (is_eret(insn))
			return true;
		if (leaves(insn, pc, &target)) {
			if (!target)
				return false;
			pc = target;
			continue;
		}
		pc += 4;
		/* A call at the end of a function never returns. */
		if (pc == end && is_call(insn))
			return false;
	}
	return false;
}

static void store(struct run *run, uint64_t va, struct value value)
{
	for (unsigned i = 0; i < run->n; i++) {
		if (run->store[i].va == va) {
			run->store[i].value = value;
			return;
		}
	}
	if (run->n < STORES) {
		run->store[run->n].va = va;
		run->store[run->n++].value = value;
	}
}

static struct value load(struct run *run, uint64_t va)
{
	struct value value = {0};

	for (unsigned i = 0; i < run->n; i++)
		if (run->store[i].va == va)
			return run->store[i].value;
	value.known = run->n < STORES && walk_load(run->walk, va, &value.is);
	if (!value.known && !(va & 7))
		arm64_note_elsewhere(run->walk, va);
	return value;
}

static void apply_access(struct run *run, const struct arm64_access *access)
{
	const struct value base = run->x[access->base];
	const uint64_t va = base.is + (access->post ? 0 : (uint64_t)access->offset);

	for (unsigned i = 0; i < access->n; i++) {
		const unsigned reg = access->reg[i];
		struct value value = {.known = reg == ARM64_SP}; /* here that is xzr */

		if (!access->load) {
			if (base.known && access->whole)
				store(run, va + 8 * i, reg == ARM64_SP ? value : run->x[reg]);
			continue;
		}
		if (reg == ARM64_SP)
			continue;
		run->x[reg].known = false;
		if (base.known && access->whole)
			run->x[reg] = load(run, va + 8 * i);
	}
	if (access->writes_back)
		run->x[access->base].is = base.is + (uint64_t)access->offset;
}

/* add and sub with an immediate; mov of a register. */
static bool arithmetic(struct run *run, uint32_t insn)
{
	const unsigned to = arm64_field(insn, 0, 5), from = arm64_field(insn, 5, 5),
		       by = arm64_field(insn, 16, 5);
	uint64_t number = (uint64_t)arm64_field(insn, 10, 12) << (insn >> 22 & 1 ? 12 : 0);

	if ((insn & 0xffe0ffe0) == 0xaa0003e0) {
		if (to != ARM64_SP)
			run->x[to] = by == ARM64_SP ? (struct value){.known = true} : run->x[by];
		return true;
	}
	if ((insn & 0xbf800000) != 0x91000000)
		return false;
	if (insn >> 30 & 1)
		number = 0 - number;
	run->x[to] = (struct value){run->x[from].is + number, run->x[from].known};
	return true;
}

static bool special(struct run *run, uint32_t insn)
{
	const bool read = (insn & 0xfff00000) == 0xd5300000;
	const unsigned reg = arm64_field(insn, 0, 5);
	const struct value zero = {.known = true};
	struct value value = {0};

	if (!read && (insn & 0xfff00000) != 0xd5100000)
		return false;
	for (unsigned i = 0; i < SPECIALS; i++) {
		if ((insn & 0xfffe0) != (0x80000u | special_encoding[i]))
			continue;
		if (!read)
			run->special[i] = reg == ARM64_SP ? zero : run->x[reg];
		value = run->special[i];
	}
	if (read && reg != ARM64_SP)
		run->x[reg] = value;
	return true;
}

/* What cannot be followed leaves its results unknown. */
static void lose(struct run *run, uint32_t insn)
{
	const unsigned kind = arm64_field(insn, 25, 4), to = arm64_field(insn, 0, 5);
	const bool access = (kind & 5) == 4;
	const bool to_sp = (insn & 0xbfe00000) == 0x8b200000 ||
			   ((insn & 0x9f800000) == 0x92000000 && arm64_field(insn, 29, 2) != 3);

	if (is_call(insn)) {
		for (unsigned reg = 0; reg < ARM64_SP; reg++)
			run->x[reg].known &= !(CALL_CHANGES >> reg & 1);
		return;
	}
	/* Data processing with immediates and registers; loads and stores. */
	if (!access && (kind & 14) != 8 && (kind & 5) != 5)
		return;
	if (to != ARM64_SP || to_sp)
		run->x[to].known = false;
	if (access && arm64_field(insn, 10, 5) != ARM64_SP)
		run->x[arm64_field(insn, 10, 5)].known = false;
}

static void apply(struct run *run, uint32_t insn)
{
	struct arm64_access access;

	if (arm64_access(insn, &access))
		apply_access(run, &access);
	else if (!arithmetic(run, insn) && !special(run, insn))
		lose(run, insn);
}

static bool run_to_eret(struct run *run, const struct code *code)
{
	struct fetch from = {.code = code};
	uint64_t pc = run->walk->at.addr, target;
	uint32_t insn;

	for (unsigned i = 0;
	     i < ARM64_ERET_STEPS && fetch(&from, pc, &insn) && walk_spend(run->walk); i++) {
		if (is_eret(insn))
			return true;
		if (leaves(insn, pc, &target)) {
			if (!target)
				return false;
			pc = target;
			continue;
		}
		apply(run, insn);
		pc += 4;
	}
	return false;
}

static void begin(struct run *run, const struct arm64_walk *arm64)
{
	const struct place *at = &arm64->walk.at;
	const struct regs *regs = arm64->walk.in->regs;

	for (unsigned reg = 0; reg < ARM64_SP && at->first; reg++)
		run->x[reg] = (struct value){regs->gp[reg], regs->gp_valid >> reg & 1};
	run->x[ARM64_FP] = (struct value){at->fp, at->fp_known};
	run->x[ARM64_LR] = (struct value){arm64->lr, arm64->lr_known};
	run->x[ARM64_SP] = (struct value){at->sp, at->exact};
	/* Not saved yet, or given back already. */
	if (at->first && regs->has_elr) {
		run->special[ELR] = (struct value){regs->elr, true};
		run->special[SPSR] = (struct value){regs->spsr, true};
	}
}

/* The stack of what was interrupted; false: what is in SPSR makes no sense. */
static bool stack_of(const struct run *run, uint64_t spsr, struct value *sp)
{
	*sp = (spsr & SPSR_MODE) == MODE_EL1 ? run->x[ARM64_SP] : run->special[SP_EL0];
	return !(spsr >> 36) &&
	       ((spsr & SPSR_MODE) == MODE_EL1 || (spsr & SPSR_MODE) == MODE_EL1_SP0);
}

static bool is_stack(const struct walk *walk, uint64_t sp)
{
	return !(sp & 7) && (sp > walk->at.sp || (sp == walk->at.sp && walk->at.first) ||
			     walk_is_elsewhere(walk->stack, sp));
}

static enum found end(struct walk *walk, enum unwind_end why)
{
	if (walk->beyond || walk->elsewhere)
		return FOUND_NONE;
	walk->out->end = why;
	return FOUND_END;
}

enum found arm64_by_eret(struct arm64_walk *arm64, uint8_t *trust)
{
	struct walk *walk = &arm64->walk;
	const struct code *code = walk->in->code;
	struct run run = {.walk = walk};
	struct value sp, pc, spsr;
	uint32_t insn;

	begin(&run, arm64);
	if (!run_to_eret(&run, code))
		return end(walk, UNWIND_BROKEN);
	pc = run.special[ELR];
	spsr = run.special[SPSR];
	if (!pc.known || !spsr.known)
		return end(walk, UNWIND_BROKEN);
	/* A program: the kernel's stack is whole. */
	if (!(spsr.is >> 36) && (spsr.is & SPSR_MODE) == MODE_EL0)
		return end(walk, UNWIND_OUTERMOST);
	/* A thread of Linux's kernel could become a program, and is none yet. */
	if (!pc.is && code->read(code->ctx, 0, &insn, 4) != 4)
		return end(walk, UNWIND_OUTERMOST);
	pc.is = arm64_strip(&walk->in->regs->mmu, pc.is);
	if (!stack_of(&run, spsr.is, &sp) || !sp.known || !is_stack(walk, sp.is) || pc.is & 3 ||
	    code->read(code->ctx, pc.is, &insn, 4) != 4)
		return end(walk, UNWIND_BROKEN);
	*trust = TRUST_SURE;
	walk->elsewhere = 0;
	walk->beyond = false;
	walk->at = (struct place){.addr = pc.is,
				  .kind = FRAME_PC,
				  .sp = sp.is,
				  .fp = run.x[ARM64_FP].is,
				  .exact = true,
				  .fp_known = run.x[ARM64_FP].known};
	arm64->lr = run.x[ARM64_LR].is;
	arm64->lr_known = run.x[ARM64_LR].known;
	return FOUND_CALLER;
}
