/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/owned.h"
#include "cmd/shared/session.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "capture/capture.h"
#include "capture/image_locator.h"
#include "capture/sampler.h"
#include "target/guard.h"
#include "target/snapshot.h"

#define FETCH_FRAMES 1024

/* Longest sleep before a stop request is checked. */
#define NAP_NS (100 * 1000000ull)

/* Longest search before a stop request is checked. */
#define SEARCH_NS (10 * 1000000ull)

struct snapshot_session {
	struct snapshot_writer *writer;
	struct code_cache *text;
	struct image_locator *locator;
	struct unwinder *unwinder;
	enum unwind_method method;
	const volatile sig_atomic_t *stop;
	struct error *err; /* the first that a frame could not be written for */
};

static void on_frame(void *ctx, uint64_t gfn, const void *bytes)
{
	struct snapshot_session *writing = ctx;

	if (!writing->err)
		writing->err = snapshot_frame(writing->writer, gfn, bytes);
}

/* Requests the stack at `elsewhere` in place of an unused one; false if it was requested before. */
static bool ask_for_other(struct vcpu_sample *vcpu, uint32_t used, uint64_t elsewhere)
{
	struct other_stack *room = NULL;

	for (unsigned i = UNWIND_OTHERS; i-- > 0;) {
		struct other_stack *other = &vcpu->request.other[i];

		if (other->want && other->va == elsewhere)
			return false;
		if (!(used >> i & 1) && (!room || !other->want))
			room = other;
	}
	if (!room)
		return false;
	*room = (struct other_stack){elsewhere, OTHER_STACK_CAP, room->buffer};
	vcpu->request.leads_on |= (uint8_t)(1u << (room - vcpu->request.other));
	return true;
}

/*
 * Unwinds all stacks so that the target reads, and the snapshot holds, the code
 * that this needs. *again: a stack leads to another one, which is requested now.
 */
static struct error *fetch_code(struct snapshot_session *writing, struct sample *sample,
				bool *again)
{
	struct frame frames[FETCH_FRAMES];

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];
		struct unwind_input in = {.regs = &vcpu->regs,
					  .stack = &vcpu->stack,
					  .others = vcpu->others,
					  .n_others = vcpu_others(vcpu),
					  .code = code_cache_for(writing->text, &vcpu->regs,
								 sample->time_ns),
					  .unwinder = writing->unwinder,
					  .max_frames = FETCH_FRAMES,
					  .method = writing->method};
		struct unwind_result out;

		if (!vcpu->online)
			continue;
		unwind_stack(&in, frames, &out);
		if (out.end == UNWIND_BYTES && out.elsewhere)
			*again |= ask_for_other(vcpu, out.others, out.elsewhere);
	}
	return writing->err;
}

/* Searches for images to the end, so that the snapshot holds the memory that the search reads. */
static struct error *search(struct snapshot_session *writing, const struct sample *sample)
{
	uint64_t took_ns;

	TRY(image_locator_sample(writing->locator, sample, writing->stop, &took_ns));
	while (image_locator_busy(writing->locator) && !*writing->stop)
		TRY(image_locator_work(writing->locator, clock_now_ns() + SEARCH_NS));
	return NULL;
}

static struct error *one(struct target *target, struct snapshot_session *writing,
			 struct sample *sample)
{
	bool again = true;
	struct error *err = NULL;

	for (unsigned led_on = 0; !err && again && led_on <= UNWIND_OTHERS; led_on++) {
		again = false;
		if (led_on)
			snapshot_restart(writing->writer);
		err = target->ops->snapshot(target, sample);
		if (!err && !led_on)
			err = search(writing, sample);
		if (!err)
			err = fetch_code(writing, sample, &again);
	}
	if (writing->err && writing->err != err)
		error_free(writing->err);
	writing->err = NULL;
	return err ? err : snapshot_sample(writing->writer, sample);
}

