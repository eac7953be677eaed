/* SPDX-License-Identifier: BSD-3-Clause */

/* Reading a running guest's memory, and snapshots: what is done outside of the sampling path. */

#include "target/xen/xen.h"

#include <stdlib.h>
#include <string.h>

#include "target/window.h"

/* Page tables that one window may need: one for each level and some more at their borders. */
#define TABLES_PER_WINDOW 16
/* How often a snapshot is tried before it is written with what there is. */
#define SNAPSHOT_TAKES 4

static const void *show_and_bring(void *ctx, uint64_t gfn)
{
	struct xen_target *xt = ctx;
	const void *bytes = frames_bring(xt->frames, gfn);

	if (bytes && xt->base.witness)
		xt->base.witness->frame(xt->base.witness->ctx, gfn, bytes);
	return bytes;
}

size_t xen_read(struct target *target, const struct regs *regs, uint64_t va, void *buf, size_t len)
{
	struct xen_target *xt = (struct xen_target *)target;
	const struct physmem mem = {show_and_bring, xt};
	size_t done = 0;

	while (done < len) {
		struct xlate at;
		const uint8_t *frame;
		size_t part, offset;

		if (target->info.arch->translate(&regs->mmu, va + done, &mem, &at) != XLATE_OK)
			break;
		frame = show_and_bring(xt, at.addr >> FRAME_SHIFT);
		if (!frame)
			break;
		offset = at.addr & (FRAME_SIZE - 1);
		part = FRAME_SIZE - offset;
		if (part > len - done)
			part = len - done;
		memcpy((uint8_t *)buf + done, frame + offset, part);
		done += part;
	}
	return done;
}

/* Copies of the frames that were touched during a pause, each once. */
struct album {
	struct frames *frames;
	uint32_t n, room;
	uint64_t *gfn;
	uint8_t *bytes;
	uint64_t *cpu_ns; /* of each vCPU at the snapshot before */
};

static const void *copy_frame(void *ctx, uint64_t gfn)
{
	struct album *album = ctx;
	const void *bytes = frames_find(album->frames, gfn);

	if (!bytes || album->n == album->room)
		return bytes;
	for (uint32_t i = album->n; i-- > 0;)
		if (album->gfn[i] == gfn)
			return bytes;
	album->gfn[album->n] = gfn;
	memcpy(album->bytes + (size_t)album->n * FRAME_SIZE, bytes, FRAME_SIZE);
	album->n++;
	return bytes;
}

static struct error *album_new(struct xen_target *xt, const struct sample *sample,
			       struct album *album)
{
	uint32_t per_vcpu = sample->stack_cap / FRAME_SIZE + 1 + TABLES_PER_WINDOW;

	album->frames = xt->frames;
	album->n = 0;
	album->room = per_vcpu * sample->vcpus;
	album->gfn = calloc(album->room, sizeof(*album->gfn));
	album->bytes = calloc(album->room, FRAME_SIZE);
	album->cpu_ns = calloc(xt->base.info.vcpus, sizeof(*album->cpu_ns));
	return album->gfn && album->bytes && album->cpu_ns ? NULL : error_no_memory();
}

/* First an ordinary sample, which maps what is needed; then the one that counts. */
static struct error *snapshot_into(struct xen_target *xt, struct sample *sample,
				   struct album *album)
{
	const struct physmem mem = {copy_frame, album};
	const size_t times = xt->base.info.vcpus * sizeof(*xt->cpu_ns);
	const bool first = xt->first;
	bool whole = false;

	memcpy(album->cpu_ns, xt->cpu_ns, times);
	/* In between, the guest may have moved to memory that was not there before. */
	for (unsigned take = 0; take < SNAPSHOT_TAKES && !whole; take++) {
		struct error *err = xen_sample(&xt->base, sample);
		int rc;

		if (err)
			return err;
		album->n = 0;
		rc = xen_take(xt, sample, &mem, &whole);
		if (rc)
			return xen_failed(xt, rc);
		/* Whether a vCPU ran is asked since the last snapshot, not since this preparation. */
		memcpy(xt->cpu_ns, album->cpu_ns, times);
		xt->first = first;
		xen_finish(xt, sample);
	}
	return NULL;
}

struct error *xen_snapshot(struct target *target, struct sample *sample)
{
	struct xen_target *xt = (struct xen_target *)target;
	struct album album = {0};
	struct error *err = album_new(xt, sample, &album);

	if (!err)
		err = snapshot_into(xt, sample, &album);
	for (uint32_t i = 0; !err && target->witness && i < album.n; i++)
		target->witness->frame(target->witness->ctx, album.gfn[i],
				       album.bytes + (size_t)i * FRAME_SIZE);
	free(album.cpu_ns);
	free(album.gfn);
	free(album.bytes);
	return err;
}
