/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/link.h"
#include "unwind/stack_cache.h"

#include <stdlib.h>

#define FRAME_SEARCH	 2048 /* bytes before an address that are searched for a frame being set up */
#define FRAME_TRIES	 16
#define FILL_STEPS	 16 /* cost of a new address, in instructions */
#define CALL_MAX	 16
#define START_ROWS	 32 /* rows of a table that are gone back to find where a function starts */
#define START_TRIES	 4
#define ROWS_OF_FUNCTION 256 /* the same in tables that say where functions start */

struct error *unwinder_new(struct unwinder **out)
{
	struct unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder) {
		unwinder->info = calloc((size_t)1 << PC_INFO_BITS, sizeof(*unwinder->info));
		unwinder->reader.scratch = calloc(1, sizeof(*unwinder->reader.scratch));
		unwinder->reader.steps = &unwinder->steps;
		unwinder->known_steps = calloc(1, sizeof(*unwinder->known_steps));
		unwinder->known_stacks = calloc(1, sizeof(*unwinder->known_stacks));
	}
	if (!unwinder || !unwinder->info || !unwinder->reader.scratch || !unwinder->known_steps ||
	    !unwinder->known_stacks) {
		unwinder_free(unwinder);
		return error_no_memory();
	}
	*out = unwinder;
	return NULL;
}

void unwinder_free(struct unwinder *unwinder)
{
	if (!unwinder)
		return;
	free(unwinder->reader.scratch);
	free(unwinder->info);
	free(unwinder->known_steps);
	stack_cache_free(unwinder->known_stacks);
	free(unwinder);
}

/* Cached facts expire now and then. */
static void grow_old(struct unwinder *unwinder, unsigned version)
{
	if (unwinder->young++ && unwinder->young <= PC_INFO_STACKS && unwinder->version == version)
		return;
	unwinder->young = 1;
	unwinder->version = version;
	unwinder->age++;
	memset(unwinder->known_steps->step, 0, sizeof(unwinder->known_steps->step));
	unwinder_forget_stacks(unwinder);
}

static void pay_back(struct unwinder *unwinder)
{
	unsigned spent = unwinder->lent - unwinder->steps;

	unwinder->saved -= spent < unwinder->saved ? spent : unwinder->saved;
	unwinder->lent = unwinder->steps;
}

void unwinder_ration(struct unwinder *unwinder, uint64_t now_ns)
{
	const uint64_t most_ns = UNWIND_STEPS_SAVED * UINT64_C(1000000000) / UNWIND_STEPS_PER_S;
	uint64_t since_ns = now_ns - unwinder->rationed_ns, saved;

	pay_back(unwinder);
	if (!unwinder->rationed || since_ns > most_ns)
		since_ns = most_ns;
	saved = unwinder->saved + since_ns * UNWIND_STEPS_PER_S / 1000000000u;
	unwinder->saved = saved < UNWIND_STEPS_SAVED ? (unsigned)saved : UNWIND_STEPS_SAVED;
	unwinder->rationed = true;
	unwinder->rationed_ns = now_ns;
}

void unwinder_begin(struct unwinder *unwinder, const struct unwind_input *in)
{
	const struct unwind_isa *isa = unwind_isa_of(in->regs);

	unwinder->reader.code = in->code;
	unwinder->reader.n = 0;
	pay_back(unwinder);
	unwinder->steps = unwinder->rationed && unwinder->saved < UNWIND_STEPS ? unwinder->saved
									       : UNWIND_STEPS;
	unwinder->lent = unwinder->steps;
	grow_old(unwinder, in->code ? in->code->version : 0);
	unwinder->stack++;
	unwinder->root = in->regs->mmu.root;
	unwinder->word = in->regs->word;
	unwinder->method = in->method;
	unwinder->isa = isa;
	/* Page tables are aligned to more than these bits. */
	unwinder->known_steps->space =
		(unwinder->root & ~(uint64_t)0x3f) | (uint64_t)(isa->isa << 4) | isa->word;
}

static uint64_t address_of(const struct unwinder *unwinder, const struct pc_info *info)
{
	return info->addr & unwinder->isa->address;
}

static void find_function(struct unwinder *unwinder, const struct pc_info *info,
			  struct frame_state *state)
{
	const struct code *code = unwinder->reader.code;
	uint64_t pc = address_of(unwinder, info) - (info->kind != FRAME_PC);

	/* Symbols see at most one function in the hypercall page. */
	state->has_start =
		(info->kind == FRAME_PC && unwinder->isa->bounds &&
		 unwinder->isa->bounds(unwinder->isa, &unwinder->reader, pc, &state->start,
				       &state->end)) ||
		(code->function && code->function(code->ctx, pc, &state->start, &state->end));
}

