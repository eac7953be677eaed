/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/walk.h"
#include "unwind/x86_trap.h"

#define SAVED_BELOW 256 /* bytes */

/* DWARF numbers of registers (arch/arch.h). */
struct numbers {
	uint8_t fp, sp, pc;
};

static struct numbers numbers(const struct walk *walk)
{
	static const struct numbers wide = {6, 7, 16}, narrow = {5, 4, 8};

	return walk->word == 8 ? wide : narrow;
}

static bool get_register(void *ctx, unsigned n, uint64_t *value)
{
	const struct walk *walk = ctx;
	const struct place *at = &walk->at;
	const struct numbers number = numbers(walk);

	if (n == number.fp) {
		*value = at->fp;
		return at->fp_known;
	}
	if (n == number.sp) {
		*value = at->sp;
		return at->exact;
	}
	if (n == number.pc) {
		*value = at->addr;
		return true;
	}
	if (!at->first || n >= 32 || !(walk->in->regs->gp_valid >> n & 1))
		return false;
	*value = walk->in->regs->gp[n];
	return true;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	return walk_load(ctx, va, value);
}

/* Other registers are saved below the first that is missed, but hardly on another page. */
static uint64_t with_room_below(uint64_t va)
{
	uint64_t room = va & (FRAME_SIZE - 1);

	return va - (room < SAVED_BELOW ? room : SAVED_BELOW);
}

static bool apply(struct walk *walk, const struct rows *rows, const struct row *row,
		  struct row_caller *caller)
{
	const struct numbers number = numbers(walk);
	const struct row_env env = {.ctx = walk,
				    .reg = get_register,
				    .load = get_word,
				    .word = (unsigned)walk->word,
				    .fp = number.fp,
				    .sp = number.sp,
				    .ra = number.pc};

	if (rows_step(rows, row, &env, caller))
		return true;
	if (caller->slot && !walk->beyond && !(caller->slot & (walk->word - 1)) &&
	    walk_is_elsewhere(walk->stack, caller->slot))
		walk->elsewhere = with_room_below(caller->slot);
	return false;
}

/* Stacks are left upwards, or for another one. */
static bool goes_up(const struct walk *walk, const struct row_caller *caller)
{
	return caller->sp > walk->at.sp || walk_is_elsewhere(walk->stack, caller->sp);
}

/* Where kernels in the upper half of the address space were entered from a program in the lower. */
static bool leaves_kernel(const struct walk *walk, uint64_t pc)
{
	return walk->word == 8 && walk->at.addr >> 63 && !(pc >> 63);
}

static bool is_known_code(const struct walk *walk, uint64_t pc)
{
	const struct code *code = walk->in->code;
	uint64_t start, end;

	return (code->rows && code->rows(code->ctx, pc, &start)) ||
	       (code->function && code->function(code->ctx, pc, &start, &end));
}

static enum found go_to_interrupted(struct walk *walk, const struct row_caller *caller)
{
	/* A program that nobody asked about and of which nothing is known: the kernel's stack is whole. */
	if (leaves_kernel(walk, caller->pc) && !is_known_code(walk, caller->pc)) {
		walk->out->end = UNWIND_OUTERMOST;
		return FOUND_END;
	}
	if (!goes_up(walk, caller))
		return FOUND_NONE;
	walk->at = (struct place){.addr = caller->pc,
				  .sp = caller->sp & ~(walk->word - 1),
				  .fp = caller->fp,
				  .kind = FRAME_PC,
				  .exact = !(caller->sp & (walk->word - 1)),
				  .fp_known = caller->fp_known};
	return FOUND_CALLER;
}

bool walk_row_denies(struct walk *walk, uint64_t slot, uint64_t ret)
{
	const uint64_t elsewhere = walk->elsewhere;
	const bool beyond = walk->beyond;
	const struct row *row = walk->table.row;
	struct row_caller caller;
	bool known;

	if (!row || row->kind == ROW_END)
		return row;
	known = apply(walk, walk->table.rows, row, &caller);
	walk->elsewhere = elsewhere;
	walk->beyond = beyond;
	/* A realigned stack has the return address twice. */
	return known && (caller.trap ||
			 (caller.slot != slot && !(walk->site.state.copied && caller.pc == ret)));
}

