/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/site.h"

#include <stdlib.h>

#define FRAME_SEARCH 2048 /* bytes before a site that are searched for a frame being set up */
#define FRAME_TRIES  16
#define FILL_STEPS   16 /* what looking at a new place counts, in instructions */
#define PUSH_BP	     0x55

struct error *unwinder_new(struct unwinder **out)
{
	struct unwinder *unwinder = calloc(1, sizeof(*unwinder));

	if (unwinder) {
		unwinder->scratch = flow_scratch_new();
		unwinder->sites = calloc((size_t)1 << SITE_BITS, sizeof(*unwinder->sites));
	}
	if (!unwinder || !unwinder->scratch || !unwinder->sites) {
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
	free(unwinder);
}

void site_begin(struct unwinder *unwinder, const struct unwind_input *in)
{
	unwinder->reader.code = in->code;
	unwinder->reader.n = 0;
	unwinder->steps = UNWIND_STEPS;
	unwinder->age = unwinder->stacks++ / SITE_STACKS;
	unwinder->root = in->regs->mmu.root;
	unwinder->word = in->regs->word;
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

static void fill(struct unwinder *unwinder, struct site *site)
{
	const struct code *code = unwinder->reader.code;
	uint8_t bytes[X86_CALL_MAX];
	size_t n = X86_CALL_MAX;

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

void site_follow(struct unwinder *unwinder, struct site *site)
{
	struct standing *standing = &site->standing;

	/* With little left to spend, the answer could be wrong for later stacks. */
	if (unwinder->steps < X86_FLOW_STEPS)
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
