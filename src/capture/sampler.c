/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/sampler.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/privilege.h"
#include "capture/capture.h"
#include "target/guard.h"

void priority_raise(struct priority *before)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	before->locked = privilege_lock_memory();
	before->policy = sched_getscheduler(0);
	before->raised = before->policy >= 0 && !sched_getparam(0, &before->param) &&
			 !sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
}

void priority_restore(const struct priority *before)
{
	/* SCHED_RESET_ON_FORK stays: only root could take that back. */
	if (before->raised)
		sched_setscheduler(0, before->policy | SCHED_RESET_ON_FORK, &before->param);
	if (before->locked)
		munlockall();
}

/* Longest sleep before the loop checks for a stop request and for the guest's end. */
#define NAP_NS (100 * 1000000ull)
/* ... where nobody waits for it, and longer at rates below: each question has its price, and some ask another program. */
#define LONG_NAP_NS    (5 * NAP_NS)
#define LONGEST_NAP_NS (20 * NAP_NS)

/* Between two looks whether a guest that samples itself has done so. */
#define READY_NAP_NS (20 * 1000000ull)

/*
 * Samples in a row that may fail before the loop gives up, and for how long at least: a guest
 * whose owner stops it and lets it go is found running again by the next NAP_NS's question.
 */
#define MAX_FAILURES 100
#define FAILING_NS   (20 * NAP_NS)

/* Rest after one pause at most, where the bound on the overhead is the target's usual one. */
#define USUAL_REST_NS (10 * NAP_NS)

/*
 * A search for images takes turns with sleep, so that the guest gets the CPU
 * that it may share with us. At a rate that leaves no time between samples, it
 * takes a twentieth of the time.
 */
#define SEARCH_NS	   1000000ull
#define SEARCH_MARGIN_NS   100000ull
#define SEARCH_AT_LEAST_NS (20 * SEARCH_NS)

struct sampler {
	struct target *target;
	const struct sampler_options *options;
	const struct sampler_sink *sink;
	struct sampler_result *result;

	struct pace pace;
	struct capture *capture;
	struct waits *waits; /* NULL: not wanted */
	uint64_t start_ns, asked_ns, searched_ns;
	struct throttle throttle;
	struct priority priority;
	bool resting;	     /* the guest must be left alone for now */
	unsigned failures;   /* in a row */
	uint64_t failing_ns; /* when the first of them was */
	uint32_t threads;    /* so many have been handed on */
	uint64_t owed;	     /* periods whose sample failed: the next one stands for them, too */
};

const char *sampler_outcome_text(enum sampler_outcome outcome)
{
	static const char *const texts[] = {[SAMPLED_TIME] = "the time was over",
					    [SAMPLED_INTERRUPTED] = "interrupted",
					    [SAMPLED_SHUT_DOWN] = "the guest shut down",
					    [SAMPLED_CRASHED] = "the guest crashed",
					    [SAMPLED_GONE] = "the guest is gone"};

	return texts[outcome];
}

bool sampler_ended(enum target_life life, enum sampler_outcome *outcome)
{
	if (life == LIFE_RUNS || life == LIFE_PAUSED || life == LIFE_UNGUARDED)
		return false;
	*outcome = life == LIFE_SHUT_DOWN ? SAMPLED_SHUT_DOWN
		   : life == LIFE_CRASHED ? SAMPLED_CRASHED
					  : SAMPLED_GONE;
	return true;
}

/* True if the guest has ended; the outcome is then set. */
static bool guest_ended(struct sampler *s)
{
	enum target_life life = s->target->ops->life(s->target);

	s->resting = life == LIFE_PAUSED || life == LIFE_UNGUARDED;
	return sampler_ended(life, &s->result->outcome);
}

/* True if what is to be done has changed; each stretch is long enough to be worth its recording. */
static bool is_changed(const struct sampler_options *options, uint64_t elapsed_ns)
{
	return options->changes && elapsed_ns >= NS_PER_S &&
	       atomic_load_explicit(options->changes, memory_order_acquire) != options->change;
}

