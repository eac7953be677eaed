/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/clock.h"
#include "target/snapshot_reader.h"
#include "target/target.h"
#include "target/window.h"

/*
 * A recorded guest: serves the samples of a snapshot file one after the other,
 * through the same page walks as a live one. Frames stay as they were recorded
 * last. Whoever asks for more of a stack than the last time means the same
 * sample once more: a live guest would be sampled again at once.
 */

/* What of a vCPU's stacks was asked for. */
struct request {
	uint32_t want;
	uint64_t other_va[UNWIND_OTHERS];
	uint32_t other_want[UNWIND_OTHERS];
};

struct replay {
	struct target base;
	struct snapshot_reader *reader;
	struct frame_store *frames;
	struct request *asked; /* the last time, for each vCPU of the guest */
	bool started;
	uint64_t shift_ns; /* from the recorded time to now's */
};

static void replay_close(struct target *target)
{
	struct replay *replay = (struct replay *)target;

	snapshot_reader_free(replay->reader);
	frame_store_free(replay->frames);
	free(replay->asked);
	free(replay);
}

static struct error *replay_open(const char *name, struct target **out)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	struct error *err;

	if (!replay)
		return error_no_memory();
	replay->base.ops = &target_replay;
	err = snapshot_open(name, &replay->base.info, &replay->reader);
	if (!err)
		err = frame_store_new(&replay->frames);
	if (!err) {
		replay->asked = calloc(replay->base.info.vcpus, sizeof(*replay->asked));
		if (!replay->asked)
			err = error_no_memory();
	}
	if (err)
		replay_close(&replay->base);
	else
		*out = &replay->base;
	return err;
}

/* Is more asked for of any stack than the last time? Remembers what is. */
static bool asks_for_more(struct replay *replay, const struct sample *sample)
{
	bool more = false;

	for (uint32_t i = 0; i < sample->vcpus && i < replay->base.info.vcpus; i++) {
		const struct vcpu_sample *vcpu = &sample->vcpu[i];
		struct request *asked = &replay->asked[i];

		more = more || vcpu->want > asked->want;
		asked->want = vcpu->want;
		for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
			const struct other_stack *other = &vcpu->other[k];

			more = more || (other->want &&
					(!asked->other_want[k] || other->va != asked->other_va[k]));
			asked->other_va[k] = other->va;
			asked->other_want[k] = other->want;
		}
	}
	return more;
}

static struct error *next_sample(struct replay *replay, struct sample *sample)
{
	struct error *err;
	bool more;

	err = snapshot_next(replay->reader, replay->frames, sample, &more);
	if (err)
		return err;
	if (!more)
		return error_new(ERR_ENDED, "the snapshot is through");
	if (!replay->started)
		replay->shift_ns = clock_now_ns() - sample->time_ns;
	replay->started = true;
	sample->time_ns += replay->shift_ns;
	return NULL;
}

/* Stack that was not recorded counts as cut off. */
static struct error *replay_sample(struct target *target, struct sample *sample)
{
	struct replay *replay = (struct replay *)target;
	const struct arch *arch = target->info.arch;
	const struct physmem mem = {.frame = frame_store_get, .ctx = replay->frames};
	struct error *err = NULL;
	uint64_t gfn;

	if (!asks_for_more(replay, sample) || !replay->started)
		err = next_sample(replay, sample);
	if (err)
		return err;
	for (uint32_t i = 0; i < sample->vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		if (!vcpu->online)
			continue;
		window_copy(arch, &vcpu->regs, vcpu->want, &mem, vcpu->buffer, &vcpu->stack, &gfn);
		for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
			const struct other_stack *other = &vcpu->other[k];

			window_copy_at(arch, &vcpu->regs, other->va, other->want, &mem,
				       other->buffer, &vcpu->others[k], &gfn);
		}
	}
	return NULL;
}

static enum target_life replay_life(struct target *target)
{
	return snapshot_has_next(((struct replay *)target)->reader) ? LIFE_RUNS : LIFE_GONE;
}

static size_t replay_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	struct replay *replay = (struct replay *)target;
	const struct physmem mem = {.frame = frame_store_get, .ctx = replay->frames};

	return window_read(target->info.arch, &regs->mmu, &mem, va, buf, len);
}

const struct target_ops target_replay = {
	.scheme = "replay",
	.open = replay_open,
	.close = replay_close,
	.sample = replay_sample,
	.life = replay_life,
	.read = replay_read,
};
