/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/memo.h"

#include <stdlib.h>

#include "unwind/arm64_walk.h"
#include "unwind/arm_walk.h"
#include "unwind/step.h"

#define FRAME_SEARCH 2048 /* bytes before a site that are searched for a frame being set up */
#define FRAME_TRIES  16
#define FILL_STEPS   16 /* what looking at a new place counts, in instructions */
#define PUSH_BP	     0x55
#define START_ROWS   32 /* rows of a table that are gone back to find where a function starts */
#define START_TRIES  4

struct error *unwinder_new(struct unwinder **out)
{
	struct unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder) {
		unwinder->scratch = flow_scratch_new();
		unwinder->sites = calloc((size_t)1 << SITE_BITS, sizeof(*unwinder->sites));
		unwinder->steps_known = calloc(1, sizeof(*unwinder->steps_known));
		unwinder->places = calloc(MEMO_FRAMES, sizeof(*unwinder->places));
		unwinder->arm64 = arm64_unwinder_new();
		unwinder->arm = arm_unwinder_new();
	}
	if (!unwinder || !unwinder->scratch || !unwinder->sites || !unwinder->steps_known ||
	    !unwinder->places || !unwinder->arm64 || !unwinder->arm) {
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
	flow_scratch_free(unwinder->scratch);
	free(unwinder->sites);
	free(unwinder->steps_known);
	free(unwinder->places);
	arm64_unwinder_free(unwinder->arm64);
	arm_unwinder_free(unwinder->arm);
	free(unwinder);
}

