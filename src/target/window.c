/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/window.h"

#include <string.h>

#define PAGE_MASK (~(uint64_t)(FRAME_SIZE - 1))

/*
 * Copies `len` bytes of a stack while the guest is paused: most of our own work
 * in a pause. String moves of eight bytes are as fast as AVX from a page on, and
 * 3 ns slower for the half KiB of a flat stack. memcpy() without AVX takes up to
 * 2.5 times the instructions for stacks, which are not aligned to 16 bytes.
 */
#ifdef COPY_BY_STRING_MOVES
static void copy_bytes(uint8_t *to, const uint8_t *from, uint32_t len)
{
	uint64_t words = len / sizeof(uint64_t);

	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	if (len % sizeof(uint64_t))
		memcpy(to, from, len % sizeof(uint64_t));
}
#else
static void copy_bytes(uint8_t *to, const uint8_t *from, uint32_t len)
{
	memcpy(to, from, len);
}
#endif

static void leave_trail(struct window_trail *trail, const uint8_t *frame)
{
	if (trail->pages < WINDOW_TRAIL_PAGES)
		trail->page[trail->pages] = frame;
	trail->pages++;
}

/* Copies `len` bytes from physical address `addr`, frame by frame. */
static bool copy_page(struct window_copy *copy, uint64_t addr, uint32_t len)
{
	struct window *out = copy->out;

	while (len) {
		uint32_t offset = addr & (FRAME_SIZE - 1), chunk = FRAME_SIZE - offset;
		const uint8_t *from;

		if (chunk > len)
			chunk = len;
		from = physmem_at(copy->mem, addr, chunk);
		if (!from) {
			copy->gfn = addr >> FRAME_SHIFT;
			return false;
		}
		if (copy->trail)
			leave_trail(copy->trail, from - offset);
		copy_bytes(copy->buffer + out->len, from, chunk);
		out->len += chunk;
		addr += chunk;
		len -= chunk;
	}
	return true;
}

static bool copy_window(struct window_copy *copy, uint64_t va, uint32_t want)
{
	struct window *out = copy->out;
	struct xlate page = {.log = copy->trail ? &copy->trail->log : NULL};

	while (out->len < want) {
		uint32_t len = want - out->len;

		switch (copy->arch->translate(&copy->regs->mmu, va + out->len, copy->mem, &page)) {
		case XLATE_ABSENT:
			out->cut = false;
			return true;
		case XLATE_MISSING:
			out->cut = true;
			copy->gfn = page.gfn;
			return false;
		case XLATE_OK:
			break;
		}
		if (len > page.left)
			len = (uint32_t)page.left;
		if (!copy_page(copy, page.addr, len)) {
			out->cut = true;
			return false;
		}
	}
	return true;
}

/* Start of the word that an address is in. */
static uint64_t aligned(const struct regs *regs, uint64_t va)
{
	return va & -(uint64_t)regs->word;
}

/* *within: the range ends within the address space. */
static uint64_t begin(struct window_copy *copy, uint64_t va, uint32_t *want, bool *within)
{
	bool narrow = copy->regs->word == 4;
	/* Bytes to the end of the address space; 0 stands for 2^64. */
	uint64_t space;

	va &= narrow ? 0xfffffffc : ~7ull;
	space = (narrow ? 1ull << 32 : 0) - va;
	*within = !space || *want < space;
	*copy->out = (struct window){.va = va, .bytes = copy->buffer, .cut = *within};
	if (!*within)
		*want = (uint32_t)space;
	return va;
}

/* The red zone below a stack that begins at `va`, bytes. */
static uint32_t below(const struct regs *regs, uint64_t va)
{
	const uint32_t len = red_zone(regs);

	return va < len ? 0 : len;
}

void window_set_below(struct window *out, uint32_t below)
{
	if (out->len < below) {
		out->len = 0;
		return;
	}
	out->bytes += below;
	out->len -= below;
	out->below = below;
}

/*
 * A stack, and the red zone below it in one go. Where that has no page of its
 * own, or none that is at hand, *bare is set and the stack copied without.
 */
