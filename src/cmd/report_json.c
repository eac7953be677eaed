/* SPDX-License-Identifier: BSD-3-Clause */

/* A report as JSON; docs/report.md describes it. */

#include <stdlib.h>

#include "cmd/report.h"
#include "view/json.h"

/* The format grows only by fields; readers ignore those that they do not know. */
#define REPORT_VERSION 1

/* Readers of JSON have limits on how deep it may be (jansson's own: 2048). */
#define LEVELS_MAX 500

json_t *report_cell_json(const struct report *report, const struct profile_cell *from)
{
	struct share share = report_share(report, from);

	return json_pack("{s:I, s:I, s:f, s:f, s:f}", "samples", json_count(from->samples),
			 "weight_ns", json_count(from->weight_ns), "share", share.value, "low",
			 share.low, "high", share.high);
}

static json_t *guest(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "target",
			 json_text(info->target), "id", json_text(info->guest_id), "name",
			 json_text(info->guest_name), "type", json_text(info->guest_type), "host",
			 json_text(info->host), "arch", json_text(info->arch), "vcpus",
			 json_count(profile_vcpus(profile)), "start_unix_ns",
			 json_count(info->start_unix_ns));
}

/* Fields about the end of sampling are null for a recording that was cut. */
static json_t *ticks(const struct profile *profile)
{
	const struct recording_end *end = &profile->end;
	json_t *object = json_pack("{s:I, s:f, s:I, s:b}", "count", json_count(profile->ticks),
				   "rate_hz", profile->info.rate_hz, "elapsed_ns",
				   json_count(profile_elapsed_ns(profile)), "cut", profile->cut);

	if (profile->info.wanted_rate_hz > 0)
		json_put(&object, "lowered",
			 json_pack("{s:f, s:f}", "wanted_rate_hz", profile->info.wanted_rate_hz,
				   "max_cpu", profile->info.max_cpu));
	if (json_object_update_new(object, profile->cut
						   ? json_pack("{s:n, s:n, s:n, s:n}", "missed",
							       "failed", "given_up", "reason")
						   : json_pack("{s:I, s:I, s:I, s:o}", "missed",
							       json_count(end->missed), "failed",
							       json_count(end->failed), "given_up",
							       json_count(end->given_up), "reason",
							       json_text(end->reason)))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *states(const struct profile *profile)
{
	json_t *object = json_object();

	for (unsigned i = 0; i < SAMPLE_STATES; i++)
		json_put(&object, sample_state_text(i),
			 json_pack("{s:I, s:I}", "samples", json_count(profile->states[i].samples),
				   "weight_ns", json_count(profile->states[i].weight_ns)));
	return object;
}

static json_t *vcpus(const struct profile *profile)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < profile->info.vcpus; i++) {
		const uint64_t *ns = profile->vcpu_states_ns[i];

		if (!profile->seen[i])
			continue;
		json_append(&list, json_pack("{s:I, s:I, s:I, s:I}", "vcpu", (json_int_t)i,
					     "running_ns", json_count(ns[VCPU_RUNNING]),
					     "runnable_ns", json_count(ns[VCPU_RUNNABLE]),
					     "blocked_ns", json_count(ns[VCPU_BLOCKED])));
	}
	return list;
}

static json_t *pauses(const struct profile *profile)
{
	const struct histogram *h = &profile->pauses;

	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "total_ns", json_count(profile->paused_ns),
			 "median_ns", json_count(histogram_quantile(h, 0.5)), "p99_ns",
			 json_count(histogram_quantile(h, 0.99)), "max_ns", json_count(h->max),
			 "ticks_without", json_count(profile->without_pause));
}

/* Ends of stacks as keys, which stay the same when the words for people change. */
static const char *const end_keys[UNWIND_ENDS] = {
	[UNWIND_OUTERMOST] = "whole", [UNWIND_FRAMES] = "frames",
	[UNWIND_BYTES] = "bytes",     [UNWIND_BROKEN] = "broken",
	[UNWIND_LOOP] = "loop",	      [UNWIND_NO_STACK] = "no_stack",
	[UNWIND_NO_ROOM] = "no_room", [UNWIND_SEGMENTED] = "segmented",
};

/* Unit of weights. */
static const char *weight_text(const struct report *report)
{
	switch (report->options->load.filter.weight) {
	case WEIGHT_BY_SAMPLES:
		return "samples";
	case WEIGHT_BY_LATENCY:
		return "latency";
	default:
		return report->loaded->profile->by_cpu_time ? "cpu" : "time";
	}
}

static json_t *stacks(const struct report *report)
{
	const struct profile *profile = report->loaded->profile;
	json_t *ends = json_object();

	for (int i = 0; i < UNWIND_ENDS; i++)
		json_put(&ends, end_keys[i], json_integer(json_count(profile->ends[i])));
	return json_pack("{s:I, s:I, s:s, s:I, s:f, s:I, s:f, s:f, s:f, s:o}", "selected",
			 json_count(profile->selected.samples), "weight_ns",
			 json_count(profile->selected.weight_ns), "weight", weight_text(report),
			 "not_sampled_ns", json_count(profile->not_sampled_ns), "not_sampled_share",
			 profile_not_sampled(profile), "shown",
			 json_count(report->grouped.total.samples), "draws", profile_draws(profile),
			 "nameless_share", report->loaded->nameless_share, "truncated_share",
			 load_truncated_share(profile), "ends", ends);
}

