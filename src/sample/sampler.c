/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sample/pace.h"
#include "sample/priority.h"
#include "sample/text.h"

/* How long we sleep at most before looking whether to stop, and whether the guest lives. */
#define NAP_NS (100 * 1000000ull)

/* Samples in a row that may fail before the loop gives up. */
#define MAX_FAILURES 100

/* How often a sample is repeated because a stack was deeper than what was copied of it. */
#define MAX_DEEPER 5

/* See adapt_want. */
#define DEPTH_SAMPLES 64
#define DEPTH_MARGIN  128u /* bytes */
#define DEPTH_LEAST   512u /* bytes: where a caller has to be searched for */

/* What is copied of another stack that a stack leads to, bytes. */
#define OTHER_STACK_WANT 4096u

/* How much of a vCPU's stack was needed: the most of this stretch of samples, and the last. */
struct depth {
	uint64_t now, before; /* bytes */
	uint32_t samples;
};

struct sampler {
	struct target *target;
	struct stacks *stacks;
	const struct sampler_options *options;
	const struct sampler_sink *sink;
	struct sampler_result *result;

	struct pace pace;
	struct sample *sample;
	struct text *text;
	struct unwinder *unwinder;
	struct frame *frames;
	uint32_t max_frames;
	struct tick_entry *entries;
	struct depth *depths; /* of each vCPU */
	uint64_t start_ns, looked_ns;
	uint64_t rest_ns; /* no sample before this time: the guest and other processes get theirs */
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

/* True if the guest has ended; the outcome is then set. */
static bool guest_ended(struct sampler *s)
{
	switch (s->target->ops->life(s->target)) {
	case LIFE_RUNS:
		s->resting = false;
		return false;
	case LIFE_PAUSED:
	case LIFE_UNGUARDED:
		s->resting = true;
		return false;
	case LIFE_SHUT_DOWN:
		s->result->outcome = SAMPLED_SHUT_DOWN;
		return true;
	case LIFE_CRASHED:
		s->result->outcome = SAMPLED_CRASHED;
		return true;
	case LIFE_GONE:
		break;
	}
	s->result->outcome = SAMPLED_GONE;
	return true;
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

/* Sleeps until the next deadline; false if the loop is to end. */
static bool wait_for_deadline(struct sampler *s)
{
	for (;;) {
		uint64_t deadline = pace_deadline(&s->pace), now = clock_now_ns(),
			 nap = now + NAP_NS;

		if (over(s, now))
			return false;
		if (now >= deadline && !s->resting)
			return true;
		if (now >= deadline) {
			pace_skip(&s->pace, now + NAP_NS);
			deadline = now + NAP_NS;
		}
		if (s->options->duration_ns && nap > s->start_ns + s->options->duration_ns)
			nap = s->start_ns + s->options->duration_ns;
		clock_sleep_until(deadline < nap ? deadline : nap);
	}
}

/*
 * Another stack that turned out to be none (the frame pointer was something
 * else) is not asked for again before it leads elsewhere.
 */
static bool ask_for_other(struct vcpu_sample *vcpu, uint64_t elsewhere)
{
	if (vcpu->other_want && vcpu->other_va == elsewhere)
		return false;
	vcpu->other_va = elsewhere;
	vcpu->other_want = OTHER_STACK_WANT;
	return true;
}

/*
 * What stacks needed lately is what is copied, and some more: copying is most
 * of what uniprof adds to the pause. Looks at two stretches of DEPTH_SAMPLES,
 * so that what was deep once is forgotten.
 */
static void adapt_want(struct depth *depth, struct vcpu_sample *vcpu, uint32_t cap, uint64_t used)
{
	uint64_t most;

	if (used > depth->now)
		depth->now = used;
	if (++depth->samples < DEPTH_SAMPLES)
		return;
	most = depth->now > depth->before ? depth->now : depth->before;
	most = (most + most / 8 + DEPTH_MARGIN) & ~63ull;
	if (most < DEPTH_LEAST)
		most = DEPTH_LEAST;
	vcpu->want = most < cap ? (uint32_t)most : cap;
	depth->before = depth->now;
	depth->now = 0;
	depth->samples = 0;
}

static bool ask_for_more(struct vcpu_sample *vcpu, uint32_t cap, uint64_t want)
{
	if (!vcpu->stack.cut || vcpu->want >= cap)
		return false;
	if (want < 4ull * vcpu->want)
		want = 4ull * vcpu->want;
	vcpu->want = want < cap ? (uint32_t)want : cap;
	return true;
}

/* Unwinds one vCPU into *entry; *deeper is set when more of its stack should be copied. */
static struct error *unwind_vcpu(struct sampler *s, uint32_t i, struct tick_entry *entry,
				 bool *deeper)
{
	struct vcpu_sample *vcpu = &s->sample->vcpu[i];
	struct unwind_input in = {.regs = &vcpu->regs,
				  .stack = &vcpu->stack,
				  .other = vcpu->other.len ? &vcpu->other : NULL,
				  .code = text_code(s->text, &vcpu->regs, s->sample->time_ns),
				  .unwinder = s->unwinder,
				  .max_frames = s->max_frames};
	struct unwind_result out;
	struct error *err;
	bool whole;

	unwind_frame_pointer(&in, s->frames, &out);
	entry->vcpu = i;
	entry->state = (uint8_t)vcpu->state;
	entry->end = (uint8_t)out.end;
	if (out.end == UNWIND_BYTES)
		*deeper |= out.elsewhere ? ask_for_other(vcpu, out.elsewhere)
					 : ask_for_more(vcpu, s->sample->stack_cap, out.want);
	adapt_want(&s->depths[i], vcpu, s->sample->stack_cap,
		   out.used > out.want ? out.used : out.want);
	err = stacks_intern(s->stacks, s->frames, out.n, &entry->stack, &whole);
	if (!err && !whole)
		entry->end = UNWIND_FRAMES;
	return err;
}

static struct error *unwind_all(struct sampler *s, struct tick *tick, bool *deeper)
{
	struct error *err = NULL;

	tick->n = 0;
	for (uint32_t i = 0; i < s->sample->vcpus && !err; i++)
		if (s->sample->vcpu[i].online)
			err = unwind_vcpu(s, i, &s->entries[tick->n++], deeper);
	return err;
}

/* Takes the sample again, within reason, while stacks turn out to be deeper than expected. */
static struct error *sample_and_unwind(struct sampler *s, struct tick *tick)
{
	uint64_t stolen = 0;

	for (unsigned deeper_takes = 0;; deeper_takes++) {
		struct error *err = s->target->ops->sample(s->target, s->sample);
		bool deeper = false;

		if (err)
			return err;
		s->result->retakes += s->sample->retakes;
		stolen += s->sample->stolen_ns;
		err = unwind_all(s, tick, &deeper);
		if (err)
			return err;
		if (!deeper || deeper_takes == MAX_DEEPER)
			break;
		s->result->retakes++;
		stolen += s->sample->paused_ns;
	}
	tick->paused_ns = s->sample->paused_ns + stolen;
	return NULL;
}

/*
 * After a sample we rest at least as long as it took, so that at rates that
 * cannot be kept neither the guest nor this host stands still for us; and
 * longer, if the share of time that the guest is paused has a bound.
 */
static void rest_after(struct sampler *s, uint64_t began_ns, uint64_t paused_ns)
{
	uint64_t now = clock_now_ns(), rest = now - began_ns;
	double bound = s->options->max_overhead;

	if (bound > 0) {
		double share = (double)paused_ns * (1 - bound) / bound;

		if (share > (double)rest) {
			rest = (uint64_t)share;
			s->result->slowed += now + rest > pace_deadline(&s->pace);
		}
	}
	s->rest_ns = now + rest;
}

static struct error *one_tick(struct sampler *s)
{
	struct tick tick = {.entries = s->entries};
	uint64_t due = pace_deadline(&s->pace), began = clock_now_ns(), taken, periods;
	struct error *err;

	err = sample_and_unwind(s, &tick);
	taken = err ? clock_now_ns() : s->sample->time_ns;
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
	rest_after(s, began, tick.paused_ns);
	return s->sink->tick ? s->sink->tick(s->sink->ctx, &tick) : NULL;
}

static struct error *loop(struct sampler *s)
{
	struct error *err = NULL;

	while (!err && wait_for_deadline(s))
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

static struct error *prepare(struct sampler *s)
{
	const struct sampler_options *options = s->options;
	uint32_t vcpus = s->target->info.vcpus;
	uint32_t cap = options->max_stack ? options->max_stack : STACK_DEFAULT;
	struct error *err;

	s->max_frames = options->max_frames ? options->max_frames : FRAMES_DEFAULT;
	s->frames = calloc(s->max_frames, sizeof(*s->frames));
	s->entries = calloc(vcpus, sizeof(*s->entries));
	s->depths = calloc(vcpus, sizeof(*s->depths));
	if (!s->frames || !s->entries || !s->depths)
		return error_no_memory();
	err = sample_new(vcpus, cap, &s->sample);
	if (!err)
		err = text_new(s->target, options->symbols, &s->text);
	if (!err)
		err = unwinder_new(&s->unwinder);
	return err;
}

struct error *sampler_run(struct target *target, struct stacks *stacks,
			  const struct sampler_options *options, const struct sampler_sink *sink,
			  struct sampler_result *result)
{
	struct sampler s = {.target = target,
			    .stacks = stacks,
			    .options = options,
			    .sink = sink,
			    .result = result};
	struct error *err;

	memset(result, 0, sizeof(*result));
	err = prepare(&s);
	if (!err) {
		priority_raise(&s.priority);
		s.start_ns = s.looked_ns = clock_now_ns();
		pace_start(&s.pace, s.start_ns, (uint64_t)((double)NS_PER_S / options->rate_hz),
			   !options->no_jitter, s.start_ns * 2654435761u);
		err = loop(&s);
		priority_restore(&s.priority);
	}
	unwinder_free(s.unwinder);
	text_free(s.text);
	sample_free(s.sample);
	free(s.depths);
	free(s.entries);
	free(s.frames);
	return err;
}
