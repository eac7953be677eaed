/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/stack_cache.h"

/* The value of a register (DWARF number) at the walk's frame; false if it is not known. */
static bool walk_register(const void *ctx, unsigned n, uint64_t *value)
{
	const struct walk *walk = ctx;
	const struct cursor *at = &walk->at;
	const struct unwind_isa *isa = walk->isa;

	if (isa->kept) {
		*value = walk->arm.r[n & 15];
		return n < 16 && walk->arm.known >> n & 1;
	}
	if (n == isa->fp) {
		*value = at->fp;
		return at->fp_known;
	}
	if (n == isa->sp) {
		*value = at->sp;
		return at->exact;
	}
	if (n == isa->ra) {
		*value = isa->link ? at->ra : at->addr;
		return !isa->link || at->ra_known;
	}
	if (!at->first || n >= 32 || !(walk->in->regs->gp_valid >> n & 1))
		return false;
	*value = walk->in->regs->gp[n];
	return true;
}

/* Position of the true CFA of a realigned stack. */
static bool find_origin(struct walk *walk, const struct rule *rule, uint64_t cfa, uint64_t *origin)
{
	if (rule->origin_at)
		return walk_load(walk, cfa + (uint64_t)(int64_t)rule->origin_at, origin);
	return rule->origin != RULE_NO_REGISTER && walk->at.first &&
	       walk_register(walk, rule->origin, origin);
}

/* Takes the caller's registers from where `kept` says. */
static void restore_kept(struct walk *walk, const struct row_kept *kept, uint64_t cfa)
{
	for (unsigned i = 0; i < ROW_KEPT; i++) {
		const unsigned reg = ROW_KEPT_FIRST + i;
		const int16_t at = kept->at[i];
		uint64_t value;

		if (at == ROW_SAME)
			continue;
		walk->arm.known &= (uint16_t) ~(1u << reg);
		if (at == ROW_LOST || !walk_load(walk, (uint32_t)(cfa + (uint64_t)at), &value))
			continue;
		walk->arm.r[reg] = (uint32_t)value;
		walk->arm.known |= (uint16_t)(1u << reg);
	}
}

void walk_go_by_rule(struct walk *walk, const struct rule *rule, uint64_t cfa, uint64_t ret)
{
	struct cursor *at = &walk->at;
	uint64_t origin, sp = cfa;

	if (walk->isa->kept)
		restore_kept(walk, &rule->kept, cfa);
	at->exact = !rule->copied;
	if (rule->copied && find_origin(walk, rule, cfa, &origin) && origin >= cfa &&
	    !(origin & (walk->word - 1))) {
		sp = origin;
		at->exact = true;
	}
	if (rule->fp_at != RULE_SAME && rule->fp_at != RULE_NOT) {
		at->fp_known = walk_load(walk, cfa + (uint64_t)(int64_t)rule->fp_at, &at->fp);
		at->chained = rule->chained;
	} else if (rule->fp_at == RULE_NOT) {
		at->fp_known = false;
	}
	walk_return_to(walk, ret, sp);
}

bool walk_cfa_by_sp(const struct walk *walk, const struct rule *rule, uint64_t *cfa)
{
	*cfa = walk->at.sp + (uint64_t)(int64_t)rule->cfa_sp;
	if (rule->cfa_sp != RULE_NOT)
		return walk->at.exact && !rule->discards;
	return rule->cfa_fp == RULE_NOT && rule->origin != RULE_NO_REGISTER && walk->at.first &&
	       walk_register(walk, rule->origin, cfa);
}

bool walk_cfa_by_fp(const struct walk *walk, const struct rule *rule, uint64_t *cfa)
{
	if (!walk->isa->kept) {
		*cfa = walk->at.fp + (uint64_t)(int64_t)rule->cfa_fp;
		return walk->at.fp_known && rule->cfa_fp != RULE_NOT;
	}
	if (rule->cfa_sp != RULE_NOT || rule->cfa_fp == RULE_NOT ||
	    !walk_register(walk, rule->fp, cfa))
		return false;
	*cfa = (uint32_t)(*cfa + (uint32_t)rule->cfa_fp);
	return !(*cfa & 3);
}

