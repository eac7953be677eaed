/* SPDX-License-Identifier: BSD-3-Clause */
#include "top/top.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

/* Both lists may begin with forgotten entries, which are removed now and then. */
struct recent_ticks {
	uint64_t span_ns;
	struct kept *ticks;
	size_t first, n, room; /* ticks[first] to ticks[n - 1] are kept */
	struct tick_entry *entries;
	size_t first_entry, n_entries, room_entries;
};

struct kept {
	uint64_t time_ns, weight_ns, paused_ns;
	uint32_t n;
	size_t entry; /* its first one */
};

struct error *recent_new(uint64_t span_ns, struct recent_ticks **out)
{
	struct recent_ticks *recent;

	TRY(ARRAY_NEW(&recent, 1));
	recent->span_ns = span_ns;
	*out = recent;
	return NULL;
}

void recent_free(struct recent_ticks *recent)
{
	if (!recent)
		return;
	free(recent->ticks);
	free(recent->entries);
	free(recent);
}

void recent_clear(struct recent_ticks *recent)
{
	recent->first = recent->n = recent->first_entry = recent->n_entries = 0;
}

static void drop_first(struct recent_ticks *recent)
{
	recent->first_entry += recent->ticks[recent->first++].n;
	if (recent->first == recent->n)
		recent_clear(recent);
}

static void forget_old(struct recent_ticks *recent)
{
	uint64_t last = recent->n ? recent->ticks[recent->n - 1].time_ns : 0;

	while (recent->first < recent->n &&
	       last - recent->ticks[recent->first].time_ns >= recent->span_ns)
		drop_first(recent);
}

void recent_set_span(struct recent_ticks *recent, uint64_t span_ns)
{
	recent->span_ns = span_ns;
	forget_old(recent);
}

/* Moves the kept entries to the front. */
static void tidy(struct recent_ticks *recent)
{
	size_t gone = recent->first_entry;

	memmove(recent->ticks, recent->ticks + recent->first,
		(recent->n - recent->first) * sizeof(*recent->ticks));
	memmove(recent->entries, recent->entries + gone,
		(recent->n_entries - gone) * sizeof(*recent->entries));
	recent->n -= recent->first;
	recent->n_entries -= gone;
	recent->first = recent->first_entry = 0;
	for (size_t i = 0; i < recent->n; i++)
		recent->ticks[i].entry -= gone;
}

static struct error *make_room(struct recent_ticks *recent, uint32_t entries)
{
	if (recent->first > recent->n / 2)
		tidy(recent);
	while (recent->first < recent->n &&
	       recent->n_entries - recent->first_entry + entries > RECENT_MAX_ENTRIES)
		drop_first(recent);
	TRY(ARRAY_RESERVE(&recent->ticks, &recent->room, recent->n + 1));
	return ARRAY_RESERVE(&recent->entries, &recent->room_entries, recent->n_entries + entries);
}

struct error *recent_add(struct recent_ticks *recent, const struct tick *tick)
{
	TRY(make_room(recent, tick->n));
	recent->ticks[recent->n++] = (struct kept){.time_ns = tick->time_ns,
						   .weight_ns = tick->weight_ns,
						   .paused_ns = tick->paused_ns,
						   .n = tick->n,
						   .entry = recent->n_entries};
	if (tick->n)
		memcpy(recent->entries + recent->n_entries, tick->entries,
		       tick->n * sizeof(*tick->entries));
	recent->n_entries += tick->n;
	forget_old(recent);
	return NULL;
}

size_t recent_count(const struct recent_ticks *recent)
{
	return recent->n - recent->first;
}

void recent_get(const struct recent_ticks *recent, size_t i, struct tick *tick)
{
	const struct kept *kept = &recent->ticks[recent->first + i];

	*tick = (struct tick){.time_ns = kept->time_ns,
			      .weight_ns = kept->weight_ns,
			      .paused_ns = kept->paused_ns,
			      .n = kept->n,
			      .entries = recent->entries + kept->entry};
}

/* The choice of samples. */
struct selection {
	const struct summary_options *options;
	struct profile_filter filter;
	/* Is a thread inside of what was chosen? By its number; 0: not asked yet. */
	enum { NOT_ASKED, OUTSIDE, INSIDE } * inside;
};

