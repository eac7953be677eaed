/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

/* The normal distribution's 97.5 % quantile. */
#define Z 1.959964

struct interval interval_of_share(double share, double draws)
{
	double spread, middle, half;

	if (!(draws > 0))
		return (struct interval){0, 1};
	/* E. B. Wilson, 1927: the shares from which this one is Z standard deviations away. */
	spread = Z * Z / draws;
	middle = (share + spread / 2) / (1 + spread);
	half = sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread);
	return (struct interval){fmax(0, middle - half), fmin(1, middle + half)};
}

/* W. G. Cochran, 1954: below this expected count the normal approximation does not hold. */
#define FEW 5

/* A table of two rows (draws before and after) and two columns (in the function, or not). */
struct table {
	double in[2], out[2];
};

static double chi_squared_p(const struct table *t)
{
	double rows[2] = {t->in[0] + t->out[0], t->in[1] + t->out[1]};
	double columns[2] = {t->in[0] + t->in[1], t->out[0] + t->out[1]};
	double cross = t->in[0] * t->out[1] - t->in[1] * t->out[0];
	double area = rows[0] * rows[1] * columns[0] * columns[1];

	if (!(area > 0))
		return 1;
	return erfc(sqrt(cross * cross / area * (rows[0] + rows[1] - 1) / 2));
}

/* The logarithm of n over k. */
static double log_choose(double n, double k)
{
	return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/* All tables with these sums that are no likelier than this one. Counts are whole. */
static double fisher_p(const struct table *t)
{
	double before = t->in[0] + t->out[0], after = t->in[1] + t->out[1];
	double in = t->in[0] + t->in[1];
	double all = log_choose(before + after, in);
	double seen = log_choose(before, t->in[0]) + log_choose(after, t->in[1]) - all;
	double sum = 0;

	for (double k = fmax(0, in - after); k <= fmin(in, before); k++) {
		double one = log_choose(before, k) + log_choose(after, in - k) - all;

		/* Equal ones may differ in their last digits. */
		if (one <= seen + 1e-7)
			sum += exp(one);
	}
	return fmin(1, sum);
}

static bool is_small(const struct table *t)
{
	double rows[2] = {t->in[0] + t->out[0], t->in[1] + t->out[1]};
	double columns[2] = {t->in[0] + t->in[1], t->out[0] + t->out[1]};

	return fmin(rows[0], rows[1]) * fmin(columns[0], columns[1]) / (rows[0] + rows[1]) < FEW;
}

/* Fisher's exact test needs whole counts. */
static struct table rounded(const struct difference *d)
{
	double before = round(d->draws_before), after = round(d->draws_after);
	double in_before = round(d->before * before), in_after = round(d->after * after);

	return (struct table){{in_before, in_after}, {before - in_before, after - in_after}};
}

static double chance(const struct difference *d)
{
	struct table t = {{d->before * d->draws_before, d->after * d->draws_after},
			  {(1 - d->before) * d->draws_before, (1 - d->after) * d->draws_after}};

	if (!is_small(&t))
		return chi_squared_p(&t);
	t = rounded(d);
	return fisher_p(&t);
}

static double between(double value, double low, double high)
{
	return fmin(high, fmax(low, value));
}

struct difference difference_of(double before, double draws_before, double after,
				double draws_after)
{
	struct difference d = {.before = between(before, 0, 1),
			       .after = between(after, 0, 1),
			       .draws_before = draws_before,
			       .draws_after = draws_after,
			       .low = -1,
			       .high = 1,
			       .p = 1};
	struct interval b, a;
	double middle = d.after - d.before;

	if (!(draws_before >= 1) || !(draws_after >= 1))
		return d;
	b = interval_of_share(d.before, draws_before);
	a = interval_of_share(d.after, draws_after);
	d.low = between(middle - hypot(d.after - a.low, b.high - d.before), -1, 1);
	d.high = between(middle + hypot(a.high - d.after, d.before - b.low), -1, 1);
	d.p = chance(&d);
	return d;
}

static int by_p(const void *left, const void *right)
{
	double a = (*(struct difference *const *)left)->p;
	double b = (*(struct difference *const *)right)->p;

	return COMPARE(a, b);
}

bool differences_mark(struct difference *const *all, size_t n)
{
	FREED struct difference **sorted = calloc(n + 1, sizeof(struct difference *));
	size_t good = 0;

	if (!sorted)
		return false;
	for (size_t i = 0; i < n; i++) {
		sorted[i] = all[i];
		sorted[i]->significant = false;
	}
	qsort(sorted, n, sizeof(struct difference *), by_p);
	for (size_t i = 0; i < n; i++)
		if (sorted[i]->p <= DIFFERENCE_FALSE_RATE * (double)(i + 1) / (double)n)
			good = i + 1;
	for (size_t i = 0; i < good; i++)
		sorted[i]->significant = true;
	return true;
}

bool diff_row_changed(const struct diff_row *row)
{
	return row->self_change.significant || row->total_change.significant;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct diff_row *)a)->name, ((const struct diff_row *)b)->name);
}

