/* SPDX-License-Identifier: BSD-3-Clause */

/* `top`: samples a guest as record does, and shows the last seconds again and again. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/parse.h"
#include "cmd/session.h"
#include "symbol/names/display_name.h"
#include "top/draw.h"
#include "top/keeper.h"
#include "top/screen.h"

enum { DELAY = SESSION_NEXT, WINDOW, ONLY, SORT, STATE_ALL };

/* Rows of a picture in batch mode, its head included. */
#define BATCH_HEIGHT 50

/* When so much of the memory for stacks is in use, they are begun anew. */
#define STACKS_FULL(max) ((max) / 2)

static const char help[] =
	"usage: uniprof top [options] GUEST\n"
	"\n"
	"Shows live where a guest spends its time: functions, vCPUs, pauses, the hottest stack.\n"
	"h shows the keys, q quits.\n"
	"\n"
	"  -d, --delay T         time between pictures (default 1s)\n"
	"  -w, --window T        pictures show the last T (default 10s)\n"
	"  -b, --batch           write pictures to standard output, as text, one after the other\n"
	"  -n, --iterations N    end after N pictures\n"
	"      --sort KEY        self (the default) or total\n"
	"      --only REGEX      only functions that match\n"
	"      --all             idle and waiting vCPUs, too\n" SESSION_HELP;

struct options {
	struct session_options session;
	struct view view;
	uint64_t iterations; /* 0: until it is ended */
	bool batch;
};

struct top {
	struct options *options;
	struct view *view;
	struct target *target;
	struct images *images;
	struct stacks *stacks;
	struct namer *namer;
	struct recent *recent;
	struct summary summary; /* that the last picture was made of */
	struct sheet sheet;
	const volatile sig_atomic_t *signalled;
	struct keeper keeper;
	volatile sig_atomic_t stop;
	bool full;	  /* stacks are to be begun anew */
	uint64_t next_ns; /* when the next picture is due */
	uint64_t pictures;
	uint64_t base_ns, last_ns; /* times go on when sampling begins anew */
	char *guest;		   /* for the first line */
	char warning[512];
	const char *ended;
	struct error *err; /* of a picture */
};

static struct error *take_option(struct options *options, int option, char **argv)
{
	struct error *err;
	bool known;

	switch (option) {
	case 'd':
		return parse_duration("-d", optarg, &options->view.delay_ns);
	case 'w':
		return parse_duration("-w", optarg, &options->view.span_ns);
	case 'b':
		options->batch = true;
		return NULL;
	case 'n':
		return parse_count("-n", optarg, 1, UINT32_MAX, &options->iterations);
	case SORT:
		options->view.by_total = !strcmp(optarg, "total");
		if (options->view.by_total || !strcmp(optarg, "self"))
			return NULL;
		return usage_error(&verb_top, "--sort %s: it is self or total", optarg);
	case ONLY:
		if (view_filter(&options->view, optarg))
			return NULL;
		return usage_error(&verb_top, "--only %s", options->view.message);
	case STATE_ALL:
		options->view.all_states = true;
		return NULL;
	}
	err = session_option(&options->session, option, optarg, &known);
	if (!err && (!known || options->session.output))
		err = usage_error(&verb_top, "option %s is not known or lacks its value",
				  argv[optind - 1]);
	return err;
}

static struct error *parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {SESSION_LONG_OPTIONS,
					      {"delay", required_argument, NULL, 'd'},
					      {"window", required_argument, NULL, 'w'},
					      {"batch", no_argument, NULL, 'b'},
					      {"iterations", required_argument, NULL, 'n'},
					      {"sort", required_argument, NULL, SORT},
					      {"only", required_argument, NULL, ONLY},
					      {"all", no_argument, NULL, STATE_ALL},
					      {0}};
	struct error *err = NULL;
	int option;

	*options = (struct options){0};
	session_defaults(&options->session);
	view_init(&options->view);
	opterr = 0;
	optind = 1;
	while (!err && (option = getopt_long(argc, argv, SESSION_SHORT_OPTIONS "d:w:bn:", longs,
					     NULL)) != -1)
		err = take_option(options, option, argv);
	if (!err && optind + 1 != argc)
		err = usage_error(&verb_top, optind == argc ? "which guest?" : "one guest, please");
	options->session.screen = !options->batch;
	return err;
}