static uint64_t longest_nap(const struct sampler *s)
{
	const uint64_t period_ns = s->pace.period_ns;

	if (!s->options->changes)
		return NAP_NS;
	if (period_ns > LONGEST_NAP_NS)
		return LONGEST_NAP_NS;
	return period_ns > LONG_NAP_NS ? period_ns : LONG_NAP_NS;
}

/* Asks after each nap how the guest is; true if the loop is to end. */
static bool over(struct sampler *s, uint64_t now)
{
	const struct sampler_options *options = s->options;

	s->result->elapsed_ns = now - s->start_ns;
	if (options->stop && *options->stop) {
		s->result->outcome = SAMPLED_INTERRUPTED;
		return true;
	}
	if ((options->duration_ns && now - s->start_ns >= options->duration_ns) ||
	    is_changed(options, now - s->start_ns)) {
		s->result->outcome = SAMPLED_TIME;
		return true;
	}
	if (now - s->asked_ns < longest_nap(s))
		return false;
	s->asked_ns = now;
	guard_let_stop();
	if (s->sink->progress)
		s->sink->progress(s->sink->ctx, now - s->start_ns, s->result->ticks);
	return guest_ended(s);
}

/* Time of the next sample; a guest that must be left alone is sampled later. */
static uint64_t next_due(struct sampler *s, uint64_t now_ns)
{
	uint64_t due = throttle_due(&s->throttle, s->pace.deadline_ns);

	if (s->target->ops->ready)
		return s->target->ops->ready(s->target) ? now_ns : now_ns + READY_NAP_NS;
	if (!s->resting || now_ns < due)
		return due;
	pace_skip(&s->pace, now_ns + NAP_NS);
	return now_ns + NAP_NS;
}

/* Continues a search for images before the next sample is due. *nap: sleep no longer than this. */
static struct error *search(struct sampler *s, uint64_t now_ns, uint64_t due_ns, uint64_t *nap_ns)
{
	const uint64_t until_ns = now_ns + SEARCH_NS + SEARCH_MARGIN_NS;
	struct error *err;

	if (!s->options->locator || !image_locator_busy(s->options->locator))
		return NULL;
	if (due_ns < until_ns && now_ns - s->searched_ns < SEARCH_AT_LEAST_NS) {
		*nap_ns = due_ns;
		return NULL;
	}
	err = image_locator_work(s->options->locator, now_ns + SEARCH_NS);
	s->searched_ns = clock_now_ns();
	*nap_ns = s->searched_ns + SEARCH_NS;
	return err;
}

/* Sleeps until the next sample is due; *ended: the loop is to end. */
static struct error *wait_until_due(struct sampler *s, bool *ended)
{
	for (;;) {
		uint64_t now = clock_now_ns(), nap = now + longest_nap(s), due;

		*ended = over(s, now);
		due = *ended ? now : next_due(s, now);
		if (now >= due)
			return NULL;
		if (s->options->duration_ns && nap > s->start_ns + s->options->duration_ns)
			nap = s->start_ns + s->options->duration_ns;
		TRY(search(s, now, due, &nap));
		target_wait(s->target, due < nap ? due : nap);
	}
}

static void throttle_after_tick(struct sampler *s, uint64_t began_ns, uint64_t paused_ns)
{
	if (throttle_after(&s->throttle, began_ns, clock_now_ns(), paused_ns))
		s->result->slowed += s->throttle.until_ns > s->pace.deadline_ns;
}

/* True if the loop goes on after a sample that failed; the guest's state is asked for next. */
static bool may_fail(struct sampler *s, const struct error *err, uint64_t now_ns)
{
	if (err->kind != ERR_FAILED)
		return false;
	if (!s->failures++) {
		s->failing_ns = now_ns;
		s->asked_ns = 0;
	}
	return s->failures < MAX_FAILURES || now_ns - s->failing_ns < FAILING_NS;
}

static struct error *hand_on(struct sampler *s, const struct tick *tick)
{
	const struct thread_numbers *threads = capture_threads(s->capture);
	struct error *err = NULL;

	while (s->threads < thread_numbers_count(threads) && s->sink->thread && !err)
		err = s->sink->thread(s->sink->ctx, thread_numbers_get(threads, ++s->threads));
	return err || !s->sink->tick ? err : s->sink->tick(s->sink->ctx, tick);
}

