/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/diff.h"

#include <inttypes.h>
#include <string.h>

#include "view/json.h"

static void put_side(const char *title, const struct diff_side *side, double draws, FILE *out)
{
	const struct recording_info *info = &side->profile->info;

	if (side->warning)
		fprintf(out, "WARNING  %s: %s\n", title, side->warning);
	fprintf(out, "%-8s ", title);
	sanitize_print(info->target ? info->target : "?", out);
	putc(':', out);
	sanitize_print(info->guest_id ? info->guest_id : "?", out);
	fputs(" \"", out);
	sanitize_print(info->guest_name ? info->guest_name : "", out);
	fprintf(out, "\", %" PRIu64 " samples, worth %.0f draws, in %.1f s\n",
		side->profile->selected.samples, draws,
		(double)profile_elapsed_ns(side->profile) / 1e9);
}

/* Cells of a line that has the intervals, and some room for a name. */
#define ROOM_FOR_INTERVALS 120

static bool has_intervals(const struct tty_writer *writer)
{
	return !writer->width || writer->width >= ROOM_FOR_INTERVALS;
}

/* "12.34   14.50   +2.16 +1.10..+3.20 *"; returns how many cells. */
static size_t put_change(const struct difference *change, const struct tty_writer *writer)
{
	const bool grown = change->after > change->before;
	int cells;

	if (change->significant)
		tty_writer_style(writer, grown ? STYLE_HOT : STYLE_WARM);
	cells = fprintf(writer->out, "%7.2f %7.2f %+7.2f", 100 * change->before,
			100 * change->after, 100 * (change->after - change->before));
	if (has_intervals(writer)) {
		char range[32];

		snprintf(range, sizeof(range), "%+.2f..%+.2f", 100 * change->low,
			 100 * change->high);
		cells += fprintf(writer->out, " %-16s", range);
	}
	cells += fprintf(writer->out, "%c", change->significant ? '*' : ' ');
	tty_writer_style(writer, STYLE_PLAIN);
	return (size_t)cells;
}

static void put_row(const struct diff_row *row, const struct diff_style *style,
		    const struct tty_writer *writer)
{
	const char *mark = !row->total[0].samples   ? "  (new)"
			   : !row->total[1].samples ? "  (gone)"
						    : "";
	size_t len = strlen(row->name), cells = strlen(mark) + 3;
	const char *name = short_names_get(style->names, row->name, &len);

	cells += put_change(&row->self_change, writer);
	putc(' ', writer->out);
	cells += put_change(&row->total_change, writer);
	fputs("  ", writer->out);
	tty_writer_put(writer, name, len,
		       !writer->width	       ? 0
		       : writer->width > cells ? writer->width - cells
					       : 1);
	fprintf(writer->out, "%s\n", mark);
}

static void put_verdict(const struct diff *diff, FILE *out)
{
	if (diff->significant)
		fprintf(out,
			"result   %zu of %zu functions changed (marked *); the rest may be noise\n",
			diff->significant, diff->n);
	else
		fprintf(out, "result   no function of %zu changed by more than noise can explain\n",
			diff->n);
}

static void put_titles(const struct tty_writer *writer)
{
	const char *range = has_intervals(writer) ? " 95 %            " : "";
	const int indent = (int)strlen(range) + 17;

	tty_writer_style(writer, STYLE_HEAD);
	fprintf(writer->out, "\nself %%%*s total %%\n", indent, "");
	for (int i = 0; i < 2; i++)
		fprintf(writer->out, "%7s %7s %7s%s %s", "before", "after", "change", range,
			i ? "  " : " ");
	fputs("function\n", writer->out);
	tty_writer_style(writer, STYLE_PLAIN);
}

void diff_write_text(const struct diff *diff, const struct diff_side sides[2],
		     const struct diff_style *style, const struct tty_writer *writer)
{
	size_t shown = 0, more = 0;

	put_side("before", &sides[0], diff->draws[0], writer->out);
	put_side("after", &sides[1], diff->draws[1], writer->out);
	put_verdict(diff, writer->out);
	put_titles(writer);
	for (size_t i = 0; i < diff->n; i++) {
		const struct diff_row *row = &diff->rows[i];

		if (!(row->total_change.before >= style->min_share ||
		      row->total_change.after >= style->min_share))
			continue;
		if (!style->rows || shown < style->rows) {
			put_row(row, style, writer);
			shown++;
		} else {
			more++;
		}
	}
	if (more)
		fprintf(writer->out, "  ... %zu more functions (-n 0 shows all)\n", more);
}

static json_t *side(const struct diff_side *side, double draws)
{
	const struct profile *profile = side->profile;

	return json_pack("{s:o, s:o, s:o, s:I, s:f, s:f, s:o}", "target",
			 json_text(profile->info.target), "guest_id",
			 json_text(profile->info.guest_id), "guest_name",
			 json_text(profile->info.guest_name), "samples",
			 (json_int_t)profile->selected.samples, "draws", draws, "seconds",
			 (double)profile_elapsed_ns(profile) / 1e9, "warning",
			 json_text(side->warning));
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

		json_append(&list, json_pack("{s:o, s:o, s:o}", "name", json_text(row->name),
					     "self", change(&row->self_change, row->self), "total",
					     change(&row->total_change, row->total)));
	}
	return list;
}

struct error *diff_write_json(const struct diff *diff, const struct diff_side sides[2], FILE *out)
{
	json_t *all = json_pack("{s:o, s:o, s:f, s:o}", "before", side(&sides[0], diff->draws[0]),
				"after", side(&sides[1], diff->draws[1]), "false_discovery_rate",
				DIFFERENCE_FALSE_RATE, "functions", functions(diff));

	return json_write(all, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(8), out);
}