static void time_of_day(char *text, size_t size)
{
	time_t now = time(NULL);
	struct tm tm;

	*text = '\0';
	if (localtime_r(&now, &tm))
		strftime(text, size, "%H:%M:%S", &tm);
}

/* Counts what was seen lately anew, unless there is nothing new. */
static struct error *sum_up(struct top *top)
{
	const struct view *view = top->view;
	const struct summary_options how = {.all_states = view->all_states,
					    .vcpu = view->vcpu,
					    .by_total = view->by_total,
					    .only = view->has_only ? &view->only : NULL,
					    .zoom = view->zoom};

	recent_set_span(top->recent, view->span_ns);
	summary_free(&top->summary);
	return summary_make(top->recent, top->stacks, top->target->info.vcpus, top->namer, &how,
			    &top->summary);
}

static void print_sheet(const struct sheet *sheet)
{
	size_t line = 0;

	for (size_t i = 0; i < sheet->n; i++) {
		for (; line < sheet->pieces[i].line; line++)
			putchar('\n');
		fwrite(sheet->text + sheet->pieces[i].text, 1, sheet->pieces[i].len, stdout);
	}
	fputs("\n\n", stdout);
	fflush(stdout);
}

static struct error *show(struct top *top)
{
	const bool batch = top->options->batch;
	size_t width = 0, height = BATCH_HEIGHT;
	struct picture picture = {
		.view = top->view,
		.summary = &top->summary,
		.namer = top->namer,
		.guest = top->guest,
		.ended = top->ended,
		.warning = *top->warning ? top->warning : NULL,
		.rate_hz = top->options->session.sampler.rate_hz,
		.keys = !batch,
	};
	struct error *err = sum_up(top);
	char clock[16];

	if (err)
		return err;
	time_of_day(clock, sizeof(clock));
	picture.clock = clock;
	if (!batch)
		screen_size(&width, &height);
	sheet_begin(&top->sheet, width, height);
	err = draw(&picture, &top->sheet, &top->view->page);
	if (err)
		return err;
	if (batch)
		print_sheet(&top->sheet);
	else
		screen_show(&top->sheet);
	return batch && ferror(stdout) ? error_errno(ERR_OUTPUT, errno,
						     "cannot write to standard "
						     "output")
				       : NULL;
}

/* Takes all keys that were pressed; true if there were any. */
static bool take_keys(struct top *top)
{
	bool any = false;
	int key;

	while (!top->options->batch && (key = screen_key())) {
		view_key(top->view, key, &top->summary);
		any = true;
	}
	if (top->view->cleared)
		recent_clear(top->recent);
	top->view->cleared = false;
	return any;
}

static bool must_end(const struct top *top)
{
	return *top->signalled || top->view->quit || keeper_lost(&top->keeper);
}

/* Ten times a second. */
static void on_progress(void *ctx, uint64_t elapsed_ns, uint64_t ticks)
{
	struct top *top = ctx;
	uint64_t now = clock_now_ns();
	const bool pressed = take_keys(top), due = now >= top->next_ns;

	if (due)
		top->next_ns = now + top->view->delay_ns;
	if (!top->err && (pressed || (due && !top->view->held))) {
		top->err = show(top);
		top->pictures += due;
	}
	if (must_end(top) || top->err ||
	    (top->options->iterations && top->pictures >= top->options->iterations))
		top->stop = 1;
}

static struct error *on_tick(void *ctx, const struct tick *tick)
{
	struct top *top = ctx;
	const uint64_t max = top->options->session.sampler.max_memory;
	struct tick later = *tick;

	later.time_ns += top->base_ns;
	top->last_ns = later.time_ns;
	if ((uint64_t)stacks_count(top->stacks) * STACKS_NODE_BYTES >
	    STACKS_FULL(max ? max : MEMORY_DEFAULT)) {
		top->full = true;
		top->stop = 1;
	}
	return top->view->held ? NULL : recent_add(top->recent, &later);
}

static void on_note(void *ctx, bool warning, const char *text)
{
	struct top *top = ctx;

	if (warning && top->options->batch)
		say("warning: %s", text);
	else if (warning && !*top->warning)
		clean_name(text, strnlen(text, sizeof(top->warning) / 3 - 2), top->warning);
}

/* Until the guest ends, the user has seen enough, or stacks take too much room. */
static struct error *sample_once(struct top *top, struct settle *settle,
				 struct sampler_result *result)
{
	const struct sampler_sink sink = {.ctx = top, .tick = on_tick, .progress = on_progress};
	struct sampler_options sampler = top->options->session.sampler;
	struct error *err;

