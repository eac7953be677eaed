/* SPDX-License-Identifier: BSD-3-Clause */

/* The head of a report: what was recorded, and how far it can be believed. */

#include "cmd/report.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "import/import.h"
#include "target/target.h"

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
	sanitize_print(or_unknown(info->target), out);
	fputc(':', out);
	sanitize_print(or_unknown(info->guest_id), out);
	fputs(" \"", out);
	sanitize_print(info->guest_name ? info->guest_name : "", out);
	fputs("\", ", out);
	sanitize_print(or_unknown(info->guest_type), out);
	fprintf(out, ", %u vCPU%s, on ", vcpus, vcpus == 1 ? "" : "s");
	sanitize_print(or_unknown(info->host), out);
	fprintf(out, "%s%s\n", *date ? ", " : "", date);
}

/* Profiles of other tools: how these sampled is not known. */
static void put_import(const struct profile *profile, FILE *out)
{
	const char *unit = profile->info.weight_unit;

	fprintf(out, "samples  %" PRIu64 " imported", profile->ticks);
	if (!profile->info.timeless)
		fprintf(out, ", of %.1f s", (double)profile_elapsed_ns(profile) / 1e9);
	fputs(", shares are of ", out);
	sanitize_print(unit ? unit : "time", out);
	fputs("; ended because ", out);
	sanitize_print(or_unknown(profile->end.reason), out);
	fputc('\n', out);
}

/* vCPUs that get a line each; of more, those that waited for a CPU longest. */
#define VCPU_LINES 8

/* The vCPU that comes next: by its number or, where there are too many, by how long it waited; -1: none. */
static int64_t next_vcpu(const struct profile *profile, const bool told[])
{
	const bool in_order = profile_vcpus(profile) <= VCPU_LINES;
	int64_t next = -1;

	for (uint32_t i = 0; i < profile->info.vcpus; i++)
		if (profile->seen[i] && !told[i] &&
		    (next < 0 ||
		     (!in_order && profile->vcpu_states_ns[i][VCPU_RUNNABLE] >
					   profile->vcpu_states_ns[next][VCPU_RUNNABLE])))
			next = i;
	return next;
}

/* Shares of all vCPUs hide the one that waits for a CPU while its siblings wait for it. */
static void put_vcpus(const struct profile *profile, FILE *out)
{
	bool told[RECORDING_MAX_VCPUS] = {false};

	for (unsigned line = 0; profile_vcpus(profile) > 1 && line < VCPU_LINES; line++) {
		const int64_t vcpu = next_vcpu(profile, told);
		const uint64_t *ns = vcpu < 0 ? NULL : profile->vcpu_states_ns[vcpu];
		const uint64_t all =
			ns ? ns[VCPU_RUNNING] + ns[VCPU_RUNNABLE] + ns[VCPU_BLOCKED] : 0;

		if (!ns)
			return;
		told[vcpu] = true;
		fprintf(out,
			"         vCPU %" PRId64
			": running %.1f %%, runnable %.1f %%, blocked %.1f %%\n",
			vcpu, percent(ns[VCPU_RUNNING], all), percent(ns[VCPU_RUNNABLE], all),
			percent(ns[VCPU_BLOCKED], all));
	}
}

static void put_samples(const struct profile *profile, FILE *out)
{
	uint64_t all = 0;

	for (int i = 0; i < VCPU_STATES; i++)
		all += profile->states[i].weight_ns;
	fprintf(out, "samples  %" PRIu64 " ticks at %.4g/s in %.1f s", profile->ticks,
		profile->info.rate_hz, (double)profile_elapsed_ns(profile) / 1e9);
	if (profile->info.wanted_rate_hz > profile->info.rate_hz)
		fprintf(out, ", lowered from %g/s by the agent's --max-cpu of %.4g %%",
			profile->info.wanted_rate_hz, 100 * profile->info.max_cpu);
	if (!profile->cut && profile->end.missed)
		fprintf(out, ", %" PRIu64 " deadlines missed", profile->end.missed);
	if (!profile->cut && profile->end.failed)
		fprintf(out, ", %" PRIu64 " failed", profile->end.failed);
	if (!profile->cut && profile->end.given_up)
		fprintf(out, ", %" PRIu64 " stacks given up for --max-pause",
			profile->end.given_up);
	if (!profile->cut && profile->end.reason) {
		fputs("; ended because ", out);
		sanitize_print(profile->end.reason, out);
	}
	fprintf(out,
		"\nvCPUs    running %.1f %%, runnable %.1f %%, blocked (idle) %.1f %% of their "
		"time\n",
		percent(profile->states[VCPU_RUNNING].weight_ns, all),
		percent(profile->states[VCPU_RUNNABLE].weight_ns, all),
		percent(profile->states[VCPU_BLOCKED].weight_ns, all));
	put_vcpus(profile, out);
}

/* Profiles of exits, which are counted and not sampled. */
static void put_exits(const struct profile *profile, FILE *out)
{
	const double seconds = (double)profile_elapsed_ns(profile) / 1e9;
	const uint64_t all = profile->selected.samples;

	fprintf(out, "exits    %" PRIu64 " in %.1f s, %.0f/s; shares are of exits\n", all, seconds,
		seconds > 0 ? (double)all / seconds : 0);
}

