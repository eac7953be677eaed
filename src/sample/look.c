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

/* Another stack that so many stacks have not led to is not copied any more. */
#define OTHER_STACK_PATIENCE 64

/* How much of a vCPU's stack was needed: the most of this stretch of samples, and the last. */
struct depth {
	uint64_t now, before; /* bytes */
	uint32_t samples;
	uint32_t idle[UNWIND_OTHERS]; /* stacks since the last that led to this one */
};

struct look {
	struct target *target;
	struct stacks *stacks;
	struct sample *sample;
	struct text *text;
	struct settle *settle; /* may be NULL */
	struct unwinder *unwinder;
	struct frame *frames;
	struct memo **memos; /* of each vCPU */
	uint32_t max_frames;
	enum unwind_method method;
	struct tick_entry *entries;
	struct depth *depths;	 /* of each vCPU */
	struct tick_entry *last; /* of each vCPU: what it had last, and CPU time that waits */
	uint64_t retakes;
	uint64_t given_up;
	uint64_t no_room;
	uint64_t settle_ns;
};

/*
 * Asks for another stack, in place of the one that was of no use for longest;
 * those that led here, `used`, stay. What turned out to be none (the frame
 * pointer was something else) is not asked for again while it is here.
 */
static bool ask_for_other(struct depth *depth, struct vcpu_sample *vcpu, uint32_t used,
			  uint64_t elsewhere)
{
	unsigned best = UNWIND_OTHERS;

	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		if (vcpu->other[i].want && vcpu->other[i].va == elsewhere)
			return false;
		if (!(used >> i & 1) &&
		    (best == UNWIND_OTHERS || depth->idle[i] > depth->idle[best]))
			best = i;
	}
	if (best == UNWIND_OTHERS)
		return false;
	vcpu->other[best].va = elsewhere;
	vcpu->other[best].want = OTHER_STACK_WANT;
	vcpu->leads_on = true;
	depth->idle[best] = 0;
	return true;
}