/* How far the return address is to be believed; false: not at all. */
static bool believe(struct walk *walk, const struct row_caller *caller, uint8_t *trust)
{
	const struct site *site = site_at(walk->in->unwinder, caller->pc, FRAME_RETURN);
	const struct x86_call call = site->call;
	bool only = walk->in->method == UNWIND_CFI;

	*trust = TRUST_GUESS;
	/* Where no code can be read at all, there is nothing to go by but the table. */
	if (!site->readable)
		return !walk->readable;
	if (!call.direct && !call.indirect)
		return false;
	if ((call.direct && walk->site.has_start && call.target == walk->site.start) ||
	    (call.indirect && only) ||
	    (call.direct && walk_was_jumped_to(walk, caller->slot, call.target)))
		*trust = TRUST_SURE;
	return true;
}

/* The same step is to be done at once the next time, if it is a plain one. */
static void learn(struct walk *walk, const struct row *row, uint64_t ret, uint8_t trust)
{
	const struct numbers number = numbers(walk);
	struct step step = {.by_fp = row->cfa_reg == number.fp,
			    .at = row->cfa_offset + row->ra_at,
			    .fp_lost = row->fp_at == ROW_LOST,
			    .chained = row->cfa_reg == number.fp};

	if (walk->trap.kind != ROW_NONE || row->kind != ROW_CALL || row->base != ROW_PLUS ||
	    row->sp_at != ROW_SAME || row->ra_at != -(int)walk->word ||
	    (!step.by_fp && row->cfa_reg != number.sp))
		return;
	if (row->fp_at > ROW_LOST) {
		step.saved_at = row->ra_at - row->fp_at;
		if (!step.saved_at)
			return;
	}
	step_learn(walk->in->unwinder, &walk->at, &step, ret, trust);
}

/*
 * What a new thread begins with is put on its stack, where the first switch to
 * it returns: nobody has called it, and no call stands before it.
 */
static bool begins_thread(const struct walk *walk, uint64_t pc)
{
	const struct code *code = walk->in->code;
	uint64_t slide, start, end;
	const struct rows *rows = code->rows ? code->rows(code->ctx, pc, &slide) : NULL;
	const struct row *row = rows ? rows_find(rows, pc - slide) : NULL;

	return row && row->kind == ROW_END && code->function &&
	       code->function(code->ctx, pc, &start, &end) && start == pc;
}

/*
 * Code that jumps to a function by a return, as Linux's thunks for indirect
 * calls do, has the function's first instruction where a return address is
 * expected. Whom it will return to stands above.
 */
static bool jumps_by_return(struct walk *walk, const struct row_caller *caller,
			    struct row_caller *beyond, uint8_t *trust)
{
	const struct code *code = walk->in->code;
	uint64_t start, end;

	*beyond = *caller;
	beyond->slot += walk->word;
	beyond->sp += walk->word;
	return walk->at.kind == FRAME_PC && code->function &&
	       code->function(code->ctx, caller->pc, &start, &end) && start == caller->pc &&
	       walk_load(walk, beyond->slot, &beyond->pc) && believe(walk, beyond, trust);
}

static enum found go_to_caller(struct walk *walk, const struct row *row,
			       const struct row_caller *caller, uint8_t *trust)
{
	/* Where it was not saved, it is still what some frame below has stored. */
	const bool chained =
		row->fp_at > ROW_LOST ? row->cfa_reg == numbers(walk).fp : walk->at.chained;
	uint8_t kind = FRAME_RETURN;
	struct row_caller beyond;

	if (!caller->pc) {
		walk->out->end = UNWIND_OUTERMOST;
		return FOUND_END;
	}
	if (!caller->slot || !goes_up(walk, caller) || caller->sp & (walk->word - 1))
		return FOUND_NONE;
	if (believe(walk, caller, trust)) {
		learn(walk, row, caller->pc, *trust);
	} else if (begins_thread(walk, caller->pc)) {
		*trust = TRUST_SURE;
		kind = FRAME_PC;
	} else if (jumps_by_return(walk, caller, &beyond, trust)) {
		caller = &beyond;
	} else {
		return FOUND_NONE;
	}
	walk->at = (struct place){.addr = caller->pc,
				  .sp = caller->sp,
				  .fp = caller->fp,
				  .kind = kind,
				  .exact = true,
				  .fp_known = caller->fp_known,
				  .chained = chained && caller->fp_known};
	return FOUND_CALLER;
}

