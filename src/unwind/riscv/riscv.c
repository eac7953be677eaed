/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/handler.h"
#include "unwind/riscv/insn.h"

/*
 * State of a function of RISC-V code at one instruction: the values of its
 * registers, as far as they follow from its first instruction on. The canonical
 * frame address (CFA) is the stack pointer at the function's entry.
 */

enum riscv_is {
	RISCV_UNKNOWN,
	RISCV_ENTRY, /* value of register `number` at the function's entry */
	RISCV_CFA,   /* the CFA + number */
	RISCV_CONST, /* number */
	/* From an instruction ahead to the return, the entry and the CFA are that instruction's. */
	RISCV_FP,	 /* s0 there + number */
	RISCV_LOADED,	 /* the word at the CFA + number */
	RISCV_LOADED_FP, /* the word at s0 there + number */
};

struct riscv_value {
	int32_t number;
	uint8_t is; /* enum riscv_is */
};

/*
 * Slot of a register that is saved for the caller. From then on the value in
 * the register depends on the path, until it is restored.
 */
struct riscv_saved {
	int32_t at; /* the word at CFA + at, if `is` */
	bool is;
	struct riscv_value what;
};

struct riscv_state {
	struct riscv_value x[RISCV_REGISTERS];
	struct riscv_saved ra, s0;
	bool ahead; /* to a return */
};

/* Functions with frames beyond this are not followed, bytes. */
#define FRAME_MAX (1 << 20)

/* The other register that return addresses are put in, by calls of compilers' own helpers. */
#define T0 5

static const struct riscv_value unknown = {.is = RISCV_UNKNOWN};

/* At a function's first instruction. */
static struct riscv_state riscv_at_entry(void)
{
	struct riscv_state state = {0};

	for (unsigned reg = RISCV_RA; reg < RISCV_REGISTERS; reg++)
		state.x[reg] = (struct riscv_value){.is = RISCV_ENTRY, .number = (int32_t)reg};
	state.x[RISCV_ZERO].is = RISCV_CONST;
	state.x[RISCV_SP] = (struct riscv_value){.is = RISCV_CFA};
	return state;
}

static struct riscv_value number(uint8_t is, int64_t value)
{
	const struct riscv_value out = {.number = (int32_t)value, .is = is};

	return out.number == value ? out : unknown;
}

/* One of them is a number, if the sum can be told. */
static struct riscv_value sum(struct riscv_value a, struct riscv_value b)
{
	const int64_t value = (int64_t)a.number + b.number;

	if (b.is == RISCV_CONST && (a.is == RISCV_CFA || a.is == RISCV_CONST || a.is == RISCV_FP))
		return number(a.is, value);
	if (a.is == RISCV_CONST && b.is == RISCV_CFA)
		return number(RISCV_CFA, value);
	return unknown;
}

static struct riscv_value plus(struct riscv_value a, int64_t imm)
{
	return imm || a.is == RISCV_UNKNOWN ? sum(a, number(RISCV_CONST, imm)) : a;
}

static struct riscv_value difference(struct riscv_value a, struct riscv_value b)
{
	if (b.is != RISCV_CONST)
		return unknown;
	return sum(a, number(RISCV_CONST, -(int64_t)b.number));
}

static struct riscv_value shifted(struct riscv_value a, int64_t by)
{
	if (a.is != RISCV_CONST || by > 31)
		return unknown;
	return number(RISCV_CONST, (int64_t)((uint64_t)(int64_t)a.number << by));
}

static void save(struct riscv_saved *saved, int32_t at, struct riscv_value what)
{
	if (!saved->is)
		*saved = (struct riscv_saved){.at = at, .is = true, .what = what};
}

/* Is this a value of the caller's, or what was loaded as such and is stored by a last call? */
static bool is_callers(const struct riscv_state *state, struct riscv_value value, unsigned reg)
{
	if (value.is == RISCV_ENTRY)
		return value.number == (int32_t)reg;
	return state->ahead &&
	       (value.is == RISCV_LOADED || value.is == RISCV_LOADED_FP || value.is == RISCV_FP);
}