static void drop_idle_others(struct depth *depth, struct vcpu_sample *vcpu, uint32_t used)
{
	bool wanted = false;

	if (!vcpu->leads_on)
		return;
	for (unsigned i = 0; i < UNWIND_OTHERS; i++) {
		depth->idle[i] = used >> i & 1 ? 0 : depth->idle[i] + 1;
		if (depth->idle[i] >= OTHER_STACK_PATIENCE)
			vcpu->other[i].want = 0;
		wanted |= vcpu->other[i].want > 0;
	}
	vcpu->leads_on = wanted;
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

/* Of a stack that is remembered, only the frames that the one before had not. */
static struct error *intern(struct look *look, struct memo *memo, const struct unwind_result *out,
			    uint32_t *id, bool *whole)
{
	uint32_t *ids = unwind_memo_ids(memo, out->n), parent = STACK_ROOT;
	size_t i = out->n - out->common;

	if (!ids)
		return stacks_intern(look->stacks, look->frames, out->n, id, whole);
	if (out->common)
		parent = ids[i];
	for (*whole = true; *whole && i-- > 0; parent = ids[i]) {
		struct error *err =
			stacks_add(look->stacks, parent, &look->frames[i], &ids[i], whole);

		if (err)
			return err;
		if (!*whole) {
			unwind_memo_forget(memo);
			break;
		}
	}
	*id = parent;
	return NULL;
}

/* Unwinds one vCPU into *entry; *deeper is set when more of its stack should be copied. */
static struct error *unwind_vcpu(struct look *look, uint32_t i, struct tick_entry *entry,
				 bool *deeper)
{
	struct vcpu_sample *vcpu = &look->sample->vcpu[i];
	struct unwind_input in = {.regs = &vcpu->regs,
				  .stack = &vcpu->stack,
				  .others = vcpu->others,
				  .n_others = vcpu_others(vcpu),
				  .code = text_code(look->text, &vcpu->regs, look->sample->time_ns),
				  .unwinder = look->unwinder,
				  .max_frames = look->max_frames,
				  .method = look->method};
	struct unwind_result out;
	struct error *err;
	bool whole;

	in.memo = look->memos[i];
	unwind_stack(&in, look->frames, &out);
	entry->end = (uint8_t)out.end;
	vcpu->again = false;
	drop_idle_others(&look->depths[i], vcpu, out.others);
	if (out.end == UNWIND_BYTES && !vcpu->hurried)
		vcpu->again = out.elsewhere ? ask_for_other(&look->depths[i], vcpu, out.others,
							    out.elsewhere)
					    : ask_for_more(vcpu, look->sample->stack_cap, out.want);
	*deeper |= vcpu->again;
	adapt_want(&look->depths[i], vcpu, look->sample->stack_cap,
		   out.used > out.want ? out.used : out.want);
	err = intern(look, look->memos[i], &out, &entry->stack, &whole);
	if (!err && !whole) {
		entry->end = UNWIND_NO_ROOM;
		look->no_room++;
	}
	return err;
}

/*
 * Unwinds what was read. The state is that of the first take: by the next, the
 * vCPU may not have run again.
 */
static struct error *unwind_all(struct look *look, bool first, bool *deeper)
{
	struct error *err = NULL;

	for (uint32_t i = 0; i < look->sample->vcpus && !err; i++) {
		const struct vcpu_sample *vcpu = &look->sample->vcpu[i];
		struct tick_entry *last = &look->last[i];

		if (!vcpu->online)
			continue;
		last->ran_ns += vcpu->ran_ns;
		if (first)
			last->state = (uint8_t)vcpu->state;
		if (!vcpu->same && !vcpu->given_up)
			err = unwind_vcpu(look, i, last, deeper);
	}
	return err;
}

/*
 * CPU time goes to the stacks that are found on a CPU: a vCPU that has run and
 * gone to sleep since keeps what it used until it is seen at work.
 */
static void fill_tick(struct look *look, struct tick *tick)
{
	tick->n = 0;
	for (uint32_t i = 0; i < look->sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &look->sample->vcpu[i];
		struct tick_entry *last = &look->last[i], *entry = &look->entries[tick->n];

		vcpu->again = false;
		look->given_up += vcpu->online && (vcpu->given_up || vcpu->hurried);
		if (!vcpu->online || vcpu->given_up)
			continue;
		*entry = *last;
		entry->vcpu = i;
		if (last->state == VCPU_RUNNING)
			last->ran_ns = 0;
		else
			entry->ran_ns = 0;
		tick->n++;
	}
	tick->entries = look->entries;
}

/* Finds out where the images are, which may take a while, when there is something to be found. */
static struct error *settle(struct look *look)
{
	struct error *err;
	uint64_t took_ns;

	if (!look->settle)
		return NULL;
	err = settle_look(look->settle, look->sample, &took_ns);
	look->settle_ns += took_ns;
	return err;
}

/*
 * Takes the sample again, within reason, while stacks turn out to be deeper than expected.
 * Stays by itself: as a part of its caller it takes 170 instructions more for a sample.
 */
__attribute__((noinline)) struct error *look_take(struct look *look, uint64_t now_ns,
						  struct tick *tick)
{
	uint64_t stolen = 0;

	look->settle_ns = 0;
	for (unsigned deeper_takes = 0;; deeper_takes++) {
		struct error *err;
		bool deeper = false;

		look->sample->now_ns = deeper_takes ? 0 : now_ns;
		err = look->target->ops->sample(look->target, look->sample);
		if (err)
			return err;
		unwinder_ration(look->unwinder, look->sample->time_ns);
		look->retakes += look->sample->retakes;
		stolen += look->sample->stolen_ns;
		err = settle(look);
		if (err)
			return err;
		err = unwind_all(look, deeper_takes == 0, &deeper);
		if (err)
			return err;
		if (!deeper || deeper_takes == MAX_DEEPER)
			break;
		look->retakes++;
		stolen += look->sample->paused_ns;
	}
	tick->time_ns = look->sample->time_ns;
	tick->paused_ns = look->sample->paused_ns + stolen;
	fill_tick(look, tick);
	return NULL;
}

static struct error *prepare(struct look *look, const struct sampler_options *options)
{
	uint32_t vcpus = look->target->info.vcpus;
	uint32_t cap = options->max_stack ? options->max_stack : STACK_DEFAULT;
	struct error *err;

	look->max_frames = options->max_frames ? options->max_frames : FRAMES_DEFAULT;
	look->method = options->method;
	look->frames = calloc(look->max_frames, sizeof(*look->frames));
	look->entries = calloc(vcpus, sizeof(*look->entries));
	look->depths = calloc(vcpus, sizeof(*look->depths));
	look->last = calloc(vcpus, sizeof(*look->last));
	look->memos = calloc(vcpus, sizeof(*look->memos));
	if (!look->frames || !look->entries || !look->depths || !look->last || !look->memos)
		return error_no_memory();
	err = sample_new(vcpus, cap, &look->sample);
	for (uint32_t i = 0; i < vcpus && !err; i++)
		err = unwind_memo_new(&look->memos[i]);
	for (uint32_t i = 0; i < vcpus && !err && options->first_stack; i++)
		look->sample->vcpu[i].want =
			options->first_stack < cap ? options->first_stack : cap;
	if (!err)
		look->sample->max_pause_ns = options->max_pause_ns;
	stacks_limit(look->stacks, options->max_memory ? options->max_memory : MEMORY_DEFAULT);
	if (!err)
		err = text_new(look->target, options->images, &look->text);
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
	look->settle = options->settle;
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
	free(look->last);
	for (uint32_t i = 0; look->memos && i < look->target->info.vcpus; i++)
		unwind_memo_free(look->memos[i]);
	free(look->memos);
	free(look->entries);
	free(look->frames);
	free(look);
}

const struct sample *look_sample(const struct look *look)
{
	return look->sample;
}

uint64_t look_settle_ns(const struct look *look)
{
	return look->settle_ns;
}

uint64_t look_retakes(const struct look *look)
{
	return look ? look->retakes : 0;
}

uint64_t look_given_up(const struct look *look)
{
	return look ? look->given_up : 0;
}

uint64_t look_no_room(const struct look *look)
{
	return look ? look->no_room : 0;
}