static struct error *selects(const struct selection *selection, const struct profile *profile,
			     const struct tick *tick, const struct tick_entry *entry, bool *yes)
{
	const struct summary_options *options = selection->options;
	char *name;

	*yes = profile_selects(&selection->filter, tick, entry);
	if (!*yes || !options->inside)
		return NULL;
	if (selection->inside[entry->thread] == NOT_ASKED) {
		name = group_thread_name(profile, entry->thread, options->by);
		if (!name)
			return error_no_memory();
		selection->inside[entry->thread] = strcmp(name, options->inside) ? OUTSIDE : INSIDE;
		free(name);
	}
	*yes = selection->inside[entry->thread] == INSIDE;
	return NULL;
}

static struct error *add_entry(struct summary *summary, const struct selection *selection,
			       const struct weighting *weighting, const struct tick *tick,
			       const struct tick_entry *entry)
{
	const uint64_t stretch_ns = weighting_time(weighting, tick).sampled_ns;
	const struct weight weight = weighting_entry(weighting, tick, entry);
	const struct profile_cell one = {1, weight.sampled_ns,
					 (double)weight.sampled_ns * (double)weight.sampled_ns};
	struct profile *profile = &summary->profile;
	struct profile_cell *cell = &profile->cells.at[entry->stack];
	bool selected;

	profile->states[entry->state].samples++;
	profile->states[entry->state].weight_ns += stretch_ns;
	if (entry->vcpu < summary->n_vcpus) {
		summary->vcpus[entry->vcpu].seen = true;
		summary->vcpus[entry->vcpu].weight_ns[entry->state] += stretch_ns;
	}
	TRY(selects(selection, profile, tick, entry, &selected));
	if (!selected)
		return NULL;
	profile_cell_add(cell, &one);
	profile_cell_add(&profile->selected, &one);
	profile->not_sampled_ns += weight.not_sampled_ns;
	profile->ends[entry->end]++;
	if (cell->weight_ns > profile->cells.at[summary->hottest].weight_ns ||
	    summary->hottest == STACK_ROOT)
		summary->hottest = entry->stack;
	return profile->breakdown ? breakdown_add(profile->breakdown, entry, 1, weight.sampled_ns)
				  : NULL;
}

static struct error *add_tick(struct summary *summary, const struct selection *selection,
			      struct weighting *weighting, const struct tick *tick)
{
	struct profile *profile = &summary->profile;
	uint64_t before = profile->selected.weight_ns;
	double selected;

	weighting_tick(weighting, tick);
	profile->ticks++;
	profile->paused_ns += tick->paused_ns;
	histogram_add(&profile->pauses, tick->paused_ns);
	profile->without_pause += !tick->paused_ns;
	summary->span_ns += tick->weight_ns;
	for (uint32_t i = 0; i < tick->n; i++)
		TRY(add_entry(summary, selection, weighting, tick, &tick->entries[i]));
	selected = (double)(profile->selected.weight_ns - before);
	profile->tick_weights += selected;
	profile->tick_weights_squared += selected * selected;
	return NULL;
}

static struct error *add_row(struct summary *summary, const struct summary_row *row)
{
	TRY(ARRAY_RESERVE(&summary->rows, &summary->rows_room, summary->n_rows + 1));
	summary->rows[summary->n_rows++] = *row;
	return NULL;
}

static struct error *take_functions(struct summary *summary, const struct summary_options *options)
{
	ENDED_BY(flat_end) struct flat *flat = NULL;

	TRY(flat_new(summary->grouped.tree, &flat));
	if (options->by_total)
		flat_sort_by_total(flat);
	for (size_t i = 0; i < flat->n; i++) {
		const struct flat_row *from = &flat->rows[i];
		const struct summary_row row = {.name = from->name,
						.self = from->self,
						.total = from->total,
						.unresolved = from->unresolved};

		if (!options->only || !regexec(options->only, from->name, 0, NULL, 0))
			TRY(add_row(summary, &row));
	}
	return NULL;
}

