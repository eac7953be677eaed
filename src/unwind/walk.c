/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/stack_cache.h"

#include "arch/arm/arm.h"

/* What is asked for beyond the frame that was out of the window, bytes. */
#define MARGIN	    512
#define SAVED_BELOW 256 /* bytes */

/* Other registers are saved below the first that is missed, but hardly on another page. */
static uint64_t with_what_is_below(uint64_t va)
{
	const uint64_t room = va & (FRAME_SIZE - 1);

	return va - (room < SAVED_BELOW ? room : SAVED_BELOW);
}

static void note_other(struct walk *walk, unsigned i, uint64_t from, uint64_t used)
{
	struct unwind_result *out = walk->out;
	const bool first = !(out->others >> i & 1);

	if (first || from < out->others_from[i])
		out->others_from[i] = (uint32_t)from;
	if (first || used > out->others_used[i])
		out->others_used[i] = (uint32_t)used;
	out->others |= 1u << i;
}

/* Notes the part of this stack that was needed so far. */
static void walk_note_used(struct walk *walk)
{
	const struct window *stack = walk->stack;
	const uint64_t sp = walk->at.sp - stack->va, used = sp < stack->len ? sp : stack->len;

	if (stack == walk->in->stack)
		walk->out->used = used;
	else
		note_other(walk, (unsigned)(stack - walk->in->others), used, used);
}

static void note_short(struct walk *walk, uint64_t offset)
{
	walk->beyond = true;
	walk->out->want = offset + 2 * walk->word + MARGIN;
	walk->out->beyond = with_what_is_below(walk->stack->va + offset);
	walk->out->short_of = walk->stack == walk->in->stack ? NULL : walk->stack;
}

/* A word that is not in the window: it may be on another stack, from which nothing leads back. */
bool walk_load_outside(struct walk *walk, uint64_t va, uint64_t *value)
{
	const struct window *stack = walk->stack;
	uint64_t offset = va - stack->va;

	for (unsigned i = 0; i < walk->in->n_others; i++) {
		const struct window *other = &walk->in->others[i];

		if (walk->visited >> i & 1 || !in_window(other, va, walk->word))
			continue;
		note_other(walk, i, va - other->va, va - other->va + walk->word);
		*value = read_word(other->bytes + (va - other->va), walk->word);
		return true;
	}
	if (va >= walk->at.sp && !walk_is_elsewhere(stack, va)) {
		/* A page that is not at hand now could be the next time. */
		walk->top = UINT64_MAX;
		if (stack->cut)
			note_short(walk, offset);
		return false;
	}
	walk->missed = true;
	return false;
}

/* False: it is on no stack that is at hand, and walk->elsewhere or beyond says so. */
bool walk_change_stack(struct walk *walk)
{
	const struct cursor *at = &walk->at;
	uint64_t last = at->kind == FRAME_PC ? at->sp : at->sp - walk->word;

	if (in_window(walk->stack, last, walk->word))
		return true;
	for (unsigned i = 0; i < walk->in->n_others; i++) {
		if (walk->visited >> i & 1 || !in_window(&walk->in->others[i], last, walk->word))
			continue;
		walk->visited |= 1u << i;
		note_other(walk, i, last - walk->in->others[i].va, 0);
		walk->entry_at = STACK_CACHE_FRAMES;
		walk->ask_from = UINT64_MAX;
		walk->stack = &walk->in->others[i];
		return true;
	}
	if (at->kind == FRAME_RETURN)
		return true;
	/* Nothing was on the stack when it was interrupted. */
	if (!walk->stack->cut && last - walk->stack->va == walk->stack->len)
		return true;
	if (walk_is_elsewhere(walk->stack, last)) {
		walk->elsewhere = last;
		return false;
	}
	note_short(walk, last - walk->stack->va);
	return false;
}

void walk_note_elsewhere(struct walk *walk, uint64_t va)
{
	if (!walk->beyond && va && !(va & (walk->word - 1)) && walk_is_elsewhere(walk->stack, va))
		walk->elsewhere = with_what_is_below(va);
}

/* Linux's size of a task's kernel stack, to which it is aligned: bytes. */
#define KERNEL_STACK 16384

