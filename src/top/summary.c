/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/summary.h"

#include <stdlib.h>
#include <string.h>

static void add_entry(struct summary *summary, const struct profile_filter *filter,
		      const struct tick *tick, const struct tick_entry *entry)
{
	struct profile *profile = &summary->profile;
	struct profile_cell *cell = &profile->cells[entry->stack];

	profile->states[entry->state].samples++;
	profile->states[entry->state].weight_ns += tick->weight_ns;
	if (entry->vcpu < summary->n_vcpus) {
		summary->vcpus[entry->vcpu].seen = true;
		summary->vcpus[entry->vcpu].weight_ns[entry->state] += tick->weight_ns;
	}
	if (!profile_selects(filter, tick, entry))
		return;
	cell->samples++;
	cell->weight_ns += tick->weight_ns;
	profile->selected.samples++;
	profile->selected.weight_ns += tick->weight_ns;
	profile->ends[entry->end]++;
	if (cell->weight_ns > profile->cells[summary->hottest].weight_ns ||
	    summary->hottest == STACK_ROOT)
		summary->hottest = entry->stack;
}

static void add_tick(struct summary *summary, const struct profile_filter *filter,
		     const struct tick *tick)
{
	struct profile *profile = &summary->profile;
	uint64_t before = profile->selected.weight_ns;
	double selected;

	profile->ticks++;
	profile->paused_ns += tick->paused_ns;
	histogram_add(&profile->pauses, tick->paused_ns);
	profile->unpaused += !tick->paused_ns;
	summary->span_ns += tick->weight_ns;
	for (uint32_t i = 0; i < tick->n; i++)
		add_entry(summary, filter, tick, &tick->entries[i]);
	selected = (double)(profile->selected.weight_ns - before);
	profile->tick_weights += selected;
	profile->tick_weights_squared += selected * selected;
}

static struct error *add_row(struct summary *summary, const struct summary_row *row)
{
	struct summary_row *rows =
		realloc(summary->rows, (summary->n_rows + 1) * sizeof(*summary->rows));

	if (!rows)
		return error_no_memory();
	summary->rows = rows;
	summary->rows[summary->n_rows++] = *row;
	return NULL;
}

static struct error *take_functions(struct summary *summary, const struct summary_options *options)
{
	struct flat *flat;
	struct error *err = flat_new(summary->keyed.tree, &flat);

	if (err)
		return err;
	if (options->by_total)
		flat_sort_by_total(flat);
	summary->rows = calloc(flat->n ? flat->n : 1, sizeof(*summary->rows));
	for (size_t i = 0; i < flat->n && summary->rows; i++) {
		const struct flat_row *from = &flat->rows[i];

		if (options->only && regexec(options->only, from->name, 0, NULL, 0))
			continue;
		summary->rows[summary->n_rows++] =
			(struct summary_row){.name = from->name,
					     .self = from->self,
					     .total = from->total,
					     .unresolved = from->unresolved};
	}
	flat_free(flat);
	return summary->rows ? NULL : error_no_memory();
}

static int by_weight(const void *left, const void *right)
{
	const struct summary_row *a = left, *b = right;

	if (a->total.weight_ns != b->total.weight_ns)
		return a->total.weight_ns < b->total.weight_ns ? 1 : -1;
	return strcmp(a->name, b->name);
}

static struct error *take_children(struct summary *summary, const struct tree *tree, int kind)
{
	size_t first = summary->n_rows;

	for (uint32_t at = tree->nodes[0].first_child; at; at = tree->nodes[at].next_sibling) {
		const struct tree_node *node = &tree->nodes[at];
		const struct summary_row row = {.name = node->name,
						.self = node->self,
						.total = node->total,
						.unresolved = node->unresolved,
						.kind = kind};
		struct error *err = add_row(summary, &row);

		if (err)
			return err;
	}
	if (summary->n_rows > first)
		qsort(summary->rows + first, summary->n_rows - first, sizeof(*summary->rows),
		      by_weight);
	return NULL;
}

static struct error *take_around(struct summary *summary, const char *name)
{
	const struct tree *tree = summary->keyed.tree;
	const char *found = NULL;
	struct around around;
	struct error *err;

	for (uint32_t i = 1; i < tree->n && !found; i++)
		if (!strcmp(tree->nodes[i].name, name))
			found = tree->nodes[i].name;
	if (!found)
		return NULL;
	err = around_build(tree, found, &around);
	if (err)
		return err;
	summary->zoom =
		(struct summary_row){.name = found, .self = around.self, .total = around.total};
	err = take_children(summary, around.callers, ROW_CALLER);
	if (!err)
		err = take_children(summary, around.callees, ROW_CALLEE);
	around_free(&around);
	return err;
}

struct error *summary_make(struct recent *recent, struct stacks *stacks, uint32_t vcpus,
			   struct namer *namer, const struct summary_options *options,
			   struct summary *out)
{
	const struct profile_filter filter = {.states =
						      options->all_states ? 0 : 1u << VCPU_RUNNING,
					      .vcpu = options->vcpu};
	const struct keyed_options how = {.keys = {.at = {KEY_FUNCTION}, .n = 1}};
	struct error *err = NULL;

	*out = (struct summary){.n_vcpus = vcpus, .profile = {.stacks = stacks}};
	out->profile.cells = calloc(stacks_count(stacks), sizeof(*out->profile.cells));
	out->vcpus = calloc(vcpus ? vcpus : 1, sizeof(*out->vcpus));
	if (!out->profile.cells || !out->vcpus)
		err = error_no_memory();
	for (size_t i = 0; i < recent_count(recent) && !err; i++) {
		struct tick tick;

		recent_get(recent, i, &tick);
		add_tick(out, &filter, &tick);
	}
	if (!err)
		err = keyed_build(&out->profile, namer, NULL, &how, &out->keyed);
	out->draws = profile_draws(&out->profile);
	if (!err)
		err = options->zoom ? take_around(out, options->zoom)
				    : take_functions(out, options);
	if (err)
		summary_free(out);
	return err;
}

void summary_free(struct summary *summary)
{
	keyed_free(&summary->keyed);
	free(summary->profile.cells);
	free(summary->vcpus);
	free(summary->rows);
	*summary = (struct summary){0};
}
