/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/report.h"

#include "cmd/shared/pager.h"

static struct error *build(struct report *report)
{
	const struct report_options *options = report->options;
	const struct loaded *loaded = report->loaded;
	const struct keyed_options how = {.keys = options->keys,
					  .reverse = options->view == REPORT_UP,
					  .only = options->has_only ? &options->only : NULL};
	const char *name;
	struct error *err;

	err = keyed_build(loaded->profile, loaded->namer, loaded->images, &how, &report->keyed);
	if (err)
		return err;
	report->shown = report->keyed.tree->nodes[0].total;
	report->draws = profile_draws(loaded->profile);
	if (options->view == REPORT_FLAT)
		err = flat_new(report->keyed.tree, &report->flat);
	if (!err && report->flat && options->by_total)
		flat_sort_by_total(report->flat);
	if (!err && options->view == REPORT_AROUND)
		err = around_find(report->keyed.tree, options->around, &name);
	if (!err && options->view == REPORT_AROUND)
		err = around_build(report->keyed.tree, name, &report->around);
	return err;
}

static struct error *put_text(const struct report *report, FILE *out, const struct paper *terminal)
{
	struct paper paper = *terminal;
	struct error *err;

	paper.out = out;
	if (report->options->wide || report->options->load.output)
		paper.width = 0;
	err = report_put_head(report, &paper);
	if (err)
		return err;
	switch (report->options->view) {
	case REPORT_FLAT:
		return report_put_flat(report, &paper);
	case REPORT_AROUND:
		return report_put_around(report, &paper);
	case REPORT_DOWN:
	case REPORT_UP:
		break;
	}
	return report_put_tree(report, &paper);
}

static struct error *write_report(const struct report *report, const struct paper *terminal)
{
	const char *path = report->options->load.output ? report->options->load.output : "-";
	struct error *err;
	FILE *out;

	err = open_output(path, &out);
	if (err)
		return err;
	return close_output(path, out,
			    report->options->json ? report_put_json(report, out)
						  : put_text(report, out, terminal));
}

static struct error *show(const struct report_options *options, const struct paper *terminal)
{
	struct loaded loaded;
	struct report report = {.options = options, .loaded = &loaded};
	struct error *err = load_confine(&options->load);

	if (!err)
		err = load(&options->load, &loaded);
	if (err)
		return err;
	err = build(&report);
	if (!err)
		err = write_report(&report, terminal);
	around_free(&report.around);
	flat_free(report.flat);
	keyed_free(&report.keyed);
	unload(&loaded);
	return err;
}

static struct error *report(int argc, char **argv, int *status)
{
	struct report_options options;
	struct pager pager = {0};
	struct paper terminal;
	struct error *err = report_parse(argc, argv, &options);

	if (!err) {
		paper_look(options.color, &terminal);
		if (!options.no_pager && !options.load.output)
			pager_start(&pager);
		err = pager_finish(&pager, show(&options, &terminal));
	}
	if (options.has_only)
		regfree(&options.only);
	return err;
}

const struct verb verb_report = {
	.name = "report",
	.summary = "show where the time went, as text",
	.help = report_help,
	.run = report,
};
