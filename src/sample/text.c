/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/text.h"

#include <stdlib.h>
#include <string.h>

#define PAGES	    64u /* a power of two; direct-mapped by page number and top table */
#define KEEP_FOR_NS 1000000000ull

struct page {
	uint64_t va;
	uint64_t root; /* the address space that it was read in */
	size_t len;    /* bytes that could be read; 0 with `known`: none */
	bool known;
	uint8_t bytes[FRAME_SIZE];
};

struct text {
	struct code code;
	struct target *target;
	const struct images *images;
	const struct regs *regs;
	uint64_t filled_ns;
	struct page pages[PAGES];
};

static const struct page *page_at(struct text *text, uint64_t va)
{
	uint64_t number = va >> FRAME_SHIFT, root = text->regs->mmu.root;
	struct page *page = &text->pages[(number ^ (root >> FRAME_SHIFT)) & (PAGES - 1)];

	va &= ~(uint64_t)(FRAME_SIZE - 1);
	if (page->known && page->va == va && page->root == root)
		return page;
	page->va = va;
	page->root = root;
	page->known = true;
	page->len = text->target->ops->read(text->target, text->regs, va, page->bytes, FRAME_SIZE);
	return page;
}

static size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct text *text = ctx;
	size_t done = 0;

	while (done < len) {
		const struct page *page = page_at(text, va + done);
		size_t offset = (va + done) & (FRAME_SIZE - 1), part;

		if (offset >= page->len)
			break;
		part = page->len - offset;
		if (part > len - done)
			part = len - done;
		memcpy((uint8_t *)buf + done, page->bytes + offset, part);
		done += part;
	}
	return done;
}

static bool function_bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	struct text *text = ctx;
	struct symbol symbol;

	/* A cold part is no function: it is jumped to, with a frame that is already there. */
	if (!images_find(text->images, va, false, &symbol) || strstr(symbol.name, ".cold"))
		return false;
	*start = symbol.start;
	*end = symbol.end;
	return true;
}

static const struct rows *image_rows(void *ctx, uint64_t va, uint64_t *slide)
{
	return images_rows(((struct text *)ctx)->images, va, slide);
}

/*
 * Linux's on x86-64. Page tables are changed before the stack, but under Xen PV
 * behind it, in __switch_to; a task that exits goes on with whatever tables are
 * there, and one that executes another program with those of that one.
 */
static bool code_switches(void *ctx, uint64_t va)
{
	static const char *const names[] = {"__switch_to", "__switch_to_asm", "switch_mm_irqs_off",
					    "do_exit", "load_elf_binary"};
	struct symbol symbol;

	if (!images_find(((struct text *)ctx)->images, va, false, &symbol))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(symbol.name, names[i]))
			return true;
	return false;
}

struct error *text_new(struct target *target, const struct images *images, struct text **out)
{
	struct text *text = calloc(1, sizeof(*text));

	if (!text)
		return error_no_memory();
	text->target = target;
	text->images = images;
	text->code.ctx = text;
	text->code.read = target->ops->read ? read_code : NULL;
	*out = text;
	return NULL;
}

void text_free(struct text *text)
{
	free(text);
}

const struct code *text_code(struct text *text, const struct regs *regs, uint64_t now_ns)
{
	if (now_ns - text->filled_ns > KEEP_FOR_NS) {
		for (unsigned i = 0; i < PAGES; i++)
			text->pages[i].known = false;
		text->filled_ns = now_ns;
	}
	text->regs = regs;
	text->code.function = text->images && images_count(text->images) ? function_bounds : NULL;
	text->code.version = text->images ? images_changes(text->images) : 0;
	text->code.rows = text->code.function ? image_rows : NULL;
	text->code.switches = text->code.function ? code_switches : NULL;
	return &text->code;
}
