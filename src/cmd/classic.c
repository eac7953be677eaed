/* SPDX-License-Identifier: BSD-3-Clause */

/* The command line of the first uniprof (2017): samples a domain straight into a text trace. */

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/preopen.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "cmd/confine.h"
#include "cmd/shared/image_args.h"
#include "cmd/parse.h"
#include "format/raw.h"
#include "profile/quality.h"
#include "capture/sampler.h"
#include "unwind/tables/debug_file.h"

#define CLASSIC_RATE_HZ	    1.0
#define CLASSIC_DURATION_NS NS_PER_S

enum { NO_SANDBOX = LONG_ONLY, UNWIND, DEBUG_DIR };

static const char help[] =
	"usage: uniprof [options] OUTFILE DOMID\n"
	"\n"
	"  -F, --frequency N       traces per second (default 1)\n"
	"  -T, --time T            how long: seconds, or 500ms, 2m (default 1)\n"
	"  -M, --missed-deadlines  print each deadline that was missed\n"
	"  -s, --symbol-table TAB  resolve addresses with TAB: nm -n, kallsyms or an ELF file\n"
	"  -e, --elf-file ELF      use ELF to find callers, print addresses\n"
	"  -E, --elf-resolve ELF   use ELF to find callers, and its names\n"
	"      --debug-dir DIR     where debug files are that were taken out of those that follow\n"
	"      --no-sandbox        keep root's rights, and filter no system calls (for debugging)\n"
	"      --unwind HOW        how to find callers: auto (default), fp, cfi, scan\n"
	"  -v, --verbose           say more\n"
	"  -V, --version           version, and what was built in\n"
	"  -h, --help              this text\n"
	"\n"
	"OUTFILE may be - for standard output; DOMID may be a domain's name. -s, -e and -E may be\n"
	"repeated, and take FILE@0xADDRESS for a file that is loaded elsewhere than it was linked\n"
	"and not found there by itself. The trace is for symbolize and FlameGraph's\n"
	"stackcollapse.pl.\n";

struct options {
	struct sampler_options sampler;
	struct image_args files; /* of -s, -e, -E */
	bool resolve;		 /* -s, -E */
	struct confine_how confine;
	bool print_missed, verbose;
};

struct writing {
	const struct target *target;
	FILE *out; /* NULL: before the first sample */
	const char *path;
	const struct stacks *stacks;
	struct namer *namer; /* NULL: addresses only */
	uint64_t start_unix_ns;
	struct quality quality;
};

static struct error *take_option(struct options *options, int option, char **argv)
{
	switch (option) {
	case 'F':
		return parse_rate("-F", optarg, &options->sampler.rate_hz);
	case 'T':
		return parse_duration("-T", optarg, &options->sampler.duration_ns);
	case 'M':
		options->print_missed = true;
		return NULL;
	case 'v':
		options->verbose = options->confine.verbose = true;
		return NULL;
	case NO_SANDBOX:
		options->confine.keep = true;
		return NULL;
	case 's':
	case 'E':
		options->resolve = true;
		return image_args_add(&options->files, optarg, true);
	case 'e':
		return image_args_add(&options->files, optarg, false);
	case DEBUG_DIR:
		return debug_file_ahead(optarg);
	case UNWIND:
		return parse_unwind("--unwind", optarg, &options->sampler.method);
	}
	return usage_error(&verb_classic, "option %s is not known or lacks its value",
			   argv[optind - 1]);
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {{"frequency", required_argument, NULL, 'F'},
					      {"time", required_argument, NULL, 'T'},
					      {"missed-deadlines", no_argument, NULL, 'M'},
					      {"symbol-table", required_argument, NULL, 's'},
					      {"elf-file", required_argument, NULL, 'e'},
					      {"elf-resolve", required_argument, NULL, 'E'},
					      {"debug-dir", required_argument, NULL, DEBUG_DIR},
					      {"unwind", required_argument, NULL, UNWIND},
					      {"verbose", no_argument, NULL, 'v'},
					      {"no-sandbox", no_argument, NULL, NO_SANDBOX},
					      {0}};
	struct error *err = NULL;
	int option;

	*options = (struct options){
		.sampler = {.rate_hz = CLASSIC_RATE_HZ, .duration_ns = CLASSIC_DURATION_NS}};
	opterr = 0;
	optind = 1;
	while (!err && (option = getopt_long(argc, argv, "F:T:Ms:e:E:v", longs, NULL)) != -1)
		err = take_option(options, option, argv);
	if (!err && optind + 2 != argc)
		err = usage_error(
			&verb_classic,
			"\"%s\" is no verb, and the classic command line wants OUTFILE and "
			"DOMID",
			argv[optind < argc ? optind : 0]);
	return err;
}

static struct error *begin(struct writing *w)
{
	const struct recording_info info = {.target = (char *)w->target->ops->scheme,
					    .guest_id = (char *)w->target->info.id,
					    .host = (char *)w->target->info.host,
					    .start_unix_ns = w->start_unix_ns};
	struct error *err = open_output(w->path, &w->out);

	if (!err)
		trace_write_head(&info, w->out);
	return err;
}

