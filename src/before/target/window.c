/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/window.h"

#include <string.h>

#include "target/copy.h"

#define PAGE_MASK (~(uint64_t)(FRAME_SIZE - 1))

/* One copy. */
struct copy {
	const struct arch *arch;
	const struct regs *regs;
	const struct physmem *mem;
	struct window_trail *trail; /* NULL: none is left */
	struct window *out;
	uint8_t *buffer;
	uint64_t *gfn;
};

static void leave_trail(struct window_trail *trail, const uint8_t *frame)
{
	if (trail->pages < WINDOW_TRAIL_PAGES)
		trail->page[trail->pages] = frame;
	trail->pages++;
}

/* Copies `len` bytes at physical address `addr`, frame by frame. */
static bool copy_page(const struct copy *copy, uint64_t addr, uint32_t len)
{
	struct window *out = copy->out;

	while (len) {
		uint32_t offset = addr & (FRAME_SIZE - 1), chunk = FRAME_SIZE - offset;
		const uint8_t *frame = copy->mem->frame(copy->mem->ctx, addr >> FRAME_SHIFT);

		if (!frame) {
			*copy->gfn = addr >> FRAME_SHIFT;
			return false;
		}
		if (copy->trail)
			leave_trail(copy->trail, frame);
		if (chunk > len)
			chunk = len;
		copy_stack_bytes(copy->buffer + out->len, frame + offset, chunk);
		out->len += chunk;
		addr += chunk;
		len -= chunk;
	}
	return true;
}

static bool copy_window(const struct copy *copy, uint64_t va, uint32_t want)
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
			*copy->gfn = page.gfn;
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

/* *within: the address space does not end there. */
static uint64_t begin(const struct copy *copy, uint64_t va, uint32_t *want, bool *within)
{
	bool narrow = copy->regs->word == 4;
	/* Bytes to the end of the address space; 0 when that is all of its 2^64. */
	uint64_t space;

	va &= narrow ? 0xfffffffc : ~7ull;
	space = (narrow ? 1ull << 32 : 0) - va;
	*within = !space || *want < space;
	*copy->out = (struct window){.va = va, .bytes = copy->buffer, .cut = *within};
	if (!*within)
		*want = (uint32_t)space;
	return va;
}

bool window_copy_at(const struct arch *arch, const struct regs *regs, uint64_t va, uint32_t want,
		    const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn)
{
	const struct copy copy = {arch, regs, mem, NULL, out, buffer, gfn};
	bool within;

	va = begin(&copy, va, &want, &within);
	return copy_window(&copy, va, want);
}

bool window_copy(const struct arch *arch, const struct regs *regs, uint32_t want,
		 const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn)
{
	return window_copy_at(arch, regs, regs->sp, want, mem, buffer, out, gfn);
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

/* Do the page tables still say what they said? */
static bool reads_the_same(const struct xlate_log *log)
{
	const struct xlate_read *read = log->read, *end = read + log->n;

	for (; read < end; read++) {
		uint64_t wide;
		uint32_t narrow;

		memcpy(&narrow, read->at, sizeof(narrow));
		wide = narrow;
		if (log->size == sizeof(wide))
			memcpy(&wide, read->at, sizeof(wide));
		if (wide != read->entry)
			return false;
	}
	return true;
}

static bool leads_there(const struct window_trail *trail, const struct regs *regs, uint64_t va)
{
	return trail->pages && (va & PAGE_MASK) == trail->va && trail->word == regs->word &&
	       trail->mmu.root == regs->mmu.root && trail->mmu.mode == regs->mmu.mode &&
	       trail->mmu.pse == regs->mmu.pse && reads_the_same(&trail->log);
}

/* False if the trail ends before that. */
static bool follow(const struct window_trail *trail, const struct copy *copy, uint64_t va,
		   uint32_t want)
{
	struct window *out = copy->out;
	uint32_t offset = va - trail->va, have = trail->pages * FRAME_SIZE - offset;

	if (want > have) {
		if (!trail->ends)
			return false;
		want = have;
		out->cut = false;
	}
	for (unsigned i = 0; out->len < want; i++, offset = 0) {
		uint32_t chunk = FRAME_SIZE - offset;

		if (chunk > want - out->len)
			chunk = want - out->len;
		copy_stack_bytes(copy->buffer + out->len, trail->page[i] + offset, chunk);
		out->len += chunk;
	}
	return true;
}

bool window_copy_again(const struct arch *arch, const struct regs *regs, uint32_t want,
		       const struct physmem *mem, struct window_trail *trail, uint8_t *buffer,
		       struct window *out, uint64_t *gfn)
{
	const struct copy copy = {arch, regs, mem, trail, out, buffer, gfn};
	bool within, done;
	uint64_t va = begin(&copy, regs->sp, &want, &within);

	if (leads_there(trail, regs, va) && within && follow(trail, &copy, va, want))
		return true;
	out->cut = within;
	trail->pages = 0;
	trail->log.n = 0;
	trail->word = regs->word;
	trail->mmu = regs->mmu;
	trail->va = va & PAGE_MASK;
	done = copy_window(&copy, va, want);
	trail->ends = !out->cut;
	if (!done || !within || trail->pages > WINDOW_TRAIL_PAGES || trail->log.n > XLATE_LOG)
		trail->pages = 0;
	return done;
}