/* Only the caller's values count, and where they are first: later stores are spills. */
static void store(struct riscv_state *state, const struct riscv_insn *insn)
{
	const struct riscv_value to = plus(state->x[insn->rs1], insn->imm);
	const struct riscv_value from = state->x[insn->rs2];

	if (to.is != RISCV_CFA)
		return;
	if (is_callers(state, from, RISCV_RA) && (!state->ahead || insn->rs2 == RISCV_RA))
		save(&state->ra, to.number, from);
	else if (is_callers(state, from, RISCV_S0) && (!state->ahead || insn->rs2 == RISCV_S0))
		save(&state->s0, to.number, from);
}

static bool is_at(const struct riscv_saved *saved, struct riscv_value where)
{
	return saved->is && where.is == RISCV_CFA && where.number == saved->at;
}

static struct riscv_value load(struct riscv_state *state, const struct riscv_insn *insn)
{
	const struct riscv_value from = plus(state->x[insn->rs1], insn->imm);
	const unsigned reg = is_at(&state->ra, from)   ? RISCV_RA
			     : is_at(&state->s0, from) ? RISCV_S0
						       : RISCV_ZERO;

	if (reg == RISCV_ZERO && state->ahead && from.is == RISCV_CFA)
		return number(RISCV_LOADED, from.number);
	if (reg == RISCV_ZERO && state->ahead && from.is == RISCV_FP)
		return number(RISCV_LOADED_FP, from.number);
	if (reg == RISCV_ZERO)
		return unknown;
	if (insn->rd == RISCV_RA && reg == RISCV_RA)
		state->ra.is = false;
	else if (insn->rd == RISCV_S0 && reg == RISCV_S0)
		state->s0.is = false;
	return reg == RISCV_RA ? state->ra.what : state->s0.what;
}

static void called(struct riscv_state *state)
{
	for (unsigned reg = 0; reg < RISCV_REGISTERS; reg++)
		if (RISCV_CALL_CHANGES >> reg & 1)
			state->x[reg] = unknown;
}

/* A tail call has given back its frame; ahead, the return address was taken from it, or never put there. */
static bool is_last_call(const struct riscv_state *state)
{
	const struct riscv_value sp = state->x[RISCV_SP], ra = state->x[RISCV_RA];

	if (state->ahead && (ra.is == RISCV_LOADED || ra.is == RISCV_LOADED_FP))
		return true;
	return sp.is == RISCV_CFA && !sp.number && ra.is == RISCV_ENTRY;
}

static enum path jump_by_register(const struct riscv_state *state, const struct riscv_insn *insn)
{
	if (insn->rs1 == RISCV_RA)
		return PATH_RETURN;
	if (insn->rs1 == T0)
		return PATH_END;
	return is_last_call(state) ? PATH_AWAY : PATH_TABLE;
}

/* False: a call through another register than ra, which may change any register. */
static bool jump(struct riscv_state *state, const struct riscv_insn *insn, uint64_t pc,
		 enum path *path, uint64_t *target)
{
	*target = pc + (uint64_t)insn->imm;
	switch (insn->op) {
	case RISCV_BRANCH:
		*path = PATH_BRANCH;
		return true;
	case RISCV_STOP:
	case RISCV_XRET:
		*path = PATH_END;
		return true;
	}
	if (insn->rd == RISCV_RA) {
		*path = PATH_CALL;
		called(state);
	} else if (insn->op == RISCV_JAL) {
		*path = PATH_JUMP;
	} else {
		*path = jump_by_register(state, insn);
	}
	return insn->rd == RISCV_RA || insn->rd == RISCV_ZERO;
}

static struct riscv_value result(struct riscv_state *state, const struct riscv_insn *insn)
{
	const struct riscv_value a = state->x[insn->rs1], b = state->x[insn->rs2];

	switch (insn->op) {
	case RISCV_ADDI:
		return plus(a, insn->imm);
	case RISCV_ADDIW:
		/* 32-bit results are known of constants only. */
		return a.is == RISCV_CONST ? number(RISCV_CONST, (int32_t)(a.number + insn->imm))
					   : unknown;
	case RISCV_ADD:
		return sum(a, b);
	case RISCV_SUB:
		return difference(a, b);
	case RISCV_SLLI:
		return shifted(a, insn->imm);
	case RISCV_LUI:
		return number(RISCV_CONST, insn->imm);
	case RISCV_LD:
		return load(state, insn);
	default:
		return unknown;
	}
}

