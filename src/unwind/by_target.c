/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"

/* Words above the stack pointer that may be the return address; more for one that symbols prove. */
#define SCAN_WORDS 512

/* A function that was called from a return address on the stack. */
struct candidate {
	uint64_t slot, ret, target;
	enum flow_result flow;
	struct x86_state state;
	bool proven; /* following it leads here, with the return address in that slot */
};

/* Reads the return address in candidate->slot and says whether it may be ours. */
static bool is_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	uint64_t addr = walk->at.addr;
	const struct x86_call *call;

	if (!walk_load(walk, candidate->slot, &candidate->ret))
		return false;
	/* A direct call reaches no farther than 2 GiB. */
	if (candidate->ret - addr + (1ull << 32) > 1ull << 33)
		return false;
	call = &site_at(walk->in->unwinder, candidate->ret, FRAME_RETURN)->call;
	candidate->target = call->target;
	if (!call->direct)
		return false;
	/* Parts of a function that symbols do not count to it may be far away. */
	if (record || (walk->in->code->function && !walk->site.has_start))
		return true;
	/* A function that jumped here, and so is not near, has nothing more on the stack. */
	return candidate->slot == walk->at.sp ||
	       addr - candidate->target + FUNCTION_MAX < 2 * FUNCTION_MAX;
}

static bool prove(struct walk *walk, struct candidate *candidate)
{
	struct unwinder *unwinder = walk->in->unwinder;
	uint64_t slot;

	candidate->flow = site_try_start(unwinder, site_at(unwinder, walk->at.addr, walk->at.kind),
					 candidate->target, &candidate->state);
	if (candidate->flow != FLOW_FOUND && candidate->flow != FLOW_GUESSED)
		return false;
	if (!walk_slot_by_fp(walk, &candidate->state, &slot) &&
	    !walk_slot_by_sp(walk, &candidate->state, &slot))
		return false;
	return slot == candidate->slot;
}

/* Is it ours? By proof, or because symbols say that it called the function that stands here. */
static bool try_candidate(struct walk *walk, struct candidate *candidate, bool record)
{
	const struct standing *site = &walk->site;

	if (!is_candidate(walk, candidate, record))
		return false;
	candidate->proven = prove(walk, candidate);
	return candidate->proven ||
	       (site->has_start && !site->learned && candidate->target == site->start);
}

static void go_by_proof(struct walk *walk, const struct candidate *candidate, uint8_t *trust)
{
	struct unwinder *unwinder = walk->in->unwinder;

	site_learn(site_at(unwinder, walk->at.addr, walk->at.kind), candidate->target,
		   candidate->flow, &candidate->state);
	walk_go_by_state(walk, &candidate->state, candidate->slot, candidate->ret);
	*trust = candidate->flow == FLOW_FOUND ? TRUST_SURE : TRUST_GUESS;
}

static void go_by_symbols(struct walk *walk, const struct candidate *candidate, bool record,
			  uint8_t *trust)
{
	struct place *at = &walk->at;

	*trust = record ? TRUST_SURE : TRUST_GUESS;
	if (record) {
		at->chained = true;
		at->fp_known = walk_load(walk, candidate->slot - walk->word, &at->fp);
	}
	at->addr = candidate->ret;
	at->kind = FRAME_RETURN;
	at->first = false;
	at->sp = candidate->slot + walk->word;
	at->exact = true;
}

bool walk_was_jumped_to(struct walk *walk, uint64_t slot, uint64_t target)
{
	struct candidate candidate = {.slot = slot, .target = target};
	struct unwinder *unwinder = walk->in->unwinder;

	if (site_at(unwinder, walk->at.addr, walk->at.kind)->jumped_from == target)
		return true;
	if (!prove(walk, &candidate) || candidate.flow != FLOW_FOUND)
		return false;
	site_at(unwinder, walk->at.addr, walk->at.kind)->jumped_from = target;
	return true;
}

/*
 * The record that the frame pointer leads to comes first. But a function that
 * was called later has its return address farther down: if there is one, then
 * the record is its caller's.
 */
enum found walk_by_target(struct walk *walk, uint8_t *trust)
{
	const struct window *stack = walk->stack;
	uint64_t slot = walk->at.sp, end = slot + SCAN_WORDS * walk->word;
	struct candidate best = {.slot = walk->at.fp + walk->word}, other;
	bool record = walk->at.fp_known && try_candidate(walk, &best, true), found = record;

	walk->beyond = false;
	if (end > stack->va + stack->len / walk->word * walk->word)
		end = stack->va + stack->len / walk->word * walk->word;
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
