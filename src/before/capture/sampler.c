/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/sampler.h"

#include <string.h>

#include "base/clock.h"
#include "sample/look.h"
#include "capture/pace.h"
#include "sample/priority.h"
#include "sample/rest.h"

/* How long we sleep at most before looking whether to stop, and whether the guest lives. */
#define NAP_NS (100 * 1000000ull)

/* Samples in a row that may fail before the loop gives up. */
#define MAX_FAILURES 100

struct sampler {
	struct target *target;
	const struct sampler_options *options;
	const struct sampler_sink *sink;
	struct sampler_result *result;

	struct pace pace;
	struct look *look;
	uint64_t start_ns, looked_ns;
	struct rest rest;
	struct priority priority;
	bool resting;	   /* the guest must be left alone for now */
	unsigned failures; /* in a row */
	uint64_t owed;	   /* periods whose sample failed: the next one stands for them, too */
};

const char *sampler_outcome_text(enum sampler_outcome outcome)
{
	switch (outcome) {
	case SAMPLED_TIME:
		return "the time was over";
	case SAMPLED_INTERRUPTED:
		return "interrupted";
	case SAMPLED_SHUT_DOWN:
		return "the guest shut down";
	case SAMPLED_CRASHED:
		return "the guest crashed";
	case SAMPLED_GONE:
		return "the guest is gone";
	}
	return "unknown";
}

bool sampler_ended(enum target_life life, enum sampler_outcome *outcome)
{
	switch (life) {
	case LIFE_RUNS:
	case LIFE_PAUSED:
	case LIFE_UNGUARDED:
		return false;
	case LIFE_SHUT_DOWN:
		*outcome = SAMPLED_SHUT_DOWN;
		return true;
	case LIFE_CRASHED:
		*outcome = SAMPLED_CRASHED;
		return true;
	case LIFE_GONE:
		break;
	}
	*outcome = SAMPLED_GONE;
	return true;
}

/* True if the guest has ended; the outcome is then set. */
static bool guest_ended(struct sampler *s)
{
	enum target_life life = s->target->ops->life(s->target);

	s->resting = life == LIFE_PAUSED || life == LIFE_UNGUARDED;
	return sampler_ended(life, &s->result->outcome);
}

/* Looks around every NAP_NS; true if the loop is to end. */
static bool over(struct sampler *s, uint64_t now)
{
	const struct sampler_options *options = s->options;

	s->result->elapsed_ns = now - s->start_ns;
	if (options->stop && *options->stop) {
		s->result->outcome = SAMPLED_INTERRUPTED;
		return true;
	}
	if (options->duration_ns && now - s->start_ns >= options->duration_ns) {
		s->result->outcome = SAMPLED_TIME;
		return true;
	}
	if (now - s->looked_ns < NAP_NS)
		return false;
	s->looked_ns = now;
	if (s->sink->progress)
		s->sink->progress(s->sink->ctx, now - s->start_ns, s->result->ticks);
	return guest_ended(s);
}

/* When the next sample is due; a guest that must be left alone is looked at again later. */
static uint64_t next_due(struct sampler *s, uint64_t now_ns)
{
	uint64_t due = rest_due(&s->rest, pace_deadline(&s->pace));

	if (!s->resting || now_ns < due)
		return due;
	pace_skip(&s->pace, now_ns + NAP_NS);
	return now_ns + NAP_NS;
}

/* Sleeps until the next sample is due; false if the loop is to end. */
static bool wait_until_due(struct sampler *s)
{
	for (;;) {
		uint64_t now = clock_now_ns(), nap = now + NAP_NS, due;

		if (over(s, now))
			return false;
		due = next_due(s, now);
		if (now >= due)
			return true;
		if (s->options->duration_ns && nap > s->start_ns + s->options->duration_ns)
			nap = s->start_ns + s->options->duration_ns;
		target_wait(s->target, due < nap ? due : nap);
	}
}

static void rest_after_tick(struct sampler *s, uint64_t began_ns, uint64_t paused_ns)
{
	if (rest_after(&s->rest, began_ns, clock_now_ns(), paused_ns))
		s->result->slowed += s->rest.until_ns > pace_deadline(&s->pace);
}

static struct error *one_tick(struct sampler *s)
{
	struct tick tick = {0};
	uint64_t due = pace_deadline(&s->pace), began = clock_now_ns(), taken, periods;
	struct error *err;

	err = look_take(s->look, began, &tick);
	/* Looking for images is no sampling, and at the beginning there may be much to find. */
	began += look_settle_ns(s->look);
	if (!s->result->ticks) {
		s->start_ns += look_settle_ns(s->look);
		pace_delay(&s->pace, look_settle_ns(s->look));
	}
	taken = err ? clock_now_ns() : tick.time_ns;
	if (err && err->kind == ERR_FAILED && ++s->failures < MAX_FAILURES) {
		error_free(err);
		s->result->failed++;
		s->owed += pace_take(&s->pace, taken);
		return NULL;
	}
	if (err)
		return err;
	s->failures = 0;
	periods = pace_take(&s->pace, taken);
	tick.time_ns = taken > s->start_ns ? taken - s->start_ns : 0;
	tick.weight_ns = (periods + s->owed) * s->pace.period_ns;
	s->owed = 0;
	s->result->missed += periods - 1;
	if (periods > 1 && s->sink->missed)
		s->sink->missed(s->sink->ctx, periods - 1, taken - due);
	s->result->ticks++;
	rest_after_tick(s, began, tick.paused_ns);
	return s->sink->tick ? s->sink->tick(s->sink->ctx, &tick) : NULL;
}

static struct error *loop(struct sampler *s)
{
	struct error *err = NULL;

	while (!err && wait_until_due(s))
		err = one_tick(s);
	if (err && err->kind == ERR_ENDED) {
		error_free(err);
		err = NULL;
		if (!guest_ended(s))
			s->result->outcome = SAMPLED_GONE;
	}
	s->result->elapsed_ns = clock_now_ns() - s->start_ns;
	return err;
}

struct error *sampler_run(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, const struct sampler_sink *sink,
			  struct sampler_result *result)
{
	struct sampler s = {.target = target,
			    .options = options,
			    .sink = sink,
			    .result = result,
			    .rest = {.max_overhead = options->max_overhead}};
	struct error *err;

	memset(result, 0, sizeof(*result));
	err = target_check_runs(target);
	if (!err)
		err = look_new(target, stacks, options, &s.look);
	if (!err) {
		priority_raise(&s.priority);
		s.start_ns = clock_now_ns();
		pace_start(&s.pace, s.start_ns, (uint64_t)((double)NS_PER_S / options->rate_hz),
			   !options->no_jitter, s.start_ns * 2654435761u);
		err = loop(&s);
		priority_restore(&s.priority);
	}
	result->retakes = look_retakes(s.look);
	result->given_up = look_given_up(s.look);
	result->no_room = look_no_room(s.look);
	look_free(s.look);
	return err;
}
