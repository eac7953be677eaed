/* SPDX-License-Identifier: BSD-3-Clause */

/* The command line of the first uniprof (2017): samples a domain straight into a text trace. */

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/cmd.h"
#include "cmd/parse.h"
#include "output/trace.h"
#include "sample/sampler.h"

#define CLASSIC_RATE_HZ	    1.0
#define CLASSIC_DURATION_NS NS_PER_S

static const char help[] =
	"usage: uniprof [options] OUTFILE DOMID\n"
	"\n"
	"  -F, --frequency N       traces per second (default 1)\n"
	"  -T, --time T            how long: seconds, or 500ms, 2m (default 1)\n"
	"  -M, --missed-deadlines  print each deadline that was missed\n"
	"  -s, --symbol-table TAB  resolve addresses with TAB: nm -n, kallsyms or an ELF file\n"
	"  -e, --elf-file ELF      use ELF to find callers, print addresses\n"
	"  -E, --elf-resolve ELF   use ELF to find callers, and its names\n"
	"  -v, --verbose           say more\n"
	"  -V, --version           version, and what was built in\n"
	"  -h, --help              this text\n"
	"\n"
	"OUTFILE may be - for standard output; DOMID may be a domain's name. -s, -e and -E "
	"exclude\n"
	"each other. The trace is for symbolize and FlameGraph's stackcollapse.pl.\n";

struct options {
	struct sampler_options sampler;
	const char *file; /* of -s, -e, -E */
	bool resolve;	  /* -s, -E */
	bool print_missed, verbose;
};

struct writing {
	FILE *out;
	const char *path;
	const struct stacks *stacks;
	struct namer *namer; /* NULL: addresses only */
};

static struct error *take_file(struct options *options, bool resolve)
{
	if (options->file)
		return usage_error(&verb_classic, "-s, -e and -E exclude each other");
	options->file = optarg;
	options->resolve = resolve;
	return NULL;
}

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
		options->verbose = true;
		return NULL;
	case 's':
	case 'E':
		return take_file(options, true);
	case 'e':
		return take_file(options, false);
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
					      {"verbose", no_argument, NULL, 'v'},
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

static struct error *write_stack(struct writing *w, uint32_t stack)
{
	size_t n = 0;

	for (uint32_t id = stack; id != STACK_ROOT; n++) {
		const struct stack_node *node = stacks_node(w->stacks, id);
		struct named named;
		struct error *err;

		if (w->namer) {
			err = namer_name(w->namer, node->addr, node->kind, &named);
			if (err)
				return err;
		}
		trace_write_frame(node->addr, w->namer ? &named : NULL, w->out);
		id = node->parent;
	}
	trace_write_end(n, w->out);
	return NULL;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct writing *w = ctx;
	struct error *err = NULL;

	for (uint32_t i = 0; i < tick->n && !err; i++)
		err = write_stack(w, tick->entries[i].stack);
	/* The cause is found when the file is closed. */
	if (!err && ferror(w->out))
		err = error_new(ERR_OUTPUT, "cannot write %s", w->path);
	return err;
}

static void on_missed(void *ctx, uint64_t periods, uint64_t late_ns)
{
	say("falling behind by %.9f s", (double)late_ns / 1e9);
}

static struct error *trace(struct target *target, const struct options *options, struct writing *w,
			   struct symbols *symbols, struct stacks *stacks)
{
	const struct recording_info info = {.target = (char *)target->ops->scheme,
					    .guest_id = target->info.id,
					    .host = target->info.host,
					    .start_unix_ns = clock_unix_ns()};
	const struct sampler_sink sink = {.ctx = w,
					  .tick = on_tick,
					  .missed = options->print_missed ? on_missed : NULL};
	struct sampler_options sampler = options->sampler;
	struct sampler_result result;
	struct error *err, *closing;

	err = open_output(w->path, &w->out);
	if (err)
		return err;
	trace_write_head(&info, w->out);
	sampler.symbols = symbols;
	err = sampler_run(target, stacks, &sampler, &sink, &result);
	closing = close_output(w->path, w->out, NULL);
	err = closing ? error_first(closing, err) : err;
	if (!err && result.missed)
		say("missed %" PRIu64 " deadlines", result.missed);
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
	struct symbols *symbols = NULL;
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
	if (!err && options.file)
		err = symbols_load(options.file, &symbols);
	if (!err)
		err = stacks_new(&stacks);
	if (!err && options.resolve)
		err = namer_new(symbols, NULL, &w.namer);
	w.stacks = stacks;
	if (!err)
		err = trace(target, &options, &w, symbols, stacks);
	namer_free(w.namer);
	stacks_free(stacks);
	symbols_free(symbols);
	target_close(target);
	return err;
}

const struct verb verb_classic = {
	.name = "",
	.summary = "the command line of 2017",
	.help = help,
	.run = classic,
};