static int by_weight(const void *left, const void *right)
{
	const struct summary_row *a = left, *b = right;

	return COMPARE(b->total.weight_ns, a->total.weight_ns) ?: strcmp(a->name, b->name);
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

		TRY(add_row(summary, &row));
	}
	if (summary->n_rows > first)
		qsort(summary->rows + first, summary->n_rows - first, sizeof(*summary->rows),
		      by_weight);
	return NULL;
}

static struct error *take_callers_callees(struct summary *summary, const char *name)
{
	const struct tree *tree = summary->grouped.tree;
	const char *found = NULL;
	ENDED_BY(callers_callees_free) struct callers_callees callers_callees = {0};

	for (uint32_t i = 1; i < tree->n && !found; i++)
		if (!strcmp(tree->nodes[i].name, name))
			found = tree->nodes[i].name;
	if (!found)
		return NULL;
	TRY(callers_callees_build(tree, found, &callers_callees));
	summary->zoom = (struct summary_row){.name = found,
					     .self = callers_callees.self,
					     .total = callers_callees.total};
	TRY(take_children(summary, callers_callees.callers, ROW_CALLER));
	return take_children(summary, callers_callees.callees, ROW_CALLEE);
}

/* Adds up the ticks. */
static struct error *add_ticks(struct summary *summary, const struct recent_ticks *recent,
			       const struct summary_options *options)
{
	const struct recording_info info = {.rate_hz = options->rate_hz};
	struct selection selection = {.options = options,
				      .filter = {.states = options->all_states ? 0
									       : 1u << VCPU_RUNNING,
						 .vcpu = options->vcpu},
				      .inside = calloc(options->n_threads + 1,
						       sizeof(*selection.inside))};
	struct error *err = selection.inside ? NULL : error_no_memory();
	struct weighting weighting;

	weighting_start(&weighting, WEIGHT_BY_BEST, selection.filter.states, &info);
	for (size_t i = 0; i < recent_count(recent) && !err; i++) {
		struct tick tick;

		recent_get(recent, i, &tick);
		err = add_tick(summary, &selection, &weighting, &tick);
	}
	free(selection.inside);
	return err;
}

static struct error *begin(struct summary *summary, struct stacks *stacks, uint32_t vcpus,
			   const struct summary_options *options, enum group_key by)
{
	struct profile *profile = &summary->profile;

	*summary = (struct summary){.n_vcpus = vcpus,
				    .profile = {.stacks = stacks,
						.threads = options->threads,
						.n_threads = options->n_threads}};
	profile->cells.at = calloc(stacks_count(stacks), sizeof(*profile->cells.at));
	summary->vcpus = calloc(vcpus ? vcpus : 1, sizeof(*summary->vcpus));
	if (!profile->cells.at || !summary->vcpus)
		return error_no_memory();
	return by == GROUP_FUNCTION ? NULL : breakdown_new(&profile->breakdown);
}

static uint32_t told_vcpus(const struct summary *summary, uint32_t spare)
{
	const uint32_t usual = summary->n_vcpus - spare;
	uint32_t seen = 0;

	for (uint32_t i = 0; i < summary->n_vcpus; i++)
		seen += summary->vcpus[i].seen;
	return seen > usual ? seen : usual;
}

struct error *summary_make(struct recent_ticks *recent, struct stacks *stacks, uint32_t vcpus,
			   struct symbolizer *symbolizer, const struct summary_options *options,
			   struct summary *out)
{
	const enum group_key by = options->inside ? GROUP_FUNCTION : options->by;
	const struct grouped_tree_options how = {.keys = {.at = {by}, .n = 1}};

	TRY(begin(out, stacks, vcpus, options, by));
	TRY(add_ticks(out, recent, options));
	out->told_vcpus = told_vcpus(out, options->spare);
	TRY(grouped_tree_build(&out->profile, symbolizer, NULL, &how, &out->grouped));
	return options->zoom ? take_callers_callees(out, options->zoom)
			     : take_functions(out, options);
}

void summary_free(struct summary *summary)
{
	grouped_tree_free(&summary->grouped);
	breakdown_free(summary->profile.breakdown);
	free(summary->profile.cells.at);
	free(summary->vcpus);
	free(summary->rows);
	*summary = (struct summary){0};
}