/* Looks up the facts about the walk's frame; must be done before the rules below. */
static void walk_find_info(struct walk *walk)
{
	struct unwinder *unwinder = walk->in->unwinder;
	struct pc_info *info = walk_info(walk);

	if (walk->in->method != UNWIND_CFI || walk->isa->ends_untold)
		pc_info_explore(unwinder, info);
	walk->state = info->state;
	walk->table = info->table;
	walk->trap = info->trap;
	walk->handler = info->handler;
	walk->readable = info->readable;
}

/* With tables only; and what they leave out is left to frame records and the search. */
static enum found rule_table_only(struct walk *walk, uint8_t *trust)
{
	enum found found = rule_table(walk, trust);

	if (found != FOUND_NONE || walk_is_stuck(walk))
		return found;
	walk->state = (struct frame_state){0};
	return rule_record(walk, !walk->readable, trust);
}

/* Has nothing told, from the function's start, where its return address is? */
static bool is_untold(const struct walk *walk)
{
	return walk->state.learned || (!walk->state.has_start && !rule_known(&walk->state));
}

/*
 * Code whose start is known and that could be followed says it best: compilers
 * leave out of their tables what an epilogue has undone already. All else is
 * better said by the tables, but those of some do not tell how functions end: there the caller is in
 * the link register again, and rows lead to some word of the stack.
 */
static enum found rule_code_and_table(struct walk *walk, uint8_t *trust)
{
	const struct row *row = walk->table.row;
	const bool special = row && (row->kind == ROW_END || row_is_trap(walk->table.whole, row));
	const bool followed =
		walk->state.has_flow && walk->state.flow == FLOW_FOUND && !walk->state.learned;
	enum found found = FOUND_NONE;

	if (followed && !special)
		found = rule_code(walk, trust);
	else if (row && !special && walk->isa->link && walk->at.kind == FRAME_PC && is_untold(walk))
		found = rule_end(walk, trust);
	if (found == FOUND_NONE && !walk->beyond)
		found = rule_table(walk, trust);
	if (found == FOUND_NONE && !walk_is_stuck(walk) && (!followed || special))
		found = rule_code(walk, trust);
	return found;
}

/* After so many searches in a row from an address that found nothing, the frame records are believed; */
#define VAIN_SEARCHES 8
/* where the code denies a caller, only each so many-th time one is made. */
#define SEARCH_AGAIN 16

/* Do the frame records say that this frame is the outermost? */
static bool records_end(struct walk *walk)
{
	const struct cursor *at = &walk->at;
	uint64_t ret;

	if (!at->chained || !at->fp_known)
		return false;
	return !at->fp || (walk_load(walk, at->fp + (uint64_t)walk->isa->record.ra_at, &ret) &&
			   walk_is_none(walk, ret));
}

/* Does the code say where the return address is, and is there none? Then it is hardly elsewhere. */
static bool is_denied(const struct walk *walk)
{
	const struct frame_state *state = &walk->state;

	return walk->at.kind == FRAME_RETURN && state->has_start && !state->learned &&
	       state->flow == FLOW_FOUND;
}

/* Counts a search that is to be made from an address, or not. */
static bool may_search(const struct walk *walk, struct pc_info *info, bool ends)
{
	if (info->vain < VAIN_SEARCHES)
		return true;
	if (ends || !is_denied(walk))
		return !ends;
	info->vain =
		info->vain == VAIN_SEARCHES + SEARCH_AGAIN - 1 ? VAIN_SEARCHES : info->vain + 1;
	return info->vain == VAIN_SEARCHES;
}

/*
 * Searching the stack costs more than all the rest, and is in vain at every
 * outermost frame. Where the records say that this is one, it is given up.
 */
static enum found search(struct walk *walk, uint8_t *trust)
{
	const bool ends = records_end(walk);
	struct pc_info *info = walk_info(walk);
	enum found found;

	if (!may_search(walk, info, ends)) {
		walk->hurried = !ends;
		return FOUND_NONE;
	}
	found = rule_search(walk, trust);
	if (found == FOUND_CALLER || walk->beyond)
		return found;
	/* The stack's words may have displaced it. */
	info = walk_info(walk);
	info->vain += info->vain < VAIN_SEARCHES && (ends || is_denied(walk));
	return found;
}

/*
 * The code has made this the first frame ahead of this very call: by clearing fp, which is still 0,
 * and the word above, as the first frame of a thread is marked (System V ABI, 3.4.1); or the link register.
 */
