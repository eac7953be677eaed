/* SPDX-License-Identifier: BSD-3-Clause */

/* The command line of the first uniprof (2017): samples a domain straight into a text trace. */

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "cmd/shared/session.h"
#include "format/format.h"
#include "profile/profile.h"

#define CLASSIC_RATE_HZ	    1.0
#define CLASSIC_DURATION_NS NS_PER_S

struct classic_args {
	struct session_options session;
	bool resolve; /* -s, -E */
};

struct classic_trace {
	const struct target *target;
	FILE *out; /* NULL: before the first sample */
	const char *path;
	struct stacks *stacks;
	struct symbolizer *symbolizer; /* NULL: addresses only */
	uint64_t start_unix_ns;
	struct quality quality;
};

static struct error *take_names(const struct option_row *row, const char *value, void *to)
{
	((struct classic_args *)to)->resolve = true;
	return take_symbols(row, value, to);
}

static struct error *take_code(const struct option_row *row, const char *value, void *to)
{
	return image_args_add(&((struct classic_args *)to)->session.files, value, false);
}

#define AT(field) offsetof(struct classic_args, field)

static const struct option_row own_options[] = {
	{"frequency", "N", 'F', take_rate, AT(session.sampler.rate_hz),
	 .text = "traces per second (default 1)"},
	{"time", "T", 'T', take_duration, AT(session.sampler.duration_ns),
	 .text = "how long: seconds, or 500ms, 2m (default 1)"},
	{"missed-deadlines", NULL, 'M', take_true, AT(session.print_missed),
	 .text = "print each deadline that was missed"},
	{"symbol-table", "TAB", 's', take_names, AT(session.files),
	 .text = "resolve addresses with TAB: nm -n, kallsyms or an ELF file",
	 .values = OPTION_FILE},
	{"elf-file", "ELF", 'e', take_code, .text = "use ELF to find callers, print addresses",
	 .values = OPTION_FILE},
	{"elf-resolve", "ELF", 'E', take_names, AT(session.files),
	 .text = "use ELF to find callers, and its names", .values = OPTION_FILE},
	{"debug-dir", "DIR", 0, take_debug_dir,
	 .text = "where debug files are that were taken out of those that follow",
	 .values = OPTION_DIRECTORY},
	{"no-sandbox", NULL, 0, take_true, AT(session.keep_rights),
	 .text = "keep root's rights, and filter no system calls (for debugging)"},
	{"unwind", "HOW", 0, take_word, AT(session.sampler.method),
	 .text = "how to find callers: auto (default), fp, cfi, scan",
	 .values = "auto fp cfi scan"},
	{"verbose", NULL, 'v', take_true, AT(session.verbose), .text = "say more"},
	{0}};

static const struct option_group options_of_classic[] = {{own_options, 0}, {0}};

static struct error *parse(int argc, char **argv, struct classic_args *options, int *first)
{
	*options = (struct classic_args){.session.sampler = {.rate_hz = CLASSIC_RATE_HZ,
							     .duration_ns = CLASSIC_DURATION_NS}};
	TRY(options_parse(&verb_classic, argc, argv, options, first));
	if (*first + 1 == argc)
		return cmd_usage_error(
			&verb_classic,
			"\"%s\" is no verb (`uniprof record %s` samples a guest of that "
			"name), and the classic command line wants OUTFILE and DOMID",
			argv[*first], argv[*first]);
	if (*first + 2 != argc)
		return cmd_usage_error(
			&verb_classic,
			"\"%s\" is no verb, and the classic command line wants OUTFILE and DOMID",
			argv[*first < argc ? *first : 0]);
	return NULL;
}

static struct error *begin(struct classic_trace *w)
{
	const struct recording_info info = {.target = (char *)w->target->ops->scheme,
					    .guest_id = (char *)w->target->info.id,
					    .host = (char *)w->target->info.host,
					    .start_unix_ns = w->start_unix_ns};

	TRY(cmd_open_output(w->path, &w->out));
	raw_write_head(&info, w->out);
	return NULL;
}

/* The tool of 2017 counted a stack 0 times where its walk came to memory that is not there. */
static bool is_failed(uint8_t end)
{
	return end == UNWIND_BYTES || end == UNWIND_BROKEN || end == UNWIND_NO_STACK;
}

static struct error *write_stack(struct classic_trace *w, const struct tick_entry *entry)
{
	bool nameless = false;
	size_t n = 0;

	for (uint32_t id = entry->stack; id != STACK_ROOT; n++) {
		const struct stack_node *node = stacks_node(w->stacks, id);
		struct named named = {.resolved = true};

		if (w->symbolizer)
			TRY(symbolizer_name(w->symbolizer, node->addr, node->kind, &named));
		TRY(raw_write_frame(node->addr, w->symbolizer ? &named : NULL, w->out));
		w->quality.nameless_leaf += !n && !named.resolved;
		nameless = nameless || !named.resolved;
		id = node->parent;
	}
	raw_write_end(n, is_failed(entry->end) ? 0 : 1, w->out);
	w->quality.stacks++;
	w->quality.nameless += nameless;
	w->quality.no_room += entry->end == UNWIND_NO_ROOM;
	w->quality.broken += entry->end == UNWIND_BROKEN;
	w->quality.truncated += entry->end != UNWIND_OUTERMOST && entry->end != UNWIND_NO_ROOM &&
				entry->end != UNWIND_BROKEN;
	return NULL;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct classic_trace *w = ctx;