/* A leaf function may keep data below its stack pointer. */
static bool in_red_zone(const struct walk *walk, uint64_t va)
{
	return walk->word == 8 && walk->at.kind == FRAME_PC && walk->at.exact &&
	       !(va & (walk->word - 1)) && walk->at.sp - va - 1 < RED_ZONE_MAX;
}

/*
 * Reads a word below the stack pointer: of the innermost frame, from the bytes
 * that were copied in front of the window; else from the stack itself, whose
 * bytes there the stack cache does not compare.
 */
static bool load_red_zone(struct walk *walk, uint64_t va, uint64_t *value)
{
	const struct window *stack = walk->stack;

	if (!walk->at.first)
		walk->top = UINT64_MAX;
	if (in_window(stack, va, walk->word)) {
		*value = read_word(stack->bytes + (va - stack->va), walk->word);
		return true;
	}
	walk->beyond = stack->va - va > stack->below;
	if (walk->beyond)
		return false;
	memcpy(value, stack->bytes - (stack->va - va), walk->word);
	return true;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	struct walk *walk = ctx;

	if (!in_red_zone(walk, va))
		return walk_load(walk, va, value);
	walk->out->red_zone = true;
	return load_red_zone(walk, va, value);
}

bool rule_apply(struct walk *walk, const struct unwind_table *table, const struct row *row,
		struct row_caller *caller)
{
	const struct unwind_isa *isa = walk->isa;
	const struct row_env env = {.ctx = walk,
				    .reg = walk_register,
				    .load = get_word,
				    .word = (unsigned)walk->word,
				    .fp = isa->fp,
				    .sp = isa->sp,
				    .ra = isa->ra};

	if (unwind_table_step(table, row, &env, caller))
		return true;
	walk_note_elsewhere(walk, caller->slot);
	return false;
}

/*
 * True where a kernel in the upper half of the address space was entered from a
 * program in the lower.
 */
static bool leaves_kernel(const struct walk *walk, uint64_t pc)
{
	return walk->word == 8 && walk->at.addr >> 63 && !(pc >> 63);
}

static bool is_known_code(const struct walk *walk, uint64_t pc)
{
	const struct code *code = walk->in->code;
	uint64_t start;

	return (code->table && code->table(code->ctx, pc, &start)) ||
	       walk_function(walk, pc, &start);
}

enum found rule_go_to_interrupted(struct walk *walk, const struct row_caller *caller)
{
	/* SYSCALL enters the kernel on the program's stack, with its address in a register. */
	const bool on_its_stack = walk->at.first && !caller->slot && caller->sp == walk->at.sp;

	/* User code without symbols: end at kernel entry. */
	if (leaves_kernel(walk, caller->pc) &&
	    (walk->in->kernel_only || !is_known_code(walk, caller->pc))) {
		walk->out->program = caller->pc;
		return walk_end(walk, UNWIND_OUTERMOST);
	}
	if (!on_its_stack && !walk_goes_up(walk, caller->sp))
		return FOUND_NONE;
	walk->at = (struct cursor){.addr = caller->pc,
				   .sp = caller->sp & ~(walk->word - 1),
				   .fp = caller->fp,
				   .kind = FRAME_PC,
				   .exact = !(caller->sp & (walk->word - 1)),
				   .fp_known = caller->fp_known};
	return FOUND_CALLER;
}

/* Does the row say that the return address is not `ret` in `slot`? */
static bool rule_table_denies(struct walk *walk, uint64_t slot, uint64_t ret)
{
	const uint64_t elsewhere = walk->elsewhere;
	const bool beyond = walk->beyond;
	const struct row *row = walk->table.row;
	struct row_caller caller;
	bool known;

	if (!row || row->kind == ROW_END)
		return row;
	known = rule_apply(walk, walk->table.whole, row, &caller);
	walk->elsewhere = elsewhere;
	walk->beyond = beyond;
	/* A realigned stack has the return address twice. */
	return known && (caller.trap ||
			 (caller.slot != slot && !(walk->state.rule.copied && caller.pc == ret)));
}

