/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cmd/load.h"
#include "cmd/parse.h"
#include "output/flat.h"

enum { SORT = LOAD_NEXT };

#define DEFAULT_ROWS 40

static const char help[] =
	"usage: uniprof report [options] RECORDING\n"
	"\n"
	"Shows where the time went, function by function.\n"
	"\n" LOAD_HELP "  -n, --rows N          show N functions (default 40; 0: all)\n"
	"      --sort KEY        self (the default) or total\n"
	"  -o, --output FILE     where to (default: standard output)\n";

struct options {
	struct load_options load;
	uint64_t rows;
	bool by_total;
};

static struct error *take_option(struct options *options, int option)
{
	struct error *err;
	bool known;

	if (option == 'n')
		return parse_count("-n", optarg, 0, UINT32_MAX, &options->rows);
	if (option == SORT) {
		options->by_total = !strcmp(optarg, "total");
		if (options->by_total || !strcmp(optarg, "self"))
			return NULL;
		return usage_error(&verb_report, "--sort %s: it is self or total", optarg);
	}
	err = load_option(&options->load, option, optarg, &known);
	if (!err && !known)
		err = usage_error(&verb_report, "an option is not known or lacks its value");
	return err;
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {LOAD_LONG_OPTIONS,
					      {"rows", required_argument, NULL, 'n'},
					      {"sort", required_argument, NULL, SORT},
					      {0}};
	struct error *err = NULL;
	int option;

	*options = (struct options){.rows = DEFAULT_ROWS};
	load_defaults(&options->load);
	opterr = 0;
	optind = 1;
	while (!err &&
	       (option = getopt_long(argc, argv, LOAD_SHORT_OPTIONS "n:", longs, NULL)) != -1)
		err = take_option(options, option);
	if (!err && optind + 1 != argc)
		err = usage_error(&verb_report, "one recording, please");
	if (!err)
		options->load.path = argv[optind];
	return err;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *or_unknown(const char *text)
{
	return text && *text ? text : "?";
}

static void print_guest(const struct profile *profile, FILE *out)
{
	const struct recording_info *info = &profile->info;
	time_t start = (time_t)(info->start_unix_ns / 1000000000u);
	char date[64] = "";
	struct tm tm;

	if (localtime_r(&start, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fputs("guest    ", out);
	put_clean(or_unknown(info->target), out);
	fputc(':', out);
	put_clean(or_unknown(info->guest_id), out);
	fputs(" \"", out);
	put_clean(info->guest_name ? info->guest_name : "", out);
	fputs("\", ", out);
	put_clean(or_unknown(info->guest_type), out);
	fprintf(out, ", %u vCPU%s, on ", info->vcpus, info->vcpus == 1 ? "" : "s");
	put_clean(or_unknown(info->host), out);
	fprintf(out, ", %s\n", date);
}

static void print_samples(const struct profile *profile, FILE *out)
{
	uint64_t all = 0;

	for (int i = 0; i < VCPU_STATES; i++)
		all += profile->states[i].weight_ns;
	fprintf(out, "samples  %" PRIu64 " looks at %g/s in %.1f s", profile->ticks,
		profile->info.rate_hz, (double)profile->last_ns / 1e9);
	if (!profile->cut && profile->end.missed)
		fprintf(out, ", %" PRIu64 " deadlines missed", profile->end.missed);
	if (!profile->cut && profile->end.failed)
		fprintf(out, ", %" PRIu64 " failed", profile->end.failed);
	if (!profile->cut && profile->end.reason)
		fprintf(out, "; ended because %s", profile->end.reason);
	fprintf(out,
		"\nvCPUs    running %.1f %%, runnable %.1f %%, blocked (idle) %.1f %% of their "
		"time\n",
		percent(profile->states[VCPU_RUNNING].weight_ns, all),
		percent(profile->states[VCPU_RUNNABLE].weight_ns, all),
		percent(profile->states[VCPU_BLOCKED].weight_ns, all));
}

static void print_pauses(const struct profile *profile, FILE *out)
{
	fprintf(out,
		"paused   %.3f ms in all, %.3f %% of the time; a look: median %.1f us, "
		"99th percentile %.1f us, maximum %.1f us\n",
		(double)profile->paused_ns / 1e6, percent(profile->paused_ns, profile->last_ns),
		(double)histogram_quantile(&profile->pauses, 0.5) / 1e3,
		(double)histogram_quantile(&profile->pauses, 0.99) / 1e3,
		(double)profile->pauses.max / 1e3);
}

static struct error *print_trust(const struct loaded *loaded, FILE *out)
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

static struct error *print_functions(const struct loaded *loaded, const struct options *options,
				     FILE *out)
{
	const struct tree_options how = {0};
	uint64_t all = loaded->profile->selected.weight_ns;
	struct tree *tree = NULL;
	struct flat *flat = NULL;
	struct error *err;

	err = tree_build(loaded->profile, loaded->namer, &how, &tree);
	if (!err)
		err = flat_new(tree, &flat);
	if (!err) {
		if (options->by_total)
			flat_sort_by_total(flat);
		fprintf(out, "\n%9s %9s %10s  %s\n", "self", "total", "samples", "function");
		for (size_t i = 0; i < flat->n && (!options->rows || i < options->rows); i++) {
			const struct flat_row *row = &flat->rows[i];

			fprintf(out, "%7.2f %% %7.2f %% %10" PRIu64 "  ",
				percent(row->self.weight_ns, all),
				percent(row->total.weight_ns, all), row->self.samples);
			put_clean(row->name, out);
			fputc('\n', out);
		}
		if (options->rows && flat->n > options->rows)
			fprintf(out, "  ... %zu more functions (-n 0 shows all)\n",
				flat->n - (size_t)options->rows);
	}
	flat_free(flat);
	tree_free(tree);
	return err;
}

static struct error *print(const struct loaded *loaded, const struct options *options, FILE *out)
{
	struct error *err;

	if (loaded->warning)
		fprintf(out, "WARNING  %s\n", loaded->warning);
	print_guest(loaded->profile, out);
	print_samples(loaded->profile, out);
	print_pauses(loaded->profile, out);
	err = print_trust(loaded, out);
	return err ? err : print_functions(loaded, options, out);
}

static struct error *report(int argc, char **argv, int *status)
{
	struct options options;
	struct loaded loaded;
	struct error *err = parse(argc, argv, &options);
	const char *path;
	FILE *out;

	if (!err)
		err = load(&options.load, &loaded);
	if (err)
		return err;
	path = options.load.output ? options.load.output : "-";
	err = open_output(path, &out);
	if (!err)
		err = close_output(path, out, print(&loaded, &options, out));
	unload(&loaded);
	return err;
}

const struct verb verb_report = {
	.name = "report",
	.summary = "show where the time went, as text",
	.help = help,
	.run = report,
};