/* Now and then what is known is found out anew. */
static void grow_old(struct unwinder *unwinder, unsigned version)
{
	if (unwinder->stacks++ && unwinder->stacks <= SITE_STACKS && unwinder->version == version)
		return;
	unwinder->stacks = 1;
	unwinder->version = version;
	unwinder->age++;
	steps_forget(unwinder->steps_known);
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

void site_begin(struct unwinder *unwinder, const struct unwind_input *in)
{
	unwinder->reader.code = in->code;
	unwinder->reader.n = 0;
	pay_back(unwinder);
	unwinder->steps = unwinder->rationed && unwinder->saved < UNWIND_STEPS ? unwinder->saved
									       : UNWIND_STEPS;
	unwinder->lent = unwinder->steps;
	grow_old(unwinder, in->code ? in->code->version : 0);
	unwinder->root = in->regs->mmu.root;
	unwinder->word = in->regs->word;
	unwinder->method = in->method;
	steps_begin(unwinder->steps_known, unwinder->root, unwinder->word);
}

static bool is_stub(struct unwinder *unwinder, uint64_t addr)
{
	const struct code *code = unwinder->reader.code;
	uint8_t slot[X86_STUB_SLOT];

	return code->read(code->ctx, addr & ~(X86_STUB_SLOT - 1ull), slot, sizeof(slot)) ==
		       sizeof(slot) &&
	       x86_is_hypercall_stub(slot, unwinder->word);
}

static void find_function(struct unwinder *unwinder, const struct site *site,
			  struct standing *standing)
{
	const struct code *code = unwinder->reader.code;
	uint64_t look = site->kind == FRAME_PC ? site->addr : site->addr - 1;

	/* Symbols see at most one function in the hypercall page. */
	if (site->kind == FRAME_PC && is_stub(unwinder, site->addr)) {
		standing->has_start = true;
		standing->start = site->addr & ~(X86_STUB_SLOT - 1ull);
		standing->end = standing->start + X86_STUB_SLOT;
	} else if (code->function &&
		   code->function(code->ctx, look, &standing->start, &standing->end)) {
		standing->has_start = true;
	}
}

void site_find_row(const struct code *code, uint64_t addr, enum frame_kind kind,
		   struct tabled *table)
{
	uint64_t look = kind == FRAME_PC ? addr : addr - 1, slide = 0;
	const struct rows *rows = code->rows(code->ctx, look, &slide);

	*table = (struct tabled){.rows = rows};
	if (rows)
		table->row = rows_find(rows, look - slide);
	if (table->row)
		table->base = rows->base + slide;
}

static void fill(struct unwinder *unwinder, struct site *site)
{
	const struct code *code = unwinder->reader.code;
	uint8_t bytes[X86_CALL_MAX];
	size_t n = X86_CALL_MAX;

	if (code && code->rows && unwinder->method != UNWIND_FP)
		site_find_row(code, site->addr, (enum frame_kind)site->kind, &site->table);
	if (!code || !code->read)
		return;
	if (site->kind == FRAME_PC) {
		site->readable = code->read(code->ctx, site->addr, bytes, 1) == 1;
	} else {
		if (code->read(code->ctx, site->addr - 1, bytes, 1) != 1)
			return;
		/* Right behind a hole there are fewer bytes of code. */
		while (code->read(code->ctx, site->addr - n, bytes, n) != n)
			n--;
		site->readable = true;
		if (!x86_call_before(bytes, n, site->addr, unwinder->word, &site->call))
			return;
	}
	if (site->readable)
		find_function(unwinder, site, &site->standing);
}

struct site *site_fill(struct unwinder *unwinder, struct site *site, uint64_t addr, uint8_t kind)
{
	unwinder->steps -= unwinder->steps < FILL_STEPS ? unwinder->steps : FILL_STEPS;
	*site = (struct site){.addr = addr,
			      .root = unwinder->root,
			      .kind = kind,
			      .word = unwinder->word,
			      .age = unwinder->age};
	fill(unwinder, site);
	if (!site->readable)
		site->word = 0; /* it may become readable: do not keep */
	return site;
}

static enum flow_result follow(struct unwinder *unwinder, const struct site *site, uint64_t start,
			       uint64_t end, struct x86_state *state)
{
	struct flow_query query = {.word = unwinder->word,
				   .start = start,
				   .end = end,
				   .addr = site->addr,
				   .kind = site->kind};

	return x86_flow(&query, &unwinder->reader, unwinder->scratch, &unwinder->steps, state);
}

/* Does a function begin here, as its table has it: with nothing but the return address? */
static bool may_start(const struct row *row, unsigned word)
{
	return row->kind == ROW_CALL && row->base == ROW_PLUS &&
	       row->cfa_reg == (word == 8 ? 7 : 4) && row->cfa_offset == (int32_t)word;
}

/* Without symbols: tables tell where a function may begin, and the code whether that leads here. */
static void find_start(struct unwinder *unwinder, struct site *site)
{
	const struct tabled *table = &site->table;
	const struct row *row = table->row;
	struct standing found = {.has_start = true, .has_flow = true};
	unsigned tries = 0;

	for (unsigned i = 0; i < START_ROWS && tries < START_TRIES; i++, row--) {
		if (row->kind == ROW_NONE)
			return;
		if (may_start(row, unwinder->word)) {
			found.start = table->base + row->start;
			found.flow = follow(unwinder, site, found.start, 0, &found.state);
			tries++;
			if (found.flow == FLOW_FOUND) {
				site->standing = found;
				return;
			}
		}
		if (row == table->rows->row)
			return;
	}
}

void site_explore(struct unwinder *unwinder, struct site *site)
{
	struct standing *standing = &site->standing;

	/* With little left to spend, the answer could be wrong for later stacks. */
	if (site->explored || !site->readable || unwinder->steps < X86_FLOW_STEPS)
		return;
	site->explored = true;
	x86_trap_ahead(&unwinder->reader, site->addr, standing->end, unwinder->word,
		       &unwinder->steps, &site->trap);
	if (!standing->has_start && site->table.row)
		find_start(unwinder, site);
	if (!standing->has_start || standing->has_flow || unwinder->steps < X86_FLOW_STEPS)
		return;
	standing->flow = follow(unwinder, site, standing->start, standing->end, &standing->state);
	standing->has_flow = true;
}

enum flow_result site_try_start(struct unwinder *unwinder, struct site *site, uint64_t start,
				struct x86_state *state)
{
	const struct code *code = unwinder->reader.code;
	enum flow_result flow;
	uint64_t symbol, end;

	for (size_t i = 0; i < site->n_not && i < 4; i++)
		if (site->not_start[i] == start)
			return FLOW_NOT;
	if (!code->function || !code->function(code->ctx, start, &symbol, &end))
		end = 0;
	flow = follow(unwinder, site, start, end, state);
	if (flow == FLOW_NOT) {
		site->not_start[site->n_not % 4] = start;
		site->n_not = site->n_not == 7 ? 4 : site->n_not + 1;
	}
	return flow;
}

/* Reads as many bytes that end at `va` as are readable in one piece; at most `max`. */
static size_t read_before(const struct code *code, uint64_t va, uint8_t *bytes, size_t max)
{
	while (max && code->read(code->ctx, va - max, bytes, max) != max)
		max /= 2;
	return max;
}

bool site_finds_frame(struct unwinder *unwinder, struct site *site)
{
	uint8_t bytes[FRAME_SEARCH];
	struct x86_state state;
	unsigned tries = 0;
	size_t n;

	if (site->has_looked || unwinder->steps < X86_FLOW_STEPS)
		return site->has_frame;
	site->has_looked = true;
	n = read_before(unwinder->reader.code, site->addr, bytes, sizeof(bytes));
	for (size_t back = 1; back <= n && tries < FRAME_TRIES && !site->has_frame; back++) {
		if (bytes[n - back] != PUSH_BP)
			continue;
		tries++;
		site->has_frame =
			follow(unwinder, site, site->addr - back, 0, &state) == FLOW_FOUND &&
			state.fp_at;
	}
	return site->has_frame;
}

void site_learn(struct site *site, uint64_t start, enum flow_result flow,
		const struct x86_state *state)
{
	site->standing = (struct standing){.has_start = true,
					   .learned = true,
					   .has_flow = true,
					   .flow = flow,
					   .start = start,
					   .state = *state};
}