/* Decides the trust in the return address; false: none at all. */
static bool believe_row(struct walk *walk, const struct row_caller *caller, uint8_t *trust)
{
	const struct pc_info *info = pc_info_at(walk->in->unwinder, caller->pc, FRAME_RETURN);
	const struct call call = info->call;
	bool only = walk->in->method == UNWIND_CFI;
	enum proof proof;

	*trust = TRUST_GUESS;
	/* The table is the only source where no code can be read. */
	if (!info->readable)
		return !walk->readable;
	if (!call.direct && !call.indirect)
		return false;
	if ((call.direct && walk->state.has_start && call.target == walk->state.start) ||
	    (call.indirect && (only || walk->isa->link))) {
		*trust = TRUST_SURE;
		return true;
	}
	if (!call.direct)
		return true;
	proof = walk_prove(walk, caller->slot ? caller->slot : IN_LINK, call.target);
	if (proof == PROOF_LEADS || (proof == PROOF_AWAY && (only || walk->isa->link)) ||
	    (walk->isa->link && !walk->state.has_start))
		*trust = TRUST_SURE;
	/* Tables of some compilers do not tell how functions end. */
	return only || proof != PROOF_DENIES || !walk->isa->link || walk->state.has_start;
}

/* Caches the step, if it is a plain one. */
static void learn_row(struct walk *walk, const struct row *row, uint64_t ret, uint8_t trust)
{
	const struct unwind_isa *isa = walk->isa;
	const struct step step = {.by_fp = row->cfa_reg == isa->fp,
				  .cfa = row->cfa_offset,
				  .ra_at = row->ra_at,
				  .fp_at = row->fp_at > ROW_LOST ? row->fp_at : 0,
				  .fp_lost = row->fp_at == ROW_LOST,
				  .chained = row->cfa_reg == isa->fp};

	if (!walk->handler && row->kind == ROW_CALL && row->base == ROW_PLUS &&
	    row->sp_at == ROW_SAME && row->ra_at > ROW_LOST && row->fp_at &&
	    (step.by_fp || row->cfa_reg == isa->sp))
		step_learn(walk->in->unwinder, &walk->at, &step, ret, trust);
}

/*
 * The first function of a new thread is put on its stack, where the first
 * switch to the thread returns: it has no caller, and no call precedes it.
 */
static bool begins_thread(const struct walk *walk, uint64_t pc)
{
	const struct code *code = walk->in->code;
	uint64_t slide, start;
	const struct unwind_table *table = code->table ? code->table(code->ctx, pc, &slide) : NULL;
	const struct row *row = table ? unwind_table_find(table, pc - slide) : NULL;

	return row && row->kind == ROW_END && walk_function(walk, pc, &start) && start == pc;
}

/*
 * Code that jumps to a function by a return, as Linux's thunks for indirect
 * calls do, has the function's first instruction where a return address is
 * expected. The word above it is the real return address.
 */
static bool jumps_by_return(struct walk *walk, const struct row_caller *caller,
			    struct row_caller *beyond, uint8_t *trust)
{
	uint64_t start;

	*beyond = *caller;
	beyond->slot += walk->word;
	beyond->sp += walk->word;
	return walk->at.kind == FRAME_PC && walk_function(walk, caller->pc, &start) &&
	       start == caller->pc && walk_load(walk, beyond->slot, &beyond->pc) &&
	       believe_row(walk, beyond, trust);
}

/*
 * Only a function that has called nothing yet may have no frame, and its caller
 * in the link register.
 */
