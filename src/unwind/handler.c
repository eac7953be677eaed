/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/handler.h"

/* Instructions from a handler's first to its last, at most; Linux has some 160. */
#define STEPS 224

bool handler_returns(const struct handler_code *code, struct code_reader *reader, uint64_t pc,
		     uint64_t end, unsigned *steps)
{
	struct handler_insn insn;

	for (unsigned i = 0; i < STEPS && pc && *steps && code->decode(reader, pc, &insn);
	     i++, --*steps) {
		if (insn.returns)
			return true;
		pc = insn.next;
		/* A call at the end of a function never returns. */
		if (pc == end && insn.calls)
			return false;
	}
	return false;
}

static void begin(struct handler_run *run, struct walk *walk)
{
	const struct cursor *at = &walk->at;
	const struct regs *regs = walk->in->regs;

	*run = (struct handler_run){.walk = walk};
	for (unsigned reg = 0; reg < 32 && at->first; reg++)
		run->x[reg] = (struct handler_value){regs->gp[reg], regs->gp_valid >> reg & 1};
	run->x[walk->isa->fp] = (struct handler_value){at->fp, at->fp_known};
	run->x[walk->isa->ra] = (struct handler_value){at->ra, at->ra_known};
	run->x[walk->isa->sp] = (struct handler_value){at->sp, at->exact};
	/* Not saved yet, or given back already. */
	if (at->first && regs->has_elr) {
		run->pc = (struct handler_value){regs->elr, true};
		run->status = (struct handler_value){regs->spsr, true};
	}
}

bool handler_run(struct handler_run *run, const struct handler_code *code, struct walk *walk)
{
	struct code_reader *reader = &walk->in->unwinder->reader;
	uint64_t pc = walk->at.addr;
	struct handler_insn insn;

	begin(run, walk);
	if (code->begin)
		code->begin(run);
	for (unsigned i = 0; i < STEPS && pc && code->decode(reader, pc, &insn) && walk_spend(walk);
	     i++) {
		if (insn.returns)
			return true;
		code->apply(run, &insn);
		pc = insn.next;
	}
	return false;
}

void handler_store(struct handler_run *run, uint64_t va, struct handler_value value)
{
	unsigned i = 0;

	while (i < run->n && run->store[i].va != va)
		i++;
	if (i == HANDLER_STORES)
		return;
	run->store[i].va = va;
	run->store[i].value = value;
	run->n += i == run->n;
}

struct handler_value handler_load(struct handler_run *run, uint64_t va)
{
	struct handler_value value = {0};

	for (unsigned i = 0; i < run->n; i++)
		if (run->store[i].va == va)
			return run->store[i].value;
	value.known = run->n < HANDLER_STORES && walk_load(run->walk, va, &value.is);
	if (!value.known)
		walk_note_elsewhere(run->walk, va);
	return value;
}

void handler_called(struct handler_run *run, uint32_t changes)
{
	for (unsigned reg = 0; reg < 32; reg++)
		run->x[reg].known &= !(changes >> reg & 1);
}

enum found handler_end(struct walk *walk, enum unwind_end why)
{
	return walk->beyond || walk->elsewhere ? FOUND_NONE : walk_end(walk, why);
}

static bool is_stack(const struct walk *walk, uint64_t sp)
{
	return !(sp & 7) && (walk_goes_up(walk, sp) || (sp == walk->at.sp && walk->at.first));
}

enum found handler_leave(const struct handler_run *run, struct handler_value sp,
			 uint64_t insn_align, uint8_t *trust)
{
	struct walk *walk = run->walk;
	const struct unwind_isa *isa = walk->isa;
	const struct code *code = walk->in->code;
	const uint64_t pc = walk_strip(walk, run->pc.is);
	uint32_t insn;

	if (!run->pc.known || !sp.known || !is_stack(walk, sp.is) || pc & (insn_align - 1) ||
	    code->read(code->ctx, pc, &insn, insn_align) != insn_align)
		return handler_end(walk, UNWIND_BROKEN);
	*trust = TRUST_SURE;
	walk->elsewhere = 0;
	walk->beyond = false;
	walk->at = (struct cursor){.addr = pc,
				   .kind = FRAME_PC,
				   .sp = sp.is,
				   .fp = run->x[isa->fp].is,
				   .exact = true,
				   .fp_known = run->x[isa->fp].known,
				   .ra = run->x[isa->ra].is,
				   .ra_known = run->x[isa->ra].known};
	return FOUND_CALLER;
}
