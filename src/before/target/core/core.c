/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "target/core/dump.h"
#include "target/frame_store.h"
#include "target/target.h"
#include "target/vcpu_copy.h"
#include "target/window.h"

/* A core file of a guest: each sample is the one moment that it holds. */

struct core {
	struct target base;
	struct dump dump;
	struct frame_store *frames; /* what was read of the file */
};

static void core_close(struct target *target)
{
	struct core *core = (struct core *)target;

	dump_free(&core->dump);
	frame_store_free(core->frames);
	free(core);
}

static void describe(struct core *core, const char *path)
{
	struct target_info *info = &core->base.info;
	const char *slash = strrchr(path, '/');

	snprintf(info->name, sizeof(info->name), "%s", slash ? slash + 1 : path);
	snprintf(info->type, sizeof(info->type), "%s", core->dump.type);
	snprintf(info->host, sizeof(info->host), "%s", core->dump.writer);
	info->arch = core->dump.arch;
	info->vcpus = core->dump.vcpus;
}

static struct error *core_open(const char *name, struct target **out)
{
	struct core *core = calloc(1, sizeof(*core));
	struct error *err;

	if (!core)
		return error_no_memory();
	core->base.ops = &target_core;
	core->base.still = true;
	err = dump_open(name, &core->dump);
	if (!err)
		err = frame_store_new(&core->frames);
	if (err) {
		core_close(&core->base);
		return err;
	}
	describe(core, name);
	*out = &core->base;
	return NULL;
}

static const void *frame(void *ctx, uint64_t gfn)
{
	struct core *core = ctx;
	const void *known = frame_store_get(core->frames, gfn);
	uint8_t bytes[FRAME_SIZE];
	bool changed;

	if (known || !dump_frame(&core->dump, gfn, bytes))
		return known;
	error_free(frame_store_put(core->frames, gfn, bytes, &changed));
	return frame_store_get(core->frames, gfn);
}

static struct error *core_sample(struct target *target, struct sample *sample)
{
	struct core *core = (struct core *)target;
	const struct physmem mem = {frame, core};

	sample->time_ns = clock_now_ns();
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	sample->retakes = 0;
	for (uint32_t i = 0; i < sample->vcpus && i < core->dump.vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->online = true;
		vcpu->state = VCPU_RUNNABLE;
		x86_regs_take(&core->dump.vcpu[i], &vcpu->regs);
		vcpu_copy_stacks(target->info.arch, &mem, vcpu);
	}
	return NULL;
}

static enum target_life core_life(struct target *target)
{
	return LIFE_PAUSED;
}

static size_t core_read(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			size_t len)
{
	struct core *core = (struct core *)target;
	const struct physmem mem = {frame, core};

	return window_read(target->info.arch, &regs->mmu, &mem, va, buf, len);
}

const struct target_ops target_core = {
	.scheme = "core",
	.open = core_open,
	.close = core_close,
	.sample = core_sample,
	.life = core_life,
	.read = core_read,
};
