/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/memory.h"
#include "target/host/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/window.h"

struct error *host_memory_open(pid_t pid, bool write, int *fd)
{
	*fd = proc_open(pid, "mem", write ? O_RDWR : O_RDONLY);
	if (*fd >= 0)
		return NULL;
	if (errno == ENOENT)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	return proc_cannot_trace(pid);
}

size_t host_memory_read(int fd, uint64_t va, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len && va + done <= INT64_MAX) {
		ssize_t got = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(va + done));

		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

bool host_memory_window(void *ctx, uint64_t va, uint32_t want, uint8_t *buffer, struct window *out)
{
	const struct host_memory *memory = ctx;
	/* In one piece, or page by page with an eye on the clock. */
	const uint32_t piece = memory->until_ns ? FRAME_SIZE : want;

	*out = (struct window){.va = va, .bytes = buffer, .cut = true};
	while (out->len < want) {
		uint32_t part = want - out->len < piece ? want - out->len : piece;
		size_t got = host_memory_read(memory->fd, va + out->len, buffer + out->len, part);

		out->len += (uint32_t)got;
		if (got < part) {
			out->cut = false;
			return true;
		}
		if (memory->until_ns && out->len < want && clock_now_ns() >= memory->until_ns)
			return false;
	}
	return true;
}

void virtual_memory_copy_stacks(window_reader *read, void *ctx, struct vcpu_sample *vcpu)
{
	const struct regs *regs = &vcpu->regs;
	const uint64_t va = regs->sp & ~(uint64_t)(regs->word - 1);
	const uint32_t below = va < red_zone(regs) ? 0 : red_zone(regs), want = vcpu->request.want;
	bool done = read(ctx, va - below, below + want, vcpu->buffer, &vcpu->stack);

	if (vcpu->stack.len < below) {
		done = read(ctx, va, want, vcpu->buffer, &vcpu->stack);
	} else {
		vcpu->stack.va = va;
		window_set_below(&vcpu->stack, below);
	}
	vcpu->hurried = !done;
	for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
		const struct other_stack *other = &vcpu->request.other[k];

		vcpu->others[k].len = 0;
		if (other->want)
			(void)read(ctx, other->va, other->want, other->buffer, &vcpu->others[k]);
	}
}

/* A power of two; a sample of a vCPU takes four tables and a few frames of stack. */
#define FRAMES 64u

/* Bytes of a frame that are read at once, at least. */
#define LINE (FRAME_SIZE / 64)

struct held {
	uint64_t gfn;
	uint64_t round; /* when it was asked for; 0: never */
	uint64_t hva;
	uint64_t lines; /* bit for each that was read since */
	bool there;
	uint8_t bytes[FRAME_SIZE];
};

/* Pages of the guest's kernel that were looked up, and the time for which they are taken to be still there. */
#define KERNEL_PAGES 256u
#define PAGE_KEPT_NS 1000000000u

struct kernel_page {
	uint64_t va, gfn; /* of the page */
	uint64_t until_ns;
};

struct guest_ram {
	struct ram_map map;
	struct kernel_page page[KERNEL_PAGES];
	int fd;
	bool missed;
	uint64_t round;
	struct held frame[FRAMES];
};

bool ram_map_add(struct ram_map *map, uint64_t gpa, uint64_t size, uint64_t hva)
{
	if (map->n == RAM_SLOTS_MAX)
		return false;
	map->slot[map->n++] = (struct ram_slot){gpa, size, hva};
	return true;
}

/* Address of a frame in the process; false if the guest has no memory there. */
static bool ram_map_find(const struct ram_map *map, uint64_t gfn, uint64_t *hva)
{
	const uint64_t gpa = gfn << FRAME_SHIFT;

	for (size_t i = 0; i < map->n; i++) {
		const struct ram_slot *slot = &map->slot[i];

		if (gpa - slot->gpa >= slot->size)
			continue;
		*hva = slot->hva + (gpa - slot->gpa);
		return true;
	}
	return false;
}

bool ram_map_is_same(const struct ram_map *a, const struct ram_map *b)
{
	return a->n == b->n && !memcmp(a->slot, b->slot, a->n * sizeof(*a->slot));
}

uint64_t ram_map_size(const struct ram_map *map)
{
	uint64_t size = 0;

	for (size_t i = 0; i < map->n; i++)
		size += map->slot[i].size;
	return size;
}

struct error *guest_ram_new(int fd, struct guest_ram **out)
{
	struct guest_ram *ram;

	TRY(ARRAY_NEW(&ram, 1));
	ram->fd = fd;
	ram->round = 1;
	*out = ram;
	return NULL;
}

void guest_ram_free(struct guest_ram *ram)
{
	free(ram);
}

struct ram_map *guest_ram_map(struct guest_ram *ram)
{
	return &ram->map;
}

void guest_ram_forget(void *ram)
{
	((struct guest_ram *)ram)->round++;
}

struct paged_memory guest_ram_memory(struct guest_ram *ram)
{
	return (struct paged_memory){.frames = {guest_ram_frame, ram, guest_ram_part},
				     .renew = guest_ram_forget};
}

bool guest_ram_missed(struct guest_ram *ram)
{
	const bool missed = ram->missed;

	ram->missed = false;
	return missed;
}

/* The frame's own slot, or the next one that is free in this round; its own if none is. */
static struct held *slot_of(struct guest_ram *ram, uint64_t gfn)
{
	const size_t home = (size_t)(gfn * 0x9e3779b97f4a7c15ull >> 32);

