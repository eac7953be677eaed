/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/arm64_walk.h"
#include "unwind/arm_walk.h"
#include "unwind/memo.h"

/* Linux's size of a task's kernel stack, to which it is aligned: bytes. */
#define KERNEL_STACK 16384

void walk_look(struct walk *walk)
{
	struct unwinder *unwinder = walk->in->unwinder;
	struct site *site = site_at(unwinder, walk->at.addr, walk->at.kind);

	if (walk->in->method != UNWIND_CFI)
		site_explore(unwinder, site);
	walk->site = site->standing;
	walk->table = site->table;
	walk->trap = site->trap;
	walk->readable = site->readable;
}

/* With tables only; and what they leave out is left to frame records and the search. */
static enum found by_table(struct walk *walk, uint8_t *trust)
{
	enum found found = walk_by_row(walk, trust);

	if (found != FOUND_NONE || walk->beyond || walk->elsewhere)
		return found;
	walk->site = (struct standing){0};
	return walk_by_record(walk, !walk->readable, trust);
}

/*
 * Code whose start is known and that could be followed says it best: compilers
 * leave out of their tables what an epilogue has undone already. All else is
 * better said by the tables.
 */
static enum found by_state_and_table(struct walk *walk, uint8_t *trust)
{
	const struct row *row = walk->table.row;
	bool special = row && (row->kind == ROW_TRAP || row->kind == ROW_END);
	bool followed = walk->site.flow == FLOW_FOUND && !walk->site.learned;
	enum found found = FOUND_NONE;

	if (followed && !special)
		found = walk_by_state(walk, trust);
	if (found == FOUND_NONE && !walk->beyond)
		found = walk_by_row(walk, trust);
	if (found == FOUND_NONE && !walk->beyond && !walk->elsewhere && (!followed || special))
		found = walk_by_state(walk, trust);
	return found;
}

/* After so many searches from a place that found nothing, the frame records are believed. */
#define VAIN_SEARCHES 8

/* Do the frame records say that this frame is the outermost? */
static bool records_end(struct walk *walk)
{
	const struct place *at = &walk->at;
	uint64_t ret;

	if (!at->chained || !at->fp_known)
		return false;
	return !at->fp || (walk_load(walk, at->fp + walk->word, &ret) && !ret);
}

/*
 * Searching the stack costs more than all the rest, and is in vain at every
 * outermost frame. Where the records say that this is one, it is given up.
 */
static enum found search(struct walk *walk, uint8_t *trust)
{
	const struct place *at = &walk->at;
	const bool ends = records_end(walk);
	struct site *site = site_at(walk->in->unwinder, at->addr, at->kind);
	enum found found;

	if (ends && site->vain == VAIN_SEARCHES)
		return FOUND_NONE;
	found = walk_by_target(walk, trust);
	if (found == FOUND_NONE && ends && !walk->beyond) {
		/* Looking at the stack's words may have displaced it. */
		site = site_at(walk->in->unwinder, at->addr, at->kind);
		site->vain += site->vain < VAIN_SEARCHES;
	}
	return found;
}

enum found walk_find_caller(struct walk *walk, uint8_t *trust)
{
	enum found found;

	walk->beyond = false;
	walk->elsewhere = 0;
	if (!walk->in->unwinder)
		return walk_by_record(walk, true, trust);
	if (walk->in->method == UNWIND_SCAN)
		return FOUND_NONE;
	walk_look(walk);
	if (walk->in->method == UNWIND_CFI)
		return by_table(walk, trust);
	found = walk_by_iret(walk, trust);
	if (found == FOUND_NONE && !walk->beyond && !walk->elsewhere)
		found = by_state_and_table(walk, trust);
	if (found != FOUND_NONE || walk->beyond || walk->elsewhere)
		return found;
	if (!walk->readable)
		return walk_by_record(walk, true, trust);
	found = search(walk, trust);
	return found == FOUND_NONE ? walk_by_record(walk, false, trust) : found;
}

/*
 * Does the frame pointer lead to another stack? Only if the code is known to
 * have set it up: in other code it can be anything.
 */
static bool leads_elsewhere(const struct walk *walk)
{
	const struct place *at = &walk->at;

	return at->fp_known && at->fp && !(at->fp & (walk->word - 1)) && state_known(&walk->site) &&
	       walk->site.state.fp_at && at->fp - walk->stack->va >= REACH;
}

/* No rule found a caller: why? */
static enum unwind_end reason(struct walk *walk)
{
	const struct place *at = &walk->at;

	if (walk->beyond)
		return UNWIND_BYTES;
	if (!walk->elsewhere && leads_elsewhere(walk))
		walk->elsewhere = at->fp;
	if (walk->elsewhere) {
		walk->out->elsewhere = walk->elsewhere;
		return UNWIND_BYTES;
	}
	if (at->kind == FRAME_RETURN && walk->site.flow == FLOW_FOUND && state_known(&walk->site) &&
	    walk->site.state.entry)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && !at->fp)
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && at->fp < at->sp && at->fp >= walk->stack->va)
		return UNWIND_LOOP;
	return UNWIND_BROKEN;
}

