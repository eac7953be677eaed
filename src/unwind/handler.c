/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"

/* Instructions from a handler's first to its last, at most; Linux has some 160. */
#define STEPS 224

/* The operations at `pc`, and what comes next, branches not taken; *next 0: it cannot be told. */
static unsigned fetch(const struct unwind_isa *isa, struct code_reader *reader, uint64_t pc,
		      struct link_op op[LINK_OPS], uint64_t *next)
{
	const struct link_code *code = isa->link_code;
	size_t n;
	const uint8_t *bytes = code_at(reader, pc, &n);
	const unsigned n_ops = pc % code->unit ? 0 : code->decode(bytes, n, op);

	if (!n_ops)
		return 0;
	*next = pc + op->size;
	if (op->op == LINK_STOP || (op->op == LINK_JALR && op->rd == code->zero))
		*next = 0;
	else if (op->op == LINK_JUMP && op->rd == code->zero)
		*next = pc + (uint64_t)op->imm;
	return n_ops;
}

static bool calls(const struct unwind_isa *isa, const struct link_op *op)
{
	return (op->op == LINK_JUMP || op->op == LINK_JALR) && op->rd != isa->link_code->zero;
}

bool handler_returns(const struct unwind_isa *isa, struct code_reader *reader, uint64_t pc,
		     uint64_t end, struct row *trap)
{
	struct link_op op[LINK_OPS];

	for (unsigned i = 0; i < STEPS && pc && *reader->steps && fetch(isa, reader, pc, op, &pc);
	     i++, --*reader->steps) {
		if (op->op == LINK_XRET)
			return true;
		/* A call at the end of a function never returns. */
		if (pc == end && calls(isa, op))
			return false;
	}
	return false;
}

static void begin(struct handler_run *run, struct walk *walk)
{
	const struct cursor *at = &walk->at;
	const struct regs *regs = walk->in->regs;
	const struct link_code *code = walk->isa->link_code;

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
	if (!at->first && code->gives_frame &&
	    code->gives_frame(&walk->in->unwinder->reader, at->addr))
		run->x[code->frame] = run->x[walk->isa->sp];
}

static void handler_store(struct handler_run *run, uint64_t va, struct handler_value value)
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

/* Memory, as far as the handler's own stores and the stack tell it. */
static struct handler_value handler_load(struct handler_run *run, uint64_t va)
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

static void handler_called(struct handler_run *run)
{
	const struct unwind_isa *isa = run->walk->isa;
	const struct link_code *code = isa->link_code;
	const struct handler_value sp = run->x[isa->sp];
	struct handler_value frame = {0};

	if (code->gives_frame)
		frame = run->x[code->frame];
	for (unsigned reg = 0; reg < 32; reg++)
		run->x[reg].known &= !(code->call_changes >> reg & 1);
	if (frame.known && frame.is == sp.is)
		run->x[code->frame] = frame;
}

static struct handler_value emulated(struct handler_run *run, const struct link_op *op)
{
	const struct handler_value none = {0}, a = run->x[op->rs1], b = run->x[op->rs2];
	const struct handler_value *control;

	switch (op->op) {
	case LINK_ADDI:
		return (struct handler_value){a.is + (uint64_t)op->imm, a.known};
	case LINK_ADD:
		return (struct handler_value){a.is + b.is, a.known && b.known};
	case LINK_CONST:
		return (struct handler_value){(uint64_t)op->imm, true};
	case LINK_LOAD:
		return a.known ? handler_load(run, a.is + (uint64_t)op->imm) : none;
	case LINK_READ:
		control = run->walk->isa->link_code->control(run, op->imm);
		return control ? *control : none;
	default:
		return none;
	}
}

static void emulate(struct handler_run *run, const struct link_op *op)
{
	const struct link_code *code = run->walk->isa->link_code;
	const struct handler_value base = run->x[op->rs1];
	struct handler_value *control = NULL, was = {0};

	run->x[code->zero] = (struct handler_value){.known = true};
	if (calls(run->walk->isa, op)) {
		handler_called(run);
		return;
	}
	if (op->op == LINK_STORE && base.known)
		handler_store(run, base.is + (uint64_t)op->imm, run->x[op->rs2]);
	if (op->op == LINK_WRITE)
		control = code->control(run, op->imm);
	if (control) {
		was = *control;
		*control = base;
	}
	if (op->rd != code->zero)
		run->x[op->rd] = control ? was : emulated(run, op);
}

bool handler_run(struct handler_run *run, struct walk *walk)
{
	struct code_reader *reader = &walk->in->unwinder->reader;
	uint64_t pc = walk->at.addr;
	struct link_op op[LINK_OPS];
	unsigned n;

	begin(run, walk);
	for (unsigned i = 0; i < STEPS && pc; i++) {
		n = fetch(walk->isa, reader, pc, op, &pc);
		if (!n || !walk_spend(walk))
			return false;
		if (op->op == LINK_XRET)
			return true;
		for (unsigned j = 0; j < n; j++)
			emulate(run, &op[j]);
	}
	return false;
}

enum found handler_end(struct walk *walk, enum unwind_end why)
{
	return walk_is_stuck(walk) ? FOUND_NONE : walk_end(walk, why);
}

enum found handler_leave(const struct handler_run *run, struct handler_value sp, uint8_t *trust)
{
	struct walk *walk = run->walk;
	const struct unwind_isa *isa = walk->isa;
	const struct code *code = walk->in->code;
	const uint64_t pc = walk_strip(walk, run->pc.is);
	const unsigned unit = isa->link_code->unit;
	uint32_t insn;

	if (!run->pc.known || !sp.known || sp.is & 7 ||
	    (!walk_goes_up(walk, sp.is) && (sp.is != walk->at.sp || !walk->at.first)) ||
	    pc & (unit - 1) || code->read(code->ctx, pc, &insn, unit) != unit)
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