static bool copy_stack(struct window_copy *copy, uint64_t va, uint32_t zone, uint32_t want,
		       bool *bare)
{
	const bool within = copy->out->cut;
	bool done = copy_window(copy, va - zone, zone + want);

	*bare = zone && !copy->out->len;
	if (!*bare) {
		window_set_below(copy->out, zone);
		return done;
	}
	copy->out->cut = within;
	return copy_window(copy, va, want) && done;
}

size_t window_read(const struct arch *arch, const struct mmu *mmu, const struct physmem *mem,
		   uint64_t va, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		size_t chunk = FRAME_SIZE - ((va + done) & (FRAME_SIZE - 1));
		const uint8_t *frame;
		struct xlate page = {0};

		if (arch->translate(mmu, va + done, mem, &page) != XLATE_OK)
			break;
		frame = mem->frame(mem->ctx, page.addr >> FRAME_SHIFT);
		if (!frame)
			break;
		if (chunk > len - done)
			chunk = len - done;
		memcpy((uint8_t *)buf + done, frame + (page.addr & (FRAME_SIZE - 1)), chunk);
		done += chunk;
	}
	return done;
}

/* Difference between a table's entry of 8 bytes and what it was; 0: there is none. */
static uint64_t differs(const struct xlate_read *read)
{
	uint64_t entry;

	memcpy(&entry, read->at, sizeof(entry));
	return entry ^ read->entry;
}

/*
 * Page tables are compared while the guest is paused: without a loop, as far as all of them go. The
 * first of them lead to a GiB, or more.
 */
#define TABLES	     4
#define UPPER_TABLES 2

/* Repeats the last entry, which leads to a large page. False: there is none, or entries are narrow. */
static bool fill_log(struct xlate_log *log)
{
	if (!log->n || log->size != sizeof(log->read->entry))
		return false;
	for (; log->n < TABLES; log->n++)
		log->read[log->n] = log->read[log->n - 1];
	return true;
}

/* Do the page tables still say what they said, from the read number `from` on? */
static bool reads_the_same(const struct xlate_log *log, unsigned from)
{
	const struct xlate_read *read = log->read + from, *end = log->read + log->n;
	uint32_t narrow;

	for (; read < end && log->size == sizeof(read->entry); read++)
		if (differs(read))
			return false;
	for (; read < end; read++) {
		memcpy(&narrow, read->at, sizeof(narrow));
		if (narrow != read->entry)
			return false;
	}
	return true;
}

/* True if two walks by these registers begin in the same table, and read it alike. */
static bool same_mmu(const struct mmu *a, const struct mmu *b)
{
	return a->root == b->root && a->mode == b->mode && a->pse == b->pse &&
	       a->root_high == b->root_high && a->control == b->control;
}

static bool leads_there(const struct window_trail *trail, const struct mmu *mmu, uint8_t word)
{
	const struct xlate_log *log = &trail->log;
	const struct xlate_read *read = log->read;

	if (trail->word != word || !same_mmu(&trail->mmu, mmu))
		return false;
	if (!trail->upper)
		return reads_the_same(log, 0);
	return !(differs(read) | differs(read + 1) | differs(read + 2) | differs(read + 3)) &&
	       (log->n == TABLES || reads_the_same(log, TABLES));
}

/* Leaves out what was compared in this pause: the upper tables of this number. */
static bool leads_there_by(const struct window_trail *trail, uint64_t proven, const struct mmu *mmu,
			   uint8_t word)
{
	const struct xlate_log *log = &trail->log;
	const struct xlate_read *read = log->read + UPPER_TABLES;

	if (!proven || trail->upper != proven)
		return leads_there(trail, mmu, word);
	return !(differs(read) | differs(read + 1)) &&
	       (log->n == TABLES || reads_the_same(log, TABLES));
}

/* Do the upper tables of both say the same? */
static bool same_upper(const struct window_trail *a, const struct window_trail *b)
{
	return a->upper && a->word == b->word && same_mmu(&a->mmu, &b->mmu) &&
	       !memcmp(a->log.read, b->log.read, UPPER_TABLES * sizeof(*a->log.read));
}

