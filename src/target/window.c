/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/window.h"

#include <string.h>

/* Copies `len` bytes at physical address `addr`, frame by frame. */
static bool copy_page(const struct physmem *mem, uint64_t addr, uint32_t len, struct window *out,
		      uint8_t *buffer, uint64_t *gfn)
{
	while (len) {
		uint32_t offset = addr & (FRAME_SIZE - 1), chunk = FRAME_SIZE - offset;
		const uint8_t *frame = mem->frame(mem->ctx, addr >> FRAME_SHIFT);

		if (!frame) {
			*gfn = addr >> FRAME_SHIFT;
			return false;
		}
		if (chunk > len)
			chunk = len;
		memcpy(buffer + out->len, frame + offset, chunk);
		out->len += chunk;
		addr += chunk;
		len -= chunk;
	}
	return true;
}

bool window_copy_at(const struct arch *arch, const struct regs *regs, uint64_t va, uint32_t want,
		    const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn)
{
	bool narrow = regs->word == 4;
	/* Bytes to the end of the address space; 0 when that is all of its 2^64. */
	uint64_t space;
	struct xlate page;

	va &= narrow ? 0xfffffffc : ~7ull;
	space = (narrow ? 1ull << 32 : 0) - va;
	*out = (struct window){.va = va, .bytes = buffer, .cut = true};
	if (space && want >= space) {
		want = (uint32_t)space;
		out->cut = false;
	}
	while (out->len < want) {
		uint32_t len = want - out->len;

		switch (arch->translate(&regs->mmu, va + out->len, mem, &page)) {
		case XLATE_ABSENT:
			out->cut = false;
			return true;
		case XLATE_MISSING:
			out->cut = true;
			*gfn = page.gfn;
			return false;
		case XLATE_OK:
			break;
		}
		if (len > page.left)
			len = (uint32_t)page.left;
		if (!copy_page(mem, page.addr, len, out, buffer, gfn)) {
			out->cut = true;
			return false;
		}
	}
	return true;
}

bool window_copy(const struct arch *arch, const struct regs *regs, uint32_t want,
		 const struct physmem *mem, uint8_t *buffer, struct window *out, uint64_t *gfn)
{
	return window_copy_at(arch, regs, regs->sp, want, mem, buffer, out, gfn);
}
