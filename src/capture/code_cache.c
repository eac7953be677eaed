/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "symbol/images/placement.h"

#define PAGES	    64u /* a power of two; direct-mapped by page number and top table */
#define KEEP_FOR_NS 1000000000ull

struct page {
	uint64_t va;
	uint64_t root; /* the address space that it was read in */
	size_t len;    /* bytes that could be read; 0 with `known`: none */
	bool known;
	bool wiped; /* all zeros */
	uint8_t bytes[FRAME_SIZE];
};

/* Address spaces whose programs are remembered; direct-mapped. For how long, for one may end. */
#define SPACES	      64u
#define SPACE_KEPT_NS 100000000u

/* Steps to compare a program with its file. */
#define COMPARE_STEPS (1u << 20)

/* What an address space has where a file of a program is in others. */
struct space {
	uint64_t root;
	const struct image_file *file; /* NULL: nothing is remembered */
	uint64_t slide;
	uint64_t until_ns;
	bool foreign;
};

struct code_cache {
	struct code code;
	struct target *target;
	const struct images *images;
	const struct regs *regs;
	uint64_t filled_ns;
	struct space spaces[SPACES];
	bool others;	   /* programs were seen of which there is no file */
	bool unmapped;	   /* a file may be found later */
	bool has_programs; /* ... or one was found that is a program's */
	struct page pages[PAGES];
};

static bool is_wiped(const struct page *page)
{
	return page->len == FRAME_SIZE && !page->bytes[0] &&
	       !memcmp(page->bytes, page->bytes + 1, FRAME_SIZE - 1);
}

static const struct page *page_at(struct code_cache *cache, uint64_t va)
{
	uint64_t number = va >> FRAME_SHIFT, root = cache->regs->mmu.root;
	struct page *page = &cache->pages[(number ^ (root >> FRAME_SHIFT)) & (PAGES - 1)];

	va &= ~(uint64_t)(FRAME_SIZE - 1);
	if (page->known && page->va == va && page->root == root)
		return page;
	page->va = va;
	page->root = root;
	page->known = true;
	page->len = target_read(cache->target, cache->regs, va, page->bytes, FRAME_SIZE);
	page->wiped = is_wiped(page);
	return page;
}

/* Reads a missing page from the file that was loaded there, up to the page's end. */
static size_t read_file(const struct code_cache *cache, uint64_t va, void *buf, size_t len)
{
	const size_t left = FRAME_SIZE - (va & (FRAME_SIZE - 1));

	return cache->images ? images_code(cache->images, va, cache->regs->mmu.root, buf,
					   len < left ? len : left)
			     : 0;
}

static size_t read_page(const struct page *page, uint64_t va, void *buf, size_t len)
{
	const size_t offset = va & (FRAME_SIZE - 1);

	if (offset >= page->len)
		return 0;
	if (len > page->len - offset)
		len = page->len - offset;
	memcpy(buf, page->bytes + offset, len);
	return len;
}

static size_t read_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct code_cache *cache = ctx;
	size_t done = 0;

	while (done < len) {
		const struct page *page = page_at(cache, va + done);
		uint8_t *to = (uint8_t *)buf + done;
		size_t part = 0;

		if (!page->len || page->wiped)
			part = read_file(cache, va + done, to, len - done);
		if (!part)
			part = read_page(page, va + done, to, len - done);
		if (!part)
			break;
		done += part;
	}
	return done;
}

/*
 * Compares the code at `va` with the file's. Code that cannot be read (Linux maps a program's pages
 * as it gets to them, anew after each fork), or that costs too much, is taken for the file's while
 * no other program was seen, and then only where the file was found.
 */
static void compare_space(struct code_cache *cache, const struct image *image, uint64_t va,
			  struct space *space)
{
	struct budget budget = {.left = COMPARE_STEPS};
	struct memory_view view = {cache->target, cache->regs};
	const struct guest_memory memory = {&view, memory_view_read, &budget};
	const uint64_t root = cache->regs->mmu.root;
	struct placement_finding finding;
	enum placement_verdict there =
		placement_check(image->file->code, image->slide, &memory, &va, 1, &finding);

	if (budget_over(&budget))
		there = PLACEMENT_UNSEEN;
	cache->others |= there == PLACEMENT_OTHER;
	*space = (struct space){
		.root = root,
		.file = image->file,
		.slide = image->slide,
		.until_ns = clock_now_ns() + SPACE_KEPT_NS,
		.foreign = there == PLACEMENT_OTHER ||
			   (there == PLACEMENT_UNSEEN && cache->others && root != image->space),
	};
}

