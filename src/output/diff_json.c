/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/diff.h"

#include <jansson.h>
#include <stdlib.h>

#include "symbol/names/display_name.h"

static json_t *text(const char *value)
{
	char *clean = value ? clean_name_new(value) : NULL;
	json_t *string = clean ? json_string_nocheck(clean) : json_null();

	free(clean);
	return string;
}

static json_t *side(const struct diff_side *side, double draws)
{
	const struct profile *profile = side->profile;

	return json_pack("{s:o, s:o, s:o, s:I, s:f, s:f, s:o}", "target",
			 text(profile->info.target), "guest_id", text(profile->info.guest_id),
			 "guest_name", text(profile->info.guest_name), "samples",
			 (json_int_t)profile->selected.samples, "draws", draws, "seconds",
			 (double)profile_elapsed_ns(profile) / 1e9, "warning", text(side->warning));
}

static json_t *change(const struct difference *d, const struct profile_cell cells[2])
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:I, s:I}", "before", d->before,
			 "after", d->after, "change", d->after - d->before, "low", d->low, "high",
			 d->high, "p", d->p, "significant", d->significant, "samples_before",
			 (json_int_t)cells[0].samples, "samples_after",
			 (json_int_t)cells[1].samples);
}

static json_t *functions(const struct diff *diff)
{
	json_t *list = json_array();

	for (size_t i = 0; i < diff->n; i++) {
		const struct diff_row *row = &diff->rows[i];

		if (json_array_append_new(list,
					  json_pack("{s:o, s:o, s:o}", "name", text(row->name),
						    "self", change(&row->self_change, row->self),
						    "total",
						    change(&row->total_change, row->total)))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

struct error *diff_write_json(const struct diff *diff, const struct diff_side sides[2], FILE *out)
{
	json_t *all = json_pack("{s:o, s:o, s:f, s:o}", "before", side(&sides[0], diff->draws[0]),
				"after", side(&sides[1], diff->draws[1]), "false_discovery_rate",
				DIFFERENCE_FALSE_RATE, "functions", functions(diff));

	if (!all)
		return error_no_memory();
	/* Whether it could be written is seen at the end, by who opened the file. */
	if (json_dumpf(all, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(8)) ==
	    0)
		putc('\n', out);
	json_decref(all);
	return NULL;
}
