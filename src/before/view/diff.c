/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/diff.h"

#include <inttypes.h>

#include "symbol/names/display_name.h"

static void put_side(const char *title, const struct diff_side *side, double draws, FILE *out)
{
	const struct recording_info *info = &side->profile->info;

	if (side->warning)
		fprintf(out, "WARNING  %s: %s\n", title, side->warning);
	fprintf(out, "%-8s ", title);
	put_clean(info->target ? info->target : "?", out);
	putc(':', out);
	put_clean(info->guest_id ? info->guest_id : "?", out);
	fputs(" \"", out);
	put_clean(info->guest_name ? info->guest_name : "", out);
	fprintf(out, "\", %" PRIu64 " samples, worth %.0f draws, in %.1f s\n",
		side->profile->selected.samples, draws,
		(double)profile_elapsed_ns(side->profile) / 1e9);
}

/* "12.34 %  14.50 % +2.16 +1.10..+3.20 *" */
static void put_change(const struct difference *change, FILE *out)
{
	char range[32];

	snprintf(range, sizeof(range), "%+.2f..%+.2f", 100 * change->low, 100 * change->high);
	fprintf(out, "%7.2f %7.2f %+7.2f %-16s%c", 100 * change->before, 100 * change->after,
		100 * (change->after - change->before), range, change->significant ? '*' : ' ');
}

static void put_row(const struct diff_row *row, FILE *out)
{
	put_change(&row->self_change, out);
	putc(' ', out);
	put_change(&row->total_change, out);
	fprintf(out, "  %s%s\n", row->name,
		!row->total[0].samples	 ? "  (new)"
		: !row->total[1].samples ? "  (gone)"
					 : "");
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

struct error *diff_write_text(const struct diff *diff, const struct diff_side sides[2], size_t rows,
			      FILE *out)
{
	put_side("before", &sides[0], diff->draws[0], out);
	put_side("after", &sides[1], diff->draws[1], out);
	put_verdict(diff, out);
	fprintf(out, "\n%s %s\n%7s %7s %7s %-16s  %7s %7s %7s %-16s   %s\n",
		"self %                                  ", "total %", "before", "after", "change",
		"95 %", "before", "after", "change", "95 %", "function");
	for (size_t i = 0; i < diff->n && (!rows || i < rows); i++)
		put_row(&diff->rows[i], out);
	if (rows && diff->n > rows)
		fprintf(out, "  ... %zu more functions (-n 0 shows all)\n", diff->n - rows);
	return NULL;
}
