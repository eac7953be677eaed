/* SPDX-License-Identifier: BSD-3-Clause */

/* A core file of a guest: each sample is the one moment that it holds. */

#include "target/core/core.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/preopen.h"
#include "recording/recording.h"
#include "target/target.h"

struct error *dump_new_vcpus(struct dump *dump, uint64_t vcpus)
{
	if (!vcpus || vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_INPUT, "%llu vCPUs cannot be", (unsigned long long)vcpus);
	dump->vcpu = calloc(vcpus, sizeof(*dump->vcpu));
	if (!dump->vcpu)
		return error_no_memory();
	dump->vcpus = (uint32_t)vcpus;
	return NULL;
}

/* Reads all but memory. ERR_INPUT with a sentence; to be freed in any case. */
static struct error *dump_open(const char *path, struct dump *dump)
{
	struct error *err;
	bool is_xen;

	*dump = (struct dump){.elf.fd = -1};
	err = elf_core_open(path, &dump->elf);
	if (err)
		return err;
	err = dump_read_xen(dump, &is_xen);
	if (!is_xen)
		err = dump_read_qemu(dump);
	if (err)
		return error_prefix(err, "%s", path);
	frame_map_sort(&dump->frames);
	return NULL;
}

static void dump_free(struct dump *dump)
{
	elf_core_close(&dump->elf);
	frame_map_free(&dump->frames);
	free(dump->vcpu);
}

bool dump_frame(const struct dump *dump, uint64_t gfn, void *bytes)
{
	uint64_t at;

	return frame_map_find(&dump->frames, gfn, &at) &&
	       elf_core_read(&dump->elf, at, bytes, FRAME_SIZE);
}

struct core {
	struct target base;
	struct dump dump;
	uint8_t frame[FRAME_SIZE]; /* the last one that was read from the file */
};

static void core_close(struct target *target)
{
	struct core *core = (struct core *)target;

	dump_free(&core->dump);
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

/* Valid until the next call. */
static const void *frame(void *ctx, uint64_t gfn)
{
	struct core *core = ctx;

	return dump_frame(&core->dump, gfn, core->frame) ? core->frame : NULL;
}

static struct error *core_open(const char *name, const char *via, struct target **out)
{
	struct core *core = calloc(1, sizeof(*core));
	struct error *err;

	if (!core)
		return error_no_memory();
	core->base.ops = &target_core;
	core->base.still = true;
	core->base.memory = (struct paged_memory){.frames = {frame, core}};
	err = dump_open(name, &core->dump);
	if (err) {
		core_close(&core->base);
		return err;
	}
	describe(core, name);
	*out = &core->base;
	return NULL;
}

static struct error *core_sample(struct target *target, struct sample *sample)
{
	struct core *core = (struct core *)target;

	sample->time_ns = clock_now_ns();
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	sample->retakes = 0;
	for (uint32_t i = 0; i < sample->vcpus && i < core->dump.vcpus; i++) {
		struct vcpu_sample *vcpu = &sample->vcpu[i];

		vcpu->online = true;
		vcpu->state = VCPU_RUNNABLE;
		x86_regs_convert(&core->dump.vcpu[i], &vcpu->regs);
		paged_memory_copy_stacks(&target->memory, target->info.arch, vcpu);
	}
	return NULL;
}

static enum target_life core_life(struct target *target)
{
	return LIFE_PAUSED;
}

/* A file is meant only if it can be nothing else: a guest may have any name. */
static bool core_is(const char *path)
{
	unsigned char head[EI_NIDENT + sizeof(uint16_t)];
	struct stat file;
	uint16_t type = ET_NONE;
	int fd = !stat(path, &file) && S_ISREG(file.st_mode) ? open_to_read(path) : -1;

	if (fd < 0)
		return false;
	if (pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	    !memcmp(head, ELFMAG, SELFMAG))
		memcpy(&type, head + EI_NIDENT, sizeof(type));
	close(fd);
	return type == ET_CORE;
}

const struct target_ops target_core = {
	.scheme = "core",
	.is_file = core_is,
	.open = core_open,
	.close = core_close,
	.sample = core_sample,
	.life = core_life,
};