	if (!w->out)
		TRY(begin(w));
	for (uint32_t i = 0; i < tick->n; i++)
		TRY(write_stack(w, &tick->entries[i]));
	/* The cause is found when the file is closed. */
	return ferror(w->out) ? error_new(ERR_OUTPUT, "cannot write %s", w->path) : NULL;
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	cmd_say("falling behind by %.9f s", (double)late_ns / 1e9);
}

static struct error *sample(struct target *target, const struct classic_args *options,
			    struct classic_trace *w, struct images *images,
			    struct sampler_result *result)
{
	const struct image_locator_notes notes = {.ctx = (void *)&options->session,
						  .note = session_note};
	const struct sampler_sink sink = {.ctx = w,
					  .tick = on_tick,
					  .missed =
						  options->session.print_missed ? on_missed : NULL};
	struct sampler_options sampler = options->session.sampler;
	struct error *err;

	sampler.images = images;
	TRY(image_locator_new(target, images, &notes, &sampler.locator));
	err = sampler_run(target, w->stacks, &sampler, &sink, result);
	if (!err)
		err = image_locator_end(sampler.locator);
	image_locator_free(sampler.locator);
	return err;
}

static struct error *say_quality(const struct classic_trace *w)
{
	FREED char *text = NULL;

	TRY(quality_warning(&w->quality, QUALITY_SENTENCES, &text));
	if (text)
		cmd_say("warning: %s", text);
	return NULL;
}

static struct error *trace(struct target *target, const struct classic_args *options,
			   struct classic_trace *w, struct images *images)
{
	struct sampler_result result;
	struct error *err, *closing;

	w->target = target;
	w->start_unix_ns = clock_unix_ns();
	err = sample(target, options, w, images, &result);
	if (!err && !w->out)
		err = begin(w);
	closing = w->out ? cmd_close_output(w->path, w->out, NULL) : NULL;
	TRY(closing ? error_first(closing, err) : err);
	if (result.missed)
		cmd_say("missed %" PRIu64 " deadlines", result.missed);
	TRY(say_quality(w));
	if (options->session.verbose)
		cmd_say("%" PRIu64 " samples in %.1f s", result.ticks,
			(double)result.elapsed_ns / 1e9);
	if (result.outcome != SAMPLED_TIME && result.outcome != SAMPLED_INTERRUPTED)
		return error_new(ERR_ENDED, "%s after %.1f s; what was traced until then is in %s",
				 sampler_outcome_text(result.outcome),
				 (double)result.elapsed_ns / 1e9, w->path);
	return NULL;
}

/* The file that the toolstack knows helps to find callers; without it they are found in other ways. */
static void load_own_image(const struct target *target, const struct classic_args *options,
			   struct images *images)
{
	const struct image_spec spec = {.path = target->info.image};
	struct error *err = images_load(images, &spec, NULL);

	if (err && options->session.verbose)
		cmd_say("without %s: %s", spec.path, err->text);
	error_free(err);
}

static void trace_end(const struct classic_trace *w)
{
	symbolizer_free(w->symbolizer);
	stacks_free(w->stacks);
}

static struct error *classic(int argc, char **argv, int *status)
{
	ENDED_BY(target_end) struct target *target = NULL;
	ENDED_BY(images_end) struct images *images = NULL;
	ENDED_BY(trace_end) struct classic_trace w = {0};
	struct classic_args options;
	int first;

	TRY(parse(argc, argv, &options, &first));
	options.session.sampler.stop = cmd_catch_signals();
	signal(SIGPIPE, SIG_IGN);
	w.path = argv[first];
	TRY(target_open(argv[first + 1], NULL, &target));
	TRY(preopen_output(w.path));
	TRY(preopen_input(target->info.image));
	session_drop_rights(target, &options.session);
	TRY(images_new(&images));
	if (!options.session.keep_rights)
		images_sandbox(images);
	TRY(image_args_load(&options.session.files, images));
	if (!options.session.files.n && *target->info.image)
		load_own_image(target, &options, images);
	TRY(stacks_new(&w.stacks));
	if (options.resolve) {
		TRY(symbolizer_new(images, NULL, &w.symbolizer));
		symbolizer_set(w.symbolizer, &(struct symbolizer_options){.no_source = true});
	}
	return trace(target, &options, &w, images);
}

const struct verb verb_classic = {
	.name = "",
	.summary = "the command line of 2017",
	.arguments = "[options] OUTFILE DOMID",
	.about = "Samples a domain of Xen straight into a text trace, as the uniprof of 2017 "
		 "does.\n",
	.options = options_of_classic,
	.closing = "OUTFILE may be - for standard output; DOMID may be a domain's name. -s, -e and "
		   "-E may be\n"
		   "repeated, and take FILE@0xADDRESS for a file that is loaded elsewhere than it "
		   "was linked\n"
		   "and not found there by itself. The trace is for symbolize and FlameGraph's\n"
		   "stackcollapse.pl.\n",
	.takes = TAKES_FILES,
	.run = classic,
};