/*
 * The search comes last, and only for who asked for it: where the code can be
 * followed, walk_by_target has searched for what proves itself, and anything
 * else leaves callers out more often than it finds them.
 */
static enum found find_or_search(struct walk *walk, uint8_t *trust)
{
	enum unwind_method method = walk->in->method;
	enum found found = walk_find_caller(walk, trust);

	if (found != FOUND_NONE)
		return found;
	walk->out->end = reason(walk);
	if (walk->out->end != UNWIND_BROKEN || !walk->in->unwinder ||
	    (method != UNWIND_CFI && method != UNWIND_SCAN))
		return FOUND_END;
	return walk_by_scan(walk, trust) == FOUND_CALLER ? FOUND_CALLER : FOUND_END;
}

/* How much of the first stack was needed. */
static void note_used(struct walk *walk)
{
	const struct window *stack = walk->in->stack;
	uint64_t used = walk->at.sp - stack->va;

	if (walk->stack == stack)
		walk->out->used = used < stack->len ? used : stack->len;
}

static bool is_switching(const struct code *code, const struct frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (code->switches(code->ctx, frames[i].addr - (frames[i].kind == FRAME_RETURN)))
			return true;
	return false;
}

/*
 * Has the walk come from a kernel to a program whose memory may not be the one
 * that is seen? Programs often have their stacks at the same address. A task
 * enters the kernel at the same place of its kernel stack each time: while it
 * switches, its program is at hand if the address space is that of before.
 */
static bool is_other_program(const struct walk *walk, uint64_t stack, const struct frame *frames)
{
	const struct code *code = walk->in->code;
	struct unwinder *unwinder = walk->in->unwinder;
	const size_t n = walk->out->n;
	struct entrance *known;

	if (walk->word != 8 || walk->at.addr >> 63 || !(frames[n - 1].addr >> 63) || !unwinder ||
	    !code->switches)
		return false;
	stack /= KERNEL_STACK;
	known = &unwinder->entrances[stack & (ENTRANCES - 1)];
	if (is_switching(code, frames, n))
		return known->stack != stack || known->root != unwinder->root;
	*known = (struct entrance){stack, unwinder->root};
	return false;
}

/* The kernel's frames are good. The same ones may lead on another time. */
static void end_before_program(struct walk *walk)
{
	if (walk->memo)
		unwind_memo_forget(walk->memo);
	walk->memo = NULL;
	walk->out->end = UNWIND_OUTERMOST;
}

/* Some frames farther; false: out->end says why not. */
static bool climb(struct walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->out;
	uint64_t sp;
	uint8_t trust;

	if (walk->in->unwinder && steps_follow(walk, frames)) {
		note_used(walk);
		return false;
	}
	note_used(walk);
	sp = walk->at.sp;
	if (find_or_search(walk, &trust) == FOUND_END)
		return false;
	if (out->n == walk->in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	if (is_other_program(walk, sp, frames)) {
		end_before_program(walk);
		return false;
	}
	if (walk->memo)
		memo_note(walk, out->n);
	frames[out->n++] =
		(struct frame){.addr = walk->at.addr, .kind = walk->at.kind, .trust = trust};
	if (walk_settle(walk)) {
		note_used(walk);
		return true;
	}
	out->end = UNWIND_BYTES;
	out->elsewhere = walk->elsewhere;
	return false;
}

/* Member by member: clearing the whole of it at once takes longer than a short walk. */
static void walk_begin(struct walk *walk, const struct unwind_input *in, struct unwind_result *out)
{
	const struct regs *regs = in->regs;

	walk->in = in;
	walk->out = out;
	walk->stack = in->stack;
	walk->word = regs->word;
	walk->at = (struct place){.addr = regs->pc,
				  .sp = in->stack->va,
				  .fp = regs->fp,
				  .kind = FRAME_PC,
				  .first = true,
				  .exact = (regs->sp & (walk->word - 1)) == 0,
				  .fp_known = true};
	walk->site = (struct standing){0};
	walk->table = (struct tabled){0};
	walk->trap = (struct row){0};
	walk->readable = false;
	walk->beyond = false;
	walk->elsewhere = 0;
	walk->visited = 0;
	walk->missed = false;
	walk->memo = NULL;
	walk->common = 0;
	walk->top = 0;
}

void unwind_stack(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct walk walk;

	frames[0] = (struct frame){.addr = regs->pc, .kind = FRAME_PC, .trust = TRUST_SURE};
	*out = (struct unwind_result){.n = 1, .end = UNWIND_NO_STACK};
	if (!in->stack->len || !regs->sp) {
		if (in->memo)
			unwind_memo_forget(in->memo);
		return;
	}
	if (regs->isa == ISA_ARM) {
		if (regs->word == 8)
			arm64_unwind(in, frames, out);
		else
			arm_unwind(in, frames, out);
		return;
	}
	if (in->unwinder)
		site_begin(in->unwinder, in);
	walk_begin(&walk, in, out);
	memo_begin(&walk);
	if (walk.memo)
		memo_note(&walk, 0);
	while (climb(&walk, frames))
		;
	if (walk.memo)
		memo_keep(&walk, frames);
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
