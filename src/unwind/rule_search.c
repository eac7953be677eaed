/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

/* Does the code here say by itself that fp points to a frame record? */
static bool keeps_record(struct walk *walk)
{
	struct rule rule;

	return pc_info_seek(walk->in->unwinder, walk_info(walk), SOUGHT_RECORD, &rule);
}

/* May a record with this return address be believed? */
static bool record_fits(struct walk *walk, uint64_t ret)
{
	const struct frame_state *state = &walk->state;
	const struct call call = walk_call(walk, ret);
	const uint64_t target = call.target;
	enum flow_result flow;
	struct rule rule;

	if (call.indirect)
		return (!walk->isa->link && (walk->at.kind == FRAME_RETURN || state->has_start)) ||
		       keeps_record(walk);
	if (!call.direct)
		return false;
	if (state->has_start && !walk->isa->link)
		return target == state->start;
	if (!walk->isa->link && walk->at.addr - target >= FUNCTION_MAX)
		return false;
	flow = walk_try_start(walk, target, &rule);
	if (!walk->isa->link)
		return flow == FLOW_UNKNOWN;
	return flow != FLOW_NOT && keeps_record(walk);
}

/*
 * A leaf has no record of its own: its caller is still in the link register,
 * and the record is the caller's. In code that cannot be followed, another
 * function in the link register shows that (AAPCS64, 6.4.6).
 */
static bool is_in_link(struct walk *walk, uint64_t recorded, bool blind, uint64_t *ret)
{
	uint64_t here, there;
	struct call call;

	*ret = walk_strip(walk, walk->at.ra);
	if (!walk->isa->link || !walk->at.ra_known || !*ret || *ret == recorded ||
	    !walk_function(walk, walk->at.addr, &here) || !walk_function(walk, *ret - 1, &there) ||
	    here == there)
		return false;
	if (blind)
		return true;
	call = walk_call(walk, *ret);
	return call.direct || call.indirect;
}

/*
 * The record is the last: nobody has stored one before. Zeros alone prove no record: they stand
 * behind any pointer to the stack that frameless code keeps.
 */
static enum found at_last(struct walk *walk, bool blind)
{
	return walk->at.chained || blind ? walk_end(walk, UNWIND_OUTERMOST) : FOUND_NONE;
}

/* Frame records of code that cannot be followed; blind: that cannot even be read. */
enum found rule_record(struct walk *walk, bool blind, uint8_t *trust)
{
	const struct record_layout *layout = &walk->isa->record;
	const uint64_t fp = walk->at.fp;
	uint64_t next, ret, lr;
	bool last;

	*trust = TRUST_GUESS;
	if (walk->isa->find_record)
		return walk->isa->find_record(walk);
	if (!walk->at.fp_known || (!blind && !walk->isa->link && rule_known(&walk->state)))
		return FOUND_NONE;
	if (walk->isa->fp_reserved && !fp)
		return at_last(walk, blind);
	if (!walk_load(walk, fp + (uint64_t)layout->fp_at, &next) ||
	    !walk_load(walk, fp + (uint64_t)layout->ra_at, &ret))
		return FOUND_NONE;
	last = walk_is_none(walk, ret);
	ret = walk_strip(walk, ret);
	if (is_in_link(walk, ret, blind, &lr)) {
		walk_return_to(walk, lr, walk->at.sp);
		walk->at.chained = false;
		return FOUND_CALLER;
	}
	if (last)
		return at_last(walk, blind);
	if (walk->isa->fp_reserved && next && next <= fp)
		return walk_end(walk, next == fp ? UNWIND_LOOP : UNWIND_BROKEN);
	if (!blind && !record_fits(walk, ret))
		return FOUND_NONE;
	walk->at = (struct cursor){.addr = ret,
				   .kind = FRAME_RETURN,
				   .sp = fp + (uint64_t)layout->size,
				   .exact = !walk->isa->link,
				   .fp = next,
				   .fp_known = true,
				   .chained = true};
	return FOUND_CALLER;
}

/* Words above the stack pointer that are searched; more for one that symbols prove. */
#define SCAN_WORDS 512

/* Sure frames that have to follow a caller before it is taken, unless the outermost comes first. */
#define LOOK_AHEAD 2