static bool jumps(const struct riscv_insn *insn)
{
	return insn->op == RISCV_BRANCH || insn->op == RISCV_JAL || insn->op == RISCV_JALR ||
	       insn->op == RISCV_STOP || insn->op == RISCV_XRET;
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
		      uint64_t *target)
{
	struct riscv_state *state = ctx;
	struct riscv_insn insn;

	if (!riscv_decode(bytes, n, &insn))
		return 0;
	if (jumps(&insn))
		return jump(state, &insn, pc, path, target) ? insn.size : 0;
	if (insn.op == RISCV_SD)
		store(state, &insn);
	else if (insn.rd)
		state->x[insn.rd] = result(state, &insn);
	return state->x[RISCV_SP].is == RISCV_CFA && (state->x[RISCV_SP].number > FRAME_MAX ||
						      state->x[RISCV_SP].number < -FRAME_MAX)
		       ? 0
		       : insn.size;
}

static const struct paths paths = {
	.unit = 2,
	.state_size = sizeof(struct riscv_state),
	.apply = apply,
	.begins = riscv_begins,
};

/* RV64GC, for the unwinder. Frame records lie below where s0 points. */

#define RECORD_FP (-16)
#define RECORD_RA (-8)

static int32_t rule_at(const struct riscv_state *state, unsigned reg,
		       const struct riscv_saved *saved)
{
	const struct riscv_value value = state->x[reg];

	if (saved->is)
		return saved->at;
	/* The entry code of a thread sets the register to 0. */
	return value.is == RISCV_CONST || (value.is == RISCV_ENTRY && value.number == (int32_t)reg)
		       ? RULE_SAME
		       : RULE_NOT;
}

static struct rule rule_of(const struct riscv_state *state, enum frame_kind kind)
{
	const struct riscv_value sp = state->x[RISCV_SP], s0 = state->x[RISCV_S0];
	struct rule rule = {.cfa_sp = sp.is == RISCV_CFA ? -sp.number : RULE_NOT,
			    .cfa_fp = s0.is == RISCV_CFA ? -s0.number : RULE_NOT,
			    .ra_at = rule_at(state, RISCV_RA, &state->ra),
			    .fp_at = rule_at(state, RISCV_S0, &state->s0),
			    .origin = RULE_NO_REGISTER};

	/*
	 * A function that has made a call without saving ra never returns: the
	 * walk sees that behind a call.
	 */
	if (rule.ra_at == RULE_NOT && kind == FRAME_RETURN)
		rule.ra_at = RULE_SAME;
	else if (rule.ra_at == RULE_NOT)
		rule.cfa_sp = rule.cfa_fp = RULE_NOT;
	rule.chained = rule.cfa_fp == 0 && rule.ra_at == RECORD_RA && rule.fp_at == RECORD_FP;
	return rule;
}

static enum flow_result follow(const struct flow_query *query, struct code_reader *reader,
			       void *scratch, unsigned *steps, struct rule *out)
{
	struct riscv_state state = riscv_at_entry();
	const enum flow_result result = paths_follow(&paths, query, reader, scratch, steps, &state);

	if (result == FLOW_FOUND || result == FLOW_GUESSED)
		*out = rule_of(&state, (enum frame_kind)query->kind);
	return result;
}

/* The word, as an offset from the CFA that the stack pointer has become; RULE_NOT: none. */
static int32_t loaded_at(const struct riscv_state *state, unsigned reg)
{
	const struct riscv_value sp = state->x[RISCV_SP], value = state->x[reg];

	return value.is == (sp.is == RISCV_FP ? RISCV_LOADED_FP : RISCV_LOADED)
		       ? value.number - sp.number
		       : RULE_NOT;
}

/* Before a return: are the caller's stack pointer and return address known? */
static bool leaves(const void *ctx)
{
	const struct riscv_state *state = ctx;
	const struct riscv_value sp = state->x[RISCV_SP], ra = state->x[RISCV_RA];

	if (sp.is != RISCV_FP && (sp.is != RISCV_CFA || sp.number < 0))
		return false;
	return (ra.is == RISCV_ENTRY && ra.number == RISCV_RA) ||
	       loaded_at(state, RISCV_RA) != RULE_NOT;
}