/* Numbers the upper tables of a trail whose log is complete. */
static void number_upper(struct window_trails *trails, struct window_trail *trail)
{
	const struct window_trail *last = trails->last;

	trail->upper = 0;
	if (!fill_log(&trail->log))
		return;
	if (last && last != trail && last->pages && same_upper(last, trail))
		trail->upper = last->upper;
	else
		trail->upper = ++trails->uppers;
	trails->last = trail;
}

/* Start of the trail of a stack at `va`: without the red zone, if that is known to have no page. */
static uint64_t trail_start(const struct window_trail *trail, uint64_t va, uint32_t zone)
{
	const uint64_t start = va - zone;

	return trail->bare && (start ^ va) & PAGE_MASK ? va : start;
}

/* Stacks lie side by side: neighbours have a trail each. */
static struct window_trail *trail_at(struct window_trails *trails, const struct mmu *mmu,
				     uint64_t start)
{
	const uint64_t page = (start ^ mmu->root) >> FRAME_SHIFT;

	return &trails->trail[page * 0x9e3779b97f4a7c15ull >> (64 - WINDOW_TRAIL_BITS)];
}

/* Copies from the pages of a trail, of which the first begins `offset` bytes before. */
static void follow(const struct window_trail *trail, uint32_t offset, uint8_t *to, uint32_t len)
{
	const uint8_t *const *page = trail->page;
	uint32_t chunk = FRAME_SIZE - offset;

	for (; len > chunk; offset = 0, chunk = FRAME_SIZE) {
		copy_bytes(to, *page++ + offset, chunk);
		to += chunk;
		len -= chunk;
	}
	copy_bytes(to, *page + offset, len);
}

/*
 * Copies what a trail leads to; false: none does. Nothing has to be looked up here, and most copies
 * are made so: each instruction counts.
 */
static inline __attribute__((always_inline)) bool
copy_by_trail(struct window_copy *copy, uint64_t va, bool own, uint32_t want)
{
	const struct regs *regs = copy->regs;
	const uint32_t zone = own ? red_zone(regs) : 0;
	const struct window_trail *trail = trail_at(copy->trails, &regs->mmu, va - zone);
	const uint64_t start = trail_start(trail, va, zone), offset = start - trail->va;
	const uint32_t below = (uint32_t)(va - start), have = trail->pages * FRAME_SIZE;
	uint64_t len = (uint64_t)want + below;
	bool cut = true;

	if (offset + len > have) {
		if (!trail->ends || offset + below >= have)
			return false;
		len = have - offset;
		cut = false;
	}
	if (offset >= FRAME_SIZE || !leads_there_by(trail, copy->proven, &regs->mmu, regs->word))
		return false;
	if (own) {
		copy->proven = trail->upper;
		copy->trails->last = trail;
	}
	copy->out->va = va;
	copy->out->len = (uint32_t)len - below;
	copy->out->bytes = copy->buffer + below;
	copy->out->below = below;
	copy->out->cut = cut;
	follow(trail, (uint32_t)offset, copy->buffer, (uint32_t)len);
	return true;
}

/* Does a trail end with the address space? */
static bool ends_space(const struct window_trail *trail)
{
	const uint64_t end = trail->va + trail->pages * FRAME_SIZE;

	return trail->word == 4 ? end == 1ull << 32 : !end;
}

/* Lets a trail lead nowhere, not even to no byte. */
static void forget(struct window_trail *trail)
{
	trail->pages = 0;
	trail->upper = 0;
	trail->word = 0;
}

/* Copies, and leaves a trail if that ends within the address space. */
static bool copy_anew(struct window_copy *copy, uint64_t va, uint32_t zone, uint32_t want,
		      bool within)
{
	struct window_trail *trail = trail_at(copy->trails, &copy->regs->mmu, va - zone);
	bool done;

	copy->trail = trail;
	trail->pages = 0;
	trail->log.n = 0;
	trail->word = copy->regs->word;
	trail->mmu = copy->regs->mmu;
	done = copy_stack(copy, va, zone, want, &trail->bare);
	trail->va = trail_start(trail, va, zone) & PAGE_MASK;
	trail->ends = !copy->out->cut;
	if (!done || !within || !trail->pages || trail->pages > WINDOW_TRAIL_PAGES ||
	    trail->log.n > XLATE_LOG || ends_space(trail))
		forget(trail);
	else
		number_upper(copy->trails, trail);
	return done;
}