/* Goes to the caller if a call ends at `ret`. */
static bool try_return(struct walk *walk, uint64_t slot, uint64_t ret)
{
	const struct cursor before = walk->at;
	const struct call call = walk_call(walk, ret);
	uint64_t sp = slot + walk->word;

	if (!call.direct && !call.indirect)
		return false;
	walk->at = (struct cursor){.addr = ret,
				   .sp = sp,
				   .fp = before.fp,
				   .kind = FRAME_RETURN,
				   .exact = true,
				   .fp_known = before.fp_known && before.fp >= sp &&
					       before.fp - sp < REACH};
	if (walk->isa->arrive)
		walk->isa->arrive(walk);
	return true;
}

/* Goes back to a former frame, `before`; what has been read since then stays read. */
static void walk_go_back(struct walk *walk, const struct walk *before)
{
	const struct walk now = *walk;

	*walk = *before;
	walk->missed = now.missed;
	walk->hurried = now.hurried;
	walk->extent = now.extent;
	walk->top = now.top;
}

/* True if the walk from here finds enough sure frames. Restores the walk. */
static bool goes_on(struct walk *walk)
{
	const struct walk before = *walk;
	struct unwind_result out = *walk->out;
	enum found found = FOUND_CALLER;
	uint8_t trust = TRUST_SURE;
	bool good;

	for (unsigned i = 0; i < LOOK_AHEAD && found == FOUND_CALLER && trust == TRUST_SURE; i++) {
		found = walk_find_caller(walk, &trust);
		if (found == FOUND_CALLER && !walk_change_stack(walk))
			found = FOUND_NONE;
	}
	good = found == FOUND_CALLER ? trust == TRUST_SURE
				     : found == FOUND_END && walk->out->end == UNWIND_OUTERMOST;
	out.others = walk->out->others;
	walk_go_back(walk, &before);
	*walk->out = out;
	return good;
}

enum found rule_scan(struct walk *walk, uint8_t *trust)
{
	const struct window *stack = walk->stack;
	const struct walk before = *walk;
	uint64_t slot = (walk->at.sp + walk->word - 1) & ~(walk->word - 1), ret;

	*trust = TRUST_GUESS;
	for (unsigned i = 0; i < SCAN_WORDS && in_window(stack, slot, walk->word); i++) {
		ret = walk_strip(walk, read_word(stack->bytes + (slot - stack->va), walk->word));
		if (ret && walk_spend(walk) && try_return(walk, slot, ret)) {
			if (walk->in->method == UNWIND_SCAN || goes_on(walk))
				return FOUND_CALLER;
			walk_go_back(walk, &before);
		}
		slot += walk->word;
	}
	if (stack->cut && !in_window(stack, slot, walk->word))
		walk->extent = stack->va + stack->len;
	if (slot > walk->top)
		walk->top = slot;
	return FOUND_NONE;
}

/* A function that was called from a return address on the stack. */
struct candidate {
	uint64_t slot, ret, target;
	enum flow_result flow;
	struct rule rule;
	bool proven; /* following it leads here, with the return address in that slot */
};

/* Reads the return address in candidate->slot and says whether it may be ours. */
static bool is_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	uint64_t addr = walk->at.addr & walk->isa->address;
	struct call call;

	if (!walk_load(walk, candidate->slot, &candidate->ret))
		return false;
	candidate->ret = walk_strip(walk, candidate->ret);
	/* A direct call reaches no farther than 2 GiB. */
	if (candidate->ret - addr + (1ull << 32) > 1ull << 33)
		return false;
	call = walk_call(walk, candidate->ret);
	candidate->target = call.target;
	if (!call.direct)
		return false;
	/* Parts of a function that symbols do not count to it may be far away. */
	if (record || (walk->in->code->function && !walk->state.has_start))
		return true;
	/* A function that was jumped from, and so is not near, has nothing more on the stack. */
	return candidate->slot == walk->at.sp ||
	       addr - candidate->target + FUNCTION_MAX < 2 * FUNCTION_MAX;
}

static enum proof prove(struct walk *walk, struct candidate *candidate)
{
	uint64_t cfa;

	candidate->flow = walk_try_start(walk, candidate->target, &candidate->rule);
	if (candidate->flow == FLOW_NOT)
		return PROOF_DENIES;
	if (candidate->flow == FLOW_AWAY)
		return PROOF_AWAY;
	if (candidate->flow != FLOW_FOUND && candidate->flow != FLOW_GUESSED)
		return PROOF_MISSING;
	if (candidate->rule.ra_at == RULE_NOT)
		return PROOF_MISSING;
	if (candidate->rule.ra_at == RULE_SAME)
		return candidate->slot == IN_LINK ? PROOF_LEADS : PROOF_DENIES;
	if (!walk_cfa_by_fp(walk, &candidate->rule, &cfa) &&
	    !walk_cfa_by_sp(walk, &candidate->rule, &cfa))
		return PROOF_MISSING;
	return cfa + (uint64_t)(int64_t)candidate->rule.ra_at == candidate->slot ? PROOF_LEADS
										 : PROOF_DENIES;
}