static bool find_return(struct code_reader *reader, uint64_t va, enum frame_kind kind,
			void *scratch, unsigned *steps, struct rule *out)
{
	const struct paths_start from = {.va = va, .kind = (uint8_t)kind, .leaves = leaves};
	struct riscv_state state = riscv_at_entry();
	struct riscv_value sp, fp;

	state.ahead = true;
	state.x[RISCV_S0] = (struct riscv_value){.is = RISCV_FP};
	if (kind == FRAME_RETURN)
		called(&state);
	if (!paths_return(&paths, &from, reader, scratch, steps, &state))
		return false;
	sp = state.x[RISCV_SP];
	fp = state.x[RISCV_S0];
	*out = (struct rule){.cfa_sp = sp.is == RISCV_CFA ? sp.number : RULE_NOT,
			     .cfa_fp = sp.is == RISCV_FP ? sp.number : RULE_NOT,
			     .ra_at = loaded_at(&state, RISCV_RA),
			     .fp_at = loaded_at(&state, RISCV_S0),
			     .origin = RULE_NO_REGISTER};
	if (out->ra_at == RULE_NOT)
		out->ra_at = RULE_SAME;
	if (out->fp_at == RULE_NOT && fp.is == RISCV_FP && !fp.number)
		out->fp_at = RULE_SAME;
	out->chained = out->cfa_fp == 0 && out->ra_at == RECORD_RA && out->fp_at == RECORD_FP;
	return true;
}

/*
 * The ends of trap handlers (handler.h). FOUND_END if what they restore is not
 * known: frame records would leave out the interrupted function.
 */

/* Control registers (RISC-V Instruction Set Manual, volume II, "CSR Listing"). */
enum { CSR_SSTATUS = 0x100, CSR_SEPC = 0x141, CSR_MSTATUS = 0x300, CSR_MEPC = 0x341 };

#define A0 10

static bool is_call(const struct riscv_insn *insn)
{
	return (insn->op == RISCV_JAL || insn->op == RISCV_JALR) && insn->rd != RISCV_ZERO;
}

static uint64_t next_of(const struct riscv_insn *insn, uint64_t pc)
{
	if (insn->op == RISCV_STOP || (insn->op == RISCV_JALR && !is_call(insn)))
		return 0;
	if (insn->op == RISCV_JAL && !is_call(insn))
		return pc + (uint64_t)insn->imm;
	return pc + insn->size;
}

static bool decode(struct code_reader *reader, uint64_t pc, struct handler_insn *out)
{
	struct riscv_insn insn;
	size_t n;
	const uint8_t *bytes = code_at(reader, pc, &n);

	_Static_assert(sizeof(insn) <= sizeof(out->code), "an instruction fits");
	if (pc & 1 || !riscv_decode(bytes, n, &insn))
		return false;
	out->next = next_of(&insn, pc);
	out->calls = is_call(&insn);
	out->returns = insn.op == RISCV_XRET;
	memcpy(out->code, &insn, sizeof(insn));
	return true;
}

static const struct handler_value not_known;

static struct handler_value value_plus(struct handler_value a, uint64_t number)
{
	return (struct handler_value){a.is + number, a.known};
}

static struct handler_value *control(struct handler_run *run, int64_t number)
{
	if (number == CSR_SEPC || number == CSR_MEPC)
		return &run->pc;
	return number == CSR_SSTATUS || number == CSR_MSTATUS ? &run->status : NULL;
}

static struct handler_value emulated(struct handler_run *run, const struct riscv_insn *insn)
{
	const struct handler_value a = run->x[insn->rs1], b = run->x[insn->rs2];
	const struct handler_value *csr = control(run, insn->imm);

	switch (insn->op) {
	case RISCV_ADDI:
		return value_plus(a, (uint64_t)insn->imm);
	case RISCV_ADD:
		return (struct handler_value){a.is + b.is, a.known && b.known};
	case RISCV_LUI:
		return (struct handler_value){(uint64_t)insn->imm, true};
	case RISCV_LD:
		return a.known ? handler_load(run, a.is + (uint64_t)insn->imm) : not_known;
	case RISCV_CSRR:
		return csr ? *csr : not_known;
	default:
		return not_known;
	}
}