static struct error *write_stack(struct writing *w, const struct tick_entry *entry)
{
	bool nameless = false;
	size_t n = 0;

	for (uint32_t id = entry->stack; id != STACK_ROOT; n++) {
		const struct stack_node *node = stacks_node(w->stacks, id);
		struct named named = {.resolved = true};
		struct error *err;

		if (w->namer) {
			err = namer_name(w->namer, node->addr, node->kind, &named);
			if (err)
				return err;
		}
		trace_write_frame(node->addr, w->namer ? &named : NULL, w->out);
		w->quality.nameless_leaf += !n && !named.resolved;
		nameless = nameless || !named.resolved;
		id = node->parent;
	}
	trace_write_end(n, 1, w->out);
	w->quality.stacks++;
	w->quality.nameless += nameless;
	w->quality.no_room += entry->end == UNWIND_NO_ROOM;
	w->quality.truncated += entry->end != UNWIND_OUTERMOST && entry->end != UNWIND_NO_ROOM;
	return NULL;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct writing *w = ctx;
	struct error *err = w->out ? NULL : begin(w);

	for (uint32_t i = 0; i < tick->n && !err; i++)
		err = write_stack(w, &tick->entries[i]);
	/* The cause is found when the file is closed. */
	if (!err && ferror(w->out))
		err = error_new(ERR_OUTPUT, "cannot write %s", w->path);
	return err;
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	say("falling behind by %.9f s", (double)late_ns / 1e9);
}

/* Says things like session_note, in the words of this command line. */
static void on_note(void *ctx, bool warning, const char *text)
{
	const struct options *options = ctx;

	if (warning || options->verbose)
		say("%s%s", warning ? "warning: " : "", text);
}

static struct error *sample(struct target *target, const struct options *options, struct writing *w,
			    struct images *images, struct stacks *stacks,
			    struct sampler_result *result)
{
	const struct settle_notes notes = {.ctx = (void *)options, .note = on_note};
	const struct sampler_sink sink = {.ctx = w,
					  .tick = on_tick,
					  .missed = options->print_missed ? on_missed : NULL};
	struct sampler_options sampler = options->sampler;
	struct error *err;

	sampler.images = images;
	err = settle_new(target, images, &notes, &sampler.settle);
	if (err)
		return err;
	err = sampler_run(target, stacks, &sampler, &sink, result);
	if (!err)
		err = settle_end(sampler.settle);
	settle_free(sampler.settle);
	return err;
}

static struct error *say_quality(const struct writing *w)
{
	char *text;
	struct error *err = quality_warning(&w->quality, &text);

	if (text)
		say("warning: %s", text);
	free(text);
	return err;
}

static struct error *trace(struct target *target, const struct options *options, struct writing *w,
			   struct images *images, struct stacks *stacks)
{
	struct sampler_result result;
	struct error *err, *closing;

	w->target = target;
	w->start_unix_ns = clock_unix_ns();
	err = sample(target, options, w, images, stacks, &result);
	if (!err && !w->out)
		err = begin(w);
	closing = w->out ? close_output(w->path, w->out, NULL) : NULL;
	err = closing ? error_first(closing, err) : err;
	if (!err && result.missed)
		say("missed %" PRIu64 " deadlines", result.missed);
	if (!err)
		err = say_quality(w);
	if (!err && options->verbose)
		say("%" PRIu64 " samples in %.1f s", result.ticks, (double)result.elapsed_ns / 1e9);
	if (!err && result.outcome != SAMPLED_TIME && result.outcome != SAMPLED_INTERRUPTED)
		err = error_new(ERR_ENDED, "%s after %.1f s; what was traced until then is in %s",
				sampler_outcome_text(result.outcome),
				(double)result.elapsed_ns / 1e9, w->path);
	return err;
}

static struct error *classic(int argc, char **argv, int *status)
{
	struct images *images = NULL;
	struct stacks *stacks = NULL;
	struct target *target = NULL;
	struct writing w = {0};
	struct options options;
	struct error *err = parse(argc, argv, &options);

	if (err)
		return err;
	options.sampler.stop = catch_signals();
	signal(SIGPIPE, SIG_IGN);
	w.path = argv[optind];
	err = target_open(argv[optind + 1], &target);
	if (!err)
		err = ahead_output(w.path);
	if (!err) {
		options.confine.role = target->role;
		confine_sampler(&options.confine);
	}
	if (!err)
		err = images_new(&images);
	if (!err && !options.confine.keep)
		images_load_apart(images);
	if (!err)
		err = image_args_load(&options.files, images);
	if (!err)
		err = stacks_new(&stacks);
	if (!err && options.resolve)
		err = namer_new(images, NULL, &w.namer);
	if (w.namer)
		namer_set(w.namer, &(struct namer_options){.no_source = true});
	w.stacks = stacks;
	if (!err)
		err = trace(target, &options, &w, images, stacks);
	namer_free(w.namer);
	stacks_free(stacks);
	images_free(images);
	target_close(target);
	return err;
}

const struct verb verb_classic = {
	.name = "",
	.summary = "the command line of 2017",
	.help = help,
	.run = classic,
};