static bool marks_first_frame(struct walk *walk)
{
	const struct unwind_isa *isa = walk->isa;
	const struct code *code = walk->in->code;
	const struct cursor *at = &walk->at;
	size_t n = isa->marking;
	uint8_t bytes[MARKING_MAX];
	uint64_t above;

	if (!isa->begins_stack || (!isa->link && (!at->fp_known || at->fp || !at->exact ||
						  !walk_load(walk, at->sp, &above) || above)))
		return false;
	while (n && code->read(code->ctx, at->addr - n, bytes, n) != n)
		n /= 2;
	return n && isa->begins_stack(isa, bytes, n);
}

/*
 * Is this the first function of a thread, which never returns? Its return address is what stood there. Code of
 * a kernel can always be read: who calls such a function otherwise is found.
 */
static bool never_returns(const struct walk *walk)
{
	const struct regs *regs = walk->in->regs;
	struct rule unused;

	return !regs->user && walk->at.addr >> 63 == regs->pc >> 63 &&
	       walk->state.flow == FLOW_FOUND && rule_known(&walk->state) &&
	       pc_info_seek(walk->in->unwinder, walk_info(walk), SOUGHT_NEVER, &unused);
}

/* The code has taken over a stack and has dropped where it came from, as what begins a thread does. */
static bool begins_stack(struct walk *walk)
{
	if (walk->at.kind != FRAME_RETURN)
		return false;
	return (walk->state.flow == FLOW_FOUND && rule_known(&walk->state) &&
		walk->state.rule.discards) ||
	       marks_first_frame(walk) || never_returns(walk);
}

/*
 * Has nothing told how this code returns? It may stand behind a label without a symbol, to which a
 * pointer leads, and be counted to the function before: that leads elsewhere.
 */
static bool may_ask_return(const struct frame_state *state)
{
	return !state->learned && !(state->has_flow && state->flow == FLOW_FOUND);
}

/* Return addresses are on the stack: a search comes first, as it finds what proves itself. */
static enum found without_start(struct walk *walk, uint8_t *trust)
{
	enum found found;

	if (begins_stack(walk))
		return walk_end(walk, UNWIND_OUTERMOST);
	found = search(walk, trust);
	if (found == FOUND_NONE && !walk_is_stuck(walk) && may_ask_return(&walk->state)) {
		if (!records_end(walk))
			found = rule_return(walk, trust);
		/* A record that ends may be of a frame below, and fp be used for something else here. */
		if (found == FOUND_NONE && !walk_is_stuck(walk))
			found = rule_frame(walk, trust);
	}
	return found == FOUND_NONE ? rule_record(walk, false, trust) : found;
}

/* Return addresses are in the link register, or where the code ahead takes them from. */
static enum found without_start_by_link(struct walk *walk, uint8_t *trust)
{
	enum found found = is_untold(walk) ? rule_end(walk, trust) : FOUND_NONE;

	if (found != FOUND_NONE || walk_is_stuck(walk))
		return found;
	if (begins_stack(walk))
		return walk_end(walk, UNWIND_OUTERMOST);
	if (!records_end(walk))
		found = search(walk, trust);
	if (found == FOUND_NONE && !walk_is_stuck(walk) && is_untold(walk))
		found = rule_frame(walk, trust);
	return found == FOUND_NONE ? rule_record(walk, false, trust) : found;
}

/* Where tables say little of a function's first or last instructions, the code comes first there. */
static bool go_by_table_only(const struct walk *walk)
{
	return walk->in->method == UNWIND_CFI &&
	       !(walk->isa->ends_untold && walk->at.kind == FRAME_PC && walk->table.row);
}

/* What starts a kernel or a program may leave like a handler, but was called. */
static enum found rule_handler(struct walk *walk, uint8_t *trust)
{
	if (walk->at.kind == FRAME_RETURN && rule_go_to_who_called(walk)) {
		*trust = TRUST_SURE;
		return FOUND_CALLER;
	}
	walk->beyond = false;
	walk->elsewhere = 0;
	return walk->isa->interrupted(walk, &walk->trap, trust);
}

static enum found find_caller(struct walk *walk, uint8_t *trust)
{
	enum found found = FOUND_NONE;