	for (size_t i = 0; i < FRAMES; i++) {
		struct held *held = &ram->frame[(home + i) & (FRAMES - 1)];

		if (held->round != ram->round || held->gfn == gfn)
			return held;
	}
	return &ram->frame[home & (FRAMES - 1)];
}

/* Lines of a frame from `offset` on; `len` bytes do not go beyond it. */
static uint64_t lines_of(size_t offset, size_t len)
{
	const size_t first = offset / LINE, last = (offset + len - 1) / LINE;

	return UINT64_MAX >> (63 - last) & UINT64_MAX << first;
}

const void *guest_ram_part(void *ctx, uint64_t addr, size_t len)
{
	struct guest_ram *ram = ctx;
	const size_t offset = addr & (FRAME_SIZE - 1), from = offset / LINE * LINE;
	const uint64_t gfn = addr >> FRAME_SHIFT, lines = lines_of(offset, len);
	struct held *held = slot_of(ram, gfn);

	if (held->round != ram->round || held->gfn != gfn) {
		held->round = ram->round;
		held->gfn = gfn;
		held->lines = 0;
		held->there = ram_map_find(&ram->map, gfn, &held->hva);
		ram->missed |= !held->there;
	}
	if (held->there && lines & ~held->lines) {
		const size_t n = (offset + len - from + LINE - 1) / LINE * LINE;

		held->there =
			host_memory_read(ram->fd, held->hva + from, held->bytes + from, n) == n;
		held->lines |= lines;
		ram->missed |= !held->there;
	}
	return held->there ? held->bytes + offset : NULL;
}

const void *guest_ram_frame(void *ram, uint64_t gfn)
{
	return guest_ram_part(ram, gfn << FRAME_SHIFT, FRAME_SIZE);
}

/* Reads the guest's kernel as a vCPU sees it. */
struct kernel_reader {
	struct guest_ram *ram;
	const struct arch *arch;
	const struct regs *regs;
	uint64_t now_ns;
};

static bool walk_to(const struct kernel_reader *kernel, bool apart, struct kernel_page *at)
{
	const struct physmem frames = guest_ram_memory(kernel->ram).frames;
	struct mmu mmu = kernel->regs->mmu;
	struct xlate page = {0};

	if (apart)
		mmu_use_kernel(&mmu, kernel->regs->kernel_root);
	if (kernel->arch->translate(&mmu, at->va, &frames, &page) != XLATE_OK)
		return false;
	at->gfn = page.addr >> FRAME_SHIFT;
	return true;
}

/* Finds where a page is in the monitor; false: it is not mapped. */
static bool find_page(const struct kernel_reader *kernel, uint64_t va, uint64_t *hva)
{
	const uint64_t hash = (va >> FRAME_SHIFT) * 0x9e3779b97f4a7c15ull;
	struct kernel_page *at = &kernel->ram->page[hash >> 32 & (KERNEL_PAGES - 1)];

	if (at->va != va || kernel->now_ns >= at->until_ns) {
		*at = (struct kernel_page){.va = va};
		if (!walk_to(kernel, false, at) &&
		    (!kernel->regs->kernel_root || !walk_to(kernel, true, at)))
			return false;
		at->until_ns = kernel->now_ns + PAGE_KEPT_NS;
	}
	return ram_map_find(&kernel->ram->map, at->gfn, hva);
}

static bool read_kernel(const struct kernel_reader *kernel, uint64_t va, void *buf, size_t len)
{
	uint64_t hva;

	for (size_t done = 0, n; done < len; done += n) {
		const uint64_t offset = (va + done) & (FRAME_SIZE - 1);

		n = len - done < FRAME_SIZE - offset ? len - done : FRAME_SIZE - offset;
		if (!find_page(kernel, va + done - offset, &hva) ||
		    host_memory_read(kernel->ram->fd, hva + offset, (uint8_t *)buf + done, n) != n)
			return false;
	}
	return true;
}

/* Pieces of a thread that are not farther behind the first are read in one go. */
#define THREAD_SPAN 1024u

/* Bytes from the first piece to the end of the last; 0: they are too far apart, or in another order. */
static uint32_t span_of(const struct thread_request *request)
{
	uint32_t span = 0;

	for (size_t i = 0; i < THREAD_PIECES; i++) {
		const uint32_t behind = request->at[i] - request->at[0];

		if (behind > THREAD_SPAN - THREAD_PIECE)
			return 0;
		if (behind + THREAD_PIECE > span)
			span = behind + THREAD_PIECE;
	}
	return span;
}

static bool read_pieces(const struct kernel_reader *kernel, const struct thread_request *request,
			struct thread_copy *out)
{
	const uint32_t span = span_of(request);
	uint8_t all[THREAD_SPAN];

	if (span && !read_kernel(kernel, out->at + request->at[0], all, span))
		return false;
	for (size_t i = 0; i < THREAD_PIECES; i++)
		if (span)
			memcpy(out->piece[i], all + (request->at[i] - request->at[0]),
			       THREAD_PIECE);
		else if (!read_kernel(kernel, out->at + request->at[i], out->piece[i],
				      THREAD_PIECE))
			return false;
	return true;
}

void guest_ram_copy_thread(struct guest_ram *ram, const struct arch *arch, const struct regs *regs,
			   const struct thread_request *request, struct thread_copy *out)
{
	const struct kernel_reader kernel = {ram, arch, regs, clock_now_ns()};

	out->own = window_thread_from(regs, request);
	out->there = out->own &&
		     read_kernel(&kernel, out->own + request->pointer, &out->at, sizeof(out->at)) &&
		     read_pieces(&kernel, request, out);
}