static bool is_frame(const struct walk *walk, const struct row_caller *caller)
{
	if (caller->sp & (walk->word - 1))
		return false;
	if (caller->slot)
		return walk_goes_up(walk, caller->sp);
	return walk->isa->link && walk->at.kind == FRAME_PC &&
	       (caller->sp == walk->at.sp || walk_goes_up(walk, caller->sp));
}

static enum found go_to_caller(struct walk *walk, const struct row *row,
			       const struct row_caller *caller, uint8_t *trust)
{
	/*
	 * A frame pointer that was not saved here is still the one that a frame
	 * below has stored.
	 */
	const bool chained =
		row->fp_at > ROW_LOST ? row->cfa_reg == walk->isa->fp : walk->at.chained;
	uint8_t kind = FRAME_RETURN;
	struct row_caller beyond;

	/* A row that is not right where a function ends may lead to any word. */
	if (!caller->pc && walk->isa->link && walk->at.kind == FRAME_PC && !walk->state.has_start &&
	    walk->in->method != UNWIND_CFI)
		return FOUND_NONE;
	if (!caller->pc)
		return walk_end(walk, UNWIND_OUTERMOST);
	if (!is_frame(walk, caller))
		return FOUND_NONE;
	if (believe_row(walk, caller, trust)) {
		learn_row(walk, row, caller->pc, *trust);
	} else if (begins_thread(walk, caller->pc)) {
		*trust = TRUST_SURE;
		kind = FRAME_PC;
	} else if (jumps_by_return(walk, caller, &beyond, trust)) {
		caller = &beyond;
	} else {
		return FOUND_NONE;
	}
	if (walk->isa->kept)
		restore_kept(walk, &walk->table.whole->kept[row->kept], caller->sp);
	walk->at = (struct cursor){.addr = caller->pc,
				   .sp = caller->sp,
				   .fp = caller->fp,
				   .kind = kind,
				   .exact = true,
				   .fp_known = caller->fp_known,
				   .chained = chained && caller->fp_known};
	return FOUND_CALLER;
}

bool rule_go_to_who_called(struct walk *walk)
{
	const struct frame_state *state = &walk->state;
	struct call call;
	uint64_t cfa, ret;

	if (!rule_known(state) || !state->has_start || !walk_cfa_by_sp(walk, &state->rule, &cfa) ||
	    state->rule.ra_at <= RULE_NOT ||
	    !walk_load(walk, cfa + (uint64_t)(int64_t)state->rule.ra_at, &ret))
		return false;
	ret = walk_strip(walk, ret);
	call = walk_call(walk, ret);
	if (!call.direct || call.target != state->start)
		return false;
	walk_go_by_rule(walk, &state->rule, cfa, ret);
	return true;
}

/*
 * Tables say that code is outermost, too, which is only entered in unusual
 * ways: Linux up to 6.3 of its thunks for indirect calls. They have a caller if
 * the code says so; and where all registers are not known, if there is no doubt.
 */
static enum found at_end(struct walk *walk, uint8_t *trust)
{
	const struct cursor at = walk->at;

	if (walk->in->method != UNWIND_CFI && walk->readable) {
		*trust = TRUST_SURE;
		if (at.first ? rule_code(walk, trust) == FOUND_CALLER &&
				       walk->at.addr >> 63 == at.addr >> 63
			     : rule_go_to_who_called(walk))
			return FOUND_CALLER;
	}
	walk->at = at;
	walk->beyond = false;
	walk->elsewhere = 0;
	return walk_end(walk, UNWIND_OUTERMOST);
}

/* Has this code called something and, as its row says, kept no way back? It never returns. */
static bool keeps_no_way_back(const struct walk *walk, const struct row *row)
{
	return walk->isa->link && row->kind == ROW_CALL && row->ra_at == ROW_SAME &&
	       walk->at.kind == FRAME_RETURN;
}

/*
 * 32-bit Arm's tables for exceptions do not say how functions begin and end; and linkers say of all
 * code that has none that it is outermost: it must have called something.
 */