	walk->beyond = false;
	walk->elsewhere = 0;
	if (!walk->in->unwinder)
		return rule_record(walk, true, trust);
	if (walk->in->method == UNWIND_SCAN)
		return FOUND_NONE;
	walk_find_info(walk);
	if (go_by_table_only(walk))
		return rule_table_only(walk, trust);
	if (walk->handler)
		found = rule_handler(walk, trust);
	if (found == FOUND_NONE && !walk_is_stuck(walk))
		found = rule_code_and_table(walk, trust);
	if (found != FOUND_NONE || walk_is_stuck(walk))
		return found;
	if (!walk->readable)
		return rule_record(walk, true, trust);
	return walk->isa->link ? without_start_by_link(walk, trust) : without_start(walk, trust);
}

enum found walk_find_caller(struct walk *walk, uint8_t *trust)
{
	const enum found found = find_caller(walk, trust);

	if (found == FOUND_CALLER && walk->isa->arrive)
		walk->isa->arrive(walk);
	return found;
}

/*
 * Does the frame pointer lead to another stack? Only if the code is known to
 * have set it up: in other code it can be anything.
 */
static bool leads_elsewhere(const struct walk *walk)
{
	const struct cursor *at = &walk->at;

	return at->fp_known && at->fp && !(at->fp & (walk->word - 1)) && rule_known(&walk->state) &&
	       walk->state.rule.cfa_fp != RULE_NOT && at->fp - walk->stack->va >= REACH;
}

/*
 * Does the frame end where the stack does, with no page above? Who jumped here, as the first part of a trap
 * handler does, has none, and the return address is of the code that was interrupted.
 */
static bool fills_stack(const struct walk *walk)
{
	const struct window *stack = walk->stack;
	const struct frame_state *state = &walk->state;
	const uint64_t end = stack->va + stack->len;
	uint64_t cfa;

	return !stack->cut && state->has_start && !state->learned && rule_known(state) &&
	       ((walk_cfa_by_fp(walk, &state->rule, &cfa) && cfa == end) ||
		(walk_cfa_by_sp(walk, &state->rule, &cfa) && cfa == end));
}

/* No rule found a caller: why? */
static enum unwind_end reason(struct walk *walk)
{
	const struct cursor *at = &walk->at;

	if (walk->beyond)
		return UNWIND_BYTES;
	if (!walk->elsewhere && leads_elsewhere(walk))
		walk->elsewhere = at->fp;
	if (walk->elsewhere) {
		walk->out->elsewhere = walk->elsewhere;
		return UNWIND_BYTES;
	}
	if (at->kind == FRAME_RETURN && walk->state.flow == FLOW_FOUND && !walk->state.learned &&
	    rule_known(&walk->state) && walk->state.rule.entry)
		return UNWIND_OUTERMOST;
	if ((at->chained && at->fp_known && !at->fp) || fills_stack(walk))
		return UNWIND_OUTERMOST;
	if (at->chained && at->fp_known && at->fp < at->sp && at->fp >= walk->stack->va)
		return records_end(walk) ? UNWIND_OUTERMOST : UNWIND_LOOP;
	return UNWIND_BROKEN;
}

/*
 * The search comes last, and only for who asked for it: where the code can be
 * followed, rule_search has searched for what proves itself, and anything
 * else leaves callers out more often than it finds them. Out of line: most frames
 * are known, and their walk has the registers for itself.
 */
static __attribute__((noinline)) enum found find_or_search(struct walk *walk, uint8_t *trust)
{
	enum unwind_method method = walk->in->method;
	enum found found = walk_find_caller(walk, trust);

	if (found != FOUND_NONE)
		return found;
	walk->out->end = reason(walk);
	if (walk->out->end != UNWIND_BROKEN || !walk->in->unwinder ||
	    (method != UNWIND_CFI && method != UNWIND_SCAN) || (walk->isa->kept && walk->table.row))
		return FOUND_END;
	return rule_scan(walk, trust) == FOUND_CALLER ? FOUND_CALLER : FOUND_END;
}

static bool is_switching(const struct code *code, const struct frame *frames, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const bool calls = frames[i].kind == FRAME_RETURN;

		if (code->switches(code->ctx, frames[i].addr - calls, calls))
			return true;
	}
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
	    !(code->switches || walk->in->kernel_only))
		return false;
	if (walk->in->kernel_only)
		return true;
	stack /= KERNEL_STACK;
	known = &unwinder->entrances[stack & (ENTRANCES - 1)];
	if (is_switching(code, frames, n))
		return known->stack != stack || known->root != unwinder->root;
	*known = (struct entrance){stack, unwinder->root};
	return false;
}

