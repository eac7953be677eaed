/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/glance_take.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sample/look.h"
#include "sample/priority.h"

struct glance_taken {
	struct glance glance;
	struct images *images;
	struct settle *settle;
	struct stacks *stacks;
	struct look *look;
};

const struct glance *glance_of(const struct glance_taken *taken)
{
	return &taken->glance;
}

void glance_free(struct glance_taken *taken)
{
	struct glance *glance = &taken->glance;

	for (size_t i = 0; i < glance->n_vcpus; i++)
		free(glance->vcpus[i].frames);
	for (size_t i = 0; i < glance->n_memory; i++)
		free(glance->memory[i].bytes);
	free(glance->vcpus);
	namer_free(glance->namer);
	look_free(taken->look);
	stacks_free(taken->stacks);
	settle_free(taken->settle);
	images_free(taken->images);
	free(taken);
}

static struct error *check_life(struct target *target, enum target_life *life)
{
	*life = target->ops->life(target);
	if (*life == LIFE_GONE)
		return error_new(ERR_GUEST, "there is nothing left to see of the guest");
	if (*life == LIFE_UNGUARDED)
		return error_new(ERR_FAILED, "the guard cannot be started that would let the guest "
					     "run again, should this program be killed");
	return NULL;
}

static struct error *prepare(struct glance_taken *taken, struct target *target,
			     const struct session_options *options)
{
	const struct settle_notes notes = {.ctx = (void *)options, .note = session_note};
	struct sampler_options sampler = options->sampler;
	struct error *err = session_load_images(target, options, &taken->images);

	if (!err)
		err = settle_new(target, taken->images, &notes, &taken->settle);
	if (!err)
		err = stacks_new(&taken->stacks);
	sampler.images = taken->images;
	sampler.settle = taken->settle;
	if (!err)
		err = look_new(target, taken->stacks, &sampler, &taken->look);
	if (!err)
		err = namer_new(taken->images, NULL, &taken->glance.namer);
	return err;
}

/* A thread that waits for a CPU cannot always be stopped at once. */
#define LOOKS_MOST 50
#define NAP_NS	   (20 * 1000000ull)

static struct error *look_once(struct glance_taken *taken, struct target *target, struct tick *tick)
{
	struct priority priority;
	struct error *err;

	priority_raise(&priority);
	err = look_take(taken->look, 0, tick);
	for (unsigned looks = 1; !err && !tick->n && looks < LOOKS_MOST; looks++) {
		clock_sleep_until(clock_now_ns() + NAP_NS);
		err = look_take(taken->look, 0, tick);
	}
	priority_restore(&priority);
	taken->glance.unix_ns = clock_unix_ns();
	if (!err)
		taken->glance.paused_ns = tick->paused_ns;
	return err;
}

static struct error *take_frames(const struct stacks *stacks, const struct tick_entry *entry,
				 struct glance_vcpu *out)
{
	size_t n = stacks_depth(stacks, entry->stack);

	out->frames = calloc(n ? n : 1, sizeof(*out->frames));
	if (!out->frames)
		return error_no_memory();
	for (uint32_t id = entry->stack; id != STACK_ROOT; out->n_frames++) {
		const struct stack_node *node = stacks_node(stacks, id);

		out->frames[out->n_frames] = (struct frame){.addr = node->addr,
							    .kind = node->kind,
							    .trust = node->trust};
		id = node->parent;
	}
	out->end = (enum unwind_end)entry->end;
	return NULL;
}

static struct error *take_vcpu(struct glance_taken *taken, struct target *target,
			       const struct tick_entry *entry, struct disassembler *disassembler,
			       struct glance_vcpu *out)
{
	const struct vcpu_sample *vcpu = &look_sample(taken->look)->vcpu[entry->vcpu];

	out->online = true;
	out->state = (enum vcpu_state)entry->state;
	out->regs = &vcpu->regs;
	out->stack = &vcpu->stack;
	if (target->ops->registers)
		target->ops->registers(target, entry->vcpu, &out->registers);
	else
		target->info.arch->show(&vcpu->regs, &out->registers);
	glance_read_code(target, taken->images, &vcpu->regs, disassembler, out);
	return take_frames(taken->stacks, entry, out);
}

static const struct tick_entry *entry_of(const struct tick *tick, uint32_t vcpu)
{
	for (uint32_t i = 0; i < tick->n; i++)
		if (tick->entries[i].vcpu == vcpu)
			return &tick->entries[i];
	return NULL;
}

static struct error *take_vcpus(struct glance_taken *taken, struct target *target,
				const struct tick *tick, const struct glance_wanted *wanted,
				struct disassembler *disassembler)
{
	struct glance *glance = &taken->glance;
	struct error *err = NULL;

	glance->vcpus = calloc(target->info.vcpus, sizeof(*glance->vcpus));
	if (!glance->vcpus)
		return error_no_memory();
	for (uint32_t i = 0; i < target->info.vcpus && !err; i++) {
		const struct tick_entry *entry = entry_of(tick, i);
		struct glance_vcpu *vcpu = &glance->vcpus[glance->n_vcpus];

		if (wanted->vcpu >= 0 && wanted->vcpu != i)
			continue;
		glance->n_vcpus++;
		vcpu->id = i;
		if (entry)
			err = take_vcpu(taken, target, entry, disassembler, vcpu);
	}
	return err;
}

/* As the first of the vCPUs that are shown sees it. */
static struct error *take_memory(struct glance *glance, struct target *target,
				 const struct glance_wanted *wanted)
{
	const struct regs *regs = NULL;

	for (size_t i = 0; i < glance->n_vcpus && !regs; i++)
		regs = glance->vcpus[i].regs;
	for (; glance->n_memory < wanted->n_memory; glance->n_memory++) {
		struct glance_memory *memory = &glance->memory[glance->n_memory];

		*memory = wanted->memory[glance->n_memory];
		memory->bytes = malloc(memory->asked);
		if (!memory->bytes)
			return error_no_memory();
		if (regs)
			memory->len = target->ops->read(target, regs, memory->va, memory->bytes,
							memory->asked);
	}
	return NULL;
}

static struct error *take(struct glance_taken *taken, struct target *target,
			  const struct session_options *options, const struct glance_wanted *wanted,
			  struct disassembler *disassembler)
{
	struct error *err = check_life(target, &taken->glance.life);
	struct tick tick = {0};

	if (!err)
		err = prepare(taken, target, options);
	if (!err)
		err = look_once(taken, target, &tick);
	if (!err)
		err = settle_end(taken->settle);
	if (!err)
		err = take_vcpus(taken, target, &tick, wanted, disassembler);
	return err ? err : take_memory(&taken->glance, target, wanted);
}

struct error *glance_take(struct target *target, const struct session_options *options,
			  const struct glance_wanted *wanted, struct disassembler *disassembler,
			  struct glance_taken **out)
{
	struct glance_taken *taken = calloc(1, sizeof(*taken));
	struct error *err;

	if (!taken)
		return error_no_memory();
	taken->glance.scheme = target->ops->scheme;
	taken->glance.info = &target->info;
	target->always_pause = options->always_pause;
	err = take(taken, target, options, wanted, disassembler);
	if (err) {
		glance_free(taken);
		return err;
	}
	*out = taken;
	return NULL;
}
