/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/snapshot.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "sample/pace.h"
#include "sample/text.h"
#include "target/snapshot.h"

#define LOOK_FRAMES 1024

/* How long we sleep at most before looking whether to stop. */
#define NAP_NS (100 * 1000000ull)

struct writing {
	struct snapshot_writer *writer;
	struct text *text;
	struct unwinder *unwinder;
	struct error *err; /* the first that a frame could not be written for */
};

static void on_frame(void *ctx, uint64_t gfn, const void *bytes)
{
	struct writing *writing = ctx;

	if (!writing->err)
		writing->err = snapshot_frame(writing->writer, gfn, bytes);
}

/*
 * Unwinds all stacks only to make the target look at, and so show, the code
 * that this needs. *again: a stack leads to another one, which is asked for now.
 */
static struct error *look_at_code(struct writing *writing, struct sample *sample, bool *again)
{
	struct frame frames[LOOK_FRAMES];

	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];
		struct unwind_input in = {.regs = &vcpu->regs,
					  .stack = &vcpu->stack,
					  .other = vcpu->other.len ? &vcpu->other : NULL,
					  .code = text_code(writing->text, &vcpu->regs,
							    sample->time_ns),
					  .unwinder = writing->unwinder,
					  .max_frames = LOOK_FRAMES};
		struct unwind_result out;

		if (!vcpu->online)
			continue;
		unwind_frame_pointer(&in, frames, &out);
		if (out.end != UNWIND_BYTES || !out.elsewhere || out.elsewhere == vcpu->other_va)
			continue;
		vcpu->other_va = out.elsewhere;
		vcpu->other_want = OTHER_STACK_CAP;
		*again = true;
	}
	return writing->err;
}

static struct error *one(struct target *target, struct writing *writing, struct sample *sample)
{
	bool again = false;
	struct error *err = target->ops->snapshot(target, sample);

	if (!err)
		err = look_at_code(writing, sample, &again);
	if (!err && again) {
		snapshot_restart(writing->writer);
		err = target->ops->snapshot(target, sample);
		if (!err)
			err = look_at_code(writing, sample, &again);
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
	uint64_t now = clock_now_ns(), until = pace_deadline(pace);
	enum target_life life;

	clock_sleep_until(until < now + NAP_NS ? until : now + NAP_NS);
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
			  struct writing *writing, struct sample *sample,
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
		if (now < pace_deadline(&pace))
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
				   struct writing *writing, struct sampler_result *result)
{
	uint32_t cap = options->sampler.max_stack ? options->sampler.max_stack : STACK_DEFAULT;
	struct sample *sample;
	struct error *err = sample_new(target->info.vcpus, cap, &sample);

	if (err)
		return err;
	/* All of the stack that may be asked for later, not what unwinding needs now. */
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].want = cap;
	err = loop(target, options, writing, sample, result);
	sample_free(sample);
	return err;
}

struct error *snapshot_record(struct target *target, const struct session_options *options,
			      struct sampler_result *result)
{
	struct writing writing = {0};
	const struct frame_witness witness = {on_frame, &writing};
	struct symbols *symbols = NULL;
	struct error *err;

	memset(result, 0, sizeof(*result));
	if (!target->ops->snapshot)
		return error_new(ERR_USAGE, "guests of kind \"%s\" cannot be snapshot",
				 target->ops->scheme);
	err = session_load_symbols(target, options, &symbols);
	if (!err)
		err = snapshot_create(options->snapshot, &target->info, &writing.writer);
	if (err) {
		symbols_free(symbols);
		return err;
	}
	target->witness = &witness;
	err = text_new(target, symbols, &writing.text);
	if (!err)
		err = unwinder_new(&writing.unwinder);
	if (!err)
		err = write_samples(target, options, &writing, result);
	err = error_first(err, snapshot_close(writing.writer));
	unwinder_free(writing.unwinder);
	text_free(writing.text);
	symbols_free(symbols);
	target->witness = NULL;
	if (!err && !options->quiet)
		say("%s: %" PRIu64 " samples", options->snapshot, result->ticks);
	return err;
}
