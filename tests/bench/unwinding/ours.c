/* SPDX-License-Identifier: BSD-3-Clause */
/* uniprof's own: the bare table, and the whole walk. */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "recorded.h"
#include "symbol/names/symbols.h"
#include "unwind/tables/cfi.h"
#include "unwind/unwind.h"

#define FP 6
#define SP 7
#define PC 16

struct ours {
	const struct recording *recording;
	const struct recorded *stack;
	struct unwind_table *rows[MODULES_MAX];
	struct symbols *symbols[MODULES_MAX];
	struct unwinder *unwinder;
	enum unwind_method method;
	uint64_t gp[17];
};

static struct ours *begin(const struct recording *recording, enum unwind_method method)
{
	struct ours *ours = calloc(1, sizeof(*ours));

	if (!ours || unwinder_new(&ours->unwinder))
		errx(1, "memory");
	ours->recording = recording;
	ours->method = method;
	for (size_t i = 0; i < recording->n_modules; i++)
		if (cfi_load(recording->module[i].path, &ours->rows[i]))
			errx(1, "%s: no table", recording->module[i].path);
	/* A file that has no symbols does without. */
	for (size_t i = 0; i < recording->n_modules; i++)
		error_free(symbols_load(recording->module[i].path, &ours->symbols[i]));
	return ours;
}

static void *begin_auto(const struct recording *recording)
{
	return begin(recording, UNWIND_AUTO);
}

static void *begin_fp(const struct recording *recording)
{
	return begin(recording, UNWIND_FP);
}

static void finish(void *self)
{
	struct ours *ours = self;

	for (size_t i = 0; i < ours->recording->n_modules; i++)
		unwind_table_free(ours->rows[i]);
	for (size_t i = 0; i < ours->recording->n_modules; i++)
		symbols_free(ours->symbols[i]);
	unwinder_free(ours->unwinder);
	free(ours);
}

static const struct unwind_table *table_at(void *ctx, uint64_t va, uint64_t *slide)
{
	const struct ours *ours = ctx;
	const struct module *module = module_at(ours->recording, va);

	if (!module)
		return NULL;
	*slide = module->bias;
	return ours->rows[module - ours->recording->module];
}

static bool function_at(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	const struct ours *ours = ctx;
	const struct module *module = module_at(ours->recording, va);
	const struct symbols *symbols =
		module ? ours->symbols[module - ours->recording->module] : NULL;
	struct symbol symbol;

	if (!symbols || !symbols_find(symbols, va - module->bias, &symbol))
		return false;
	*start = symbol.start + module->bias;
	*end = symbol.end + module->bias;
	return true;
}

static bool get_register(const void *ctx, unsigned n, uint64_t *value)
{
	const struct ours *ours = ctx;

	*value = n <= PC ? ours->gp[n] : 0;
	return n == FP || n == SP || n == PC;
}

static bool get_word(void *ctx, uint64_t va, uint64_t *value)
{
	const struct ours *ours = ctx;
	uint64_t offset = va - ours->stack->va;

	if (offset >= ours->stack->len)
		return false;
	memcpy(value, ours->stack->bytes + offset, sizeof(*value));
	return true;
}

/* Nothing is remembered from frame to frame: search the table, apply the row. */
static void walk_table(void *self, const struct recorded *stack, struct chain *chain)
{
	struct ours *ours = self;
	const struct row_env env = {
		.ctx = ours, .reg = get_register, .load = get_word, .word = 8, .fp = FP, .sp = SP};
	struct row_caller caller;
	uint64_t slide, pc = stack->gp[PC];

	memcpy(ours->gp, stack->gp, sizeof(ours->gp));
	ours->stack = stack;
	for (chain->n = 0; chain->n < FRAMES_MAX;) {
		uint64_t look = chain->n ? pc - 1 : pc;
		const struct unwind_table *rows = table_at(ours, look, &slide);
		const struct row *row = rows ? unwind_table_find(rows, look - slide) : NULL;

		chain->addr[chain->n++] = pc;
		if (!row || row->kind == ROW_END || !unwind_table_step(rows, row, &env, &caller))
			return;
		pc = ours->gp[PC] = caller.pc;
		ours->gp[SP] = caller.sp;
		ours->gp[FP] = caller.fp;
	}
}

static size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct ours *ours = ctx;
	const struct module *module = module_at(ours->recording, va);

	if (!module || va < module->text || va >= module->text_end)
		return 0;
	if (len > module->text_end - va)
		len = module->text_end - va;
	memcpy(buf, (const void *)(uintptr_t)va, len);
	return len;
}

static void walk_all(void *self, const struct recorded *stack, struct chain *chain)
{
	struct ours *ours = self;
	const struct code code = {.ctx = ours,
				  .read = read_code,
				  .function = function_at,
				  .table = table_at};
	struct regs regs = {.pc = stack->gp[PC],
			    .sp = stack->gp[SP],
			    .fp = stack->gp[FP],
			    .gp_valid = 0xffff,
			    .word = 8};
	const struct window window = {.va = stack->va + RED_ZONE,
				      .len = (uint32_t)stack->len - RED_ZONE,
				      .bytes = stack->bytes + RED_ZONE};
	const struct unwind_input in = {.regs = &regs,
					.stack = &window,
					.code = &code,
					.unwinder = ours->unwinder,
					.max_frames = FRAMES_MAX,
					.method = ours->method};
	struct frame frames[FRAMES_MAX];
	struct unwind_result out;

	memcpy(regs.gp, stack->gp, 16 * sizeof(*regs.gp));
	unwind_stack(&in, frames, &out);
	chain->n = out.n;
	for (size_t i = 0; i < out.n; i++)
		chain->addr[i] = frames[i].addr;
}

const struct contender contender_table = {"table", begin_auto, walk_table, finish};
const struct contender contender_rows = {"rows", begin_auto, walk_all, finish};
const struct contender contender_fp = {"fp", begin_fp, walk_all, finish};
