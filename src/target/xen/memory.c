/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of a running guest, snapshots, and the memory of a sampler inside: code outside of the sampling path. */

#include "target/xen/xen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/array.h"

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
	struct xen_frames *frames;

	TRY(ARRAY_NEW(&frames, 1));
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
	slot->bytes = xen_if_map(frames->xi, PROT_READ, &gfn, 1);
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
	const struct physmem mem = {.frame = show_and_bring, .ctx = xt};
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
		frames = n ? xen_if_map(xt->xi, PROT_READ, gfn, n) : NULL;
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
	const struct physmem mem = {.frame = show_and_bring, .ctx = xt};
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
	const struct physmem mem = {.frame = copy_frame, .ctx = album};
	bool whole = false;

	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].request.again = true;
	/* The guest may have moved to memory that is not mapped. */
	for (unsigned tries = 0; tries < SNAPSHOT_TRIES && !whole; tries++) {
		int rc;

		TRY(xen_sample(&xt->base, sample));
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

/*
 * The sampler inside a guest (target/inside/): pages that may begin a ring are
 * found through the page tables of a vCPU, and rings are mapped writable. The
 * guest is never paused.
 */

/* Bounds of a search: tables, and pages (16 GiB). They end one in tables that lead to themselves, too. */
#define TABLES_MAX (1u << 16)
#define PAGES_MAX  (1u << 22)

/* Pages of 4 KiB in one of 2 MiB. */
#define LARGE_PAGES 512u

/* Bits of an entry (SDM vol. 3, 4.5). */
#define ENTRY_PRESENT	 1u
#define ENTRY_WRITABLE	 2u
#define ENTRY_LARGE	 (1u << 7)
#define ENTRY_ADDRESS	 0x000ffffffffff000ull
#define LEVEL_BITS	 9
#define LEVEL_LARGE_MOST 3

/* Slots of the top table that are Xen's own in a 64-bit PV guest (public/arch-x86/xen-x86_64.h). */
#define XEN_SLOT_FIRST 256u
#define XEN_SLOT_LAST  271u

struct ring_pages {
	uint64_t va;
	uint8_t *bytes;
	size_t pages;
};

struct xen_memory {
	struct xen_target *xt;
	struct regs regs; /* the address space */
	struct ring_pages rings[INSIDE_RINGS_MAX];
	uint32_t n;
};

/* Pages that wait to be looked at, and where they are shown. */
struct page_search {
	struct xen_memory *memory;
	const volatile sig_atomic_t *stop;
	inside_found *found;
	void *to;
	uint32_t tables, pages;
	size_t n;
	uint64_t va[XEN_IF_MANY], gfn[XEN_IF_MANY];
};

static bool search_ends(const struct page_search *search)
{
	return (search->stop && *search->stop) || search->tables >= TABLES_MAX ||
	       search->pages >= PAGES_MAX;
}

static bool show_pages(struct page_search *search, size_t at, size_t n)
{
	struct xen_if *xi = search->memory->xt->xi;
	const uint8_t *frames = xen_if_map(xi, PROT_READ, search->gfn + at, n);

	for (size_t i = 0; frames && i < n; i++)
		search->found(search->to, frames + i * FRAME_SIZE, search->va[at + i],
			      XEN_IF_MANY * FRAME_SIZE);
	if (frames)
		xen_if_unmap(xi, frames, n);
	return frames;
}

/* Shows all pages that wait; each alone, if they cannot be mapped together. */
static void flush_pages(struct page_search *search)
{
	const size_t n = search->n;

	search->n = 0;
	if (!n || show_pages(search, 0, n))
		return;
	for (size_t i = 0; i < n && !search_ends(search); i++)
		show_pages(search, i, 1);
}

static bool is_there(struct page_search *search, uint64_t gfn)
{
	const void *frame = xen_if_map(search->memory->xt->xi, PROT_READ, &gfn, 1);

	search->pages++;
	if (frame)
		xen_if_unmap(search->memory->xt->xi, frame, 1);
	return frame;
}

/* Adds up to LARGE_PAGES: a guest may map much more in large pages than it has. */
static void add_pages(struct page_search *search, uint64_t va, uint64_t gfn, uint64_t n)
{
	if (n > 1 && !is_there(search, gfn) && !is_there(search, gfn + n - 1))
		return;
	for (uint64_t i = 0; i < n && !search_ends(search); i++) {
		search->va[search->n] = va + i * FRAME_SIZE;
		search->gfn[search->n] = gfn + i;
		search->pages++;
		if (++search->n == XEN_IF_MANY)
			flush_pages(search);
	}
}

static void add_leaf(struct page_search *search, uint64_t va, uint64_t gfn, uint64_t n)
{
	for (uint64_t i = 0; i < n && !search_ends(search); i += LARGE_PAGES)
		add_pages(search, va + i * FRAME_SIZE, gfn + i, n < LARGE_PAGES ? n : LARGE_PAGES);
}

static void search_table(struct page_search *search, uint64_t table, int level, int top,
			 uint64_t base)
{
	/* Bit of a virtual address that an entry counts by. */
	const unsigned shift = FRAME_SHIFT + (unsigned)(level - 1) * LEVEL_BITS;
	const size_t n = level == top && top == 3 ? 4 : FRAME_SIZE / sizeof(uint64_t);
	struct xen_target *xt = search->memory->xt;
	const uint8_t *frame = xen_frames_bring(xt->frames, table >> FRAME_SHIFT);
	uint64_t entries[FRAME_SIZE / sizeof(uint64_t)];

	if (!frame)
		return;
	search->tables++;
	memcpy(entries, frame + table % FRAME_SIZE, n * sizeof(*entries));
	for (size_t i = 0; i < n && !search_ends(search); i++) {
		const uint64_t entry = entries[i], to = entry & ENTRY_ADDRESS;
		uint64_t va = base | (uint64_t)i << shift;

		if (!(entry & ENTRY_PRESENT) || (level == top && top > 3 && !xt->domain.hvm &&
						 i >= XEN_SLOT_FIRST && i <= XEN_SLOT_LAST))
			continue;
		if (level == top && top > 3 && i >= n / 2)
			va |= UINT64_MAX << (shift + LEVEL_BITS);
		if (level > 1 && !(level <= LEVEL_LARGE_MOST && entry & ENTRY_LARGE))
			search_table(search, to, level - 1, top, va);
		else if (entry & ENTRY_WRITABLE)
			add_leaf(search, va, (to & (UINT64_MAX << shift)) >> FRAME_SHIFT,
				 1ull << (shift - FRAME_SHIFT));
	}
}

static struct error *memory_search(void *ctx, const volatile sig_atomic_t *stop,
				   inside_found *found, void *to, bool *whole)
{
	struct xen_memory *memory = ctx;
	struct page_search search = {.memory = memory, .stop = stop, .found = found, .to = to};
	const void *context = xen_first_context(memory->xt);
	const struct mmu *mmu = &memory->regs.mmu;
	int levels;

	if (!context)
		return error_new(ERR_GUEST, "the guest's registers cannot be read");
	xen_regs_for_copy(memory->xt->context, context, &memory->regs);
	levels = mmu->mode == MMU_X86_PAE ? 3
		 : mmu->mode == MMU_X86_4 ? 4
		 : mmu->mode == MMU_X86_5 ? 5
					  : 0;
	if (!levels)
		return error_new(ERR_GUEST, "--inside: guests of Xen with page tables as this "
					    "one's are not searched");
	search_table(&search, mmu->root, levels, levels, 0);
	flush_pages(&search);
	*whole = search.tables < TABLES_MAX && search.pages < PAGES_MAX;
	return xen_refusal(memory->xt);
}

/* Each ring by the one address that it tells. */
static bool memory_hold(void *ctx, const struct inside_ring *ring, uint64_t size)
{
	struct xen_memory *memory = ctx;
	struct xen_target *xt = memory->xt;
	const size_t pages = (size_t)((size + FRAME_SIZE - 1) / FRAME_SIZE);
	struct ring_pages *held = &memory->rings[memory->n];
	uint64_t gfn[XEN_IF_MANY];

	if (ring->at != ring->address || memory->n == INSIDE_RINGS_MAX || pages > XEN_IF_MANY ||
	    find_frames(xt, &memory->regs, ring->at, pages * FRAME_SIZE, gfn) != pages)
		return false;
	*held = (struct ring_pages){ring->at,
				    xen_if_map(xt->xi, PROT_READ | PROT_WRITE, gfn, pages), pages};
	memory->n += held->bytes != NULL;
	return held->bytes;
}

/* Bytes of a ring at an address; NULL: they are in none. */
static uint8_t *held_at(const struct xen_memory *memory, uint64_t at, size_t len)
{
	for (uint32_t i = 0; i < memory->n; i++) {
		const struct ring_pages *ring = &memory->rings[i];
		const uint64_t size = ring->pages * FRAME_SIZE;

		if (at >= ring->va && at - ring->va < size && len <= size - (at - ring->va))
			return ring->bytes + (at - ring->va);
	}
	return NULL;
}

static size_t memory_read(void *ctx, uint64_t at, void *buf, size_t len)
{
	const uint8_t *from = held_at(ctx, at, len);

	if (!from)
		return 0;
	memcpy(buf, from, len);
	return len;
}

static bool memory_write(void *ctx, uint64_t at, const uint32_t words[2])
{
	uint32_t *to = (uint32_t *)(void *)held_at(ctx, at, 2 * sizeof(*words));

	if (!to)
		return false;
	__atomic_store_n(&to[0], words[0], __ATOMIC_RELEASE);
	__atomic_store_n(&to[1], words[1], __ATOMIC_RELEASE);
	return true;
}

static size_t memory_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct xen_memory *memory = ctx;

	xen_frames_tick(memory->xt->frames);
	return xen_read(&memory->xt->base, &memory->regs, va, buf, len);
}

/* Memory of a domain that has gone stays as it was for as long as it is mapped. */
static enum target_life memory_life(void *ctx)
{
	const struct xen_memory *memory = ctx;
	struct xen_domain domain;

	return xen_domain_life(memory->xt, &domain);
}

static void memory_describe(void *ctx, struct target_info *info)
{
	*info = ((struct xen_memory *)ctx)->xt->base.info;
}

static void memory_close(void *ctx)
{
	struct xen_memory *memory = ctx;

	for (uint32_t i = 0; i < memory->n; i++)
		xen_if_unmap(memory->xt->xi, memory->rings[i].bytes, memory->rings[i].pages);
	if (memory->xt)
		memory->xt->base.ops->close(&memory->xt->base);
	free(memory);
}

struct error *xen_inside(const char *name, struct inside_memory *out)
{
	struct xen_memory *memory;

	TRY(ARRAY_NEW(&memory, 1));
	*out = (struct inside_memory){
		.ctx = memory,
		.read = memory_read,
		.write = memory_write,
		.search = memory_search,
		.hold = memory_hold,
		.code = memory_code,
		.life = memory_life,
		.describe = memory_describe,
		.close = memory_close,
	};
	return xen_open_unguarded(name, &memory->xt);
}
