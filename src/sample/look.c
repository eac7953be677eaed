/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/look.h"

#include <stdlib.h>

#include "sample/text.h"

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

struct look {
	struct target *target;
	struct stacks *stacks;
	struct sample *sample;
	struct text *text;
	struct unwinder *unwinder;
	struct frame *frames;
	uint32_t max_frames;
	struct tick_entry *entries;
	struct depth *depths; /* of each vCPU */
	uint64_t retakes;
};

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
static struct error *unwind_vcpu(struct look *look, uint32_t i, struct tick_entry *entry,
				 bool *deeper)
{
	struct vcpu_sample *vcpu = &look->sample->vcpu[i];
	struct unwind_input in = {.regs = &vcpu->regs,
				  .stack = &vcpu->stack,
				  .other = vcpu->other.len ? &vcpu->other : NULL,
				  .code = text_code(look->text, &vcpu->regs, look->sample->time_ns),
				  .unwinder = look->unwinder,
				  .max_frames = look->max_frames};
	struct unwind_result out;
	struct error *err;
	bool whole;

	unwind_frame_pointer(&in, look->frames, &out);
	entry->vcpu = i;
	entry->state = (uint8_t)vcpu->state;
	entry->end = (uint8_t)out.end;
	if (out.end == UNWIND_BYTES)
		*deeper |= out.elsewhere ? ask_for_other(vcpu, out.elsewhere)
					 : ask_for_more(vcpu, look->sample->stack_cap, out.want);
	adapt_want(&look->depths[i], vcpu, look->sample->stack_cap,
		   out.used > out.want ? out.used : out.want);
	err = stacks_intern(look->stacks, look->frames, out.n, &entry->stack, &whole);
	if (!err && !whole)
		entry->end = UNWIND_FRAMES;
	return err;
}

static struct error *unwind_all(struct look *look, struct tick *tick, bool *deeper)
{
	struct error *err = NULL;

	tick->n = 0;
	for (uint32_t i = 0; i < look->sample->vcpus && !err; i++)
		if (look->sample->vcpu[i].online)
			err = unwind_vcpu(look, i, &look->entries[tick->n++], deeper);
	return err;
}

/* Takes the sample again, within reason, while stacks turn out to be deeper than expected. */
struct error *look_take(struct look *look, struct tick *tick)
{
	uint64_t stolen = 0;

	for (unsigned deeper_takes = 0;; deeper_takes++) {
		struct error *err = look->target->ops->sample(look->target, look->sample);
		bool deeper = false;

		if (err)
			return err;
		look->retakes += look->sample->retakes;
		stolen += look->sample->stolen_ns;
		err = unwind_all(look, tick, &deeper);
		if (err)
			return err;
		if (!deeper || deeper_takes == MAX_DEEPER)
			break;
		look->retakes++;
		stolen += look->sample->paused_ns;
	}
	tick->time_ns = look->sample->time_ns;
	tick->paused_ns = look->sample->paused_ns + stolen;
	tick->entries = look->entries;
	return NULL;
}

static struct error *prepare(struct look *look, const struct sampler_options *options)
{
	uint32_t vcpus = look->target->info.vcpus;
	uint32_t cap = options->max_stack ? options->max_stack : STACK_DEFAULT;
	struct error *err;

	look->max_frames = options->max_frames ? options->max_frames : FRAMES_DEFAULT;
	look->frames = calloc(look->max_frames, sizeof(*look->frames));
	look->entries = calloc(vcpus, sizeof(*look->entries));
	look->depths = calloc(vcpus, sizeof(*look->depths));
	if (!look->frames || !look->entries || !look->depths)
		return error_no_memory();
	err = sample_new(vcpus, cap, &look->sample);
	if (!err)
		err = text_new(look->target, options->symbols, &look->text);
	if (!err)
		err = unwinder_new(&look->unwinder);
	return err;
}

struct error *look_new(struct target *target, struct stacks *stacks,
		       const struct sampler_options *options, struct look **out)
{
	struct look *look = calloc(1, sizeof(*look));
	struct error *err;

	if (!look)
		return error_no_memory();
	look->target = target;
	look->stacks = stacks;
	err = prepare(look, options);
	if (err) {
		look_free(look);
		return err;
	}
	*out = look;
	return NULL;
}

void look_free(struct look *look)
{
	if (!look)
		return;
	unwinder_free(look->unwinder);
	text_free(look->text);
	sample_free(look->sample);
	free(look->depths);
	free(look->entries);
	free(look->frames);
	free(look);
}

uint64_t look_retakes(const struct look *look)
{
	return look ? look->retakes : 0;
}
