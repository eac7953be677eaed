/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/placement.h"

#include <string.h>

#define PAGE_MASK ((uint64_t)PLACE_PAGE - 1)

/* Few bytes of code are found anywhere: a page must have more to tell where it is from. */
#define TELLING 96u

/* Bytes at a few places of a page that tell most other pages apart at once. */
#define PROBES	   8
#define PROBE_LEN  16u
#define PROBES_HIT 2

/* How far around the guest's addresses a build id is looked for. */
#define NOTE_PAGES 256u

/* Is it worth comparing the whole page? */
static bool may_be(const uint8_t *file, const uint8_t *guest, size_t len)
{
	size_t step = (len - PROBE_LEN) / (PROBES - 1), hits = 0;

	for (size_t i = 0; i < PROBES; i++)
		hits += !memcmp(file + i * step, guest + i * step, PROBE_LEN);
	return hits >= PROBES_HIT;
}

/* Goes through the pages of one piece that `page` may be. */
static void match_piece(const struct elf_code *code, const struct code_piece *piece,
			uint64_t page_va, const uint8_t *page, uint64_t *slide, size_t *matches)
{
	uint64_t last = piece->va + (piece->len - 1);

	for (uint64_t va = piece->va & ~PAGE_MASK; va <= last; va += PLACE_PAGE) {
		uint64_t from = va > piece->va ? va : piece->va;
		uint64_t to = last - va < PAGE_MASK ? last : va + PAGE_MASK;
		struct page_tally tally;

		if (to - from >= TELLING &&
		    may_be(piece->bytes + (from - piece->va), page + (from - va), to - from + 1)) {
			placement_compare(code, page_va - va, page_va, page, PLACE_PAGE, &tally);
			if (tally.same && tally.compared >= TELLING &&
			    (!*matches || *slide != page_va - va)) {
				*slide = page_va - va;
				++*matches;
			}
		}
		if (va > UINT64_MAX - PLACE_PAGE)
			break;
	}
}

/* The slide with which the file has this page, if there is just one. */
static bool match_page(const struct elf_code *code, uint64_t page_va, const uint8_t *page,
		       uint64_t *slide)
{
	size_t matches = 0;

	for (size_t i = 0; i < code->n && matches < 2; i++)
		match_piece(code, &code->piece[i], page_va, page, slide, &matches);
	return matches == 1;
}

struct finding_out {
	const struct elf_code *code;
	const struct guest_memory *memory;
	const uint64_t *at;
	size_t n_at;
	uint64_t pages[PLACE_SIGHTS]; /* the pages of `at`, each once */
	size_t n_pages;
};

static void list_pages(struct finding_out *f)
{
	for (size_t i = 0; i < f->n_at && f->n_pages < PLACE_SIGHTS; i++) {
		uint64_t page = f->at[i] & ~PAGE_MASK;
		size_t k = 0;

		while (k < f->n_pages && f->pages[k] != page)
			k++;
		if (k == f->n_pages)
			f->pages[f->n_pages++] = page;
	}
}

static enum place_check check(const struct finding_out *f, uint64_t slide,
			      struct place_finding *finding)
{
	return placement_check(f->code, slide, f->memory, f->pages, f->n_pages, finding);
}

/* Where the guest is at work, whatever the file says of where it belongs. */
static bool find_by_code(const struct finding_out *f, struct place_finding *finding)
{
	uint8_t page[PLACE_PAGE];
	uint64_t slide = 0;

	for (size_t i = 0; i < f->n_pages; i++)
		if (f->memory->read(f->memory->ctx, f->pages[i], page, sizeof(page)) ==
			    sizeof(page) &&
		    match_page(f->code, f->pages[i], page, &slide) &&
		    check(f, slide, finding) == PLACE_SAME)
			return true;
	return false;
}

/* The note at bytes[i] of a page, also when it goes on in the next. */
static bool note_at(const struct guest_memory *memory, uint64_t va, const uint8_t *bytes, size_t i,
		    size_t len, char *build_id)
{
	uint8_t note[CODE_NOTE_MAX];

	if (len - i >= CODE_NOTE_MAX)
		return build_id_note(bytes + i, len - i, build_id);
	/* "GNU" and its NUL are four bytes. */
	if (len - i < 4 || memcmp(bytes + i, "\4\0\0\0", 4))
		return false;
	len = memory->read(memory->ctx, va + i, note, sizeof(note));
	return build_id_note(note, len, build_id);
}

/* Notes are aligned to 4 bytes. */
static bool note_in_page(const struct guest_memory *memory, uint64_t va, bool *readable,
			 char *build_id, uint64_t *note_va)
{
	uint8_t bytes[PLACE_PAGE];
	size_t len = memory->read(memory->ctx, va, bytes, sizeof(bytes));

	*readable = len > 0;
	for (size_t i = 0; i < len; i += 4) {
		if (!note_at(memory, va, bytes, i, len, build_id))
			continue;
		*note_va = va + i;
		return true;
	}
	return false;
}

bool placement_find_note(const struct guest_memory *memory, uint64_t va, size_t pages,
			 char *build_id, uint64_t *note_va)
{
	bool up = true, down = true;

	va &= ~PAGE_MASK;
	for (size_t i = 0; i < pages && (up || down); i++) {
		if (up && note_in_page(memory, va + i * PLACE_PAGE, &up, build_id, note_va))
			return true;
		if (i && down &&
		    note_in_page(memory, va - i * PLACE_PAGE, &down, build_id, note_va))
			return true;
	}
	build_id[0] = '\0';
	return false;
}

/* By the file's own note, where too little of its code has been seen. */
static bool find_by_note(const struct finding_out *f, struct place_finding *finding)
{
	char id[2 * CODE_BUILD_ID_MAX + 1];
	uint64_t va;

	return f->code->note_len && f->n_at &&
	       placement_find_note(f->memory, f->at[0], NOTE_PAGES, id, &va) &&
	       !strcmp(id, f->code->build_id) && !((va - f->code->note_va) & PAGE_MASK) &&
	       check(f, va - f->code->note_va, finding) == PLACE_SAME;
}

/* The guest executes, or returns to, code that the file says is its own. */
static bool works_in(const struct elf_code *code, uint64_t va)
{
	return va - code->start < code->end - code->start;
}

/* What is there instead? */
static void name_other(const struct finding_out *f, struct place_finding *finding)
{
	if (finding->build_id[0])
		return;
	if (!placement_find_note(f->memory, f->code->start, NOTE_PAGES, finding->build_id,
				 &finding->build_id_va) &&
	    f->n_at)
		placement_find_note(f->memory, f->at[0], NOTE_PAGES, finding->build_id,
				    &finding->build_id_va);
}

enum place_check placement_find(const struct elf_code *code, const struct guest_memory *memory,
				const uint64_t *at, size_t n_at, struct place_finding *finding)
{
	struct finding_out f = {.code = code, .memory = memory, .at = at, .n_at = n_at};
	struct place_finding linked;
	enum place_check there;

	list_pages(&f);
	there = check(&f, 0, &linked);
	/* A copy that the guest does not work in may have been left behind by one that moved. */
	if (there == PLACE_SAME && n_at && works_in(code, at[0])) {
		*finding = linked;
		return there;
	}
	if (find_by_code(&f, finding))
		return PLACE_SAME;
	if (there != PLACE_SAME && find_by_note(&f, finding))
		return PLACE_SAME;
	if (there == PLACE_OTHER)
		name_other(&f, &linked);
	*finding = linked;
	return there;
}