/* Some frames farther; false: out->end says why not. */
static bool climb(struct walk *walk, struct frame *frames)
{
	struct unwind_result *out = walk->out;
	uint64_t sp;
	uint8_t trust;

	if (walk->in->unwinder && steps_follow(walk, frames)) {
		walk_note_used(walk);
		return false;
	}
	walk_note_used(walk);
	sp = walk->at.sp;
	if (find_or_search(walk, &trust) == FOUND_END)
		return false;
	if (out->n == walk->in->max_frames) {
		out->end = UNWIND_FRAMES;
		return false;
	}
	if (is_other_program(walk, sp, frames)) {
		/* The kernel's frames are good. The same ones may lead on another time. */
		walk->cache = NULL;
		out->end = UNWIND_OUTERMOST;
		out->program = walk->at.addr;
		return false;
	}
	walk->at.ret_at = walk->at.fp_at = 0;
	if (walk->cache)
		stack_cache_note(walk, out->n);
	frames[out->n++] = (struct frame){.addr = walk->at.addr & walk->isa->address,
					  .kind = walk->at.kind,
					  .trust = trust};
	if (walk_change_stack(walk)) {
		walk_note_used(walk);
		return true;
	}
	out->end = UNWIND_BYTES;
	out->elsewhere = walk->elsewhere;
	return false;
}

/* Clearing the whole of it takes longer than a short walk. */
static void walk_begin(struct walk *walk, const struct unwind_input *in, struct unwind_result *out)
{
	const struct regs *regs = in->regs;

	walk->in = in;
	walk->out = out;
	walk->stack = in->stack;
	walk->word = regs->word;
	walk->isa = in->unwinder ? in->unwinder->isa : unwind_isa_of(regs);
	walk->at =
		(struct cursor){.addr = regs->pc,
				.sp = in->stack->va,
				.fp = regs->fp,
				.ra = regs->gp[walk->isa->ra & 31],
				.kind = FRAME_PC,
				.first = true,
				.exact = (regs->sp & (walk->word - 1)) == 0,
				.fp_known = true,
				.ra_known = walk->isa->link && regs->gp_valid >> walk->isa->ra & 1};
	memset(&walk->table, 0, sizeof(*walk) - offsetof(struct walk, table));
	walk->extent = UINT64_MAX;
	/* The rule is read only where has_flow says that it is there. */
	memset(&walk->state, 0, offsetof(struct frame_state, rule));
}

#define LINK 30u

/* A kernel on arm64 that a program has just entered: its stack is empty, and ends where nothing may be mapped. */
static bool has_just_entered(const struct regs *regs)
{
	/* The link register is the program's, until a trampoline (KPTI) takes it. */
	const bool called = regs->gp[LINK] >> 63 && !regs->kernel_root;

	return regs->isa == ISA_ARM && regs->word == 8 && regs->pc >> 63 && !regs->user &&
	       !called && regs->sp && regs->sp % KERNEL_STACK == 0 &&
	       !(regs->has_elr && regs->spsr & ARM_PSTATE_EL);
}

void unwind_stack(const struct unwind_input *in, struct frame *frames, struct unwind_result *out)
{
	const struct regs *regs = in->regs;
	struct walk walk;

	frames[0] = (struct frame){.addr = regs->pc, .kind = FRAME_PC, .trust = TRUST_SURE};
	memset(out, 0, offsetof(struct unwind_result, others_from));
	out->n = 1;
	out->end = regs->segmented ? UNWIND_SEGMENTED : UNWIND_NO_STACK;
	if (regs->segmented || !in->stack->len || !regs->sp) {
		if (has_just_entered(regs))
			out->end = UNWIND_OUTERMOST;
		return;
	}
	if (in->unwinder)
		unwinder_begin(in->unwinder, in);
	walk_begin(&walk, in, out);
	if (walk.isa->begin)
		walk.isa->begin(&walk);
	stack_cache_begin(&walk);
	if (walk.cache)
		stack_cache_note(&walk, 0);
	while (climb(&walk, frames))
		;
	if (walk.cache)
		stack_cache_keep(&walk, frames);
	out->searched = walk.extent == in->stack->va + in->stack->len;
	if (out->end != UNWIND_BYTES)
		out->want = 0;
}
