/* SPDX-License-Identifier: BSD-3-Clause */

/* A report as JSON; docs/report.md tells what is in it. */

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/report.h"
#include "symbol/names/display_name.h"

/* Grows only by fields; whoever reads passes over what it does not know. */
#define REPORT_VERSION 1

/* Readers of JSON have limits on how deep it may be (jansson's own: 2048). */
#define LEVELS_MAX 500

/* Takes `value` over, NULL means that memory was short: then *object is NULL from then on. */
static void put(json_t **object, const char *key, json_t *value)
{
	if (!*object || !value || json_object_set_new_nocheck(*object, key, value)) {
		json_decref(*object);
		*object = NULL;
	}
}

static json_t *text(const char *string)
{
	char *clean = string ? clean_name_new(string) : NULL;
	json_t *value = clean ? json_string_nocheck(clean) : string ? NULL : json_null();

	free(clean);
	return value;
}

static json_t *number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *cell(const struct report *report, const struct profile_cell *from)
{
	struct share share = report_share(report, from);
	json_t *object = json_object();

	put(&object, "samples", number(from->samples));
	put(&object, "weight_ns", number(from->weight_ns));
	put(&object, "share", json_real(share.value));
	put(&object, "low", json_real(share.low));
	put(&object, "high", json_real(share.high));
	return object;
}

static json_t *guest(const struct profile *profile)
{
	const struct recording_info *info = &profile->info;
	json_t *object = json_object();

	put(&object, "target", text(info->target));
	put(&object, "id", text(info->guest_id));
	put(&object, "name", text(info->guest_name));
	put(&object, "type", text(info->guest_type));
	put(&object, "host", text(info->host));
	put(&object, "arch", text(info->arch));
	put(&object, "vcpus", number(profile_vcpus(profile)));
	put(&object, "start_unix_ns", number(info->start_unix_ns));
	return object;
}

static json_t *looks(const struct profile *profile)
{
	const struct recording_end *end = &profile->end;
	json_t *object = json_object();

	put(&object, "count", number(profile->ticks));
	put(&object, "rate_hz", json_real(profile->info.rate_hz));
	put(&object, "elapsed_ns", number(profile_elapsed_ns(profile)));
	put(&object, "cut", json_boolean(profile->cut));
	put(&object, "missed", profile->cut ? json_null() : number(end->missed));
	put(&object, "failed", profile->cut ? json_null() : number(end->failed));
	put(&object, "given_up", profile->cut ? json_null() : number(end->given_up));
	put(&object, "reason", profile->cut ? json_null() : text(end->reason));
	return object;
}

static json_t *states(const struct profile *profile)
{
	json_t *object = json_object();

	for (int i = 0; i < VCPU_STATES; i++) {
		json_t *state = json_object();

		put(&state, "samples", number(profile->states[i].samples));
		put(&state, "weight_ns", number(profile->states[i].weight_ns));
		put(&object, vcpu_state_text((enum vcpu_state)i), state);
	}
	return object;
}

static json_t *pauses(const struct profile *profile)
{
	const struct histogram *h = &profile->pauses;
	json_t *object = json_object();

	put(&object, "total_ns", number(profile->paused_ns));
	put(&object, "median_ns", number(histogram_quantile(h, 0.5)));
	put(&object, "p99_ns", number(histogram_quantile(h, 0.99)));
	put(&object, "max_ns", number(h->max));
	put(&object, "looks_without", number(profile->unpaused));
	return object;
}

/* How stacks end, as keys; they stay when the words for people change. */
static const char *const end_keys[UNWIND_ENDS] = {
	[UNWIND_OUTERMOST] = "whole", [UNWIND_FRAMES] = "frames", [UNWIND_BYTES] = "bytes",
	[UNWIND_BROKEN] = "broken",   [UNWIND_LOOP] = "loop",	  [UNWIND_NO_STACK] = "no_stack",
	[UNWIND_NO_ROOM] = "no_room",
};

static json_t *stacks(const struct report *report, double unresolved)
{
	const struct profile *profile = report->loaded->profile;
	json_t *object = json_object(), *ends = json_object();

	for (int i = 0; i < UNWIND_ENDS; i++)
		put(&ends, end_keys[i], number(profile->ends[i]));
	put(&object, "selected", number(profile->selected.samples));
	put(&object, "weight_ns", number(profile->selected.weight_ns));
	put(&object, "shown", number(report->shown.samples));
	put(&object, "draws", json_real(report->draws));
	put(&object, "nameless_share", json_real(unresolved));
	put(&object, "truncated_share", json_real(load_truncated_share(profile)));
	put(&object, "ends", ends);
	return object;
}

