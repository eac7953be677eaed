/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/format.h"

struct flamegraph_args {
	struct load_options load;
	struct flamegraph_options draw;
	struct outer_options outer;
	struct source_text_options sources;
	struct disassembler *disassembler; /* of pages; NULL: none */
	bool html, heat, chart;
};

/* Rows of a chart's columns; of more, columns become wider. */
#define CHART_ROWS (1u << 20)

#define AT(field) offsetof(struct flamegraph_args, field)

static const char *const color_keys[] = {[FLAMEGRAPH_BY_FUNCTION] = "function",
					 [FLAMEGRAPH_BY_PACKAGE] = "package",
					 [FLAMEGRAPH_BY_IMAGE] = "image",
					 [FLAMEGRAPH_BY_KIND] = "kind"};

static const struct option_row own_options[] = {
	{"html", NULL, 0, take_true, AT(html),
	 .text = "a page with time line, filters, callers and callees, instead of an SVG (also "
		 "when FILE ends in .html)"},
	{"heat", NULL, 0, take_true, AT(heat),
	 .text = "a heat map of time as an SVG: seconds across, the offset in a second down",
	 .more = "The page has it, too, and shows any stretch that is selected there.\n"
		 "The recording cannot come from standard input."},
	{"chart", NULL, 0, take_true, AT(chart),
	 .text = "stacks in order of time as an SVG: time across, depth down, a lane for each vCPU",
	 .more = "With\n.Fl -by ,\na lane for each thread or process; choose some by\n"
		 ".Fl -vcpu , -comm , -pid\nor\n.Fl -tid .\n"
		 "The page has it, too.\nThe recording cannot come from standard input."},
	{"title", "TEXT", 0, take_text, AT(draw.title), .text = "above the picture"},
	{"width", "N", 0, take_count32, AT(draw.width), 200, 20000,
	 .text = "pixels (default: as wide as the window)"},
	{"color", "KEY", 0, take_word, AT(draw.color_by),
	 .text = "what colours tell apart: function, package, image or kind (default: function)",
	 .more = "Kinds are the kernel, by its addresses, idle loops and calls of the hypervisor, "
		 "by their names, and user code, or the guest's where it has no kernel of its "
		 "own.\nA page begins with these colours.",
	 .values = "function package image kind"},
	{"icicle", NULL, 0, take_true, AT(draw.icicle), .text = "root at the top"},
	{"reverse", NULL, 0, take_true, AT(draw.reverse),
	 .text = "merge from the leaf: who calls what is hot"},
	{"full-names", NULL, 0, take_true, AT(draw.full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{0}};

static const struct option_group options_of_flamegraph[] = {{load_options, AT(load)},
							    {load_outer_options, AT(outer)},
							    {load_source_options, AT(sources)},
							    {own_options, 0},
							    {0}};

/* What does not go together, as a sentence; NULL: all does. */
static const char *wrong_with_heat(const struct flamegraph_args *options)
{
	const struct flamegraph_options *draw = &options->draw;

	if (options->html)
		return "--heat is an SVG; a page has its heat map anyhow, key h";
	if (options->outer.by || draw->icicle || draw->reverse || draw->color_by)
		return "--heat draws time and not stacks: --by, --color, --icicle and --reverse "
		       "mean nothing";
	return NULL;
}

static const char *wrong_with_chart(const struct flamegraph_args *options)
{
	if (options->html)
		return "--chart is an SVG; a page has its chart anyhow, key x";
	if (options->heat || options->draw.icicle || options->draw.reverse)
		return "--chart has stacks in order of time: --heat, --icicle and --reverse mean "
		       "nothing";
	if (options->load.filter.states & STATES_OF_WAITS && !options->outer.by)
		return "--chart of threads that do not run has lanes for these: --by thread";
	if (!strcmp(options->load.path, "-"))
		return "--chart needs its recording more than once: write it to a file first";
	return NULL;
}

static const char *what_is_wrong(const struct flamegraph_args *options)
{
	if (options->html && options->load.filter.states & STATES_OF_WAITS)
		return "a page shows states of vCPUs: threads that do not run are drawn as an SVG";
	if (options->outer.exits && (options->chart || options->heat))
		return "--by exit: exits are counted, and have no times that --chart or --heat "
		       "could show";
	if (options->sources.directory && !options->html)
		return "--source-dir: lines of sources are in pages alone (--html)";
	if (options->chart)
		return wrong_with_chart(options);
	return options->heat ? wrong_with_heat(options) : NULL;
}

static struct error *parse(int argc, char **argv, struct flamegraph_args *options)
{
	const char *wrong;

	*options = (struct flamegraph_args){.draw = {.min_width = -1}};
	load_defaults(&options->load);
	TRY(options_parse_one(&verb_flamegraph, argc, argv, options, "one recording, please",
			      &options->load.path));
	options->html |= picture_has_ending(options->load.output, ".html");
	options->draw.cold =
		options->load.filter.states && !(options->load.filter.states & STATES_OF_VCPUS);
	options->load.filter.divide = options->outer.by;
	options->load.filter.exits = options->outer.exits;
	options->sources.only_directory = true;
	wrong = what_is_wrong(options);
	return wrong ? cmd_usage_error(&verb_flamegraph, "%s", wrong) : NULL;
}

static struct error *draw(const struct loaded *loaded, const struct flamegraph_args *options,
			  FILE *out)
{
	struct group_outer by;
	struct tree_outer outer;
	const struct tree_options how = {.reverse = options->draw.reverse,
					 .outer = options->outer.by ? &outer : NULL,
					 .min_share = flamegraph_min_share(&options->draw)};
	ENDED_BY(tree_end) struct tree *tree = NULL;

	TRY(load_outer(&options->outer, loaded, &by, &outer));
	TRY(tree_build(loaded->profile, loaded->symbolizer, &how, &tree));
	return flamegraph_write(tree, &options->draw, out);
}

static struct error *draw_heat(const struct loaded *loaded, const struct flamegraph_args *options,
			       const struct heat_log *log, FILE *out)
{
	const struct heat_options how = {.max_columns = heat_map_columns(&options->draw)};
	ENDED_BY(heat_free) struct heat heat = {0};

	if (loaded->profile->info.timeless)
		return error_new(ERR_USAGE,
				 "the samples of this profile have no times: there is no heat map");
	TRY(heat_build(log, loaded->profile, &how, &heat));
	heat_map_write(&heat, &options->draw, out);
	return NULL;
}

/* Makes of a column's samples, whose nodes are stacks, one row for each lane: what is drawn there. */
struct chart_reducer {
	struct tree_picker *picker;
	struct tree *tree;
	unsigned states;
	const struct tree_outer *outer;	 /* NULL: lanes are vCPUs */
	const struct breakdown *threads; /* numbers of rows, less one, are its entries' */
};

/* Its vCPU is then the lane, an outer node if there are some; its state one of all that count. */
static struct error *find_lane(const struct chart_reducer *r, struct time_bucket_row *row)
{
	const struct breakdown_entry *entry;
	const char *name;

	if (r->states >> row->state & 1)
		row->state = (uint8_t)__builtin_ctz(r->states);
	if (!r->outer)
		return NULL;
	row->vcpu = 0;
	if (!row->node)
		return NULL;
	entry = breakdown_at(r->threads, row->node - 1);
	TRY(r->outer->name(r->outer->ctx, entry->thread, &name));
	row->node = entry->stack;
	return tree_child(r->tree, 0, name, &row->vcpu);
}

static int by_lane(const void *left, const void *right)
{
	const struct time_bucket_row *a = left, *b = right;

	return COMPARE(a->vcpu, b->vcpu) ?: a->state - b->state;
}

/* Where a lane has only other states, and so a gap, the node says which lane. */
static struct error *reduce_lane(const struct chart_reducer *r, const struct time_bucket_row *rows,
				 size_t n, struct time_bucket_row *out)
{
	struct profile_cell sum = {0};

	for (size_t i = 0; i < n; i++) {
		const struct time_bucket_row *row = &rows[i];

		profile_cell_add(&sum, &(struct profile_cell){row->samples, row->weight_ns,
							      row->squares});
		if (r->states >> row->state & 1)
			TRY(tree_picker_add(r->picker, row->node, row->weight_ns ?: row->samples));
	}
	*out = rows[0];
	out->samples = sum.samples;
	out->weight_ns = sum.weight_ns;
	out->squares = sum.squares;
	out->node = r->outer ? out->vcpu : 0;
	return tree_picker_take(r->picker, r->tree, &out->node);
}

static struct error *reduce_column(void *ctx, struct time_bucket_row *rows, size_t *n)
{
	const struct chart_reducer *r = ctx;
	size_t kept = 0, end;

	for (size_t i = 0; i < *n; i++)
		TRY(find_lane(r, &rows[i]));
	qsort(rows, *n, sizeof(*rows), by_lane);
	for (size_t i = 0; i < *n; i = end) {
		for (end = i + 1; end < *n && !by_lane(&rows[i], &rows[end]);)
			end++;
		TRY(reduce_lane(r, rows + i, end - i, &rows[kept++]));
	}
	*n = kept;
	return NULL;
}

/* Numbers of stacks with their threads, for rows of samples. */
static struct error *number_pairs(const struct breakdown *threads, struct node_map *out)
{
	size_t room = 0;

	TRY(ids_new(&out->pairs));
	for (size_t i = 0; i < breakdown_count(threads); i++) {
		const struct breakdown_entry *entry = breakdown_at(threads, i);
		uint32_t id;
		bool added;

		TRY(ids_get(out->pairs, entry->stack, entry->thread, &id, &added));
		TRY(ARRAY_RESERVE(&out->node, &room, id + (size_t)1));
		out->node[id] = (uint32_t)i + 1;
		out->n = ids_count(out->pairs);
	}
	return NULL;
}

/* The stretch of time that is there, in columns. Other states are read, too: where these are, there is a gap. */
static struct error *read_columns(const struct loaded *loaded,
				  const struct flamegraph_args *options,
				  struct chart_reducer *reducer, struct time_buckets *buckets,
				  struct flamegraph_chart *chart)
{
	const struct profile *profile = loaded->profile;
	const struct time_bucket_reducer reduce = {.ctx = reducer, .reduce = reduce_column};
	struct profile_filter filter = options->load.filter;
	ENDED_BY(node_map_free) struct node_map nodes = {.n = stacks_count(profile->stacks)};
	struct error *err;

	if (reducer->outer)
		TRY(number_pairs(profile->breakdown, &nodes));
	filter.states = (filter.states ?: STATES_OF_VCPUS) | STATES_OF_VCPUS;
	chart->from_ns = filter.from_ns;
	chart->to_ns = filter.to_ns && filter.to_ns <= profile->last_ns ? filter.to_ns
									: profile->last_ns + 1;
	if (chart->to_ns <= chart->from_ns)
		chart->to_ns = chart->from_ns + 1;
	chart->tick_ns = profile->ticks ? (chart->to_ns - chart->from_ns) / profile->ticks : 0;
	*buckets =
		(struct time_buckets){.first_ns = chart->from_ns,
				      .bucket_ns = (chart->to_ns - chart->from_ns -
						    1) / flamegraph_chart_columns(&options->draw) +
						   1,
				      .reducer = &reduce};
	err = time_buckets_read(options->load.path, profile, &filter, &nodes, CHART_ROWS, buckets);
	buckets->reducer = NULL;
	return err;
}

static struct error *draw_chart(const struct loaded *loaded, const struct flamegraph_args *options,
				FILE *out)
{
	struct group_outer by;
	struct tree_outer outer;
	struct chart_reducer reducer = {.states = options->load.filter.states ?: STATES_OF_VCPUS,
					.outer = options->outer.by ? &outer : NULL,
					.threads = loaded->profile->breakdown};
	ENDED_BY(time_buckets_free) struct time_buckets buckets = {0};
	ENDED_BY(tree_end) struct tree *tree = NULL;
	ENDED_BY(tree_picker_end) struct tree_picker *picker = NULL;
	struct flamegraph_chart chart = {.buckets = &buckets,
					 .states = reducer.states,
					 .outer = options->outer.by};

	if (loaded->profile->info.timeless)
		return error_new(ERR_USAGE, "the samples of this profile have no times: there is "
					    "no stack chart");
	TRY(load_outer(&options->outer, loaded, &by, &outer));
	TRY(tree_new(&tree));
	/* A level more says that there are more. */
	TRY(tree_picker_new(loaded->profile, loaded->symbolizer, FLAMEGRAPH_CHART_LEVELS + 1,
			    &picker));
	reducer.tree = tree;
	reducer.picker = picker;
	TRY(read_columns(loaded, options, &reducer, &buckets, &chart));
	chart.tree = tree;
	return flamegraph_chart_write(&chart, &options->draw, out);
}

/* What is taken down while the recording is loaded; NULL: nothing that this is for is drawn. */
struct taken {
	struct heat_log *heat;
	struct page_samples *page;
	struct profile_listener listener; /* of the heat map */
};

static struct error *write_picture(const struct loaded *loaded,
				   const struct flamegraph_args *options, const struct taken *taken)
{
	const struct picture_page page = {.load = &options->load,
					  .samples = {taken->page},
					  .outer = &options->outer,
					  .disassembler = options->disassembler,
					  .sources = options->sources,
					  .options = {.title = options->draw.title,
						      .icicle = options->draw.icicle,
						      .reverse = options->draw.reverse,
						      .color_by =
							      color_keys[options->draw.color_by],
						      .full_names = options->draw.full_names}};
	const char *path = options->load.output;
	struct error *err;
	FILE *out;

	TRY(cmd_open_output(path, &out));
	if (options->heat)
		err = draw_heat(loaded, options, taken->heat, out);
	else if (options->chart)
		err = draw_chart(loaded, options, out);
	else if (options->html)
		err = picture_write_page(loaded, 1, &page, out);
	else
		err = draw(loaded, options, out);
	return cmd_close_output(path, out, err);
}

/* What images and kinds are told by; none for other colours. A page finds its own. */
static struct error *find_codes(const struct flamegraph_args *options, const struct loaded *loaded,
				struct name_codes **out)
{
	const bool wanted = options->draw.color_by == FLAMEGRAPH_BY_IMAGE ||
			    options->draw.color_by == FLAMEGRAPH_BY_KIND;

	if (!wanted || options->html)
		return NULL;
	TRY(name_codes_new(out));
	return name_codes_add(*out, loaded->profile, loaded->symbolizer);
}

static struct error *show(struct flamegraph_args *options, const struct taken *taken)
{
	ENDED_BY(load_free) struct loaded loaded = {0};
	ENDED_BY(name_codes_end) struct name_codes *codes = NULL;
	FREED char *text = NULL;

	TRY(load_recording(&options->load, &loaded));
	if (!loaded.profile->selected.samples)
		cmd_say("no samples in these states: the picture is empty (try --state=all)");
	text = format_guest_line(loaded.profile);
	options->draw.subtitle = text;
	options->draw.warning = loaded.warning;
	TRY(find_codes(options, &loaded, &codes));
	options->draw.codes = codes;
	return write_picture(&loaded, options, taken);
}

static struct error *begin_taking(struct flamegraph_args *options, struct taken *taken)
{
	if (options->html)
		return picture_samples(&options->load, &taken->page);
	if (!options->heat)
		return NULL;
	TRY(heat_log_new(HEAT_MAP_ROWS, false, &taken->heat));
	taken->listener = (struct profile_listener){.ctx = taken->heat, .sample = heat_log_sample};
	options->load.filter.listener = &taken->listener;
	return NULL;
}

static struct error *flamegraph(int argc, char **argv, int *status)
{
	struct flamegraph_args options;
	struct taken taken = {0};
	struct error *err = parse(argc, argv, &options);

	if (!err)
		err = begin_taking(&options, &taken);
	if (!err && options.html)
		options.disassembler = disassembler_open();
	if (!err)
		err = load_confine(&options.load);
	if (!err)
		err = show(&options, &taken);
	disassembler_close(options.disassembler);
	page_samples_free(taken.page);
	heat_log_free(taken.heat);
	return err;
}

const struct verb verb_flamegraph = {
	.name = "flamegraph",
	.summary = "draw a recording as an SVG flame graph",
	.arguments = "[options] RECORDING",
	.about = "Draws where the time went, as one self-contained SVG or page.\n",
	.options = options_of_flamegraph,
	.takes = TAKES_FILES,
	.run = flamegraph,
};