static void put_pauses(const struct profile *profile, FILE *out)
{
	fprintf(out,
		"paused   %.3f ms in all, %.3f %% of the time; a tick: median %.1f us, "
		"99th percentile %.1f us, maximum %.1f us; none needed for %.1f %%\n",
		(double)profile->paused_ns / 1e6,
		percent(profile->paused_ns, profile_elapsed_ns(profile)),
		(double)histogram_quantile(&profile->pauses, 0.5) / 1e3,
		(double)histogram_quantile(&profile->pauses, 0.99) / 1e3,
		(double)profile->pauses.max / 1e3, percent(profile->without_pause, profile->ticks));
}

/* Threads that do not run: whether they are in what is shown. */
static void put_waits(const struct profile *profile, unsigned states, FILE *out)
{
	const bool shown = states & STATES_OF_WAITS, alone = !(states & ~STATES_OF_WAITS);
	uint64_t samples = 0;

	for (unsigned i = WAIT_QUEUED; i < SAMPLE_STATES; i++)
		samples += profile->states[i].samples;
	if (!samples)
		return;
	fprintf(out, "waits    %" PRIu64 " samples of threads that do not run", samples);
	if (!profile->cut && profile->end.unproven)
		fprintf(out, ", %" PRIu64 " more ran while they were read", profile->end.unproven);
	fputs(!shown  ? "; they are in no share below: --state=off-cpu shows them\n"
	      : alone ? "; shares are of the time that threads waited\n"
		      : "; shares are of the time of vCPUs and of threads that wait, together\n",
	      out);
}

/* The unit of shares, and how much of it was not sampled. */
static void put_weights(const struct report *report, FILE *out)
{
	const struct profile *profile = report->loaded->profile;
	const enum weight_by weight = report->options->load.filter.weight;

	fprintf(out, "shares   of %s; not sampled: %.3f s, %.1f %%\n",
		weight == WEIGHT_BY_SAMPLES   ? "samples"
		: weight == WEIGHT_BY_LATENCY ? "latency"
		: profile->by_cpu_time	      ? "CPU time"
					      : "time",
		(double)profile->not_sampled_ns / 1e9, 100 * profile_not_sampled(profile));
}

/*
 * QEMU without KVM stops a guest between blocks of translated code only; and, unless its vCPUs are
 * held meanwhile, before the next access to a device (target/qemu/hold.c).
 */
static void put_skid(const struct profile *profile, FILE *out)
{
	const struct recording_info *info = &profile->info;

	if (info->target && info->guest_type && !strcmp(info->target, "qemu") &&
	    !strcmp(info->guest_type, "tcg"))
		fprintf(out, "skid     QEMU without KVM stops between blocks of code: %s\n",
			info->host && strstr(info->host, TARGET_HOLDS_VCPUS)
				? "\"self\" may be that of the block before"
				: "\"self\" may be that of the block before, and code that runs in "
				  "the 10 us after a device access gets too small a share");
}

/* Ends of stacks: callers are missing for sure, or none was found and there may be none. */
static void put_ends(const struct profile *profile, FILE *out)
{
	const uint64_t all = profile->selected.samples;
	const char *separator = " (";

	fprintf(out, "%.1f %% cut short", percent(load_cut_short(profile), all));
	for (int i = 0; i < UNWIND_ENDS; i++) {
		if (i == UNWIND_OUTERMOST || i == UNWIND_BROKEN || !profile->ends[i])
			continue;
		fprintf(out, "%s%s %.1f %%", separator, unwind_end_text((enum unwind_end)i),
			percent(profile->ends[i], all));
		separator = ", ";
	}
	fputs(*separator == ',' ? ")" : "", out);
	if (profile->ends[UNWIND_BROKEN])
		fprintf(out, ", %.1f %% end where no caller was found",
			percent(profile->ends[UNWIND_BROKEN], all));
	fputc('\n', out);
}

static void put_trust(const struct loaded *loaded, FILE *out)
{
	const struct profile *profile = loaded->profile;

	fprintf(out, "stacks   %" PRIu64 " shown below; %.1f %% in code without a name, ",
		profile->selected.samples, 100 * loaded->nameless_share);
	put_ends(profile, out);
}

/* An empty report puzzles: a guest that only waits has nothing that was running. */
static void put_left_out(const struct profile *profile, unsigned states, FILE *out)
{
	uint64_t others = 0;

	if (states && !(states & STATES_OF_VCPUS))
		return;
	for (unsigned i = 0; i < VCPU_STATES; i++)
		if (states && !(states >> i & 1))
			others += profile->states[i].samples;
	if (others)
		fprintf(out,
			"         %" PRIu64
			" samples found vCPUs in other states: --state=all shows those, too\n",
			others);
}

/* The selection of samples, if it is not all. */
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
			report->grouped.total.samples,
			percent(report->grouped.total.weight_ns, profile->selected.weight_ns));
}

void report_put_head(const struct report *report, const struct tty_writer *writer)
{
	const struct loaded *loaded = report->loaded;

	if (loaded->warning)
		tty_writer_warn(writer, loaded->warning);
	put_guest(loaded->profile, writer->out);
	if (import_is_target(loaded->profile->info.target)) {
		put_import(loaded->profile, writer->out);
	} else if (report->options->load.filter.exits) {
		put_exits(loaded->profile, writer->out);
	} else {
		put_samples(loaded->profile, writer->out);
		put_pauses(loaded->profile, writer->out);
		put_weights(report, writer->out);
		put_waits(loaded->profile, report->options->load.filter.states, writer->out);
		put_skid(loaded->profile, writer->out);
	}
	if (!report->options->load.filter.exits)
		put_trust(loaded, writer->out);
	if (!loaded->profile->selected.samples)
		put_left_out(loaded->profile, report->options->load.filter.states, writer->out);
	put_selection(report, writer->out);
}