/* The columns of a name, as fields. */
static json_t *columns(const struct report *report, const char *name)
{
	const struct group_by *keys = &report->options->keys;
	json_t *object = json_object();

	for (size_t k = 0; k < keys->n; k++) {
		size_t len;
		const char *column = grouped_tree_column(name, k, &len);

		json_put(&object, group_key_text(keys->at[k]),
			 keys->at[k] == GROUP_VCPU ? json_integer(atoll(column))
						   : json_stringn_nocheck(column, len));
	}
	return object;
}

static json_t *row(const struct report *report, const struct flat_row *from)
{
	json_t *object = columns(report, from->name);

	json_put(&object, "named", json_boolean(!from->unresolved));
	json_put(&object, "self", report_cell_json(report, &from->self));
	json_put(&object, "total", report_cell_json(report, &from->total));
	return object;
}

static json_t *rows(const struct report *report)
{
	const struct report_options *options = report->options;
	json_t *array = json_array();

	for (size_t i = 0; i < report->grouped.flat->n && array; i++) {
		const struct flat_row *from = &report->grouped.flat->rows[i];

		if (options->rows && json_array_size(array) >= options->rows)
			break;
		if (report_share(report, &from->total).value < options->min_share)
			continue;
		json_append(&array, row(report, from));
	}
	return array;
}

static json_t *node(const struct report *report, const struct tree *tree, uint32_t at,
		    uint64_t level);

static json_t *children(const struct report *report, const struct tree *tree, uint32_t at,
			uint64_t level)
{
	const uint64_t depth = report->options->depth;
	json_t *array = json_array();
	struct branches branches;
	struct error *err;

	if (level >= LEVELS_MAX || (depth && level >= depth))
		return array;
	err = report_branches(report, tree, at, &branches);
	if (err) {
		error_free(err);
		json_decref(array);
		return NULL;
	}
	for (size_t i = 0; i < branches.n && array; i++)
		json_append(&array, node(report, tree, branches.at[i], level + 1));
	free(branches.at);
	return array;
}

static json_t *node(const struct report *report, const struct tree *tree, uint32_t at,
		    uint64_t level)
{
	const struct tree_node *from = &tree->nodes[at];
	json_t *object = at ? columns(report, from->name) : json_object();

	json_put(&object, "named", json_boolean(!from->unresolved));
	json_put(&object, "inlined", json_boolean(from->inlined));
	json_put(&object, "self", report_cell_json(report, &from->self));
	json_put(&object, "total", report_cell_json(report, &from->total));
	json_put(&object, "children", children(report, tree, at, level));
	return object;
}

static json_t *callers_callees(const struct report *report)
{
	const struct callers_callees *from = &report->callers_callees;
	json_t *object = columns(report, from->name);

	json_put(&object, "self", report_cell_json(report, &from->self));
	json_put(&object, "total", report_cell_json(report, &from->total));
	json_put(&object, "callers", children(report, from->callers, 0, 0));
	json_put(&object, "callees", children(report, from->callees, 0, 0));
	return object;
}

static json_t *keys(const struct report *report)
{
	json_t *array = json_array();

	for (size_t k = 0; k < report->options->keys.n; k++)
		json_append(&array, json_string(group_key_text(report->options->keys.at[k])));
	return array;
}

/* Only cells that have samples. */
static json_t *heat(const struct report *report)
{
	const struct heat *from = &report->heat;
	json_t *object = json_object(), *array = json_array();

	for (size_t i = 0; i < (size_t)from->columns * from->rows; i++)
		if (from->cells[i].samples)
			json_append(&array,
				    json_pack("{s:I, s:I, s:I, s:I}", "column",
					      (json_int_t)(i / from->rows), "row",
					      (json_int_t)(i % from->rows), "samples",
					      json_count(from->cells[i].samples), "weight_ns",
					      json_count(from->cells[i].weight_ns)));
	json_put(&object, "from_s", json_integer((json_int_t)from->first_s));
	json_put(&object, "column_s", json_integer((json_int_t)from->column_s));
	json_put(&object, "columns", json_integer(from->columns));
	json_put(&object, "rows", json_integer(from->rows));
	json_put(&object, "cells", array);
	return object;
}

static void put_view(const struct report *report, json_t **object)
{
	switch (report->options->view) {
	case REPORT_FLAT:
		json_put(object, "rows", rows(report));
		break;
	case REPORT_DOWN:
	case REPORT_UP:
		json_put(object, "tree", node(report, report->grouped.tree, 0, 0));
		break;
	case REPORT_CALLERS_CALLEES:
		json_put(object, "around", callers_callees(report));
		break;
	case REPORT_ANNOTATION:
		json_put(object, "annotation", report_annotation_json(report));
		break;
	case REPORT_HEAT:
		json_put(object, "heat", heat(report));
		break;
	}
}

static const char *const view_texts[] = {"flat", "down", "up", "around", "annotate", "heat"};

struct error *report_put_json(const struct report *report, FILE *out)
{
	const struct profile *profile = report->loaded->profile;
	json_t *object =
		json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "format",
			  "uniprof-report", "version", REPORT_VERSION, "warning",
			  json_text(report->loaded->warning), "guest", guest(profile), "ticks",
			  ticks(profile), "states", states(profile), "vcpus", vcpus(profile),
			  "paused", pauses(profile), "stacks", stacks(report), "view",
			  view_texts[report->options->view], "keys", keys(report));

	put_view(report, &object);
	return json_write(object, JSON_INDENT(1), out);
}