/* The columns of a name, as fields. */
static void put_columns(const struct report *report, const char *name, json_t **object)
{
	const struct keys *keys = &report->options->keys;

	for (size_t k = 0; k < keys->n; k++) {
		size_t len;
		const char *column = keyed_column(name, k, &len);

		put(object, key_text(keys->at[k]),
		    keys->at[k] == KEY_VCPU ? json_integer(atoll(column))
					    : json_stringn_nocheck(column, len));
	}
}

static json_t *row(const struct report *report, const struct flat_row *from)
{
	json_t *object = json_object();

	put_columns(report, from->name, &object);
	put(&object, "named", json_boolean(!from->unresolved));
	put(&object, "self", cell(report, &from->self));
	put(&object, "total", cell(report, &from->total));
	return object;
}

static json_t *rows(const struct report *report)
{
	const struct report_options *options = report->options;
	json_t *array = json_array();

	for (size_t i = 0; i < report->flat->n && array; i++) {
		const struct flat_row *from = &report->flat->rows[i];

		if (options->rows && json_array_size(array) >= options->rows)
			break;
		if (report_share(report, &from->total).value < options->min_share)
			continue;
		if (json_array_append_new(array, row(report, from))) {
			json_decref(array);
			array = NULL;
		}
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
	for (size_t i = 0; i < branches.n && array; i++) {
		if (json_array_append_new(array, node(report, tree, branches.at[i], level + 1))) {
			json_decref(array);
			array = NULL;
		}
	}
	free(branches.at);
	return array;
}

static json_t *node(const struct report *report, const struct tree *tree, uint32_t at,
		    uint64_t level)
{
	const struct tree_node *from = &tree->nodes[at];
	json_t *object = json_object();

	if (at)
		put_columns(report, from->name, &object);
	put(&object, "named", json_boolean(!from->unresolved));
	put(&object, "inlined", json_boolean(from->inlined));
	put(&object, "self", cell(report, &from->self));
	put(&object, "total", cell(report, &from->total));
	put(&object, "children", children(report, tree, at, level));
	return object;
}

static json_t *around(const struct report *report)
{
	const struct around *from = &report->around;
	json_t *object = json_object();

	put_columns(report, from->name, &object);
	put(&object, "self", cell(report, &from->self));
	put(&object, "total", cell(report, &from->total));
	put(&object, "callers", children(report, from->callers, 0, 0));
	put(&object, "callees", children(report, from->callees, 0, 0));
	return object;
}

static json_t *keys(const struct report *report)
{
	json_t *array = json_array();

	for (size_t k = 0; k < report->options->keys.n && array; k++) {
		if (json_array_append_new(array,
					  json_string(key_text(report->options->keys.at[k])))) {
			json_decref(array);
			array = NULL;
		}
	}
	return array;
}

static void put_view(const struct report *report, json_t **object)
{
	switch (report->options->view) {
	case REPORT_FLAT:
		put(object, "rows", rows(report));
		break;
	case REPORT_DOWN:
	case REPORT_UP:
		put(object, "tree", node(report, report->keyed.tree, 0, 0));
		break;
	case REPORT_AROUND:
		put(object, "around", around(report));
		break;
	}
}

struct error *report_put_json(const struct report *report, FILE *out)
{
	const struct profile *profile = report->loaded->profile;
	json_t *object = json_object();
	double unresolved;
	struct error *err = load_unresolved_share(report->loaded, &unresolved);
	int failed;

	if (err)
		return err;
	put(&object, "format", json_string("uniprof-report"));
	put(&object, "version", json_integer(REPORT_VERSION));
	put(&object, "warning", text(report->loaded->warning));
	put(&object, "guest", guest(profile));
	put(&object, "looks", looks(profile));
	put(&object, "states", states(profile));
	put(&object, "paused", pauses(profile));
	put(&object, "stacks", stacks(report, unresolved));
	put(&object, "view", json_string(report_view_text(report->options->view)));
	put(&object, "keys", keys(report));
	put_view(report, &object);
	failed = !object || json_dumpf(object, out, JSON_INDENT(1)) || fputc('\n', out) == EOF;
	json_decref(object);
	return failed && !ferror(out) ? error_no_memory() : NULL;
}