static void add_rows(struct diff *diff, const struct flat *flat, int side)
{
	for (size_t i = 0; i < flat->n; i++) {
		struct diff_row *row = &diff->rows[diff->n++];

		*row = (struct diff_row){.name = flat->rows[i].name,
					 .unresolved = flat->rows[i].unresolved};
		row->self[side] = flat->rows[i].self;
		row->total[side] = flat->rows[i].total;
	}
}

/* A function that is in both has two rows, which become one; within a profile a name is there once. */
static void join(struct diff *diff)
{
	size_t kept = 0;

	qsort(diff->rows, diff->n, sizeof(*diff->rows), by_name);
	for (size_t i = 0; i < diff->n; i++) {
		struct diff_row *last = kept ? &diff->rows[kept - 1] : NULL;
		const struct diff_row *row = &diff->rows[i];

		if (!last || strcmp(last->name, row->name)) {
			diff->rows[kept++] = *row;
			continue;
		}
		for (int side = 0; side < 2; side++) {
			if (!row->total[side].samples)
				continue;
			last->self[side] = row->self[side];
			last->total[side] = row->total[side];
		}
	}
	diff->n = kept;
}

static double share(const struct profile_cell *cell, const struct profile *profile)
{
	uint64_t all = profile->selected.weight_ns;

	return all ? (double)cell->weight_ns / (double)all : 0;
}

/* cells: [0] before, [1] after. */
static struct difference change(const struct profile_cell *cells, const struct profile *before,
				const struct profile *after)
{
	return difference_of(share(&cells[0], before), profile_share_draws(before, &cells[0]),
			     share(&cells[1], after), profile_share_draws(after, &cells[1]));
}

static struct error *judge_rows(struct diff *diff, const struct profile *before,
				const struct profile *after)
{
	FREED struct difference **all = calloc(2 * diff->n + 1, sizeof(struct difference *));

	if (!all)
		return error_no_memory();
	for (size_t i = 0; i < diff->n; i++) {
		struct diff_row *row = &diff->rows[i];

		row->self_change = change(row->self, before, after);
		row->total_change = change(row->total, before, after);
		all[2 * i] = &row->self_change;
		all[2 * i + 1] = &row->total_change;
	}
	if (!differences_mark(all, 2 * diff->n))
		return error_no_memory();
	for (size_t i = 0; i < diff->n; i++)
		diff->significant += diff_row_changed(&diff->rows[i]);
	return NULL;
}

static double size(const struct difference *change)
{
	return fabs(change->after - change->before);
}

static int by_change(const void *left, const void *right, void *ctx)
{
	const struct diff_row *a = left, *b = right;
	bool total = *(const enum diff_order *)ctx == DIFF_BY_TOTAL;
	const struct difference *x[] = {&a->self_change, &a->total_change};
	const struct difference *y[] = {&b->self_change, &b->total_change};
	int order;

	if (x[total]->significant != y[total]->significant)
		return x[total]->significant ? -1 : 1;
	if (diff_row_changed(a) != diff_row_changed(b))
		return diff_row_changed(a) ? -1 : 1;
	order = COMPARE(size(y[total]), size(x[total]));
	order = order ?: COMPARE(size(y[!total]), size(x[!total]));
	return order ?: strcmp(a->name, b->name);
}

struct error *diff_new(const struct diff_side *before, const struct diff_side *after,
		       enum diff_order order, struct diff **out)
{
	struct diff *diff = *out = calloc(1, sizeof(*diff));

	if (!diff)
		return error_no_memory();
	TRY(ARRAY_NEW(&diff->rows, before->flat->n + after->flat->n + 1));
	diff->draws[0] = profile_draws(before->profile);
	diff->draws[1] = profile_draws(after->profile);
	add_rows(diff, before->flat, 0);
	add_rows(diff, after->flat, 1);
	join(diff);
	TRY(judge_rows(diff, before->profile, after->profile));
	qsort_r(diff->rows, diff->n, sizeof(*diff->rows), by_change, &order);
	return NULL;
}

