/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "symbol/placement.h"

#define PAGE_MASK ((uint64_t)PLACE_PAGE - 1)

/* How many pages of a file are compared at most, spread over all of it. */
#define CHECK_PAGES 64

/* A stretch counts as different when more than a quarter, and so many bytes, are. */
#define BLOCK	  256u
#define BLOCK_FEW 15u

/*
 * Of a file that patches itself, one page in so many may be quite different,
 * or two of a few: where nearly every instruction is patched.
 */
#define PATCHED_PAGES 8u

/* A stretch of which three quarters are one and the same byte is filler: a guest may put it to use. */
static bool is_filler(const uint8_t *bytes, size_t len)
{
	size_t count[256] = {0}, most = 0;

	for (size_t i = 0; i < len; i++)
		if (++count[bytes[i]] > most)
			most = count[bytes[i]];
	return most >= len - len / 4;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

static uint32_t word_at(const uint8_t *bytes)
{
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/*
 * Is the difference at `i` an address that was moved with the code? Returns
 * how many bytes from `i` on that explains.
 */
static size_t relocated(const uint8_t *file, const uint8_t *guest, size_t i, size_t len,
			uint64_t slide)
{
	if (!(uint32_t)slide)
		return 0;
	for (size_t back = 0; back < 4 && back <= i; back++)
		if (i - back + 4 <= len &&
		    word_at(guest + i - back) - word_at(file + i - back) == (uint32_t)slide)
			return 4 - back;
	return 0;
}

static size_t count_different(const uint8_t *file, const uint8_t *guest, size_t len, uint64_t slide)
{
	size_t different = 0;

	for (size_t i = 0; i < len; i++) {
		size_t moved;

		if (file[i] == guest[i])
			continue;
		moved = relocated(file, guest, i, len, slide);
		if (moved)
			i += moved - 1;
		else
			different++;
	}
	return different;
}

/* Adds one stretch of file and guest to the tally; false if it is not the same code. */
static bool compare_stretch(const struct elf_code *code, uint64_t slide, const uint8_t *file,
			    const uint8_t *guest, size_t len, struct page_tally *tally)
{
	bool same = true;

	for (size_t at = 0; at < len; at += BLOCK) {
		size_t part = len - at < BLOCK ? len - at : BLOCK;
		size_t different = count_different(file + at, guest + at, part, slide);

		tally->different += different;
		if (!code->patched && different > BLOCK_FEW && 4 * different > part)
			same = false;
	}
	tally->compared += len;
	return same;
}

size_t placement_piece(const struct elf_code *code, uint64_t va)
{
	size_t low = 0, high = code->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (code->piece[middle].va + (code->piece[middle].len - 1) < va)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void placement_compare(const struct elf_code *code, uint64_t slide, uint64_t page_va,
		       const uint8_t *page, size_t len, struct page_tally *tally)
{
	uint64_t first = page_va - slide;
	bool same = true;

	*tally = (struct page_tally){.empty = is_zero(page, len)};
	if (!len || first > UINT64_MAX - (len - 1))
		return;
	for (size_t i = placement_piece(code, first); i < code->n; i++) {
		const struct code_piece *piece = &code->piece[i];
		uint64_t from = piece->va > first ? piece->va : first;
		uint64_t last = piece->va + (piece->len - 1);

		if (from > first + (len - 1))
			break;
		if (last > first + (len - 1))
			last = first + (len - 1);
		if (is_filler(piece->bytes + (from - piece->va), last - from + 1))
			continue;
		same &= compare_stretch(code, slide, piece->bytes + (from - piece->va),
					page + (from - first), last - from + 1, tally);
	}
	tally->same = same && tally->different <= tally->compared / 4;
}

struct checking {
	const struct elf_code *code;
	uint64_t slide;
	const struct guest_memory *memory;
	size_t same, other, empty; /* pages */
};

static void check_page(struct checking *c, uint64_t page_va)
{
	struct page_tally tally;
	uint8_t page[PLACE_PAGE];
	size_t len = c->memory->read(c->memory->ctx, page_va, page, sizeof(page));

	if (!len)
		return;
	placement_compare(c->code, c->slide, page_va, page, len, &tally);
	if (!tally.compared)
		return;
	if (tally.same)
		c->same++;
	else if (tally.empty)
		c->empty++;
	else
		c->other++;
}

static size_t pages_of(const struct code_piece *piece)
{
	return (size_t)(((piece->va + (piece->len - 1)) >> 12) - (piece->va >> 12)) + 1;
}

/* CHECK_PAGES pages with code, at equal distances; all if there are no more. */
static void check_pages(struct checking *c)
{
	size_t all = 0, seen = 0, due = 0;

	for (size_t i = 0; i < c->code->n; i++)
		all += pages_of(&c->code->piece[i]);
	for (size_t i = 0; i < c->code->n; i++) {
		const struct code_piece *piece = &c->code->piece[i];
		size_t pages = pages_of(piece);

		while (due - seen < pages) {
			check_page(c, (((piece->va + c->slide) >> 12) + (due - seen)) << 12);
			due += all > CHECK_PAGES ? (all + CHECK_PAGES - 1) / CHECK_PAGES : 1;
		}
		seen += pages;
	}
}

/* PLACE_UNSEEN if there is no note where the file has its own. */
static enum place_check check_note(const struct checking *c, struct place_finding *finding)
{
	const struct elf_code *code = c->code;
	uint64_t va = code->note_va + c->slide;
	uint8_t note[CODE_NOTE_MAX];
	size_t len;

	if (!code->note_len)
		return PLACE_UNSEEN;
	len = c->memory->read(c->memory->ctx, va, note, sizeof(note));
	len = build_id_note(note, len, finding->build_id);
	if (!len)
		return PLACE_UNSEEN;
	if (len == code->note_len && !memcmp(note, code->note, len))
		return PLACE_SAME;
	finding->build_id_va = va;
	return PLACE_OTHER;
}

static enum place_check judge(const struct checking *c, enum place_check note)
{
	size_t allowed = 0;

	if (c->code->patched)
		allowed = 2 + c->same / PATCHED_PAGES;
	if (note == PLACE_SAME)
		allowed = c->same;
	if (c->other > allowed)
		return PLACE_OTHER;
	/* The code of a file with only debug information is not there to be compared. */
	if (note == PLACE_SAME && (c->same || !c->empty))
		return PLACE_SAME;
	return c->same && c->same > c->empty && c->same > c->other ? PLACE_SAME : PLACE_UNSEEN;
}

enum place_check placement_check(const struct elf_code *code, uint64_t slide,
				 const struct guest_memory *memory, const uint64_t *at, size_t n_at,
				 struct place_finding *finding)
{
	struct checking c = {.code = code, .slide = slide, .memory = memory};
	enum place_check note;

	*finding = (struct place_finding){.slide = slide};
	note = check_note(&c, finding);
	if (note == PLACE_OTHER)
		return note;
	finding->build_id[0] = '\0';
	for (size_t i = 0; i < n_at && i < PLACE_SIGHTS; i++)
		if (at[i] - slide - code->start < code->end - code->start)
			check_page(&c, at[i] & ~PAGE_MASK);
	check_pages(&c);
	return judge(&c, note);
}