/* A return address belongs to the call before it. */
static void find_table_entry(const struct code *code, uint64_t addr, uint8_t kind,
			     struct table_entry *entry)
{
	uint64_t at = kind == FRAME_PC ? addr : addr - 1, slide = 0;
	const struct unwind_table *table = code->table(code->ctx, at, &slide);

	*entry = (struct table_entry){.whole = table};
	if (table)
		entry->row = unwind_table_find(table, at - slide);
	if (entry->row)
		entry->base = table->base + slide;
}

/* A hole leaves fewer bytes of code than the longest call has. */
static bool ends_call(struct unwinder *unwinder, struct pc_info *info)
{
	const struct code *code = unwinder->reader.code;
	const struct unwind_isa *isa = unwinder->isa;
	const uint64_t addr = address_of(unwinder, info);
	uint8_t bytes[CALL_MAX];
	size_t n = isa->call_max;

	info->readable = code->read(code->ctx, addr - 1, bytes, 1) == 1;
	if (!info->readable)
		return false;
	while (code->read(code->ctx, addr - n, bytes, n) != n)
		n--;
	return isa->call_before(isa, bytes, n, info->addr, &info->call);
}

static void fill(struct unwinder *unwinder, struct pc_info *info)
{
	const struct code *code = unwinder->reader.code;
	const uint64_t addr = address_of(unwinder, info);
	uint8_t byte;

	if (code && code->table && unwinder->method != UNWIND_FP)
		find_table_entry(code, addr, info->kind, &info->table);
	if (!code || !code->read)
		return;
	if (info->kind == FRAME_PC)
		info->readable = code->read(code->ctx, addr, &byte, 1) == 1;
	else if (!ends_call(unwinder, info))
		return;
	if (info->readable)
		find_function(unwinder, info, &info->state);
}

struct pc_info *pc_info_fill(struct unwinder *unwinder, struct pc_info *info, uint64_t addr,
			     uint8_t kind)
{
	unwinder->steps -= unwinder->steps < FILL_STEPS ? unwinder->steps : FILL_STEPS;
	*info = (struct pc_info){.addr = addr,
				 .root = unwinder->root,
				 .kind = kind,
				 .word = unwinder->word,
				 .age = unwinder->age,
				 .until = unwinder->stack + UNREADABLE_STACKS,
				 .jumped_from = UINT64_MAX};
	fill(unwinder, info);
	return info;
}

static enum flow_result follow(struct unwinder *unwinder, const struct pc_info *info,
			       uint64_t start, uint64_t end, struct rule *rule)
{
	struct flow_query query = {.isa = unwinder->isa,
				   .start = start,
				   .end = end,
				   .addr = address_of(unwinder, info),
				   .pointer = info->addr,
				   .kind = info->kind};

	return unwinder->isa->follow(&query, &unwinder->reader, rule);
}

/* Does a function begin here, as its table has it: with nothing but the return address? */
static bool may_start(const struct row *row, const struct unwind_isa *isa)
{
	return row->begins ||
	       (row->kind == ROW_CALL && row->base == ROW_PLUS && row->cfa_reg == isa->sp &&
		row->cfa_offset == (isa->link ? 0 : isa->word));
}

/* In a table that says where functions begin: the next start behind the row, or the end of tables; else 0. */
static uint64_t next_start(const struct table_entry *table)
{
	const struct row *row = table->row, *last = table->whole->row + table->whole->n - 1;

	for (unsigned i = 0; i < ROWS_OF_FUNCTION && table->whole->n_kept && row++ < last; i++)
		if (row->begins || row->kind == ROW_NONE)
			return table->base + row->start;
	return 0;
}

/* Without symbols: tables tell where a function may begin, and the code whether that leads here. */
static void find_start(struct unwinder *unwinder, struct pc_info *info)
{
	const struct table_entry *table = &info->table;
	const struct row *row = table->row;
	const unsigned most = table->whole->n_kept ? ROWS_OF_FUNCTION : START_ROWS;
	const uint64_t end = next_start(table);
	struct frame_state found = {.has_start = true, .has_flow = true};
	unsigned tries = 0;

	for (unsigned i = 0; i < most && tries < START_TRIES; i++, row--) {
		if (row->kind == ROW_NONE)
			return;
		if (may_start(row, unwinder->isa)) {
			found.start = table->base + row->start;
			found.flow = follow(unwinder, info, found.start, end, &found.rule);
			tries++;
			/* Tables for exceptions count several functions as one. */
			found.learned = row->kind != ROW_CALL;
			found.has_start = !found.learned;
			if (found.flow == FLOW_FOUND || row->begins) {
				info->state = found;
				return;
			}
		}
		if (row == table->whole->row)
			return;
	}
}