void diff_free(struct diff *diff)
{
	if (!diff)
		return;
	free(diff->rows);
	free(diff);
}

/* Weight in units of TREE_PAIR_WHOLE; a profile without weights counts samples. */
static uint64_t normalised(const struct profile_cell *cell, const struct profile *profile)
{
	const struct profile_cell *all = &profile->selected;
	double part = (double)(all->weight_ns ? cell->weight_ns : cell->samples);
	double whole = (double)(all->weight_ns ? all->weight_ns : all->samples);

	return whole > 0 ? (uint64_t)(part / whole * (double)TREE_PAIR_WHOLE + 0.5) : 0;
}

/* Adds one side; normalises its weights of each node into `weights`. */
static struct error *add_side(const struct tree_sides *sides, int side,
			      const struct tree_options *options, struct tree *tree,
			      uint64_t **weights)
{
	FREED struct profile_cell *before = malloc(tree->n * sizeof(*before));
	const uint32_t n = tree->n;

	if (!before)
		return error_no_memory();
	for (uint32_t i = 0; i < n; i++) {
		before[i] = tree->nodes[i].self;
		tree->nodes[i].self = (struct profile_cell){0};
	}
	TRY(tree_add(tree, sides->profile[side], sides->symbolizer[side], sides->symbolizer[0],
		     options));
	TRY(ARRAY_NEW(weights, tree->n));
	for (uint32_t i = 0; i < tree->n; i++) {
		struct profile_cell *self = &tree->nodes[i].self;

		self->weight_ns = normalised(self, sides->profile[side]);
		(*weights)[i] = self->weight_ns;
		if (i < n) {
			self->weight_ns += before[i].weight_ns;
			self->samples += before[i].samples;
			self->squares += before[i].squares;
		}
	}
	return NULL;
}

/* Shares with children, of weights without; a parent's number is smaller than its children's. */
static void compare(const struct tree *tree, uint32_t n, uint64_t *before, uint64_t *after,
		    struct tree_change *nodes)
{
	const struct tree_node *node = tree->nodes;

	for (uint32_t i = tree->n - 1; i > 0; i--) {
		after[node[i].parent] += after[i];
		if (i < n)
			before[node[i].parent] += before[i];
	}
	for (uint32_t i = 0; i < tree->n; i++)
		nodes[i] = (struct tree_change){
			.before = i < n ? (double)before[i] / (double)TREE_PAIR_WHOLE : 0,
			.after = (double)after[i] / (double)TREE_PAIR_WHOLE};
}

static bool is_judged(const struct tree_pair *pair, const struct tree_change *node)
{
	return node->before * pair->draws[0] + node->after * pair->draws[1] >= TREE_PAIR_MIN_DRAWS;
}

static struct error *judge_nodes(struct tree_pair *pair)
{
	FREED struct difference *all = calloc(pair->tree->n, sizeof(*all));
	FREED struct difference **judged = calloc(pair->tree->n, sizeof(*judged));
	size_t n = 0;

	if (!all || !judged)
		return error_no_memory();
	for (uint32_t i = 0; i < pair->tree->n; i++) {
		const struct tree_change *node = &pair->nodes[i];

		if (!is_judged(pair, node))
			continue;
		all[i] = difference_of(node->before, pair->draws[0], node->after, pair->draws[1]);
		judged[n++] = &all[i];
	}
	if (!differences_mark(judged, n))
		return error_no_memory();
	for (uint32_t i = 0; i < pair->tree->n; i++)
		pair->nodes[i].significant = all[i].significant;
	return NULL;
}

struct error *tree_pair_build(const struct tree_sides *sides, const struct tree_options *options,
			      struct tree_pair *pair)
{
	FREED uint64_t *before = NULL;
	FREED uint64_t *after = NULL;
	uint32_t n_before;

	*pair = (struct tree_pair){0};
	TRY(tree_new(&pair->tree));
	TRY(add_side(sides, 0, options, pair->tree, &before));
	n_before = pair->tree->n;
	TRY(add_side(sides, 1, options, pair->tree, &after));
	TRY(tree_sum(pair->tree));
	for (int side = 0; side < 2; side++)
		pair->draws[side] = profile_draws(sides->profile[side]);
	TRY(ARRAY_NEW(&pair->nodes, pair->tree->n));
	compare(pair->tree, n_before, before, after, pair->nodes);
	return judge_nodes(pair);
}

void tree_pair_free(struct tree_pair *pair)
{
	tree_free(pair->tree);
	free(pair->nodes);
	*pair = (struct tree_pair){0};
}