/* `image` is a program's. */
static bool is_foreign_at(struct code_cache *cache, const struct image *image, uint64_t va)
{
	const uint64_t root = cache->regs->mmu.root;
	struct space *space =
		&cache->spaces[(root >> FRAME_SHIFT ^ (uintptr_t)image->file >> 4) % SPACES];

	if (!cache->code.read)
		return false;
	if (space->file != image->file || space->slide != image->slide || space->root != root ||
	    clock_now_ns() >= space->until_ns)
		compare_space(cache, image, va, space);
	return space->foreign;
}

static bool is_foreign(struct code_cache *cache, uint64_t va)
{
	const struct image *image = images_program_at(cache->images, va);

	return image && is_foreign_at(cache, image, va);
}

bool code_cache_knows(struct code_cache *cache, uint64_t va)
{
	return cache->images && images_at(cache->images, va) && !is_foreign(cache, va);
}

/* True for code of a program that was compared with no file, as long as some file was not found yet. */
static bool may_be_foreign(const struct code_cache *cache, uint64_t va)
{
	return cache->unmapped && is_program_code(cache->regs, va) && !images_at(cache->images, va);
}

/* Stays by itself: guests without programs pay for the question alone. */
__attribute__((noinline)) static void mark_foreign(struct code_cache *cache, struct frame *frames,
						   size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint64_t va = frame_code(frames[i].addr, frames[i].kind);
		const struct image *image = images_program_at(cache->images, va);

		if (is_stand_in(va))
			continue;
		if (image ? is_foreign_at(cache, image, va) : may_be_foreign(cache, va))
			frames[i].kind |= FRAME_FOREIGN;
		/* Code of a program, and of no file. */
		cache->others |= !image && va < LOWER_HALF && !images_at(cache->images, va);
	}
}

void code_cache_mark_foreign(struct code_cache *cache, struct frame *frames, size_t n)
{
	if (cache->has_programs)
		mark_foreign(cache, frames, n);
}

static bool function_bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	struct code_cache *cache = ctx;
	struct symbol symbol;
	const struct image *image = images_find(cache->images, va, false, &symbol);

	/*
	 * A cold part is no function: it is jumped to, with a frame that is already there. Nor is what a
	 * JIT compiler names: V8 enters loops in the middle.
	 */
	if (!image || image->file->names_only || strstr(symbol.name, ".cold") ||
	    is_foreign(cache, va))
		return false;
	*start = symbol.start;
	*end = symbol.end;
	return true;
}

static const struct unwind_table *image_rows(void *ctx, uint64_t va, uint64_t *slide)
{
	struct code_cache *cache = ctx;

	return is_foreign(cache, va) ? NULL : images_unwind_table(cache->images, va, slide);
}

/*
 * Linux's switches. Page tables change before the stack, each in a function that __schedule calls,
 * but under Xen PV after it, in __switch_to; a task that exits goes on with any page tables, and
 * one that executes another program with that program's.
 */
static bool code_switches(void *ctx, uint64_t va, bool calls)
{
	static const char *const names[] = {"__switch_to", "__switch_to_asm", "switch_mm_irqs_off",
					    "do_exit", "load_elf_binary"};
	struct symbol symbol;

	if (!images_find(((struct code_cache *)ctx)->images, va, false, &symbol))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(symbol.name, names[i]))
			return true;
	return !calls && !strcmp(symbol.name, "__schedule");
}

static void use_images(struct code_cache *cache)
{
	const bool any = images_count(cache->images);

	cache->unmapped = images_have_unmapped(cache->images);
	cache->has_programs = cache->unmapped || images_have_programs(cache->images);
	cache->code.version = images_changes(cache->images);
	cache->code.function = any ? function_bounds : NULL;
	cache->code.table = any ? image_rows : NULL;
	cache->code.switches = any ? code_switches : NULL;
}

struct error *code_cache_new(struct target *target, const struct images *images,
			     struct code_cache **out)
{
	struct code_cache *cache;

	TRY(ARRAY_NEW(&cache, 1));
	cache->target = target;
	cache->images = images;
	cache->code.ctx = cache;
	cache->code.read = target_can_read(target) ? read_code : NULL;
	if (images)
		use_images(cache);
	*out = cache;
	return NULL;
}

void code_cache_free(struct code_cache *cache)
{
	free(cache);
}

const struct code *code_cache_for(struct code_cache *cache, const struct regs *regs,
				  uint64_t now_ns)
{
	if (now_ns - cache->filled_ns > KEEP_FOR_NS) {
		for (unsigned i = 0; i < PAGES; i++)
			cache->pages[i].known = false;
		cache->filled_ns = now_ns;
	}
	cache->regs = regs;
	if (cache->images && cache->code.version != images_changes(cache->images))
		use_images(cache);
	return &cache->code;
}
