/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static struct error *judge(struct diff *diff, const struct profile *before,
			   const struct profile *after)
{
	struct difference **all = calloc(2 * diff->n + 1, sizeof(struct difference *));
	bool marked;

	if (!all)
		return error_no_memory();
	for (size_t i = 0; i < diff->n; i++) {
		struct diff_row *row = &diff->rows[i];

		row->self_change = difference_of(share(&row->self[0], before), diff->draws[0],
						 share(&row->self[1], after), diff->draws[1]);
		row->total_change = difference_of(share(&row->total[0], before), diff->draws[0],
						  share(&row->total[1], after), diff->draws[1]);
		all[2 * i] = &row->self_change;
		all[2 * i + 1] = &row->total_change;
	}
	marked = differences_mark(all, 2 * diff->n);
	free(all);
	for (size_t i = 0; i < diff->n; i++)
		diff->significant += diff_row_changed(&diff->rows[i]);
	return marked ? NULL : error_no_memory();
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

	if (x[total]->significant != y[total]->significant)
		return x[total]->significant ? -1 : 1;
	if (diff_row_changed(a) != diff_row_changed(b))
		return diff_row_changed(a) ? -1 : 1;
	if (size(x[total]) != size(y[total]))
		return size(x[total]) > size(y[total]) ? -1 : 1;
	if (size(x[!total]) != size(y[!total]))
		return size(x[!total]) > size(y[!total]) ? -1 : 1;
	return strcmp(a->name, b->name);
}

struct error *diff_new(const struct diff_side *before, const struct diff_side *after,
		       enum diff_order order, struct diff **out)
{
	struct diff *diff = calloc(1, sizeof(*diff));
	struct error *err = diff ? NULL : error_no_memory();

	if (err)
		return err;
	diff->rows = calloc(before->flat->n + after->flat->n + 1, sizeof(*diff->rows));
	if (!diff->rows) {
		diff_free(diff);
		return error_no_memory();
	}
	diff->draws[0] = profile_draws(before->profile);
	diff->draws[1] = profile_draws(after->profile);
	add_rows(diff, before->flat, 0);
	add_rows(diff, after->flat, 1);
	join(diff);
	err = judge(diff, before->profile, after->profile);
	if (err) {
		diff_free(diff);
		return err;
	}
	qsort_r(diff->rows, diff->n, sizeof(*diff->rows), by_change, &order);
	*out = diff;
	return NULL;
}

void diff_free(struct diff *diff)
{
	if (!diff)
		return;
	free(diff->rows);
	free(diff);
}