	stacks_free(top->stacks);
	top->stacks = NULL;
	recent_clear(top->recent);
	summary_free(&top->summary);
	top->full = false;
	top->stop = 0;
	top->base_ns = top->last_ns;
	/* On a screen there is something to see at once, even if it is nothing yet. */
	if (!top->next_ns && top->options->batch)
		top->next_ns = clock_now_ns() + top->view->delay_ns;
	err = stacks_new(&top->stacks);
	sampler.images = top->images;
	sampler.settle = settle;
	sampler.stop = &top->stop;
	return err ? err : sampler_run(top->target, top->stacks, &sampler, &sink, result);
}

static struct error *sample(struct top *top, struct sampler_result *result)
{
	const struct settle_notes notes = {.ctx = top, .note = on_note};
	struct settle *settle = NULL;
	struct error *err = settle_new(top->target, top->images, &notes, &settle);

	top->target->always_pause = top->options->session.always_pause;
	do {
		if (!err)
			err = sample_once(top, settle, result);
	} while (!err && top->full && !must_end(top));
	settle_free(settle);
	return error_first(err, top->err);
}

/* The guest has ended: its last picture stays until the user has seen enough. */
static struct error *linger(struct top *top)
{
	struct error *err = show(top);

	while (!err && !top->options->batch && !must_end(top)) {
		struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};

		if (poll(&keys, 1, 100) < 0 && errno != EINTR)
			break;
		if (keys.revents & (POLLHUP | POLLERR))
			break;
		if (take_keys(top))
			err = show(top);
	}
	return err;
}

static bool has_ended(const struct sampler_result *result)
{
	return result->outcome != SAMPLED_TIME && result->outcome != SAMPLED_INTERRUPTED;
}

static struct error *watch(struct top *top, struct sampler_result *result)
{
	struct error *err;

	if (!top->options->batch)
		screen_begin();
	err = sample(top, result);
	if (!err && has_ended(result)) {
		top->ended = sampler_outcome_text(result->outcome);
		err = linger(top);
	}
	if (!top->options->batch)
		screen_end();
	return err;
}

static char *describe(const struct target *target)
{
	char *text, *clean;

	if (asprintf(&text, "%s:%s (%s) on %s", target->ops->scheme,
		     *target->info.name ? target->info.name : target->info.id, target->info.type,
		     target->info.host) < 0)
		return NULL;
	clean = clean_name_new(text);
	free(text);
	return clean;
}

static struct error *run(struct top *top, struct sampler_result *result)
{
	const struct session_options *session = &top->options->session;
	struct error *err = session_confine(top->target, session);

	top->guest = describe(top->target);
	view_set_vcpus(top->view, top->target->info.vcpus);
	if (!err && !top->guest)
		err = error_no_memory();
	if (!err)
		err = session_load_images(top->target, session, &top->images);
	if (!err)
		err = namer_new(top->images, NULL, &top->namer);
	if (!err)
		err = recent_new(top->view->span_ns, &top->recent);
	if (!err)
		err = watch(top, result);
	summary_free(&top->summary);
	sheet_free(&top->sheet);
	recent_free(top->recent);
	namer_free(top->namer);
	stacks_free(top->stacks);
	images_free(top->images);
	free(top->guest);
	return err;
}

static struct error *top(int argc, char **argv, int *status)
{
	struct options options;
	struct top all = {.options = &options, .view = &options.view};
	struct sampler_result result = {0};
	struct error *err = parse(argc, argv, &options);

	all.signalled = catch_signals();
	signal(SIGPIPE, SIG_IGN);
	if (!err && !options.batch)
		err = screen_prepare();
	if (!err && !options.batch)
		keeper_start(&all.keeper);
	if (!err)
		err = target_open_via(argv[optind], options.session.via, &all.target);
	if (!err)
		err = run(&all, &result);
	target_close(all.target);
	view_free(&options.view);
	if (!err && options.batch && has_ended(&result))
		err = error_new(ERR_ENDED, "%s after %.1f s", sampler_outcome_text(result.outcome),
				(double)result.elapsed_ns / 1e9);
	return err;
}

const struct verb verb_top = {
	.name = "top",
	.summary = "watch live where a guest spends its time",
	.help = help,
	.run = top,
};