/* Waits for the deadline, or a while; false if the loop is to end, with the outcome set. */
static bool wait_a_while(struct target *target, const struct sampler_options *how, uint64_t start,
			 struct pace *pace, struct sampler_result *result)
{
	uint64_t now = clock_now_ns(), until = pace->deadline_ns;
	enum target_life life;

	guard_let_stop();
	target_wait(target, until < now + NAP_NS ? until : now + NAP_NS);
	result->elapsed_ns = clock_now_ns() - start;
	result->outcome = SAMPLED_INTERRUPTED;
	if (*how->stop)
		return false;
	result->outcome = SAMPLED_TIME;
	if (how->duration_ns && result->elapsed_ns >= how->duration_ns)
		return false;
	life = target->ops->life(target);
	if (sampler_ended(life, &result->outcome))
		return false;
	if (life != LIFE_RUNS)
		pace_skip(pace, clock_now_ns() + NAP_NS);
	return true;
}

static struct error *loop(struct target *target, const struct session_options *options,
			  struct snapshot_session *writing, struct sample *sample,
			  struct sampler_result *result)
{
	const struct sampler_options *how = &options->sampler;
	uint64_t start = clock_now_ns(), now;
	struct error *err = NULL;
	struct pace pace;

	pace_start(&pace, start, (uint64_t)((double)NS_PER_S / how->rate_hz), !how->no_jitter,
		   start);
	while (!err && wait_a_while(target, how, start, &pace, result)) {
		now = clock_now_ns();
		if (now < pace.deadline_ns)
			continue;
		err = one(target, writing, sample);
		result->missed += pace_take(&pace, now) - 1;
		result->ticks += !err;
	}
	if (err && err->kind == ERR_ENDED) {
		error_free(err);
		err = NULL;
		result->outcome = SAMPLED_GONE;
	}
	return err;
}

static struct error *write_samples(struct target *target, const struct session_options *options,
				   struct snapshot_session *writing, struct sampler_result *result)
{
	const uint32_t cap = options->sampler.max_stack ?: STACK_DEFAULT;
	struct sample *sample;
	struct error *err;

	TRY(sample_new(target->info.vcpus, cap, &sample));
	/*
	 * The whole stack that may be asked for later, not only the bytes that
	 * unwinding needs now.
	 */
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].request.want = cap;
	err = loop(target, options, writing, sample, result);
	sample_free(sample);
	return err;
}

struct error *snapshot_check(const struct target *target)
{
	if (target->ops->snapshot)
		return NULL;
	return error_new(ERR_USAGE, "guests of kind \"%s\" cannot be snapshot",
			 target->ops->scheme);
}

struct error *snapshot_record(struct target *target, const struct session_options *options,
			      struct sampler_result *result)
{
	struct snapshot_session writing = {.method = options->sampler.method,
					   .stop = options->sampler.stop};
	const struct frame_witness witness = {on_frame, &writing};
	const struct image_locator_notes notes = {.ctx = (void *)options, .note = session_note};
	ENDED_BY(images_end) struct images *images = NULL;
	struct error *err;

	*result = (struct sampler_result){0};
	TRY(session_load_images(target, options, &images));
	TRY(snapshot_create(options->snapshot, &target->info, &writing.writer));
	target->witness = &witness;
	err = code_cache_new(target, images, &writing.text);
	if (!err)
		err = image_locator_new(target, images, &notes, &writing.locator);
	if (!err)
		err = unwinder_new(&writing.unwinder);
	if (!err)
		err = write_samples(target, options, &writing, result);
	err = error_first(err, snapshot_close(writing.writer));
	unwinder_free(writing.unwinder);
	image_locator_free(writing.locator);
	code_cache_free(writing.text);
	target->witness = NULL;
	if (!err && !options->quiet)
		cmd_say("%s: %" PRIu64 " samples", options->snapshot, result->ticks);
	return err;
}
