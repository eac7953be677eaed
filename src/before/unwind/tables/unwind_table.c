/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/unwind_table.h"

#include <stdlib.h>
#include <string.h>

#define RARE_MAX	65536u
#define EXPRESSIONS_MAX (1u << 22) /* bytes */
#define KEPT_MAX	1024u
#define KEPT_PLACES	(2 * KEPT_MAX) /* a power of two */

struct run {
	uint64_t start, end;
	size_t first, n; /* its rows; their starts count from the run's */
	unsigned rank;
};

struct rows_builder {
	struct run *run;
	size_t n_runs, run_room;
	struct row *row;
	size_t n, room;
	struct row_rare *rare;
	uint32_t n_rare, rare_room;
	uint8_t *expressions;
	uint32_t n_expressions, expressions_room;
	struct row_kept *kept;
	uint32_t n_kept;
	uint16_t kept_place[KEPT_PLACES]; /* by its hash: the number in kept, plus one */
};

struct error *rows_builder_new(struct rows_builder **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

void rows_builder_free(struct rows_builder *builder)
{
	if (!builder)
		return;
	free(builder->run);
	free(builder->row);
	free(builder->rare);
	free(builder->expressions);
	free(builder->kept);
	free(builder);
}

/* Room for `n` things of `size` bytes at *array; *room is how many there is room for. */
static struct error *reserve(void **array, size_t *room, size_t n, size_t size)
{
	size_t more = *room ? *room : 64;
	void *larger;

	if (n <= *room)
		return NULL;
	while (more < n)
		more *= 2;
	larger = realloc(*array, more * size);
	if (!larger)
		return error_no_memory();
	*array = larger;
	*room = more;
	return NULL;
}

struct error *rows_begin(struct rows_builder *builder, uint64_t start, uint64_t end, unsigned rank)
{
	struct error *err;

	err = reserve((void **)&builder->run, &builder->run_room, builder->n_runs + 1,
		      sizeof(*builder->run));
	if (!err)
		builder->run[builder->n_runs++] =
			(struct run){.start = start, .end = end, .first = builder->n, .rank = rank};
	return err;
}

static bool same_rule(const struct row *a, const struct row *b)
{
	return a->cfa_offset == b->cfa_offset && a->ra_at == b->ra_at && a->fp_at == b->fp_at &&
	       a->sp_at == b->sp_at && a->cfa_reg == b->cfa_reg && a->kind == b->kind &&
	       a->base == b->base;
}

struct error *rows_put(struct rows_builder *builder, uint64_t addr, const struct row *row)
{
	struct run *run = &builder->run[builder->n_runs - 1];
	struct row *last = run->n ? &builder->row[run->first + run->n - 1] : NULL;
	uint64_t start = addr - run->start;
	struct error *err;

	if (addr < run->start || addr >= run->end || start > UINT32_MAX ||
	    (last && start < last->start))
		return NULL;
	if (last && start == last->start) {
		run->n--;
		builder->n--;
	} else if (last && same_rule(last, row)) {
		return NULL;
	}
	err = reserve((void **)&builder->row, &builder->room, builder->n + 1,
		      sizeof(*builder->row));
	if (err)
		return err;
	builder->row[builder->n] = *row;
	builder->row[builder->n++].start = (uint32_t)start;
	run->n++;
	return NULL;
}

/* Copies the expression of one rule, or finds the same bytes in that of the rare row before. */
static bool put_expression(struct rows_builder *builder, struct row_rule *rule,
			   const struct row_rule *before, const uint8_t *bytes)
{
	if (before && before->len == rule->len &&
	    !memcmp(builder->expressions + before->offset, bytes, rule->len)) {
		rule->offset = before->offset;
		return true;
	}
	if (builder->n_expressions + rule->len > builder->expressions_room)
		return false;
	rule->offset = builder->n_expressions;
	memcpy(builder->expressions + builder->n_expressions, bytes, rule->len);
	builder->n_expressions += rule->len;
	return true;
}

static struct error *reserve_rare(struct rows_builder *builder)
{
	size_t rare_room = builder->rare_room, room = builder->expressions_room;
	struct error *err;

	err = reserve((void **)&builder->rare, &rare_room, builder->n_rare + 1,
		      sizeof(*builder->rare));
	builder->rare_room = (uint32_t)rare_room;
	/* Four expressions, none longer than its 16-bit length can say. */
	if (!err && builder->n_expressions < EXPRESSIONS_MAX)
		err = reserve((void **)&builder->expressions, &room,
			      builder->n_expressions + 4 * (size_t)UINT16_MAX, 1);
	builder->expressions_room = (uint32_t)room;
	return err;
}

static bool same_rare(const struct row_rare *a, const struct row_rare *b)
{
	const struct row_rule *x = &a->cfa, *y = &b->cfa;

	for (int i = 0; i < 4; i++, x++, y++)
		if (x->how != y->how || x->reg != y->reg || x->len != y->len ||
		    x->offset != y->offset || x->value != y->value)
			return false;
	return a->trap == b->trap;
}

struct error *rows_put_rare(struct rows_builder *builder, const struct row_rare *rare,
			    const uint8_t *const bytes[4], uint32_t *index, bool *kept)
{
	const struct row_rare *last;
	struct row_rare new = *rare;
	struct row_rule *rules[] = {&new.cfa, &new.ra, &new.fp, &new.sp};
	struct error *err;

	*kept = false;
	if (builder->n_rare == RARE_MAX)
		return NULL;
	err = reserve_rare(builder);
	if (err)
		return err;
	last = builder->n_rare ? &builder->rare[builder->n_rare - 1] : NULL;
	for (int i = 0; i < 4; i++) {
		const struct row_rule *before = last ? &last->cfa + i : NULL;

		if (bytes[i] && !put_expression(builder, rules[i], before, bytes[i]))
			return NULL;
	}
	*kept = true;
	*index = builder->n_rare - 1;
	if (last && same_rare(last, &new))
		return NULL;
	*index = builder->n_rare;
	builder->rare[builder->n_rare++] = new;
	return NULL;
}

static uint32_t hash_kept(const struct row_kept *kept)
{
	uint32_t hash = 0;

	for (int i = 0; i < ROW_KEPT; i++)
		hash = (hash ^ (uint16_t)kept->at[i]) * 0x9e3779b1u;
	return hash >> 16;
}

struct error *rows_keep(struct rows_builder *builder, const struct row_kept *kept, struct row *row)
{
	uint32_t place = hash_kept(kept) % KEPT_PLACES, n;

	if (!builder->kept)
		builder->kept = malloc(KEPT_MAX * sizeof(*builder->kept));
	if (!builder->kept)
		return error_no_memory();
	while ((n = builder->kept_place[place]) &&
	       memcmp(&builder->kept[n - 1], kept, sizeof(*kept)))
		place = (place + 1) % KEPT_PLACES;
	if (!n && builder->n_kept == KEPT_MAX) {
		*row = (struct row){.kind = ROW_NONE};
		return NULL;
	}
	if (!n) {
		builder->kept[builder->n_kept++] = *kept;
		builder->kept_place[place] = (uint16_t)builder->n_kept;
		n = builder->n_kept;
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
 * Of the runs from `i` on that start together, the one that counts: the first
 * of the lowest rank that does not contradict itself; NULL if none. *next is
 * behind them.
 */
static const struct run *choose(const struct rows_builder *builder, size_t i, size_t *next)
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
static void disentangle(struct rows_builder *builder)
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
static void append(struct rows *rows, const struct row *row, uint32_t start)
{
	struct row *last = rows->n ? &rows->row[rows->n - 1] : NULL;

	if (last && ((same_rule(last, row) && !row->begins) ||
		     (last->kind == ROW_NONE && row->kind == ROW_NONE)))
		return;
	rows->row[rows->n] = *row;
	rows->row[rows->n++].start = start;
}

static void append_run(struct rows *rows, const struct row *row, const struct run *run)
{
	static const struct row none = {.kind = ROW_NONE};
	uint64_t start = run->start - rows->base, end = run->end - rows->base;

	for (size_t i = 0; i < run->n && row[i].start < end - start; i++)
		append(rows, &row[i], (uint32_t)start + row[i].start);
	append(rows, &none, (uint32_t)end);
}

/*
 * Of code that lies farther apart than offsets can say (a few instructions for
 * the boot, and a kernel in the high half), where most rows are: the runs from
 * *first on, *n of them.
 */
static void densest(const struct rows_builder *builder, size_t *first, size_t *n)
{
	const struct run *run = builder->run;
	size_t most = 0, rows = 0;

	for (size_t from = 0, to = 0; from < builder->n_runs; rows -= run[from++].n) {
		for (; to < builder->n_runs && run[to].end - run[from].start <= UINT32_MAX; to++)
			rows += run[to].n;
		if (to == from) /* a single run that is too long */
			rows += run[to++].n;
		else if (rows > most) {
			most = rows;
			*first = from;
			*n = to - from;
		}
	}
}

/* Where one run ends and the next begins no row is needed between. */
static void join_runs(const struct rows_builder *builder, size_t first, size_t n, struct rows *rows)
{
	for (size_t i = first; i < first + n; i++) {
		const struct run *run = &builder->run[i];
		struct row *last = rows->n ? &rows->row[rows->n - 1] : NULL;

		if (last && last->kind == ROW_NONE && rows->base + last->start == run->start)
			rows->n--;
		append_run(rows, builder->row + run->first, run);
	}
}

struct error *rows_finish(struct rows_builder *builder, struct rows **out)
{
	size_t first = 0, n = 0;
	struct rows *rows;

	*out = NULL;
	if (builder->n_runs)
		qsort(builder->run, builder->n_runs, sizeof(*builder->run), in_order);
	disentangle(builder);
	densest(builder, &first, &n);
	if (!n)
		return NULL;
	rows = calloc(1, sizeof(*rows));
	if (!rows)
		return error_no_memory();
	rows->row = malloc((builder->n + builder->n_runs) * sizeof(*rows->row));
	if (!rows->row) {
		free(rows);
		return error_no_memory();
	}
	rows->base = builder->run[first].start;
	join_runs(builder, first, n, rows);
	rows->rare = builder->rare;
	rows->n_rare = builder->n_rare;
	rows->expressions = builder->expressions;
	rows->n_expressions = builder->n_expressions;
	rows->kept = builder->kept;
	rows->n_kept = builder->n_kept;
	builder->rare = NULL;
	builder->expressions = NULL;
	builder->kept = NULL;
	*out = rows;
	return NULL;
}
