/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/placement.h"

#include <string.h>

/* The file's code with some slide, against one page of the guest. */
struct page_tally {
	size_t compared, different; /* bytes; none compared: the page says nothing */
	bool same;
	bool empty; /* only zeros in the guest: nothing has been loaded there yet */
};

#define PAGE	  GUEST_MEMORY_PAGE
#define PAGE_MASK ((uint64_t)PAGE - 1)

/* Steps to compare a page. */
#define COMPARE_STEPS (4 * PAGE)

/* Pages of a file that are compared at most, spread over all of it. */
#define CHECK_PAGES 64

/* A stretch counts as different when more than a quarter, and so many bytes, are. */
#define BLOCK	  256u
#define BLOCK_FEW 15u

/*
 * In a file that patches itself, one page in so many may be quite different, or
 * two of a few: nearly every instruction there is patched.
 */
#define PATCHED_PAGES 8u

/* A stretch with three quarters of one and the same byte is filler: a guest may put it to use. */
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

/* Compares one stretch of file and guest, and counts it; false if it is not the same code. */
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

static void compare_page(const struct elf_code *code, uint64_t slide, uint64_t page_va,
			 const uint8_t *page, size_t len, struct page_tally *tally)
{
	const uint64_t first = page_va - slide, end = first + (len - 1);
	bool same = true;

	*tally = (struct page_tally){.empty = is_zero(page, len)};
	if (!len || end < first)
		return;
	for (size_t i = elf_code_piece(code, first); i < code->n; i++) {
		const struct code_piece *piece = &code->piece[i];
		const uint64_t from = piece->va > first ? piece->va : first;
		uint64_t last = piece->va + (piece->len - 1);

		if (from > end)
			break;
		if (last > end)
			last = end;
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
	uint8_t page[PAGE];
	size_t len = guest_memory_read(c->memory, page_va, page, sizeof(page));

	if (!len || !budget_spend(c->memory->budget, COMPARE_STEPS))
		return;
	compare_page(c->code, c->slide, page_va, page, len, &tally);
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

/* PLACEMENT_UNSEEN if there is no note where the file has its own. */
static enum placement_verdict check_note(const struct checking *c,
					 struct placement_finding *finding)
{
	const struct elf_code *code = c->code;
	uint64_t va = code->note_va + c->slide;
	uint8_t note[CODE_NOTE_MAX];
	size_t len;

	if (!code->note_len)
		return PLACEMENT_UNSEEN;
	len = guest_memory_read(c->memory, va, note, sizeof(note));
	len = build_id_note(note, len, finding->build_id);
	if (!len)
		return PLACEMENT_UNSEEN;
	if (len == code->note_len && !memcmp(note, code->note, len))
		return PLACEMENT_SAME;
	finding->build_id_va = va;
	return PLACEMENT_OTHER;
}

static enum placement_verdict judge(const struct checking *c, enum placement_verdict note)
{
	size_t allowed = 0;

	if (c->code->patched)
		allowed = 2 + c->same / PATCHED_PAGES;
	if (note == PLACEMENT_SAME)
		allowed = c->same;
	if (c->other > allowed)
		return PLACEMENT_OTHER;
	/* The code of a file with only debug information is not there to be compared. */
	if (note == PLACEMENT_SAME && (c->same || !c->empty))
		return PLACEMENT_SAME;
	return c->same && c->same > c->empty && c->same > c->other ? PLACEMENT_SAME
								   : PLACEMENT_UNSEEN;
}

/* The guest executes, or returns to, code that the file says is its own. */
static bool works_in(const struct elf_code *code, uint64_t va)
{
	return va - code->start < code->end - code->start;
}

enum placement_verdict placement_check(const struct elf_code *code, uint64_t slide,
				       const struct guest_memory *memory, const uint64_t *at,
				       size_t n_at, struct placement_finding *finding)
{
	struct checking c = {.code = code, .slide = slide, .memory = memory};
	enum placement_verdict note;

	*finding = (struct placement_finding){.slide = slide};
	note = check_note(&c, finding);
	if (note == PLACEMENT_OTHER)
		return note;
	finding->build_id[0] = '\0';
	for (size_t i = 0; i < n_at && i < PLACEMENT_SIGHTS; i++)
		if (works_in(code, at[i] - slide))
			check_page(&c, at[i] & ~PAGE_MASK);
	check_pages(&c);
	return judge(&c, note);
}

/* Few bytes of code are found anywhere: a page must have more to tell where it is from. */
#define TELLING 96u

/* Bytes at a few places of a page that tell most other pages apart at once. */
#define PROBES	   8
#define PROBE_LEN  16u
#define PROBES_HIT 2

/* Steps to compare a few places of a page. */
#define PROBE_STEPS 8u

/* Distance from the guest's addresses within which a build id is searched. */
#define NOTE_PAGES 256u

/* True if the whole page is worth comparing. */
static bool may_be(const uint8_t *file, const uint8_t *guest, size_t len)
{
	size_t step = (len - PROBE_LEN) / (PROBES - 1), hits = 0;

	for (size_t i = 0; i < PROBES; i++)
		hits += !memcmp(file + i * step, guest + i * step, PROBE_LEN);
	return hits >= PROBES_HIT;
}

/* A page of the guest that is searched for in a file. */
struct page_search {
	const struct elf_code *code;
	struct budget *budget;
	uint64_t va;
	const uint8_t *page;
	uint64_t slide; /* of the last match */
	size_t matches; /* with different slides */
};

/* Goes through the pages of one piece that the page may be. */
static void match_piece(struct page_search *s, const struct code_piece *piece)
{
	uint64_t last = piece->va + (piece->len - 1);

	for (uint64_t va = piece->va & ~PAGE_MASK; va <= last; va += PAGE) {
		uint64_t from = va > piece->va ? va : piece->va;
		uint64_t to = last - va < PAGE_MASK ? last : va + PAGE_MASK;
		struct page_tally tally;

		if (!budget_spend(s->budget, PROBE_STEPS))
			break;
		if (to - from >= TELLING &&
		    may_be(piece->bytes + (from - piece->va), s->page + (from - va),
			   to - from + 1) &&
		    budget_spend(s->budget, COMPARE_STEPS)) {
			compare_page(s->code, s->va - va, s->va, s->page, PAGE, &tally);
			if (tally.same && tally.compared >= TELLING &&
			    (!s->matches || s->slide != s->va - va)) {
				s->slide = s->va - va;
				s->matches++;
			}
		}
		if (va > UINT64_MAX - PAGE)
			break;
	}
}

/* The slide with which the file has this page, if there is just one. */
static bool match_page(const struct elf_code *code, struct budget *budget, uint64_t page_va,
		       const uint8_t *page, uint64_t *slide)
{
	struct page_search s = {.code = code, .budget = budget, .va = page_va, .page = page};

	for (size_t i = 0; i < code->n && s.matches < 2; i++)
		match_piece(&s, &code->piece[i]);
	if (s.matches)
		*slide = s.slide;
	return s.matches == 1 && !budget_over(budget);
}

struct finding_out {
	const struct elf_code *code;
	const struct guest_memory *memory;
	const uint64_t *at;
	size_t n_at;
	uint64_t pages[PLACEMENT_SIGHTS]; /* the pages of `at`, each once */
	size_t n_pages;
};

static void list_pages(struct finding_out *f)
{
	for (size_t i = 0; i < f->n_at && f->n_pages < PLACEMENT_SIGHTS; i++) {
		uint64_t page = f->at[i] & ~PAGE_MASK;
		size_t k = 0;

		while (k < f->n_pages && f->pages[k] != page)
			k++;
		if (k == f->n_pages)
			f->pages[f->n_pages++] = page;
	}
}

static enum placement_verdict check(const struct finding_out *f, uint64_t slide,
				    struct placement_finding *finding)
{
	return placement_check(f->code, slide, f->memory, f->pages, f->n_pages, finding);
}

/* Searches the guest's code addresses, wherever the file says that it belongs. */
static bool find_by_code(const struct finding_out *f, struct placement_finding *finding)
{
	uint8_t page[PAGE];
	uint64_t slide = 0;

	for (size_t i = 0; i < f->n_pages; i++)
		if (guest_memory_get(f->memory, f->pages[i], page, sizeof(page)) &&
		    match_page(f->code, f->memory->budget, f->pages[i], page, &slide) &&
		    check(f, slide, finding) == PLACEMENT_SAME)
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
	len = guest_memory_read(memory, va + i, note, sizeof(note));
	return build_id_note(note, len, build_id);
}

/* Notes are aligned to 4 bytes. */
static bool note_in_page(const struct guest_memory *memory, uint64_t va, bool *readable,
			 char *build_id, uint64_t *note_va)
{
	uint8_t bytes[PAGE];
	size_t len = guest_memory_read(memory, va, bytes, sizeof(bytes));

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
		if (up && note_in_page(memory, va + i * PAGE, &up, build_id, note_va))
			return true;
		if (i && down && note_in_page(memory, va - i * PAGE, &down, build_id, note_va))
			return true;
	}
	build_id[0] = '\0';
	return false;
}

/* Searches the file's own build id note, where too little of its code has been seen. */
static bool find_by_note(const struct finding_out *f, struct placement_finding *finding)
{
	char id[2 * BUILD_ID_MAX + 1];
	uint64_t va;

	return f->code->note_len && f->n_at &&
	       placement_find_note(f->memory, f->at[0], NOTE_PAGES, id, &va) &&
	       !strcmp(id, f->code->build_id) && !((va - f->code->note_va) & PAGE_MASK) &&
	       check(f, va - f->code->note_va, finding) == PLACEMENT_SAME;
}

/* Finds the build id of the file that is there instead. */
static void name_other(const struct finding_out *f, struct placement_finding *finding)
{
	if (finding->build_id[0])
		return;
	if (!placement_find_note(f->memory, f->code->start, NOTE_PAGES, finding->build_id,
				 &finding->build_id_va) &&
	    f->n_at)
		placement_find_note(f->memory, f->at[0], NOTE_PAGES, finding->build_id,
				    &finding->build_id_va);
}

enum placement_verdict placement_find(const struct elf_code *code,
				      const struct guest_memory *memory, const uint64_t *at,
				      size_t n_at, struct placement_finding *finding)
{
	struct finding_out f = {.code = code, .memory = memory, .at = at, .n_at = n_at};
	struct placement_finding linked;
	enum placement_verdict there;

	list_pages(&f);
	there = check(&f, 0, &linked);
	/* A copy that the guest does not work in may have been left behind by one that moved. */
	if (there == PLACEMENT_SAME && n_at && works_in(code, at[0])) {
		*finding = linked;
		return there;
	}
	if (find_by_code(&f, finding))
		return PLACEMENT_SAME;
	if (there != PLACEMENT_SAME && find_by_note(&f, finding))
		return PLACEMENT_SAME;
	if (there == PLACEMENT_OTHER)
		name_other(&f, &linked);
	*finding = linked;
	return there;
}