/* Out of line: nearly all copies go by a trail. */
static __attribute__((noinline)) bool copy_from(struct window_copy *copy, uint64_t va, bool own,
						uint32_t want)
{
	bool within, bare;
	uint32_t zone;

	va = begin(copy, va, &want, &within);
	zone = own ? below(copy->regs, va) : 0;
	copy->trail = NULL;
	return copy->trails ? copy_anew(copy, va, zone, want, within)
			    : copy_stack(copy, va, zone, want, &bare);
}

bool window_copy(struct window_copy *copy, uint32_t want)
{
	const struct regs *regs = copy->regs;

	return (copy->trails && copy_by_trail(copy, aligned(regs, regs->sp), true, want)) ||
	       copy_from(copy, regs->sp, true, want);
}

bool window_copy_at(struct window_copy *copy, uint64_t va, uint32_t want)
{
	return (copy->trails && copy_by_trail(copy, aligned(copy->regs, va), false, want)) ||
	       copy_from(copy, va, false, want);
}

/* A page of the guest, and where its bytes are. */
struct page {
	uint64_t va;
	const uint8_t *bytes;
	/* Number of the upper tables that were compared to get there; 0: none were. */
	uint64_t upper;
};

/*
 * Finds a page that no trail leads to, and leaves a trail of this page alone;
 * NULL: there is no such page.
 */
__attribute__((noinline)) static enum xlate_status walk_to_page(struct window_copy *copy,
								const struct mmu *mmu,
								struct window_trail *trail,
								struct page *page)
{
	struct xlate at = {.log = trail ? &trail->log : NULL};
	enum xlate_status status;

	if (trail) {
		trail->pages = 0;
		trail->log.n = 0;
	}
	status = copy->arch->translate(mmu, page->va, copy->mem, &at);
	copy->gfn = at.gfn;
	if (status != XLATE_OK)
		return status;
	copy->gfn = at.addr >> FRAME_SHIFT;
	page->bytes = copy->mem->frame(copy->mem->ctx, copy->gfn);
	page->upper = 0;
	if (!page->bytes)
		return XLATE_MISSING;
	if (trail && trail->log.n <= XLATE_LOG) {
		trail->va = page->va;
		trail->word = copy->regs->word;
		trail->mmu = *mmu;
		trail->ends = false;
		trail->bare = false;
		trail->page[0] = page->bytes;
		trail->pages = 1;
		number_upper(copy->trails, trail);
	}
	return XLATE_OK;
}

static enum xlate_status find_page(struct window_copy *copy, const struct mmu *mmu, uint64_t va,
				   struct page *page)
{
	struct window_trail *trail = copy->trails ? trail_at(copy->trails, mmu, va) : NULL;

	page->va = va & PAGE_MASK;
	if (!trail || !trail->pages || trail->va != page->va ||
	    !leads_there_by(trail, page->upper, mmu, copy->regs->word))
		return walk_to_page(copy, mmu, trail, page);
	page->bytes = trail->page[0];
	page->upper = trail->upper;
	return XLATE_OK;
}

/* Copies a piece that is not wholly in the page of the last one. */
static enum xlate_status copy_far_piece(struct window_copy *copy, const struct mmu *mmu,
					uint64_t va, struct page *page, uint8_t *to)
{
	const uint32_t offset = va & (FRAME_SIZE - 1), left = FRAME_SIZE - offset;
	enum xlate_status status = find_page(copy, mmu, va, page);

	if (status != XLATE_OK)
		return status;
	if (left >= THREAD_PIECE) {
		memcpy(to, page->bytes + offset, THREAD_PIECE);
		return XLATE_OK;
	}
	memcpy(to, page->bytes + offset, left);
	status = find_page(copy, mmu, va + left, page);
	if (status == XLATE_OK)
		memcpy(to + left, page->bytes, THREAD_PIECE - left);
	return status;
}

