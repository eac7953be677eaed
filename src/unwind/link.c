/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"

static int64_t number_of(const struct link_number *numbers, uint8_t which, uint32_t insn)
{
	const struct link_number *number;
	uint32_t value;

	if (which < LINK_FIELD)
		return which;
	number = &numbers[which - LINK_FIELD];
	value = number->plus;
	for (unsigned i = 0; i < 8 && number->piece[i].bits; i++)
		value += field(insn, number->piece[i].from, number->piece[i].bits)
			 << number->piece[i].to;
	value += number->zero && value == number->zero;
	if (number->sign)
		return sign_extend(value, number->sign);
	if ((number->up && !(insn >> number->up & 1)) || (number->down && insn >> number->down & 1))
		return -(int64_t)value;
	return value;
}

void link_decode(const struct link_shape *shapes, const struct link_number *numbers, uint32_t insn,
		 struct link_op *out)
{
	const struct link_shape *shape = shapes;

	while ((insn & shape->mask) != shape->bits)
		shape++;
	*out = (struct link_op){.op = shape->op,
				.rd = (uint8_t)number_of(numbers, shape->rd, insn),
				.rs1 = (uint8_t)number_of(numbers, shape->rs1, insn),
				.rs2 = (uint8_t)number_of(numbers, shape->rs2, insn),
				.imm = number_of(numbers, shape->imm, insn)};
}

unsigned link_access(struct link_op op[LINK_OPS], const struct link_op *second, bool before,
		     bool moves)
{
	const struct link_op move = {.op = LINK_ADDI,
				     .rd = op->rs1,
				     .rs1 = op->rs1,
				     .imm = op->imm};
	unsigned n = 1;

	if (!before)
		op->imm = 0;
	if (second) {
		op[n] = *second;
		op[n++].imm += op->imm;
	}
	if (moves)
		op[n++] = move;
	return n;
}

/* Bytes of an instruction, at most. */
#define INSN_MAX 4

bool link_call_before(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, uint64_t ret,
		      struct call *out)
{
	const struct link_code *code = isa->link_code;
	struct link_op op[LINK_OPS], before[LINK_OPS];

	*out = (struct call){0};
	/* The end of a longer instruction may look like a call, too. */
	for (size_t len = code->unit; len <= INSN_MAX && len <= n; len += code->unit) {
		const uint8_t *at = bytes + n - len;

		if (ret % code->unit || !code->decode(at, len, op) || op->size != len ||
		    op->rd != isa->ra || (op->op != LINK_JUMP && op->op != LINK_JALR))
			continue;
		if (op->op == LINK_JUMP) {
			out->direct = true;
			out->target = ret - len + (uint64_t)op->imm;
		} else if (n >= len + INSN_MAX && code->decode(at - INSN_MAX, INSN_MAX, before) &&
			   before->op == LINK_AUIPC && before->rd == op->rs1) {
			out->direct = true;
			out->target = ret - len - INSN_MAX + (uint64_t)(before->imm + op->imm);
		} else {
			out->indirect = true;
		}
	}
	return out->direct || out->indirect;
}

/*
 * State of a function at one instruction. The canonical frame address (CFA) is
 * the stack pointer at the function's entry; ahead to the return, the entry and
 * the CFA are those of the instruction that was begun at.
 */

enum value_is {
	UNKNOWN,
	ENTRY,	   /* value of register `number` at the function's entry */
	CFA,	   /* the CFA + number */
	CONST,	   /* number */
	FP,	   /* ahead: the frame pointer there + number */
	LOADED,	   /* ahead: the word at the CFA + number */
	LOADED_FP, /* ahead: the word at the frame pointer there + number */
};

struct value {
	int32_t number;
	uint8_t is; /* enum value_is */
};

/*
 * Slot of a register that is saved for the caller. From then on the value in
 * the register depends on the path, until it is restored.
 */
struct saved {
	int32_t at; /* the word at CFA + at, if `is` */
	bool is;
	struct value what;
};

struct link_state {
	const struct unwind_isa *isa;
	struct value x[LINK_REGISTERS];
	struct saved ra, fp;
	bool ahead; /* to a return */
};

static const struct value unknown;

static struct link_state at_entry(const struct unwind_isa *isa)
{
	struct link_state state = {.isa = isa};

	for (unsigned reg = 0; reg < LINK_REGISTERS; reg++)
		state.x[reg] = (struct value){.is = ENTRY, .number = (int32_t)reg};
	state.x[isa->link_code->zero] = (struct value){.is = CONST};
	state.x[isa->sp] = (struct value){.is = CFA};
	return state;
}

static struct value number(uint8_t is, int64_t value)
{
	const struct value out = {.number = (int32_t)value, .is = is};

