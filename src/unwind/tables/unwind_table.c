/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/unwind_table.h"

#include "base/array.h"
#include "unwind/tables/expression.h"

#define RARE_MAX	65536u
#define EXPRESSIONS_MAX (1u << 22) /* bytes */
#define KEPT_MAX	1024u
#define KEPT_SLOTS	(2 * KEPT_MAX) /* a power of two */

struct run {
	uint64_t start, end;
	size_t first, n; /* its rows; their starts count from the run's */
	unsigned rank;
};

struct table_builder {
	struct run *run;
	size_t n_runs, run_room;
	struct row *row;
	size_t n, room;
	size_t rare_room, expressions_room;
	struct unwind_table table;	/* all of it but the rows */
	uint16_t kept_slot[KEPT_SLOTS]; /* by its hash: the number in kept, plus one */
};

struct error *table_builder_new(struct table_builder **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

static void free_parts(struct unwind_table *table)
{
	free(table->row);
	free(table->rare);
	free(table->expressions);
	free(table->kept);
}

void table_builder_free(struct table_builder *builder)
{
	if (!builder)
		return;
	free(builder->run);
	free(builder->row);
	free_parts(&builder->table);
	free(builder);
}

struct error *table_builder_begin(struct table_builder *builder, uint64_t start, uint64_t end,
				  unsigned rank)
{
	TRY(ARRAY_RESERVE(&builder->run, &builder->run_room, builder->n_runs + 1));
	builder->run[builder->n_runs++] =
		(struct run){.start = start, .end = end, .first = builder->n, .rank = rank};
	return NULL;
}

static bool same_rule(const struct row *a, const struct row *b)
{
	return a->cfa_offset == b->cfa_offset && a->ra_at == b->ra_at && a->fp_at == b->fp_at &&
	       a->sp_at == b->sp_at && a->cfa_reg == b->cfa_reg && a->kind == b->kind &&
	       a->base == b->base;
}

struct error *table_builder_put(struct table_builder *builder, uint64_t addr, const struct row *row)
{
	struct run *run = &builder->run[builder->n_runs - 1];
	struct row *last = run->n ? &builder->row[run->first + run->n - 1] : NULL;
	uint64_t start = addr - run->start;

	if (addr < run->start || addr >= run->end || start > UINT32_MAX ||
	    (last && start < last->start))
		return NULL;
	if (last && start == last->start) {
		run->n--;
		builder->n--;
	} else if (last && same_rule(last, row)) {
		return NULL;
	}
	TRY(ARRAY_RESERVE(&builder->row, &builder->room, builder->n + 1));
	builder->row[builder->n] = *row;
	builder->row[builder->n++].start = (uint32_t)start;
	run->n++;
	return NULL;
}

/* Copies the expression of one rule, or finds the same bytes in that of the rare row before. */
static bool put_expression(struct table_builder *builder, struct row_rule *rule,
			   const struct row_rule *before, const uint8_t *bytes)
{
	if (before && before->len == rule->len &&
	    !memcmp(builder->table.expressions + before->offset, bytes, rule->len)) {
		rule->offset = before->offset;
		return true;
	}
	if (builder->table.n_expressions + rule->len > builder->expressions_room)
		return false;
	rule->offset = builder->table.n_expressions;
	memcpy(builder->table.expressions + builder->table.n_expressions, bytes, rule->len);
	builder->table.n_expressions += rule->len;
	return true;
}

static struct error *reserve_rare(struct table_builder *builder)
{
	TRY(ARRAY_RESERVE(&builder->table.rare, &builder->rare_room, builder->table.n_rare + 1));
	/* Four expressions, none longer than its 16-bit length can say. */
	if (builder->table.n_expressions < EXPRESSIONS_MAX)
		TRY(ARRAY_RESERVE(&builder->table.expressions, &builder->expressions_room,
				  builder->table.n_expressions + 4 * (size_t)UINT16_MAX));
	return NULL;
}

/* Keeps the rule, or finds that it is the one before; false: there are too many. */
static bool keep_rare(struct table_builder *builder, struct row_rare *new,
		      const uint8_t *const bytes[4])
{
	const struct row_rare *last =
		builder->table.n_rare ? &builder->table.rare[builder->table.n_rare - 1] : NULL;
	struct row_rule *rules[] = {&new->cfa, &new->ra, &new->fp, &new->sp};

	for (int i = 0; i < 4; i++)
		if (bytes[i] &&
		    !put_expression(builder, rules[i], last ? &last->cfa + i : NULL, bytes[i]))
			return false;
	if (!last || memcmp(last, new, offsetof(struct row_rare, trap)) || last->trap != new->trap)
		builder->table.rare[builder->table.n_rare++] = *new;
	return true;
}

struct error *table_builder_put_rare(struct table_builder *builder, uint64_t addr,
				     const struct row_rare *rare, const uint8_t *const bytes[4])
{
	struct row row = {.kind = ROW_NONE};
	struct row_rare new = *rare;

	TRY(builder->table.n_rare == RARE_MAX ? NULL : reserve_rare(builder));
	if (builder->table.n_rare < RARE_MAX && keep_rare(builder, &new, bytes))
		row = (struct row){.kind = ROW_RARE,
				   .cfa_offset = (int32_t)builder->table.n_rare - 1};
	return table_builder_put(builder, addr, &row);
}

static uint32_t hash_kept(const struct row_kept *kept)
{
	uint32_t hash = 0;

	for (int i = 0; i < ROW_KEPT; i++)
		hash = (hash ^ (uint16_t)kept->at[i]) * 0x9e3779b1u;
	return hash >> 16;
}

struct error *table_builder_keep(struct table_builder *builder, const struct row_kept *kept,
				 struct row *row)
{
	uint32_t slot = hash_kept(kept) % KEPT_SLOTS, n;

	if (!builder->table.kept)
		builder->table.kept = malloc(KEPT_MAX * sizeof(*builder->table.kept));
	if (!builder->table.kept)
		return error_no_memory();
	while ((n = builder->kept_slot[slot]) &&
	       memcmp(&builder->table.kept[n - 1], kept, sizeof(*kept)))
		slot = (slot + 1) % KEPT_SLOTS;
	if (!n && builder->table.n_kept == KEPT_MAX) {
		*row = (struct row){.kind = ROW_NONE};
		return NULL;
	}
	if (!n) {
		builder->table.kept[builder->table.n_kept++] = *kept;
		builder->kept_slot[slot] = (uint16_t)builder->table.n_kept;
		n = builder->table.n_kept;
	}
	row->kept = (uint16_t)(n - 1);
	return NULL;
}

static int in_order(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/*
 * Chooses among the runs from `i` on that start together: the first of the
 * lowest rank that does not contradict itself; NULL if none. *next is behind
 * them.
 */
static const struct run *choose(const struct table_builder *builder, size_t i, size_t *next)
{
	const struct run *run = builder->run, *chosen = NULL;
	uint64_t start = run[i].start;

	while (i < builder->n_runs && run[i].start == start) {
		size_t j = i;
		bool agree = true;

		for (; j < builder->n_runs && run[j].start == start && run[j].rank == run[i].rank;
		     j++)
			agree = agree && run[j].end == run[i].end;
		if (agree && !chosen)
			chosen = &run[i];
		i = j;
	}
	*next = i;
	return chosen;
}

/* Makes the runs disjoint, in order. */
static void disentangle(struct table_builder *builder)
{
	struct run *run = builder->run;
	size_t n = 0, next;

	for (size_t i = 0; i < builder->n_runs; i = next) {
		const struct run *chosen = choose(builder, i, &next);
		struct run one;

		if (!chosen || !chosen->n || chosen->end <= chosen->start)
			continue;
		one = *chosen;
		if (n && one.start < run[n - 1].end && one.rank > run[n - 1].rank)
			continue;
		if (n && one.start < run[n - 1].end)
			run[n - 1].end = one.start;
		run[n++] = one;
	}
	builder->n_runs = n;
}

/* Appends a row to the table, if it says something new. */
static void append(struct unwind_table *table, const struct row *row, uint32_t start)
{
	struct row *last = table->n ? &table->row[table->n - 1] : NULL;

	if (last && ((same_rule(last, row) && !row->begins) ||
		     (last->kind == ROW_NONE && row->kind == ROW_NONE)))
		return;
	table->row[table->n] = *row;
	table->row[table->n++].start = start;
}

static void append_run(struct unwind_table *table, const struct row *row, const struct run *run)
{
	static const struct row none = {.kind = ROW_NONE};
	uint64_t start = run->start - table->base, end = run->end - table->base;

	for (size_t i = 0; i < run->n && row[i].start < end - start; i++)
		append(table, &row[i], (uint32_t)start + row[i].start);
	append(table, &none, (uint32_t)end);
}

/*
 * Code may lie farther apart than offsets reach (a few instructions for the
 * boot, and a kernel in the high half): keeps the stretch with most rows, the
 * *n runs from *first on.
 */
static void densest(const struct table_builder *builder, size_t *first, size_t *n)
{
	const struct run *run = builder->run;
	size_t most = 0, table = 0;

	for (size_t from = 0, to = 0; from < builder->n_runs; table -= run[from++].n) {
		for (; to < builder->n_runs && run[to].end - run[from].start <= UINT32_MAX; to++)
			table += run[to].n;
		if (to == from) /* a single run that is too long */
			table += run[to++].n;
		else if (table > most) {
			most = table;
			*first = from;
			*n = to - from;
		}
	}
}

/* No empty row is needed between two runs that adjoin. */
static void join_runs(const struct table_builder *builder, size_t first, size_t n,
		      struct unwind_table *table)
{
	for (size_t i = first; i < first + n; i++) {
		const struct run *run = &builder->run[i];
		struct row *last = table->n ? &table->row[table->n - 1] : NULL;

		if (last && last->kind == ROW_NONE && table->base + last->start == run->start)
			table->n--;
		append_run(table, builder->row + run->first, run);
	}
}

struct error *table_builder_finish(struct table_builder *builder, struct unwind_table **out)
{
	size_t first = 0, n = 0;
	struct unwind_table *table;

	*out = NULL;
	if (builder->n_runs)
		qsort(builder->run, builder->n_runs, sizeof(*builder->run), in_order);
	disentangle(builder);
	densest(builder, &first, &n);
	if (!n)
		return NULL;
	table = calloc(1, sizeof(*table));
	if (table)
		table->row = malloc((builder->n + builder->n_runs) * sizeof(*table->row));
	if (!table || !table->row) {
		free(table);
		return error_no_memory();
	}
	builder->table.row = table->row;
	*table = builder->table;
	builder->table = (struct unwind_table){0};
	table->base = builder->run[first].start;
	join_runs(builder, first, n, table);
	*out = table;
	return NULL;
}

const struct row *unwind_table_find(const struct unwind_table *table, uint64_t addr)
{
	uint64_t offset = addr - table->base;
	const struct row *row = table->row;
	uint32_t n = table->n;

	if (!n || addr < table->base || offset > UINT32_MAX || offset < row->start)
		return NULL;
	/* row[0] to row[n - 1] always hold the row that is looked for. */
	while (n > 1) {
		uint32_t half = n / 2;

		row += row[half].start <= offset ? half : 0;
		n -= half;
	}
	return row->kind == ROW_NONE ? NULL : row;
}

struct unwind_table *unwind_table_share(struct unwind_table *table)
{
	table->shared++;
	return table;
}

void unwind_table_free(struct unwind_table *table)
{
	if (!table)
		return;
	if (table->shared) {
		table->shared--;
		return;
	}
	free_parts(table);
	free(table);
}

static uint64_t narrowed(const struct row_env *env, uint64_t value)
{
	return env->word == 4 ? value & UINT32_MAX : value;
}

static bool load(const struct row_env *env, uint64_t va, uint64_t *value, struct row_caller *out)
{
	va = narrowed(env, va);
	if (env->load(env->ctx, va, value))
		return true;
	out->slot = va;
	return false;
}

/* A rule of one of the short kinds, as a row has them. */
static struct row_rule short_rule(int16_t at)
{
	const uint8_t how = at == ROW_SAME ? RULE_SAME : at == ROW_LOST ? RULE_LOST : RULE_AT_CFA;

	return (struct row_rule){.how = how, .value = at};
}

/* What the rules of a row are applied to. */
struct applying {
	const struct unwind_table *table;
	const struct row_env *env;
	uint64_t cfa;
};

/* The value of the caller's register `same`, by its rule. */
static bool apply_rule(const struct applying *applying, const struct row_rule *rule, unsigned same,
		       struct row_caller *out, uint64_t *value)
{
	const struct row_env *env = applying->env;
	uint64_t at = applying->cfa + (uint64_t)rule->value;

	out->slot = 0;
	switch (rule->how) {
	case RULE_SAME:
		return env->reg(env->ctx, same, value);
	case RULE_IN_REG:
		return env->reg(env->ctx, (unsigned)rule->value, value);
	case RULE_IS_CFA:
		*value = narrowed(env, at);
		return true;
	case RULE_AT_CFA:
		break;
	case RULE_AT_REG:
		if (!env->reg(env->ctx, rule->reg, &at))
			return false;
		at += (uint64_t)rule->value;
		break;
	case RULE_AT_EXPRESSION:
	case RULE_IS_EXPRESSION:
		if (!expression_value(applying->table->expressions + rule->offset, rule->len, env,
				      &applying->cfa, &at))
			return false;
		if (rule->how == RULE_AT_EXPRESSION)
			break;
		*value = at;
		return true;
	default:
		return false;
	}
	if (!load(env, at, value, out))
		return false;
	out->slot = narrowed(env, at);
	return true;
}

static bool find_cfa(struct applying *applying, const struct row_rule *rule, struct row_caller *out)
{
	const struct row_env *env = applying->env;
	uint64_t *cfa = &applying->cfa;

	if (rule->how == RULE_IS_EXPRESSION)
		return expression_value(applying->table->expressions + rule->offset, rule->len, env,
					NULL, cfa);
	return env->reg(env->ctx, rule->reg, cfa) && apply_rule(applying, rule, 0, out, cfa);
}

bool unwind_table_step(const struct unwind_table *table, const struct row *row,
		       const struct row_env *env, struct row_caller *out)
{
	struct row_rare rule = {.trap = row->kind == ROW_TRAP};
	struct applying applying = {.table = table, .env = env};
	struct row_caller aside;

	*out = (struct row_caller){0};
	if (row->kind == ROW_RARE) {
		rule = table->rare[row->cfa_offset];
	} else {
		rule.cfa =
			(struct row_rule){.how = row->base == ROW_PLUS ? RULE_IS_CFA : RULE_AT_REG,
					  .reg = row->cfa_reg,
					  .value = row->base == ROW_DEREF_PLUS ? 0
									       : row->cfa_offset};
		rule.ra = short_rule(row->ra_at);
		rule.fp = short_rule(table && table->n_kept ? ROW_LOST : row->fp_at);
		rule.sp = short_rule(row->sp_at);
	}
	if (!find_cfa(&applying, &rule.cfa, out))
		return false;
	if (row->base == ROW_DEREF_PLUS)
		applying.cfa = narrowed(env, applying.cfa + (uint64_t)(int64_t)row->cfa_offset);
	out->trap = rule.trap;
	if (rule.sp.how == RULE_SAME)
		out->sp = applying.cfa;
	else if (!apply_rule(&applying, &rule.sp, env->sp, out, &out->sp))
		return false;
	aside = *out;
	out->fp_known = apply_rule(&applying, &rule.fp, env->fp, &aside, &out->fp);
	return apply_rule(&applying, &rule.ra, env->ra, out, &out->pc);
}