static bool serves(const struct walk *walk, const struct row *row)
{
	return !walk->isa->kept || (walk->table.whole->n_kept && row->kind != ROW_TRAP &&
				    (row->kind == ROW_CALL || walk->at.kind == FRAME_RETURN));
}

enum found rule_table(struct walk *walk, uint8_t *trust)
{
	const struct unwind_isa *isa = walk->isa;
	const struct row *row = walk->table.row;
	struct row_caller caller;

	if (!row || !serves(walk, row))
		return FOUND_NONE;
	if (row->kind == ROW_END)
		return at_end(walk, trust);
	if (keeps_no_way_back(walk, row))
		return walk_end(walk, UNWIND_OUTERMOST);
	if (!rule_apply(walk, walk->table.whole, row, &caller))
		return FOUND_NONE;
	caller.pc = walk_strip(walk, caller.pc);
	/* Compilers do not always say that the frame pointer was popped. */
	if (!isa->link && !caller.fp_known && row->kind == ROW_CALL && row->fp_at > ROW_LOST &&
	    caller.slot + (uint64_t)(int64_t)(row->fp_at - row->ra_at) < walk->at.sp) {
		caller.fp = walk->at.fp;
		caller.fp_known = walk->at.fp_known;
	}
	if (!caller.trap)
		return go_to_caller(walk, row, &caller, trust);
	if (isa->pushed && !isa->pushed(walk, row, &caller))
		return FOUND_NONE;
	*trust = pc_info_at(walk->in->unwinder, caller.pc, FRAME_PC)->readable ? TRUST_SURE
									       : TRUST_GUESS;
	return rule_go_to_interrupted(walk, &caller);
}

/* Decides the trust in a return address that was found by a rule; false: none at all. */
static bool believe_code(const struct frame_state *state, const struct call *call, uint8_t *trust)
{
	if (call->direct && state->has_start && call->target == state->start)
		*trust = TRUST_SURE;
	else if (call->indirect)
		*trust = state->flow == FLOW_FOUND && !state->learned ? TRUST_SURE : TRUST_GUESS;
	else if (call->direct && !(state->learned && state->has_start))
		*trust = TRUST_GUESS;
	else
		return false;
	return true;
}

/* Caches the step for the next time. */
static void learn_code(struct walk *walk, uint64_t ret, bool by_fp, uint8_t trust)
{
	const struct rule *rule = &walk->state.rule;
	const bool saved = rule->fp_at != RULE_SAME && rule->fp_at != RULE_NOT;
	const struct step step = {.by_fp = by_fp,
				  .cfa = by_fp ? rule->cfa_fp : rule->cfa_sp,
				  .ra_at = rule->ra_at,
				  .fp_at = saved ? rule->fp_at : 0,
				  .fp_lost = rule->fp_at == RULE_NOT,
				  .chained = rule->chained};

	if (!walk->handler && !rule->copied && rule->ra_at != RULE_SAME &&
	    (by_fp || (rule->cfa_fp == RULE_NOT && rule->cfa_sp != RULE_NOT)))
		step_learn(walk->in->unwinder, &walk->at, &step, ret, trust);
}

/* The return address. FOUND_NONE: it is not at hand. FOUND_END: the function keeps none. */
static enum found return_address(struct walk *walk, uint64_t cfa, uint64_t *ret)
{
	const struct frame_state *state = &walk->state;
	const uint64_t slot = cfa + (uint64_t)(int64_t)state->rule.ra_at;
	const bool returns = walk->at.kind == FRAME_RETURN;

	if (state->rule.ra_at > RULE_NOT) {
		if (walk_load(walk, slot, ret))
			return FOUND_CALLER;
		if (walk->isa->link)
			walk_note_elsewhere(walk, slot);
		return FOUND_NONE;
	}
	/* A function that has called something and has kept no way back never returns. */
	if (returns || state->rule.ra_at == RULE_NOT)
		return state->flow == FLOW_FOUND && state->has_start && (returns || !state->learned)
			       ? walk_end(walk, UNWIND_OUTERMOST)
			       : FOUND_NONE;
	*ret = walk->at.ra;
	return walk->at.ra_known ? FOUND_CALLER : FOUND_NONE;
}