/* Goes to the caller, if that has called this very function by its address. */
static bool go_to_who_called(struct walk *walk)
{
	const struct standing *site = &walk->site;
	struct x86_call call;
	uint64_t slot, ret;

	if (!state_known(site) || !site->has_start || !walk_slot_by_sp(walk, &site->state, &slot) ||
	    !walk_load(walk, slot, &ret))
		return false;
	call = site_at(walk->in->unwinder, ret, FRAME_RETURN)->call;
	if (!call.direct || call.target != site->start)
		return false;
	walk_go_by_state(walk, &site->state, slot, ret);
	return true;
}

/*
 * Tables say that code is outermost, too, which is only entered in unusual
 * ways: Linux up to 6.3 of its thunks for indirect calls. They have a caller if
 * the code says so; and where all registers are not known, if there is no doubt.
 */
static enum found at_end(struct walk *walk, uint8_t *trust)
{
	const struct place at = walk->at;

	if (walk->in->method != UNWIND_CFI && walk->readable) {
		*trust = TRUST_SURE;
		if (at.first ? walk_by_state(walk, trust) == FOUND_CALLER &&
				       walk->at.addr >> 63 == at.addr >> 63
			     : go_to_who_called(walk))
			return FOUND_CALLER;
	}
	walk->at = at;
	walk->beyond = false;
	walk->elsewhere = 0;
	walk->out->end = UNWIND_OUTERMOST;
	return FOUND_END;
}

/* Where a table means the frame that the processor pushes (pc, cs, flags, sp): is there one? */
static bool may_be_pushed(struct walk *walk, const struct row *row, const struct row_caller *caller)
{
	struct x86_iret frame = {.pc = caller->pc};

	if (row->kind != ROW_TRAP || row->sp_at - row->ra_at != 3 * (int)walk->word)
		return true;
	return walk_load(walk, caller->slot + walk->word, &frame.cs) &&
	       walk_load(walk, caller->slot + 2 * walk->word, &frame.flags) && x86_is_iret(&frame);
}

enum found walk_by_row(struct walk *walk, uint8_t *trust)
{
	const struct row *row = walk->table.row;
	struct row_caller caller;

	if (!row)
		return FOUND_NONE;
	if (row->kind == ROW_END)
		return at_end(walk, trust);
	if (!apply(walk, walk->table.rows, row, &caller))
		return FOUND_NONE;
	/* Compilers do not always say that the frame pointer was popped. */
	if (!caller.fp_known && row->kind == ROW_CALL && row->fp_at > ROW_LOST &&
	    caller.slot + (uint64_t)(int64_t)(row->fp_at - row->ra_at) < walk->at.sp) {
		caller.fp = walk->at.fp;
		caller.fp_known = walk->at.fp_known;
	}
	if (!caller.trap)
		return go_to_caller(walk, row, &caller, trust);
	if (!may_be_pushed(walk, row, &caller))
		return FOUND_NONE;
	*trust = site_at(walk->in->unwinder, caller.pc, FRAME_PC)->readable ? TRUST_SURE
									    : TRUST_GUESS;
	return go_to_interrupted(walk, &caller);
}

enum found walk_by_iret(struct walk *walk, uint8_t *trust)
{
	const struct row *row = &walk->trap;
	struct row_caller caller;
	struct x86_iret frame;

	if (row->kind != ROW_TRAP || !apply(walk, NULL, row, &caller))
		return FOUND_NONE;
	frame.pc = caller.pc;
	if (!walk_load(walk, caller.slot + walk->word, &frame.cs) ||
	    !walk_load(walk, caller.slot + 2 * walk->word, &frame.flags) || !x86_is_iret(&frame) ||
	    !site_at(walk->in->unwinder, caller.pc, FRAME_PC)->readable)
		return FOUND_NONE;
	*trust = TRUST_SURE;
	return go_to_interrupted(walk, &caller);
}