static enum xlate_status copy_thread_by(struct window_copy *copy, const struct mmu *mmu,
					const struct thread_request *request,
					struct thread_copy *out)
{
	const uint64_t pointer = out->own + request->pointer;
	struct page page = {0};
	enum xlate_status status = find_page(copy, mmu, pointer, &page);
	uint64_t at;

	if (status != XLATE_OK)
		return status;
	memcpy(&at, page.bytes + (pointer & (FRAME_SIZE - 1) & ~7ull), sizeof(at));
	out->at = at;
	/* Marks all pieces as missing. */
	page.va = at + request->at[0] + FRAME_SIZE;
	/* The loop takes a fifth of all instructions here if it is not unrolled. */
#pragma GCC unroll 4
	for (unsigned i = 0; i < THREAD_PIECES; i++) {
		const uint64_t va = at + request->at[i];

		if (va - page.va <= FRAME_SIZE - THREAD_PIECE) {
			memcpy(out->piece[i], page.bytes + (va - page.va), THREAD_PIECE);
			continue;
		}
		status = copy_far_piece(copy, mmu, va, &page, out->piece[i]);
		if (status != XLATE_OK)
			return status;
	}
	return XLATE_OK;
}

/* The kernel is in the upper half of all addresses; a program may have set one of the two to anything. */
static uint64_t own_data(const struct regs *regs)
{
	const uint64_t likelier = regs->own[regs->user], other = regs->own[!regs->user];

	return likelier >> 63 ? likelier : other >> 63 ? other : 0;
}

uint64_t window_thread_from(const struct regs *regs, const struct thread_request *request)
{
	if (request->address)
		return request->address;
	return request->stack_size ? regs->sp & ~(request->stack_size - 1) : own_data(regs);
}

/* Translates by the kernel's own tables, or by the vCPU's. */
__attribute__((noinline)) static enum xlate_status
copy_thread_again(struct window_copy *copy, const struct thread_request *request,
		  struct thread_copy *out, bool by_kernel)
{
	struct mmu kernel = copy->regs->mmu;

	mmu_use_kernel(&kernel, copy->regs->kernel_root);
	return copy_thread_by(copy, by_kernel ? &kernel : &copy->regs->mmu, request, out);
}

/* Tables that lacked the kernel in user mode are tried last from now on. */
__attribute__((noinline)) static enum xlate_status
copy_thread_apart(struct window_copy *copy, const struct thread_request *request,
		  struct thread_copy *out)
{
	enum xlate_status status = copy_thread_again(copy, request, out, true);

	if (status == XLATE_ABSENT) {
		status = copy_thread_again(copy, request, out, false);
		out->apart = status != XLATE_OK;
	}
	return status;
}

/*
 * Inlines the whole way of a page that has a trail, which saves a quarter of the
 * instructions in the pause.
 */
__attribute__((flatten)) bool window_copy_thread(struct window_copy *copy,
						 const struct thread_request *request,
						 struct thread_copy *out)
{
	const struct regs *regs = copy->regs;
	enum xlate_status status;

	out->there = false;
	out->own = window_thread_from(regs, request);
	if (!out->own)
		return true;
	if (out->apart && regs->user && regs->kernel_root) {
		status = copy_thread_apart(copy, request, out);
	} else {
		status = copy_thread_by(copy, &regs->mmu, request, out);
		if (status == XLATE_ABSENT && regs->kernel_root) {
			status = copy_thread_again(copy, request, out, true);
			out->apart = regs->user && status == XLATE_OK;
		}
	}
	out->there = status == XLATE_OK;
	return status != XLATE_MISSING;
}

void window_forget_trails(struct window_trails *trails)
{
	for (size_t i = 0; i < sizeof(trails->trail) / sizeof(*trails->trail); i++) {
		trails->trail[i].pages = 0;
		trails->trail[i].va = UINT64_MAX;
	}
	trails->last = NULL;
}
