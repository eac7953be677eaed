/* SPDX-License-Identifier: BSD-3-Clause */

/* Reading a running guest's memory, and snapshots: what is done outside of the sampling path. */

#include "target/xen/xen.h"

#include <stdlib.h>
#include <string.h>

#include "target/window.h"

/* Page tables that one window may need: one for each level and some more at their borders. */
#define TABLES_PER_WINDOW 16
/* From so many bytes on, memory is read as a whole. */
#define MANY (8 * FRAME_SIZE)
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

/* The frames of up to XEN_IF_MANY whole pages from `va` on; returns how many. */
static size_t find_frames(struct xen_target *xt, const struct regs *regs, uint64_t va, size_t len,
			  uint64_t *gfn)
{
	const struct physmem mem = {show_and_bring, xt};
	size_t n = 0;

	for (; n < XEN_IF_MANY && n < len / FRAME_SIZE; n++) {
		struct xlate at = {0};

		if (xt->base.info.arch->translate(&regs->mmu, va + n * FRAME_SIZE, &mem, &at) !=
		    XLATE_OK)
			break;
		gfn[n] = at.addr >> FRAME_SHIFT;
	}
	return n;
}

/*
 * Much memory at once, as far as there is any: mapped together, which costs a
 * fraction, and not kept.
 */
static size_t read_many(struct xen_target *xt, const struct regs *regs, uint64_t va, uint8_t *buf,
			size_t len)
{
	const struct frame_witness *witness = xt->base.witness;
	size_t done = 0, n = 1;

	while (n && len - done >= FRAME_SIZE) {
		uint64_t gfn[XEN_IF_MANY];
		const uint8_t *frames;

		n = find_frames(xt, regs, va + done, len - done, gfn);
		frames = n ? xen_if_map_many(xt->xi, gfn, n) : NULL;
		if (!frames)
			break;
		for (size_t i = 0; i < n && witness; i++)
			witness->frame(witness->ctx, gfn[i], frames + i * FRAME_SIZE);
		memcpy(buf + done, frames, n * FRAME_SIZE);
		xen_if_unmap_many(xt->xi, frames, n);
		done += n * FRAME_SIZE;
	}
	return done;
}

size_t xen_read(struct target *target, const struct regs *regs, uint64_t va, void *buf, size_t len)
{
	struct xen_target *xt = (struct xen_target *)target;
	const struct physmem mem = {show_and_bring, xt};
	size_t done = 0;

	if (len >= MANY && va % FRAME_SIZE == 0)
		done = read_many(xt, regs, va, buf, len);
	while (done < len) {
		struct xlate at = {0};
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
	return album->gfn && album->bytes ? NULL : error_no_memory();
}

/* First an ordinary sample, which maps what is needed; then the one that counts. */
static struct error *snapshot_into(struct xen_target *xt, struct sample *sample,
				   struct album *album)
{
	const struct physmem mem = {copy_frame, album};
	bool whole = false;

	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].again = true;
	/* In between, the guest may have moved to memory that was not there before. */
	for (unsigned take = 0; take < SNAPSHOT_TAKES && !whole; take++) {
		struct error *err = xen_sample(&xt->base, sample);
		int rc;

		if (err)
			return err;
		album->n = 0;
		/* States and CPU time are those of the sample. */
		rc = xen_take(xt, sample, &mem, &whole);
		if (rc)
			return xen_failed(xt, rc);
		xen_finish_registers(xt, sample);
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
	free(album.gfn);
	free(album.bytes);
	return err;
}
