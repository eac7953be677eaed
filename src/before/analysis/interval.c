/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/interval.h"

#include <math.h>
#include <stdlib.h>

#include "output/interval.h"

/* W. G. Cochran, 1954: with fewer to be expected the normal distribution does not serve. */
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

/* The same with whole counts. */
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

	return (a > b) - (a < b);
}

bool differences_mark(struct difference *const *all, size_t n)
{
	struct difference **sorted = calloc(n + 1, sizeof(struct difference *));
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
	free(sorted);
	return true;
}
