/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of a running guest, and snapshots: code outside of the sampling path. */

#include "target/xen/xen.h"

#include <stdlib.h>
#include <string.h>

#include "target/window.h"

/* 16 MiB of a guest at hand: 64 vCPUs with 60 frames each. A power of two. */
#define SLOTS	 8192u
#define MAX_USED (SLOTS / 2)

/* Samples after which a frame that could not be mapped is tried again (ballooning, hot-plug). */
#define RETRY_AFTER 512

struct slot {
	uint64_t gfn;
	const void *bytes; /* NULL in a used slot: could not be mapped */
	uint32_t used;	   /* frames->now of the last use; 0: empty slot */
};

struct xen_frames {
	struct xen_if *xi;
	uint32_t now;
	uint32_t n;
	struct window_trails trails; /* valid until a frame is unmapped */
	struct slot slots[SLOTS];
};

struct error *xen_frames_new(struct xen_if *xi, struct xen_frames **out)
{
	struct xen_frames *frames = calloc(1, sizeof(*frames));

	if (!frames)
		return error_no_memory();
	frames->xi = xi;
	frames->now = 1;
	window_forget_trails(&frames->trails);
	*out = frames;
	return NULL;
}

void xen_frames_free(struct xen_frames *frames)
{
	if (!frames)
		return;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (frames->slots[i].bytes)
			xen_if_unmap(frames->xi, frames->slots[i].bytes, 1);
	free(frames);
}

static uint32_t home(uint64_t gfn)
{
	return (uint32_t)((gfn * 0x9e3779b97f4a7c15u) >> 32) & (SLOTS - 1);
}

/* The slot that holds gfn, or the empty one where it belongs: the table is never full. */
static struct slot *probe(struct xen_frames *frames, uint64_t gfn)
{
	uint32_t i = home(gfn);

	while (frames->slots[i].used && frames->slots[i].gfn != gfn)
		i = (i + 1) & (SLOTS - 1);
	return &frames->slots[i];
}

const void *xen_frames_find(void *table, uint64_t gfn)
{
	struct xen_frames *frames = table;
	struct slot *slot = probe(frames, gfn);

	if (!slot->used)
		return NULL;
	if (slot->bytes)
		slot->used = frames->now;
	return slot->bytes;
}

/*
 * Rebuilds the table with the slots that were used since the last tick. If
 * those alone would fill it, everything goes: the next sample maps the frames
 * that it needs.
 */
static void make_room(struct xen_frames *frames)
{
	struct slot keep[MAX_USED];
	uint32_t n = 0;

	window_forget_trails(&frames->trails);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &frames->slots[i];

		if (slot->bytes && slot->used == frames->now)
			keep[n++] = *slot;
		else if (slot->bytes)
			xen_if_unmap(frames->xi, slot->bytes, 1);
	}
	if (n > MAX_USED / 2) {
		for (uint32_t i = 0; i < n; i++)
			xen_if_unmap(frames->xi, keep[i].bytes, 1);
		n = 0;
	}
	memset(frames->slots, 0, sizeof(frames->slots));
	for (uint32_t i = 0; i < n; i++)
		*probe(frames, keep[i].gfn) = keep[i];
	frames->n = n;
}

const void *xen_frames_bring(void *table, uint64_t gfn)
{
	struct xen_frames *frames = table;
	struct slot *slot = probe(frames, gfn);

	if (slot->used && (slot->bytes || frames->now - slot->used < RETRY_AFTER)) {
		if (slot->bytes)
			slot->used = frames->now;
		return slot->bytes;
	}
	if (!slot->used && frames->n == MAX_USED) {
		make_room(frames);
		slot = probe(frames, gfn);
	}
	if (!slot->used)
		frames->n++;
	slot->gfn = gfn;
	slot->bytes = xen_if_map(frames->xi, &gfn, 1);
	slot->used = frames->now;
	return slot->bytes;
}

bool xen_frames_refused(const struct xen_frames *frames, uint64_t gfn)
{
	const struct slot *slot = probe((struct xen_frames *)frames, gfn);

	return slot->used && !slot->bytes && frames->now - slot->used < RETRY_AFTER;
}

void xen_frames_tick(struct xen_frames *frames)
{
	if (++frames->now == 0)
		frames->now = 1;
}

struct window_trails *xen_frames_trails(struct xen_frames *frames, const struct physmem *mem)
{
	/* All others have a context of their own. */
	return mem->ctx == frames ? &frames->trails : NULL;
}

/* Page tables that one window may need: one for each level and some more at their borders. */
#define TABLES_PER_WINDOW 16
/* From so many bytes on, memory is read as a whole. */
#define MANY (8 * FRAME_SIZE)
/* Tries to read a snapshot as a whole before it is written incomplete. */
#define SNAPSHOT_TRIES 4

static const void *show_and_bring(void *ctx, uint64_t gfn)
{
	struct xen_target *xt = ctx;
	const void *bytes = xen_frames_bring(xt->frames, gfn);

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
		frames = n ? xen_if_map(xt->xi, gfn, n) : NULL;
		if (!frames)
			break;
		for (size_t i = 0; i < n && witness; i++)
			witness->frame(witness->ctx, gfn[i], frames + i * FRAME_SIZE);
		memcpy(buf + done, frames, n * FRAME_SIZE);
		xen_if_unmap(xt->xi, frames, n);
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
	return done + window_read(target->info.arch, &regs->mmu, &mem, va + done,
				  (uint8_t *)buf + done, len - done);
}

/* Copies of the frames that were touched during a pause, each once. */
struct album {
	struct xen_frames *frames;
	uint32_t n, room;
	uint64_t *gfn;
	uint8_t *bytes;
};

static const void *copy_frame(void *ctx, uint64_t gfn)
{
	struct album *album = ctx;
	const void *bytes = xen_frames_find(album->frames, gfn);

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
	uint32_t per_vcpu = sample->stack_cap / FRAME_SIZE + 2 + TABLES_PER_WINDOW;

	album->frames = xt->frames;
	album->n = 0;
	album->room = per_vcpu * sample->vcpus;
	album->gfn = calloc(album->room, sizeof(*album->gfn));
	album->bytes = calloc(album->room, FRAME_SIZE);
	return album->gfn && album->bytes ? NULL : error_no_memory();
}

/* Takes an ordinary sample first, which maps the memory that the second one needs. */
static struct error *snapshot_into(struct xen_target *xt, struct sample *sample,
				   struct album *album)
{
	const struct physmem mem = {copy_frame, album};
	bool whole = false;

	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].request.again = true;
	/* The guest may have moved to memory that is not mapped. */
	for (unsigned tries = 0; tries < SNAPSHOT_TRIES && !whole; tries++) {
		struct error *err = xen_sample(&xt->base, sample);
		int rc;

		if (err)
			return err;
		album->n = 0;
		/* States and CPU time are as in the sample. */
		rc = xen_read_paused(xt, sample, &mem, &whole);
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