	return out.number == value ? out : unknown;
}

/* One of them is a number, if the sum can be told. */
static struct value sum(struct value a, struct value b)
{
	const int64_t value = (int64_t)a.number + b.number;

	if (b.is == CONST && (a.is == CFA || a.is == CONST || a.is == FP))
		return number(a.is, value);
	if (a.is == CONST && b.is == CFA)
		return number(CFA, value);
	return unknown;
}

static struct value plus(struct value a, int64_t imm)
{
	return imm || a.is == UNKNOWN ? sum(a, number(CONST, imm)) : a;
}

static struct value inserted(struct value a, const struct link_op *op)
{
	const unsigned from = 16u * op->rs2;
	const uint64_t value = (uint64_t)(int64_t)a.number & ~(UINT64_C(0xffff) << from);

	return a.is == CONST ? number(CONST, (int64_t)(value | (uint64_t)op->imm << from))
			     : unknown;
}

static void save(struct saved *saved, int32_t at, struct value what)
{
	if (!saved->is)
		*saved = (struct saved){.at = at, .is = true, .what = what};
}

static bool is_own(const struct link_state *state, unsigned reg)
{
	return state->x[reg].is == ENTRY && state->x[reg].number == (int32_t)reg;
}

/*
 * Only the caller's values count, and where they are first: later stores are spills. Ahead, what a
 * last call stores itself.
 */
static void store(struct link_state *state, const struct link_op *op)
{
	const struct value to = plus(state->x[op->rs1], op->imm), from = state->x[op->rs2];
	const unsigned what = state->ahead	 ? op->rs2
			      : from.is == ENTRY ? (unsigned)from.number
						 : state->isa->link_code->zero;

	if (to.is != CFA)
		return;
	if (what == state->isa->ra)
		save(&state->ra, to.number, from);
	else if (what == state->isa->fp)
		save(&state->fp, to.number, from);
}

static bool is_at(const struct saved *saved, struct value where)
{
	return saved->is && where.is == CFA && where.number == saved->at;
}

static struct value load(struct link_state *state, const struct link_op *op)
{
	const struct value from = plus(state->x[op->rs1], op->imm);

	if (is_at(&state->ra, from)) {
		state->ra.is = op->rd != state->isa->ra;
		return state->ra.what;
	}
	if (is_at(&state->fp, from)) {
		state->fp.is = op->rd != state->isa->fp;
		return state->fp.what;
	}
	if (state->ahead && (from.is == CFA || from.is == FP))
		return number(from.is == CFA ? LOADED : LOADED_FP, from.number);
	return unknown;
}

static void set(struct link_state *state, unsigned reg, struct value value)
{
	const struct link_code *code = state->isa->link_code;

	if (reg != code->zero && (reg != state->isa->ra || state->ahead || !code->ra_stays))
		state->x[reg] = value;
}

static void called(struct link_state *state)
{
	for (unsigned reg = 0; reg < 32; reg++)
		if (state->isa->link_code->call_changes >> reg & 1)
			set(state, reg, unknown);
}

/* A tail call has given back its frame; ahead, the return address was taken from it, or never put there. */
static bool is_last_call(const struct link_state *state)
{
	const struct value sp = state->x[state->isa->sp], ra = state->x[state->isa->ra];

	if (state->ahead && (ra.is == LOADED || ra.is == LOADED_FP))
		return true;
	return sp.is == CFA && !sp.number && is_own(state, state->isa->ra);
}

static enum path jump_by_register(const struct link_state *state, const struct link_op *op)
{
	if (op->rs1 == state->isa->ra)
		return PATH_RETURN;
	if (op->rs1 == state->isa->link_code->other_ra)
		return PATH_END;
	return is_last_call(state) ? PATH_AWAY : PATH_TABLE;
}

static bool jumps(const struct link_op *op)
{
	return op->op == LINK_BRANCH || op->op == LINK_JUMP || op->op == LINK_JALR ||
	       op->op == LINK_STOP || op->op == LINK_XRET;
}

/* False: a call through another register than ra, which may change any register. */
static bool jump(struct link_state *state, const struct link_op *op, enum path *path)
{
	const bool calls = op->rd == state->isa->ra;

	if (op->op == LINK_BRANCH) {
		*path = PATH_BRANCH;
		return true;
	}
	if (op->op == LINK_STOP || op->op == LINK_XRET) {
		*path = op->op == LINK_STOP ? PATH_TRAP : PATH_END;
		return true;
	}
	if (calls) {
		*path = PATH_CALL;
		called(state);
	} else {
		*path = op->op == LINK_JUMP ? PATH_JUMP : jump_by_register(state, op);
	}
	return calls || op->rd == state->isa->link_code->zero;
}

