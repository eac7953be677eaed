/* SPDX-License-Identifier: BSD-3-Clause */

/* `top`: samples a guest as record does, and shows the last seconds again and again. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "cmd/shared/session.h"
#include "symbol/names/display_name.h"
#include "top/top.h"

/*
 * The process that the shell waits for keeps the terminal, while a child of it
 * does the work. Should that child be killed while it is a screen, the terminal
 * is given back before the shell looks at it: a shell that came first would
 * take a screen's modes for the terminal's own.
 */

/* Ends as the child did, so that the shell tells the truth. */
static void end_like(int status, const sigset_t *before)
{
	if (WIFSIGNALED(status)) {
		screen_rescue();
		/* No core dump of this process: the memory of interest is the child's. */
		prctl(PR_SET_DUMPABLE, 0);
		signal(WTERMSIG(status), SIG_DFL);
		sigprocmask(SIG_SETMASK, before, NULL);
		raise(WTERMSIG(status));
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void keep(pid_t child, const sigset_t *signals, const sigset_t *before)
{
	int signal_number, status;

	prctl(PR_SET_NAME, "uniprof-screen");
	for (;;) {
		signal_number = sigwaitinfo(signals, NULL);
		if (signal_number == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			end_like(status, before);
		else if (signal_number > 0 && signal_number != SIGCHLD)
			kill(child, signal_number);
	}
}

/*
 * Returns in the child; the supervisor passes signals on to it and ends as it
 * does. Call after screen_prepare, before threads and other children; the
 * buffers of stdio must be empty. 0: no process can be made, and there is no
 * supervisor.
 */
static pid_t tty_supervisor_start(void)
{
	static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
	const pid_t self = getpid();
	sigset_t signals, before;
	pid_t child;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(*handed_on); i++)
		sigaddset(&signals, handed_on[i]);
	/* Our parent may have ignored it; waitpid() would then see no child. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &signals, &before);
	child = fork();
	if (child > 0)
		keep(child, &signals, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (child)
		return 0;
	/* Lets us restore the terminal from the background, if the supervisor is killed. */
	signal(SIGTTOU, SIG_IGN);
	return self;
}

/* Rows of a picture in batch mode, its head included. */
#define BATCH_HEIGHT 50

/* The stack store is emptied when so much of its memory is in use. */
#define STACKS_FULL(max) ((max) / 2)

struct top_args {
	struct session_options session;
	struct live_view view;
	uint64_t iterations; /* 0: until it is ended */
	bool batch, full_names;
};

struct top {
	struct top_args *options;
	struct live_view *view;
	struct target *target;
	struct images *images;
	struct image_locator *locator; /* while sampling */
	struct stacks *stacks;
	struct stand_ins *stand_ins; /* NULL: not wanted */
	struct symbolizer *symbolizer;
	struct short_names *names; /* NULL: full names are wanted */
	struct recent_ticks *recent;
	struct recorded_thread *threads; /* of the guest, by their numbers in these ticks */
	size_t n_threads, room_threads;
	struct summary summary; /* that the last picture was made of */
	struct text_buffer buffer;
	const volatile sig_atomic_t *signalled;
	pid_t supervisor; /* 0: there is none */
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

static struct error *take_sort(const struct option_row *row, const char *value, void *to)
{
	struct top_args *options = to;

	options->view.by_total = !strcmp(value, "total");
	if (options->view.by_total || !strcmp(value, "self"))
		return NULL;
	return cmd_usage_error(&verb_top, "--sort %s: it is self or total", value);
}

static struct error *take_by(const struct option_row *row, const char *value, void *to)
{
	static const enum group_key keys[] = {GROUP_FUNCTION, GROUP_CONTAINER, GROUP_PROCESS,
					      GROUP_THREAD};
	struct top_args *options = to;
	const int i = option_word(row, value);

	if (i < 0)
		return option_error(row, value, "it is function, container, process or thread");
	options->view.by = keys[i];
	return NULL;
}

static struct error *take_only(const struct option_row *row, const char *value, void *to)
{
	struct top_args *options = to;

	if (live_view_filter(&options->view, value))
		return NULL;
	return cmd_usage_error(&verb_top, "--only %s", options->view.message);
}

#define AT(field) offsetof(struct top_args, field)

static const struct option_row own_options[] = {
	{"delay", "T", 'd', take_duration, AT(view.delay_ns),
	 .text = "time between pictures (default 1s)"},
	{"window", "T", 'w', take_duration, AT(view.span_ns),
	 .text = "pictures show the last T (default 10s)"},
	{"batch", NULL, 'b', take_true, AT(batch),
	 .text = "write pictures to standard output, as text, one after the other",
	 .more = "The guest's end is then exit status 5."},
	{"iterations", "N", 'n', take_count, AT(iterations), 1, UINT32_MAX,
	 .text = "end after N pictures"},
	{"by", "KEY", 0, take_by,
	 .text = "function (the default), process or thread of a Linux guest or a unikernel, or "
		 "container of a Linux guest",
	 .values = "function container process thread"},
	{"sort", "KEY", 0, take_sort, .text = "self (the default) or total",
	 .values = "self total"},
	{"only", "REGEX", 0, take_only, .text = "only functions that match"},
	{"all", NULL, 0, take_true, AT(view.all_states), .text = "idle and waiting vCPUs, too"},
	{"full-names", NULL, 0, take_true, AT(full_names),
	 .text = "names with return types, arguments and all template arguments"},
	{0}};

static const struct option_group options_of_top[] = {{own_options, 0},
						     {session_sampling_options, AT(session)},
						     {session_reading_options, AT(session)},
						     {0}};

static struct error *parse(int argc, char **argv, struct top_args *options, int *first)
{
	*options = (struct top_args){0};
	session_defaults(&options->session);
	live_view_init(&options->view);
	TRY(options_parse(&verb_top, argc, argv, options, first));
	options->session.screen = !options->batch;
	return *first + 1 == argc
		       ? NULL
		       : cmd_usage_error(&verb_top,
					 *first == argc ? "which guest?" : "one guest, please");
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
	const struct live_view *view = top->view;
	const struct summary_options how = {.all_states = view->all_states,
					    .rate_hz = top->options->session.sampler.rate_hz,
					    .vcpu = view->vcpu,
					    .spare = top->target->info.spare,
					    .by_total = view->by_total,
					    .only = view->has_only ? &view->only : NULL,
					    .zoom = view->zoom,
					    .by = view->by,
					    .inside = view->inside,
					    .threads = top->threads,
					    .n_threads = top->n_threads};

	recent_set_span(top->recent, view->span_ns);
	summary_free(&top->summary);
	return summary_make(top->recent, top->stacks, top->target->info.vcpus, top->symbolizer,
			    &how, &top->summary);
}

static void print_text(const struct text_buffer *buffer)
{
	size_t line = 0;

	for (size_t i = 0; i < buffer->n; i++) {
		for (; line < buffer->pieces[i].line; line++)
			putchar('\n');
		fwrite(buffer->text + buffer->pieces[i].text, 1, buffer->pieces[i].len, stdout);
	}
	fputs("\n\n", stdout);
	fflush(stdout);
}

static struct error *show(struct top *top)
{
	const bool batch = top->options->batch;
	size_t width = 0, height = BATCH_HEIGHT;
	struct top_picture picture = {
		.view = top->view,
		.summary = &top->summary,
		.symbolizer = top->symbolizer,
		.names = top->names,
		.guest = top->guest,
		.ended = top->ended,
		.warning = *top->warning ? top->warning : NULL,
		.rate_hz = top->options->session.sampler.rate_hz,
		.keys = !batch,
	};
	char clock[16];

	TRY(sum_up(top));
	time_of_day(clock, sizeof(clock));
	picture.clock = clock;
	if (!batch)
		screen_size(&width, &height);
	text_buffer_begin(&top->buffer, width, height);
	TRY(top_draw(&picture, &top->buffer, &top->view->page));
	if (batch)
		print_text(&top->buffer);
	else
		screen_show(&top->buffer);
	return batch && ferror(stdout)
		       ? error_errno(ERR_OUTPUT, errno, "cannot write to standard output")
		       : NULL;
}

/* Takes all keys that were pressed; true if there were any. */
static bool take_keys(struct top *top)
{
	bool any = false;
	int key;

	while (!top->options->batch && (key = screen_key())) {
		live_view_key(top->view, key, &top->summary);
		any = true;
	}
	if (top->view->cleared)
		recent_clear(top->recent);
	top->view->cleared = false;
	return any;
}

/* Where the supervisor was killed, our parent believes that we have ended, and so should we. */
static bool must_end(const struct top *top)
{
	return *top->signalled || top->view->quit ||
	       (top->supervisor && getppid() != top->supervisor);
}

/* Ten times a second. */
static void on_progress(void *ctx, uint64_t elapsed_ns, uint64_t ticks)
{
	struct top *top = ctx;
	uint64_t now = clock_now_ns();
	const bool pressed = take_keys(top), due = now >= top->next_ns;

	if (due)
		top->next_ns = now + top->view->delay_ns;
	if (due && !top->err)
		top->err = programs_name_made(image_locator_programs(top->locator));
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

static struct error *on_thread(void *ctx, const struct recorded_thread *thread)
{
	struct top *top = ctx;

	TRY(ARRAY_RESERVE(&top->threads, &top->room_threads, top->n_threads + 1));
	TRY(recorded_thread_copy(thread, &top->threads[top->n_threads]));
	top->n_threads++;
	return NULL;
}

static void forget_threads(struct top *top)
{
	for (size_t i = 0; i < top->n_threads; i++)
		recorded_thread_free(&top->threads[i]);
	top->n_threads = 0;
}

static void on_note(void *ctx, bool warning, const char *text)
{
	struct top *top = ctx;

	if (warning && top->options->batch)
		cmd_say("warning: %s", text);
	else if (warning && !*top->warning)
		sanitize_name(text, strnlen(text, sizeof(top->warning) / 3 - 2), top->warning);
}

/* Samples until the guest ends, the user quits, or the stack store is full. */
static struct error *sample_once(struct top *top, struct sampler_result *result)
{
	const struct sampler_sink sink = {.ctx = top,
					  .tick = on_tick,
					  .thread = on_thread,
					  .progress = on_progress};
	struct sampler_options sampler = top->options->session.sampler;

	stacks_free(top->stacks);
	top->stacks = NULL;
	recent_clear(top->recent);
	summary_free(&top->summary);
	forget_threads(top);
	top->full = false;
	top->stop = 0;
	top->base_ns = top->last_ns;
	/* On a screen there is something to see at once, even if it is nothing yet. */
	if (!top->next_ns && top->options->batch)
		top->next_ns = clock_now_ns() + top->view->delay_ns;
	TRY(stacks_new(&top->stacks));
	sampler.images = top->images;
	sampler.locator = top->locator;
	sampler.threads = true;
	sampler.stand_ins = top->stand_ins;
	sampler.stop = &top->stop;
	return sampler_run(top->target, top->stacks, &sampler, &sink, result);
}

static struct error *sample(struct top *top, struct sampler_result *result)
{
	const struct image_locator_notes notes = {.ctx = top, .note = on_note};
	struct error *err = image_locator_new(top->target, top->images, &notes, &top->locator);

	top->target->always_pause = top->options->session.always_pause;
	do {
		if (!err)
			err = sample_once(top, result);
	} while (!err && top->full && !must_end(top));
	image_locator_free(top->locator);
	top->locator = NULL;
	return error_first(err, top->err);
}

/* The guest has ended: its last picture stays until the user has seen enough. */
static struct error *linger(struct top *top)
{
	TRY(show(top));
	while (!top->options->batch && !must_end(top)) {
		struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};

		if (poll(&keys, 1, 100) < 0 && errno != EINTR)
			break;
		if (keys.revents & (POLLHUP | POLLERR))
			break;
		if (take_keys(top))
			TRY(show(top));
	}
	return NULL;
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
	char *text, *sanitized;

	if (asprintf(&text, "%s:%s (%s) on %s", target->ops->scheme,
		     *target->info.name ? target->info.name : target->info.id, target->info.type,
		     target->info.host) < 0)
		return NULL;
	sanitized = sanitize_new(text);
	free(text);
	return sanitized;
}

static void top_free(struct top *top)
{
	summary_free(&top->summary);
	text_buffer_free(&top->buffer);
	recent_free(top->recent);
	forget_threads(top);
	free(top->threads);
	short_names_free(top->names);
	symbolizer_free(top->symbolizer);
	stand_ins_free(top->stand_ins);
	stacks_free(top->stacks);
	images_free(top->images);
	free(top->guest);
	target_close(top->target);
	live_view_free(top->view);
}

static struct error *run(struct top *top, struct sampler_result *result)
{
	const struct session_options *session = &top->options->session;

	TRY(session_confine(top->target, session));
	top->guest = describe(top->target);
	if (!top->guest)
		return error_no_memory();
	live_view_set_vcpus(top->view, top->target->info.vcpus);
	TRY(session_load_images(top->target, session, &top->images));
	TRY(session_load_jit_names(top->target, session, top->images, NULL));
	if (!session->no_python)
		TRY(stand_ins_new(&top->stand_ins));
	TRY(symbolizer_new(top->images, NULL, &top->symbolizer));
	symbolizer_set(top->symbolizer, &(struct symbolizer_options){.unnamed = UNNAMED_IMAGE,
								     .stand_ins = top->stand_ins});
	if (!top->options->full_names)
		TRY(short_names_new(&top->names));
	TRY(recent_new(top->view->span_ns, &top->recent));
	return watch(top, result);
}

static struct error *top(int argc, char **argv, int *status)
{
	struct top_args options;
	ENDED_BY(top_free) struct top all = {.options = &options, .view = &options.view};
	struct sampler_result result = {0};
	struct error *err;
	int first;

	err = parse(argc, argv, &options, &first);
	all.signalled = cmd_catch_signals();
	signal(SIGPIPE, SIG_IGN);
	if (err)
		return err;
	if (!options.batch) {
		TRY(screen_prepare());
		all.supervisor = tty_supervisor_start();
	}
	TRY(target_open(argv[first], options.session.via, &all.target));
	TRY(run(&all, &result));
	if (options.batch && has_ended(&result))
		return error_new(ERR_ENDED, "%s after %.1f s", sampler_outcome_text(result.outcome),
				 (double)result.elapsed_ns / 1e9);
	return NULL;
}

const struct verb verb_top = {
	.name = "top",
	.summary = "watch live where a guest spends its time",
	.arguments = "[options] GUEST",
	.about = "Shows live where a guest spends its time: functions, vCPUs, pauses, the hottest "
		 "stack.\n"
		 "h shows the keys, q quits.\n",
	.options = options_of_top,
	.takes = TAKES_GUESTS,
	.run = top,
};
