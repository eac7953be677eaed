/* SPDX-License-Identifier: BSD-3-Clause */

/* The head of a report: what was recorded, and how far it can be believed. */

#include "cmd/report.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "import/import.h"
#include "symbol/names/display_name.h"

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *or_unknown(const char *text)
{
	return text && *text ? text : "?";
}

static void put_guest(const struct profile *profile, FILE *out)
{
	const struct recording_info *info = &profile->info;
	const uint32_t vcpus = profile_vcpus(profile);
	time_t start = (time_t)(info->start_unix_ns / 1000000000u);
	char date[64] = "";
	struct tm tm;

	if (start && localtime_r(&start, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fputs("guest    ", out);
	put_clean(or_unknown(info->target), out);
	fputc(':', out);
	put_clean(or_unknown(info->guest_id), out);
	fputs(" \"", out);
	put_clean(info->guest_name ? info->guest_name : "", out);
	fputs("\", ", out);
	put_clean(or_unknown(info->guest_type), out);
	fprintf(out, ", %u vCPU%s, on ", vcpus, vcpus == 1 ? "" : "s");
	put_clean(or_unknown(info->host), out);
	fprintf(out, "%s%s\n", *date ? ", " : "", date);
}

/* Of what other tools took: how they looked is not known. */
static void put_import(const struct profile *profile, FILE *out)
{
	const char *unit = profile->info.weight_unit;

	fprintf(out, "samples  %" PRIu64 " imported, shares are of ", profile->ticks);
	put_clean(unit ? unit : "time", out);
	fputs("; ended because ", out);
	put_clean(or_unknown(profile->end.reason), out);
	fputc('\n', out);
}

static void put_samples(const struct profile *profile, FILE *out)
{
	uint64_t all = 0;

	for (int i = 0; i < VCPU_STATES; i++)
		all += profile->states[i].weight_ns;
	fprintf(out, "samples  %" PRIu64 " looks at %g/s in %.1f s", profile->ticks,
		profile->info.rate_hz, (double)profile_elapsed_ns(profile) / 1e9);
	if (!profile->cut && profile->end.missed)
		fprintf(out, ", %" PRIu64 " deadlines missed", profile->end.missed);
	if (!profile->cut && profile->end.failed)
		fprintf(out, ", %" PRIu64 " failed", profile->end.failed);
	if (!profile->cut && profile->end.given_up)
		fprintf(out, ", %" PRIu64 " stacks given up for --max-pause",
			profile->end.given_up);
	if (!profile->cut && profile->end.reason) {
		fputs("; ended because ", out);
		put_clean(profile->end.reason, out);
	}
	fprintf(out,
		"\nvCPUs    running %.1f %%, runnable %.1f %%, blocked (idle) %.1f %% of their "
		"time\n",
		percent(profile->states[VCPU_RUNNING].weight_ns, all),
		percent(profile->states[VCPU_RUNNABLE].weight_ns, all),
		percent(profile->states[VCPU_BLOCKED].weight_ns, all));
}

static void put_pauses(const struct profile *profile, FILE *out)
{
	fprintf(out,
		"paused   %.3f ms in all, %.3f %% of the time; a look: median %.1f us, "
		"99th percentile %.1f us, maximum %.1f us; none needed for %.1f %%\n",
		(double)profile->paused_ns / 1e6,
		percent(profile->paused_ns, profile_elapsed_ns(profile)),
		(double)histogram_quantile(&profile->pauses, 0.5) / 1e3,
		(double)histogram_quantile(&profile->pauses, 0.99) / 1e3,
		(double)profile->pauses.max / 1e3, percent(profile->unpaused, profile->ticks));
}

static struct error *put_trust(const struct loaded *loaded, FILE *out)
{
	const struct profile *profile = loaded->profile;
	double unresolved;
	struct error *err = load_unresolved_share(loaded, &unresolved);
	const char *separator = " (";

	if (err)
		return err;
	fprintf(out,
		"stacks   %" PRIu64
		" shown below; %.1f %% in code without a name, %.1f %% cut short",
		profile->selected.samples, 100 * unresolved, 100 * load_truncated_share(profile));
	for (int i = 0; i < UNWIND_ENDS; i++) {
		if (i == UNWIND_OUTERMOST || !profile->ends[i])
			continue;
		fprintf(out, "%s%s %.1f %%", separator, unwind_end_text((enum unwind_end)i),
			percent(profile->ends[i], profile->selected.samples));
		separator = ", ";
	}
	fprintf(out, "%s\n", *separator == ',' ? ")" : "");
	return NULL;
}

/* An empty report puzzles: a guest that only waits has nothing that was running. */
static void put_left_out(const struct profile *profile, unsigned states, FILE *out)
{
	uint64_t others = 0;

	for (unsigned i = 0; i < VCPU_STATES; i++)
		if (states && !(states >> i & 1))
			others += profile->states[i].samples;
	if (others)
		fprintf(out,
			"         %" PRIu64
			" samples found vCPUs in other states: --state=all shows "
			"those, too\n",
			others);
}

/* What part of the samples is shown, if it is not all. */
static void put_selection(const struct report *report, FILE *out)
{
	const struct report_options *options = report->options;
	const struct profile *profile = report->loaded->profile;
	const struct profile_filter *filter = &options->load.filter;

	if (filter->from_ns || filter->to_ns)
		fprintf(out, "stretch  %.3f s to %.3f s\n", (double)filter->from_ns / 1e9,
			(double)(filter->from_ns + profile_elapsed_ns(profile)) / 1e9);
	if (options->has_only)
		fprintf(out,
			"only     stacks through matching functions: %" PRIu64
			" samples, %.2f %% of what was selected; shares are of all\n",
			report->shown.samples,
			percent(report->shown.weight_ns, profile->selected.weight_ns));
}

struct error *report_put_head(const struct report *report, const struct paper *paper)
{
	const struct loaded *loaded = report->loaded;
	struct error *err;

	if (loaded->warning) {
		paper_style(paper, STYLE_WARNING);
		fputs("WARNING  ", paper->out);
		put_clean(loaded->warning, paper->out);
		paper_style(paper, STYLE_PLAIN);
		fputc('\n', paper->out);
	}
	put_guest(loaded->profile, paper->out);
	if (import_is_target(loaded->profile->info.target)) {
		put_import(loaded->profile, paper->out);
	} else {
		put_samples(loaded->profile, paper->out);
		put_pauses(loaded->profile, paper->out);
	}
	err = put_trust(loaded, paper->out);
	if (!err && !loaded->profile->selected.samples)
		put_left_out(loaded->profile, report->options->load.filter.states, paper->out);
	if (!err)
		put_selection(report, paper->out);
	return err;
}