void pc_info_explore(struct unwinder *unwinder, struct pc_info *info)
{
	const struct unwind_isa *isa = unwinder->isa;
	struct frame_state *state = &info->state;

	/* With little left to spend, the answer could be wrong for later stacks. */
	if (info->explored || !info->readable || unwinder->steps < PATHS_STEPS_WITHIN)
		return;
	info->explored = true;
	if (isa->handler)
		info->handler =
			isa->handler(isa, &unwinder->reader, info->addr, state->end, &info->trap);
	if (!state->has_start && info->table.row)
		find_start(unwinder, info);
	if (!state->has_start || state->has_flow || unwinder->steps < PATHS_STEPS_WITHIN)
		return;
	state->flow = follow(unwinder, info, state->start, state->end, &state->rule);
	state->has_flow = true;
}

enum flow_result pc_info_try_start(struct unwinder *unwinder, struct pc_info *info, uint64_t start,
				   struct rule *rule)
{
	const struct code *code = unwinder->reader.code;
	enum flow_result flow;
	const uint64_t addr = address_of(unwinder, info);
	uint64_t symbol, end;

	for (size_t i = 0; i < info->n_not && i < 4; i++)
		if (info->not_start[i] == start)
			return (enum flow_result)info->not_flow[i];
	/* A function that jumps to another is followed out of its bounds. */
	if (!code->function || !code->function(code->ctx, start, &symbol, &end) ||
	    (unwinder->isa->link && (addr < start || addr > end)))
		end = 0;
	flow = follow(unwinder, info, start, end, rule);
	if (flow == FLOW_NOT || flow == FLOW_AWAY) {
		info->not_start[info->n_not % 4] = start;
		info->not_flow[info->n_not % 4] = (uint8_t)flow;
		info->n_not = info->n_not == 7 ? 4 : info->n_not + 1;
	}
	return flow;
}

/* Reads as many bytes that end at `va` as are readable in one piece; at most `max`. */
static size_t read_before(const struct code *code, uint64_t va, uint8_t *bytes, size_t max)
{
	if (max > va)
		max = va;
	while (max && code->read(code->ctx, va - max, bytes, max) != max)
		max /= 2;
	return max;
}

/*
 * Follows the code from the instructions before the address, the nearest first,
 * until one of this kind (NULL: none is), where a function may begin, leads here.
 */
static bool find_before(struct unwinder *unwinder, const struct pc_info *info,
			bool (*is)(const struct unwind_isa *isa, const uint8_t *bytes, size_t n),
			bool (*may_begin)(const uint8_t *bytes, size_t n, uint64_t va),
			struct rule *rule, uint64_t *began)
{
	uint8_t bytes[FRAME_SEARCH];
	const size_t most = is ? sizeof(bytes) : 0;
	const size_t n = read_before(unwinder->reader.code, info->addr, bytes, most);
	unsigned tries = 0;

	for (size_t back = 1; back <= n && tries < FRAME_TRIES; back++) {
		if ((may_begin && !may_begin(bytes, n - back, info->addr - back)) ||
		    !is(unwinder->isa, bytes + n - back, back))
			continue;
		tries++;
		*began = info->addr - back;
		if (follow(unwinder, info, *began, 0, rule) == FLOW_FOUND)
			return true;
	}
	return false;
}

static bool never_returns(struct unwinder *unwinder, const struct pc_info *info)
{
	const struct unwind_isa *isa = unwinder->isa;
	const struct frame_state *state = &info->state;
	const struct flow_query query = {.isa = isa,
					 .start = state->start,
					 .end = state->end,
					 .addr = address_of(unwinder, info),
					 .kind = info->kind};
	struct rule unused;

	return isa->find_return && state->has_start && !state->learned && state->end &&
	       isa->find_return(&query, &unwinder->reader, &unused) == PATHS_NEVER;
}

bool pc_info_seek(struct unwinder *unwinder, struct pc_info *info, enum pc_info_sought what,
		  struct rule *rule)
{
	const struct unwind_isa *isa = unwinder->isa;
	const struct flow_query query = {.isa = isa, .addr = info->addr, .kind = info->kind};
	struct rule *found = what < SOUGHT_RECORD ? &info->found[what] : rule;
	uint64_t began;

	/* With little left to spend, the answer could be wrong for later stacks. */
	if (!info->sought[what] && info->readable && unwinder->steps >= PATHS_STEPS_WITHIN) {
		info->sought[what] = true;
		if (what == SOUGHT_RETURN)
			info->is_found[what] =
				isa->find_return &&
				isa->find_return(&query, &unwinder->reader, found) == PATHS_RETURN;
		else if (what == SOUGHT_NEVER)
			info->is_found[what] = never_returns(unwinder, info);
		else if (what == SOUGHT_FRAME)
			info->is_found[what] = find_before(unwinder, info, isa->makes_frame,
							   isa->may_begin, found, &info->began);
		else
			info->is_found[what] = find_before(unwinder, info, isa->sets_up_frame, NULL,
							   found, &began) &&
					       found->cfa_fp != RULE_NOT;
	}
	if (what < SOUGHT_RECORD)
		*rule = *found;
	return info->is_found[what];
}