/*
 * Is the return address ours? By proof, or because symbols say that it follows a
 * call of this function.
 */
static bool try_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	const struct frame_state *state = &walk->state;

	if (!is_candidate(walk, candidate, record))
		return false;
	candidate->proven = prove(walk, candidate) == PROOF_LEADS;
	return candidate->proven ||
	       (state->has_start && !state->learned && candidate->target == state->start);
}

static void go_by_proof(struct walk *walk, const struct candidate *candidate, uint8_t *trust)
{
	walk_info(walk)->state = (struct frame_state){.has_start = true,
						      .learned = true,
						      .has_flow = true,
						      .flow = candidate->flow,
						      .start = candidate->target,
						      .rule = candidate->rule};
	walk_go_by_rule(walk, &candidate->rule,
			candidate->slot - (uint64_t)(int64_t)candidate->rule.ra_at, candidate->ret);
	*trust = candidate->flow == FLOW_FOUND ? TRUST_SURE : TRUST_GUESS;
}

static void go_by_symbols(struct walk *walk, const struct candidate *candidate, bool record,
			  uint8_t *trust)
{
	struct cursor *at = &walk->at;

	*trust = record ? TRUST_SURE : TRUST_GUESS;
	if (record) {
		at->chained = true;
		at->fp_known = walk_load(walk, candidate->slot - walk->word, &at->fp);
	}
	walk_return_to(walk, candidate->ret, candidate->slot + walk->word);
	at->exact = !walk->isa->link;
}

enum proof walk_prove(struct walk *walk, uint64_t slot, uint64_t target)
{
	struct candidate candidate = {.slot = slot, .target = target};
	enum proof proof;

	if (walk_info(walk)->jumped_from == target)
		return PROOF_LEADS;
	proof = prove(walk, &candidate);
	/* A rule that was put together from jumps by table proves nothing. */
	if (candidate.flow == FLOW_GUESSED)
		return PROOF_MISSING;
	if (proof == PROOF_LEADS)
		walk_info(walk)->jumped_from = target;
	return proof;
}

/*
 * The record that the frame pointer leads to comes first. But a function that
 * was called later has its return address farther down: if there is one, then
 * the record is its caller's.
 */
enum found rule_search(struct walk *walk, uint8_t *trust)
{
	const struct window *stack = walk->stack;
	uint64_t slot = walk->at.sp, end = slot + SCAN_WORDS * walk->word;
	struct candidate best = {.slot = walk->at.fp + (uint64_t)walk->isa->record.ra_at}, other;
	bool record = walk->at.fp_known && try_candidate(walk, &best, true), found = record;

	walk->beyond = false;
	if (end > stack->va + stack->len / walk->word * walk->word) {
		end = stack->va + stack->len / walk->word * walk->word;
		if (stack->cut)
			walk->extent = stack->va + stack->len;
	}
	if (record && best.slot < end)
		end = best.slot;
	for (; slot < end && walk_spend(walk); slot += walk->word) {
		other = (struct candidate){.slot = slot};
		if (try_candidate(walk, &other, false) && (!found || other.target > best.target)) {
			best = other;
			record = false;
			found = true;
			break;
		}
	}
	if (!found)
		return FOUND_NONE;
	if (best.proven)
		go_by_proof(walk, &best, trust);
	else
		go_by_symbols(walk, &best, record, trust);
	return FOUND_CALLER;
}

/* The word that the return restores fp from is in a frame record, to which fp points. */
static void note_record(const struct walk *walk, struct rule *rule)
{
	const struct record_layout *layout = &walk->isa->record;
	const uint64_t fp = walk->at.fp;
	uint64_t cfa;

	if (rule->fp_at == RULE_NOT || rule->fp_at == RULE_SAME || rule->ra_at == RULE_SAME ||
	    !walk->at.fp_known || !walk->at.exact || !walk_cfa_by_sp(walk, rule, &cfa) ||
	    cfa + (uint64_t)(int64_t)rule->fp_at != fp + (uint64_t)layout->fp_at ||
	    cfa + (uint64_t)(int64_t)rule->ra_at != fp + (uint64_t)layout->ra_at)
		return;
	rule->cfa_fp = (int32_t)(cfa - fp);
	rule->chained = true;
}