static void emulate(struct handler_run *run, const struct handler_insn *from)
{
	struct handler_value base, *csr;
	struct riscv_insn insn;

	memcpy(&insn, from->code, sizeof(insn));
	run->x[RISCV_ZERO] = (struct handler_value){.known = true};
	base = value_plus(run->x[insn.rs1], (uint64_t)insn.imm);
	csr = control(run, insn.imm);
	if (from->calls) {
		const struct handler_value frame = run->x[A0];

		handler_called(run, RISCV_CALL_CHANGES);
		if (frame.known && frame.is == run->x[RISCV_SP].is)
			run->x[A0] = frame;
		return;
	}
	if (insn.op == RISCV_SD && base.known)
		handler_store(run, base.is, run->x[insn.rs2]);
	if (insn.op == RISCV_CSRW && csr)
		*csr = run->x[insn.rs1];
	if (insn.rd)
		run->x[insn.rd] = emulated(run, &insn);
}

/* mv a0, sp: in 2 bytes, by add, and by addi; behind it a call of 4 or 8 bytes. */
static bool gives_frame(struct code_reader *reader, uint64_t ret)
{
	for (unsigned call = 4; call <= RISCV_CALL_MAX; call += 4) {
		uint32_t insn;
		size_t n;
		const uint8_t *bytes = code_at(reader, ret - call - 4, &n);

		if (n < 4)
			continue;
		memcpy(&insn, bytes, sizeof(insn));
		if (insn >> 16 == 0x850a || insn == 0x00010533 || insn == 0x00010513)
			return true;
	}
	return false;
}

/*
 * A handler that gives its frame to the function that it calls may get it back
 * in the same register, and restores from there (OpenSBI's _trap_handler).
 */
static void begin(struct handler_run *run)
{
	struct walk *walk = run->walk;

	if (!walk->at.first && gives_frame(&walk->in->unwinder->reader, walk->at.addr))
		run->x[A0] = run->x[RISCV_SP];
}

static const struct handler_code handler_code = {.decode = decode,
						 .apply = emulate,
						 .begin = begin};

/* Was whoever the trap interrupted less privileged than the handler? */
static bool from_below(const struct walk *walk, uint64_t status)
{
	if (walk->in->regs->flags & RISCV_IN_MACHINE)
		return (status & RISCV_MSTATUS_MPP) != RISCV_MSTATUS_MPP;
	return !(status & RISCV_SSTATUS_SPP);
}

static enum found interrupted(struct walk *walk, const struct row *trap, uint8_t *trust)
{
	const struct regs *regs = walk->in->regs;
	struct handler_run run;

	if (!handler_run(&run, &handler_code, walk))
		return handler_end(walk, UNWIND_BROKEN);
	/* Ahead of its saves, the handler's stack may not be known yet, but who was interrupted is. */
	if (!run.status.known && walk->at.first && regs->has_elr)
		run.status = (struct handler_value){regs->spsr, true};
	/* A program, or what firmware serves: the handler's stack is whole. */
	if (run.status.known && from_below(walk, run.status.is))
		return handler_end(walk, UNWIND_OUTERMOST);
	return handler_leave(&run, run.x[RISCV_SP], 2, trust);
}

const struct unwind_isa unwind_riscv64 = {
	.isa = ISA_RISCV,
	.word = 8,
	.sp = RISCV_SP,
	.fp = RISCV_S0,
	.ra = RISCV_RA,
	.link = true,
	.fp_reserved = false,
	.searches = true,
	.call_max = RISCV_CALL_MAX,
	.flow_steps = PATHS_SIZE_MAX / 16,
	.record = {.fp_at = RECORD_FP, .ra_at = RECORD_RA, .size = 0},
	.scratch_new = paths_scratch_new,
	.call_before = riscv_call_before,
	.begins_stack = riscv_begins_stack,
	.marking = 64,
	.sets_up_frame = riscv_sets_up_frame,
	.makes_frame = riscv_makes_frame,
	.follow = follow,
	.find_return = find_return,
	.handler_code = &handler_code,
	.interrupted = interrupted,
};