static struct value result(struct link_state *state, const struct link_op *op)
{
	const struct value a = state->x[op->rs1], b = state->x[op->rs2];

	switch (op->op) {
	case LINK_ADDI:
		return plus(a, op->imm);
	case LINK_ADDIW:
		/* 32-bit results are known of constants only. */
		return a.is == CONST ? number(CONST, (int32_t)(a.number + op->imm)) : unknown;
	case LINK_ADD:
		return sum(a, b);
	case LINK_SUB:
		return b.is == CONST ? sum(a, number(CONST, -(int64_t)b.number)) : unknown;
	case LINK_SLLI:
		return a.is == CONST && op->imm < 32
			       ? number(CONST, (int64_t)((uint64_t)(int64_t)a.number << op->imm))
			       : unknown;
	case LINK_CONST:
		return number(CONST, op->imm);
	case LINK_INSERT:
		return inserted(state->x[op->rd], op);
	case LINK_LOAD:
		return load(state, op);
	default:
		return unknown;
	}
}

static unsigned apply(const uint8_t *bytes, size_t n, uint64_t pc, void *ctx, enum path *path,
		      uint64_t *target)
{
	struct link_state *state = ctx;
	const struct value *sp = &state->x[state->isa->sp];
	struct link_op op[LINK_OPS];
	const unsigned n_ops = state->isa->link_code->decode(bytes, n, op);

	if (!n_ops)
		return 0;
	*target = pc + (uint64_t)op->imm;
	if (jumps(op))
		return jump(state, op, path) ? op->size : 0;
	for (unsigned i = 0; i < n_ops; i++)
		if (op[i].op == LINK_STORE)
			store(state, &op[i]);
		else
			set(state, op[i].rd, result(state, &op[i]));
	return sp->is == CFA && (sp->number > FRAME_MAX || sp->number < -FRAME_MAX) ? 0 : op->size;
}

bool link_makes_frame(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	struct link_op op[LINK_OPS];
	const unsigned n_ops = isa->link_code->decode(bytes, n, op);

	for (unsigned i = 0; i < n_ops; i++)
		if (op[i].op == LINK_ADDI && op[i].rd == isa->sp && op[i].rs1 == isa->sp &&
		    op[i].imm < 0)
			return true;
	return false;
}

/* Its frame record lies within the frame. */
bool link_sets_up_frame(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	struct link_op op[LINK_OPS];

	return isa->link_code->decode(bytes, n, op) && op->op == LINK_ADDI && op->rd == isa->fp &&
	       op->rs1 == isa->sp && op->imm >= -isa->record.fp_at;
}

static bool begins(const void *ctx, const uint8_t *bytes, size_t n, bool *called)
{
	const struct unwind_isa *isa = ((const struct link_state *)ctx)->isa;
	struct link_op op[LINK_OPS];

	if (!isa->link_code->decode(bytes, n, op))
		return true;
	*called = op->op == LINK_ADDI && op->rd == isa->link_code->zero;
	return op->op == LINK_STOP || op->op == LINK_BEGIN || link_makes_frame(isa, bytes, n);
}

/* The stack pointer is made from another register, or the link register is cleared. */
static bool drops_way_back(const struct unwind_isa *isa, const struct link_op *op)
{
	const struct link_code *code = isa->link_code;

	if (op->rd == isa->ra)
		return op->op == LINK_CONST || (op->op == LINK_ADDI && op->rs1 == code->zero);
	return op->rd == isa->sp && op->op <= LINK_SUB && op->rs1 != isa->sp &&
	       (op->op != LINK_ADD || op->rs2 != isa->sp) &&
	       (op->rs1 >= 32 || !(code->kept >> op->rs1 & 1));
}

/* From here on, if that is where an instruction begins: one ends with the last byte, and is a call. */
static bool drops_from(const struct unwind_isa *isa, const uint8_t *bytes, size_t n, bool *drops)
{
	struct link_op op[LINK_OPS];

	for (*drops = false; n && isa->link_code->decode(bytes, n, op);
	     bytes += op->size, n -= op->size) {
		if (jumps(op) && op->op != LINK_BRANCH && op->rd == isa->link_code->zero)
			*drops = false;
		else if (drops_way_back(isa, op))
			*drops = true;
	}
	return !n;
}

/* Instructions begin where whole units are left: the first of several are tried, and have to agree. */
#define BEGINNINGS 4