/* Goes by what was found out otherwise than from the function's symbol, and keeps it if it leads to a caller. */
static enum found rule_learned(struct walk *walk, const struct frame_state *learned, uint8_t *trust)
{
	struct unwinder *unwinder = walk->in->unwinder;
	const struct frame_state before = walk->state;
	const uint64_t addr = walk->at.addr;
	const uint8_t kind = walk->at.kind;
	enum found found;

	walk->state = *learned;
	found = rule_code(walk, trust);
	if (found == FOUND_CALLER)
		pc_info_at(unwinder, addr, kind)->state = walk->state;
	else
		walk->state = before;
	return found;
}

/* The link register may follow a call of this very function, and then that is the start. */
static enum found rule_link(struct walk *walk, uint8_t *trust)
{
	const struct cursor *at = &walk->at;
	struct frame_state learned = {.has_start = true, .learned = true, .has_flow = true};
	struct call call;

	if (at->kind != FRAME_PC || !at->ra_known)
		return FOUND_NONE;
	call = walk_call(walk, walk_strip(walk, at->ra));
	learned.start = call.target;
	if (!call.direct || (walk->state.learned && walk->state.start == call.target))
		return FOUND_NONE;
	learned.flow = walk_try_start(walk, call.target, &learned.rule);
	return learned.flow == FLOW_FOUND ? rule_learned(walk, &learned, trust) : FOUND_NONE;
}

enum found rule_return(struct walk *walk, uint8_t *trust)
{
	struct frame_state learned = {.learned = true, .has_flow = true, .flow = FLOW_GUESSED};

	if (!pc_info_seek(walk->in->unwinder, walk_info(walk), SOUGHT_RETURN, &learned.rule))
		return FOUND_NONE;
	note_record(walk, &learned.rule);
	return rule_learned(walk, &learned, trust);
}

/*
 * The return address follows a call of another function, and the code behind it does not return: it
 * has jumped here, and left in the link register what was there.
 */
static bool was_jumped_to(struct walk *walk, const struct rule *rule)
{
	struct unwinder *unwinder = walk->in->unwinder;
	enum flow_result flow;
	struct rule other;
	struct call call;
	uint64_t cfa, ret, slot;

	if (rule->ra_at == RULE_SAME || rule->ra_at == RULE_NOT ||
	    (!walk_cfa_by_fp(walk, rule, &cfa) && !walk_cfa_by_sp(walk, rule, &cfa)))
		return false;
	slot = cfa + (uint64_t)(int64_t)rule->ra_at;
	if (!walk_load(walk, slot, &ret))
		return false;
	ret = walk_strip(walk, ret);
	call = walk_call(walk, ret);
	if (!call.direct || call.indirect || walk_prove(walk, slot, call.target) != PROOF_DENIES ||
	    pc_info_seek(unwinder, pc_info_at(unwinder, ret, FRAME_RETURN), SOUGHT_RETURN, &other))
		return false;
	flow = walk_try_start(walk, ret, &other);
	return flow == FLOW_FOUND || flow == FLOW_AWAY;
}

enum found rule_frame(struct walk *walk, uint8_t *trust)
{
	struct frame_state learned = {.learned = true, .has_flow = true, .flow = FLOW_GUESSED};
	enum found found;

	if (!pc_info_seek(walk->in->unwinder, walk_info(walk), SOUGHT_FRAME, &learned.rule))
		return FOUND_NONE;
	if (learned.rule.entry && learned.rule.cfa_sp == RULE_NOT)
		return walk_end(walk, UNWIND_OUTERMOST);
	/* Nothing but a call of it shows that it begins there. */
	learned.has_start = !walk->isa->link;
	learned.start = walk_info(walk)->began;
	found = rule_learned(walk, &learned, trust);
	if (found == FOUND_NONE && walk->isa->link && !walk_is_stuck(walk) &&
	    was_jumped_to(walk, &learned.rule))
		return walk_end(walk, UNWIND_OUTERMOST);
	return found;
}

enum found rule_end(struct walk *walk, uint8_t *trust)
{
	const enum found found = rule_link(walk, trust);

	return found == FOUND_NONE && !walk_is_stuck(walk) ? rule_return(walk, trust) : found;
}