/* Is this CFA that of a frame on this stack, or on another one to which fp leads? */
static bool is_cfa(const struct walk *walk, uint64_t cfa, bool by_fp)
{
	return (cfa >= walk->at.sp && cfa - walk->at.sp <= REACH) ||
	       (by_fp && walk_is_elsewhere(walk->stack, cfa));
}

/*
 * Looks for a proof that the function that was called leads here. False: it does not, and the
 * rule is none that the code from its start on gives.
 */
static bool is_proven(struct walk *walk, uint64_t slot, const struct call *call, uint8_t *trust)
{
	const struct frame_state *state = &walk->state;
	const enum proof proof = walk_prove(walk, slot, call->target);

	/* A call of a thunk is one by a register: see believe_code. */
	if (proof == PROOF_LEADS || (proof == PROOF_AWAY && state->has_start &&
				     state->flow == FLOW_FOUND && !state->learned))
		*trust = TRUST_SURE;
	return proof != PROOF_DENIES || call->indirect || !walk->state.learned || !walk->isa->link;
}

/* Does the code behind a call lead here? Then the link register is left from that call, of this very function's. */
static bool is_stale(struct walk *walk, uint64_t ret, const struct call *call)
{
	struct rule rule;

	return walk->state.learned && !call->direct &&
	       walk_try_start(walk, ret, &rule) == FLOW_FOUND;
}

static enum found try_cfa(struct walk *walk, uint64_t cfa, bool by_fp, uint8_t *trust)
{
	const struct frame_state *state = &walk->state;
	const bool in_link = state->rule.ra_at == RULE_SAME;
	const uint64_t slot = in_link ? IN_LINK : cfa + (uint64_t)(int64_t)state->rule.ra_at;
	struct call call;
	enum found found;
	uint64_t ret;

	if (!is_cfa(walk, cfa, by_fp))
		return FOUND_NONE;
	found = return_address(walk, cfa, &ret);
	if (found != FOUND_CALLER)
		return found;
	/* A start that was learned may be another function's: no caller here proves nothing. */
	if (walk_is_none(walk, ret) && state->flow == FLOW_FOUND)
		return state->learned ? FOUND_NONE : walk_end(walk, UNWIND_OUTERMOST);
	ret = walk_strip(walk, ret);
	call = walk_call(walk, ret);
	if (!believe_code(state, &call, trust) || (in_link && is_stale(walk, ret, &call)))
		return FOUND_NONE;
	if (*trust == TRUST_GUESS && call.direct && !is_proven(walk, slot, &call, trust))
		return FOUND_NONE;
	if (*trust == TRUST_SURE && !walk->isa->link && rule_table_denies(walk, slot, ret))
		*trust = TRUST_GUESS;
	learn_code(walk, ret, by_fp, *trust);
	walk_go_by_rule(walk, &state->rule, cfa, ret);
	return FOUND_CALLER;
}

enum found rule_code(struct walk *walk, uint8_t *trust)
{
	const struct rule *rule = &walk->state.rule;
	enum found found = FOUND_NONE;
	uint64_t by_sp, by_fp;
	bool fp_known;

	if (!rule_known(&walk->state))
		return FOUND_NONE;
	/* The frame pointer is unaffected by stack that only some paths have allocated. */
	fp_known = walk_cfa_by_fp(walk, rule, &by_fp);
	if (fp_known)
		found = try_cfa(walk, by_fp, true, trust);
	if (found != FOUND_NONE || walk->beyond || !walk_cfa_by_sp(walk, rule, &by_sp) ||
	    (fp_known && by_sp == by_fp))
		return found;
	found = try_cfa(walk, by_sp, false, trust);
	/* The two disagree: a caller that is not found here proves nothing. */
	return found == FOUND_END && fp_known ? FOUND_NONE : found;
}