bool link_begins_stack(const struct unwind_isa *isa, const uint8_t *bytes, size_t n)
{
	const unsigned unit = isa->link_code->unit;
	bool any = false, drops;

	for (size_t at = n % unit; at < n && at < (size_t)BEGINNINGS * unit; at += unit) {
		if (!drops_from(isa, bytes + at, n - at, &drops))
			continue;
		if (!drops)
			return false;
		any = true;
	}
	return any;
}

static int32_t rule_at(const struct link_state *state, unsigned reg, const struct saved *saved)
{
	if (saved->is)
		return saved->at;
	/* The entry code of a thread sets the register to 0. */
	return state->x[reg].is == CONST || is_own(state, reg) ? RULE_SAME : RULE_NOT;
}

static bool is_record(const struct unwind_isa *isa, const struct rule *rule)
{
	return rule->cfa_fp != RULE_NOT && rule->ra_at == isa->record.ra_at - rule->cfa_fp &&
	       rule->fp_at == isa->record.fp_at - rule->cfa_fp;
}

static struct rule rule_of(const struct link_state *state, uint8_t kind)
{
	const struct unwind_isa *isa = state->isa;
	const struct value sp = state->x[isa->sp], fp = state->x[isa->fp];
	struct rule rule = {.cfa_sp = sp.is == CFA ? -sp.number : RULE_NOT,
			    .cfa_fp = fp.is == CFA ? -fp.number : RULE_NOT,
			    .ra_at = rule_at(state, isa->ra, &state->ra),
			    .fp_at = rule_at(state, isa->fp, &state->fp),
			    .origin = RULE_NO_REGISTER};

	/*
	 * A function that has made a call without saving ra never returns: the
	 * walk sees that behind a call.
	 */
	if (rule.ra_at == RULE_NOT && kind == FRAME_RETURN)
		rule.ra_at = RULE_SAME;
	else if (rule.ra_at == RULE_NOT)
		rule.cfa_sp = rule.cfa_fp = RULE_NOT;
	rule.chained = isa->fp_reserved ? rule.cfa_fp != RULE_NOT : is_record(isa, &rule);
	return rule;
}

/* The word, as an offset from the CFA that the stack pointer has become; RULE_NOT: none. */
static int32_t loaded_at(const struct link_state *state, unsigned reg)
{
	const struct value sp = state->x[state->isa->sp], value = state->x[reg];

	return value.is == (sp.is == FP ? LOADED_FP : LOADED) ? value.number - sp.number : RULE_NOT;
}

/* Before a return: are the caller's stack pointer and return address known? */
static bool leaves(const void *ctx)
{
	const struct link_state *state = ctx;
	const struct value sp = state->x[state->isa->sp];

	if (sp.is != FP && (sp.is != CFA || sp.number < 0))
		return false;
	return is_own(state, state->isa->ra) || loaded_at(state, state->isa->ra) != RULE_NOT;
}

static struct paths paths_of(const struct unwind_isa *isa)
{
	return (struct paths){.unit = isa->link_code->unit,
			      .state_size = sizeof(struct link_state),
			      .apply = apply,
			      .begins = begins,
			      .leaves = leaves,
			      .ahead = PATHS_STEPS};
}

enum flow_result link_follow(const struct flow_query *query, struct code_reader *reader,
			     struct rule *out)
{
	const struct paths paths = paths_of(query->isa);
	struct link_state state = at_entry(query->isa);
	const enum flow_result result = paths_follow(&paths, query, reader, &state);

	if (result == FLOW_FOUND || result == FLOW_GUESSED)
		*out = rule_of(&state, query->kind);
	return result;
}

enum paths_end link_find_return(const struct flow_query *query, struct code_reader *reader,
				struct rule *out)
{
	const struct unwind_isa *isa = query->isa;
	const struct paths paths = paths_of(isa);
	struct link_state state = at_entry(isa);
	enum paths_end end;
	struct value sp, fp;

	state.ahead = true;
	state.x[isa->fp] = (struct value){.is = FP};
	if (query->kind == FRAME_RETURN)
		called(&state);
	end = paths_return(&paths, query, reader, &state);
	if (end != PATHS_RETURN)
		return end;
	sp = state.x[isa->sp];
	fp = state.x[isa->fp];
	*out = (struct rule){.cfa_sp = sp.is == CFA ? sp.number : RULE_NOT,
			     .cfa_fp = sp.is == FP ? sp.number : RULE_NOT,
			     .ra_at = loaded_at(&state, isa->ra),
			     .fp_at = loaded_at(&state, isa->fp),
			     .origin = RULE_NO_REGISTER};
	if (out->ra_at == RULE_NOT)
		out->ra_at = RULE_SAME;
	if (out->fp_at == RULE_NOT && fp.is == FP && !fp.number)
		out->fp_at = RULE_SAME;
	out->chained = is_record(isa, out);
	return end;
}