/* Tells a tick when it was, and the time that it stands for. */
static void weigh(struct sampler *s, uint64_t due_ns, struct tick *tick)
{
	const struct sample *sample = capture_sample(s->capture);
	const uint64_t taken_ns = tick->time_ns;
	uint64_t lost = sample->lost;

	if (s->target->ops->ready) {
		tick->weight_ns = sample->weight_ns;
		due_ns = taken_ns;
	} else {
		const uint64_t periods = pace_take(&s->pace, taken_ns);

		tick->weight_ns = (periods + s->owed) * s->pace.period_ns;
		s->owed = 0;
		lost = periods - 1;
	}
	tick->time_ns = taken_ns > s->start_ns ? taken_ns - s->start_ns : 0;
	s->result->missed += lost;
	if (lost && s->sink->missed)
		s->sink->missed(s->sink->ctx, lost, taken_ns - due_ns);
}

static struct error *one_tick(struct sampler *s)
{
	struct tick tick = {0};
	uint64_t due = s->pace.deadline_ns, began = clock_now_ns();
	struct error *err;

	err = capture_tick(s->capture, began, &tick);
	/*
	 * Looking for images is no sampling, and at the beginning there may be much to find. A
	 * guest that samples itself goes on with that meanwhile.
	 */
	began += capture_locating_ns(s->capture);
	if (!s->result->ticks && !s->target->ops->ready) {
		s->start_ns += capture_locating_ns(s->capture);
		pace_delay(&s->pace, capture_locating_ns(s->capture));
	}
	if (err) {
		const uint64_t now = clock_now_ns();

		if (!may_fail(s, err, now))
			return err;
		error_free(err);
		s->result->failed++;
		s->owed += pace_take(&s->pace, now);
		return NULL;
	}
	s->failures = 0;
	weigh(s, due, &tick);
	s->result->ticks++;
	s->result->paused_ns += tick.paused_ns;
	err = s->waits ? waits_tick(s->waits, image_locator_threads(s->options->locator), &tick)
		       : NULL;
	throttle_after_tick(s, began, tick.paused_ns);
	return err ? err : hand_on(s, &tick);
}

static struct error *loop(struct sampler *s)
{
	struct error *err;
	bool ended;

	do {
		err = wait_until_due(s, &ended);
		if (!err && !ended)
			err = one_tick(s);
	} while (!err && !ended);
	if (err && err->kind == ERR_ENDED) {
		error_free(err);
		err = NULL;
		if (!guest_ended(s))
			s->result->outcome = SAMPLED_GONE;
	}
	s->result->elapsed_ns = clock_now_ns() - s->start_ns;
	return err;
}

static void count_waits(const struct sampler *s)
{
	const struct waits_counts counts = waits_count(s->waits);

	s->result->waiting = counts.samples;
	s->result->unproven = counts.unproven;
	s->result->lost_turns = counts.lost;
}

struct error *sampler_run(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, const struct sampler_sink *sink,
			  struct sampler_result *result)
{
	struct sampler s = {.target = target,
			    .options = options,
			    .sink = sink,
			    .result = result,
			    .throttle = {.max_overhead = options->max_overhead}};
	struct error *err;

	if (options->max_overhead <= 0)
		s.throttle = (struct throttle){.max_overhead = target->usual_overhead,
					       .max_rest_ns = USUAL_REST_NS};
	*result = (struct sampler_result){.max_overhead = s.throttle.max_overhead};
	err = target_check_runs(target);
	if (!err)
		err = capture_new(target, stacks, options, &s.capture);
	if (!err && options->waits)
		err = waits_new(target, s.capture, options, &s.waits);
	if (!err) {
		priority_raise(&s.priority);
		result->no_priority = !s.priority.raised;
		result->no_lock = !s.priority.locked;
		s.start_ns = clock_now_ns();
		pace_start(&s.pace, s.start_ns, (uint64_t)((double)NS_PER_S / options->rate_hz),
			   !options->no_jitter, s.start_ns * 2654435761u);
		err = loop(&s);
		priority_restore(&s.priority);
	}
	capture_tell(s.capture, result);
	count_waits(&s);
	waits_free(s.waits);
	capture_free(s.capture);
	return err;
}
