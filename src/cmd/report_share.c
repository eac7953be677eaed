/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/report.h"

struct share report_share(const struct report *report, const struct profile_cell *cell)
{
	uint64_t all = report->loaded->profile->selected.weight_ns;
	double value = all ? (double)cell->weight_ns / (double)all : 0;
	struct interval interval = interval_of_share(value, report->draws);

	return (struct share){value, interval.low, interval.high};
}

const char *report_view_text(enum report_view view)
{
	static const char *const texts[] = {"flat", "down", "up", "around"};

	return texts[view];
}

static int by_weight(const void *left, const void *right, void *ctx)
{
	const struct tree_node *nodes = ctx;
	const struct tree_node *a = &nodes[*(const uint32_t *)left];
	const struct tree_node *b = &nodes[*(const uint32_t *)right];

	if (a->total.weight_ns != b->total.weight_ns)
		return a->total.weight_ns < b->total.weight_ns ? 1 : -1;
	return strcmp(a->name, b->name);
}

struct error *report_branches(const struct report *report, const struct tree *tree, uint32_t node,
			      struct branches *out)
{
	size_t n = 0;

	*out = (struct branches){0};
	for (uint32_t c = tree->nodes[node].first_child; c; c = tree->nodes[c].next_sibling)
		n++;
	out->at = malloc((n ? n : 1) * sizeof(*out->at));
	if (!out->at)
		return error_no_memory();
	for (uint32_t c = tree->nodes[node].first_child; c; c = tree->nodes[c].next_sibling) {
		if (report_share(report, &tree->nodes[c].total).value < report->options->min_share)
			out->left_out++;
		else
			out->at[out->n++] = c;
	}
	qsort_r(out->at, out->n, sizeof(*out->at), by_weight, tree->nodes);
	return NULL;
}
