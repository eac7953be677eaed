/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "symbol/names/table.h"

/*
 * Format of kallsyms; a name is a
 * string of bytes, each of which stands for a token of some characters; the
 * first character of a name is its type, as nm prints it. Addresses are 32-bit
 * offsets from a base or, in Linux 7.2, each from where it stands itself.
 */

#define KALLSYMS_TOKENS 256

/* The longest name with its type (KSYM_NAME_LEN of Linux 6.1; 128 before). */
#define KALLSYMS_NAME_MAX 512

/* More symbols than this in no kernel. */
#define KALLSYMS_MAX (1u << 22)

/* There is a marker (the offset of a name) for so many names. */
#define KALLSYMS_STRIDE 256

struct kallsyms {
	struct budget *budget; /* of the search that found it */
	uint64_t base;	       /* or 0: */
	uint64_t place;	       /* where the first offset stands */
	bool percpu; /* CONFIG_KALLSYMS_ABSOLUTE_PERCPU: offsets below 0 count down, others are absolute */
	uint32_t n;
	int32_t *offset; /* [n] */
	uint8_t *names;	 /* n times: length, tokens */
	size_t names_len;
	uint16_t index[KALLSYMS_TOKENS]; /* where a token begins in `tokens` */
	char *tokens;			 /* each with a NUL behind it */
	size_t tokens_len;
};

/*
 * The length in tokens of the name at `at`, and where its tokens begin; false
 * if it does not fit. A length above 127 takes two bytes (Linux 6.1).
 */
static inline bool kallsyms_name_at(const uint8_t *names, size_t len, size_t at, size_t *first,
				    size_t *n)
{
	if (at >= len)
		return false;
	*n = names[at++];
	if (*n & 0x80) {
		if (at >= len)
			return false;
		*n = (*n & 0x7f) | (size_t)names[at++] << 7;
	}
	*first = at;
	return *n && *n <= KALLSYMS_NAME_MAX && *n <= len - at;
}

/*
 * Finds the parts of kallsyms. They follow each other, each aligned to 8, in Linux 7.2 to 4:
 *
 *   [offsets, base]  number, names, markers, [sequence], tokens, index  [offsets, [base,] sequence]
 *
 * with offsets and base in front up to Linux 6.3, behind since then; and the
 * sequence (3 bytes for each symbol) since 6.2. Linux 7.2 has no base, and a number of 4 bytes. The index of the tokens can be
 * recognised: 256 rising numbers from 0 which fit the strings in front of it.
 * From there the other parts are found backwards, each by fitting the parts
 * that are known by then.
 */

#define ALIGN_LEAST  4u
#define ALIGN(n, to) (((n) + (to)-1) & ~(uint64_t)((to)-1))

/* True if a part of `len` bytes may be so far in front of the next. */
static bool is_followed(size_t len, size_t by)
{
	return by == ALIGN(len, 4) || by == ALIGN(len, 8);
}

#define PAGE GUEST_MEMORY_PAGE
/* Bytes read at once in front of the tokens. */
#define BLOCK (128u << 10)
/* Bytes read at once while looking for the index. */
#define CHUNK (512u << 10)
/* Tokens are short; most have two to ten characters. */
#define TOKEN_MAX 64u
/* In front of the tokens: the names (1.7 MB in Debian's kernel), markers, offsets, sequence. */
#define FRONT_MAX  (16u << 20)
#define FRONT_MOST (4u << 20) /* more than this is rare */
/* The table is in the kernel itself, whose beginning is not farther away. */
#define KERNEL_SIZE_MAX (1u << 30)
/* A table with fewer names than this is no kernel's. */
#define MARKERS_MIN 8u

/* Steps to look at a name, or at where the names may begin. */
#define NAME_LENGTH_STEPS 3u

/* State that the search for one table after another shares. */
struct finding {
	const struct guest_memory *memory;
	uint8_t *room; /* [FRONT_MAX], used from its end; pages are only there once they are used */
};

/* The memory in front of the tokens, as far as it could be read. */
struct front {
	struct budget *budget;
	const uint8_t *bytes;
	size_t len;
};

static uint32_t u32_at(const uint8_t *bytes, size_t at)
{
	uint32_t value;

	memcpy(&value, bytes + at, sizeof(value));
	return value;
}

/* Counts the numbers of `width` bytes that rise from 0, by `least` to `most`. */
static inline size_t count_rising(const uint8_t *bytes, size_t room, size_t width, uint32_t least,
				  uint32_t most)
{
	uint32_t before, here = 0;
	size_t n;

	for (n = 0; n < room; n++) {
		before = here;
		memcpy(&here, bytes + n * width, width);
		if (n ? here - before < least || here - before > most : here)
			break;
	}
	return n;
}

/* As the index of the tokens does; KALLSYMS_TOKENS: this is it. */
static size_t count_index(const uint8_t *bytes)
{
	return count_rising(bytes, KALLSYMS_TOKENS, sizeof(uint16_t), 2, TOKEN_MAX + 1);
}

/* True if every token ends where the next begins. */
static bool tokens_fit(const struct kallsyms *kallsyms)
{
	for (size_t i = 0; i < KALLSYMS_TOKENS; i++) {
		size_t from = kallsyms->index[i];
		size_t to = i + 1 < KALLSYMS_TOKENS ? kallsyms->index[i + 1] : kallsyms->tokens_len;

		if (strlen(kallsyms->tokens + from) != to - from - 1)
			return false;
	}
	return true;
}

/* The tokens end in front of their index; the length of the last one has to be tried. */
static bool find_tokens(const struct guest_memory *memory, uint64_t index_va,
			struct kallsyms *kallsyms, uint64_t *tokens_va)
{
	size_t last = kallsyms->index[KALLSYMS_TOKENS - 1];
	size_t room = ALIGN(last + TOKEN_MAX + 1, 8);
	FREED uint8_t *bytes = malloc(room);

	for (size_t len = ALIGN(last + 2, ALIGN_LEAST); len <= room && bytes; len += ALIGN_LEAST) {
		const uint8_t *end;

		*tokens_va = index_va - len;
		if (!guest_memory_get(memory, *tokens_va, bytes, len))
			break;
		end = memchr(bytes + last, '\0', len - last);
		if (!end)
			continue;
		kallsyms->tokens = (char *)bytes;
		kallsyms->tokens_len = (size_t)(end - bytes) + 1;
		if (is_followed(kallsyms->tokens_len, len) && tokens_fit(kallsyms)) {
			bytes = NULL;
			return true;
		}
	}
	kallsyms->tokens = NULL;
	return false;
}

/* Reads the memory in front of `end`, `size` bytes or down to the first that cannot be read. */
static void read_front(const struct finding *finding, uint64_t end, size_t size,
		       struct front *front)
{
	uint8_t *room_end = finding->room + FRONT_MAX;
	size_t step = BLOCK;
	uint64_t va = end;

	while (end - va < size - step) {
		uint64_t from = (va - 1) & ~(uint64_t)(step - 1);

		if (guest_memory_get(finding->memory, from, room_end - (end - from),
				     (size_t)(va - from)))
			va = from;
		else if (step == PAGE)
			break;
		else
			step = PAGE;
	}
	*front = (struct front){.budget = finding->memory->budget,
				.bytes = room_end - (end - va),
				.len = (size_t)(end - va)};
}

/* As the offsets of every 256th name do. */
static size_t count_markers(const struct front *front, size_t at)
{
	return count_rising(front->bytes + at, (front->len - at) / sizeof(uint32_t),
			    sizeof(uint32_t), 2 * KALLSYMS_STRIDE,
			    KALLSYMS_STRIDE * KALLSYMS_NAME_MAX);
}

/* Walks `n` names from `start`: they must fit the markers. Sets *end behind the last. */
static bool names_fit(const struct front *front, size_t start, size_t markers, uint32_t n,
		      size_t *end)
{
	size_t at = start, first, tokens;

	for (uint32_t i = 0; i < n; i++) {
		if (!budget_spend(front->budget, NAME_LENGTH_STEPS))
			return false;
		if (i % KALLSYMS_STRIDE == 0 &&
		    at - start != u32_at(front->bytes, markers + 4 * (i / KALLSYMS_STRIDE)))
			return false;
		if (!kallsyms_name_at(front->bytes, markers, at, &first, &tokens))
			return false;
		at = first + tokens;
	}
	*end = at;
	return is_followed(at - start, markers - start);
}

/* True if `n` names may begin at `at`. */
static bool may_be_names(const struct front *front, size_t at, uint32_t n, size_t n_markers)
{
	const size_t need = (n + KALLSYMS_STRIDE - 1ull) / KALLSYMS_STRIDE;

	/* The numbers that rise may be more than the markers. */
	return n <= KALLSYMS_MAX && need >= MARKERS_MIN && need <= n_markers &&
	       (u32_at(front->bytes, at - 4) == n || !u32_at(front->bytes, at - 4));
}

/* The number of names and the names themselves, in front of these markers. */
static bool find_names(const struct front *front, size_t markers, size_t n_markers,
		       uint32_t *n_names, size_t *names, size_t *end)
{
	size_t least = u32_at(front->bytes, markers + 4 * (MARKERS_MIN - 1));

	if (least > markers)
		return false;
	for (size_t at = (markers - least) & ~(size_t)(ALIGN_LEAST - 1);
	     at >= 8 && markers - at < FRONT_MAX && budget_spend(front->budget, NAME_LENGTH_STEPS);
	     at -= ALIGN_LEAST) {
		const uint32_t n = u32_at(front->bytes, at - 4) ?: u32_at(front->bytes, at - 8);

		if (!may_be_names(front, at, n, n_markers) ||
		    !names_fit(front, at, markers, n, end))
			continue;
		*n_names = n;
		*names = at;
		return true;
	}
	return false;
}

static uint64_t address_of(const struct kallsyms *kallsyms, uint32_t i)
{
	int32_t offset = kallsyms->offset[i];

	if (kallsyms->place)
		return kallsyms->place + 4ull * i + (uint64_t)(int64_t)offset;
	if (!kallsyms->percpu)
		return kallsyms->base + (uint32_t)offset;
	return offset >= 0 ? (uint64_t)offset : kallsyms->base - 1 - (uint64_t)(int64_t)offset;
}

/* True if the table holds addresses in order. */
static bool offsets_fit(struct kallsyms *kallsyms, uint64_t va)
{
	uint32_t below = 0;

	if (va - kallsyms->base > KERNEL_SIZE_MAX || kallsyms->base % PAGE ||
	    !budget_spend(kallsyms->budget, kallsyms->n))
		return false;
	for (uint32_t i = 0; i < kallsyms->n; i++)
		below += kallsyms->offset[i] < 0;
	kallsyms->percpu = below > kallsyms->n / 2;
	for (uint32_t i = 1; i < kallsyms->n; i++) {
		int32_t a = kallsyms->offset[i - 1], b = kallsyms->offset[i];
		bool rises = kallsyms->percpu ? (a < 0 ? b < 0 && b <= a : b < 0 || b >= a)
					      : (uint32_t)b >= (uint32_t)a;

		if (!rises)
			return false;
	}
	return true;
}

/* ... each from where it stands. */
static bool relative_fit(struct kallsyms *kallsyms, uint64_t place)
{
	uint64_t last = 0;

	if (!budget_spend(kallsyms->budget, kallsyms->n))
		return false;
	kallsyms->base = 0;
	kallsyms->place = place;
	for (uint32_t i = 0; i < kallsyms->n; i++) {
		const uint64_t address = address_of(kallsyms, i);

		if (address < last || address - place + KERNEL_SIZE_MAX > 2ull * KERNEL_SIZE_MAX)
			return false;
		last = address;
	}
	return true;
}

/* Offsets and base in front of the number, or behind the index; or offsets alone there. */
static bool find_offsets(const struct guest_memory *memory, uint64_t number_va, uint64_t index_va,
			 struct kallsyms *kallsyms)
{
	size_t len = 4 * (size_t)kallsyms->n, room = ALIGN(len, 8);
	const uint64_t places[] = {number_va - 8 - room, index_va + sizeof(kallsyms->index)};

	for (size_t i = 0; i < 2; i++)
		if (guest_memory_get(memory, places[i], kallsyms->offset, len) &&
		    guest_memory_get(memory, places[i] + room, &kallsyms->base,
				     sizeof(kallsyms->base)) &&
		    offsets_fit(kallsyms, number_va))
			return true;
	kallsyms->percpu = false;
	return guest_memory_get(memory, places[1], kallsyms->offset, len) &&
	       relative_fit(kallsyms, places[1]);
}

static struct error *take_names(const struct front *front, size_t names, size_t end, uint32_t n,
				struct kallsyms *kallsyms)
{
	kallsyms->n = n;
	kallsyms->names_len = end - names;
	kallsyms->names = malloc(kallsyms->names_len);
	kallsyms->offset = calloc(n, sizeof(*kallsyms->offset));
	if (!kallsyms->names || !kallsyms->offset)
		return error_no_memory();
	memcpy(kallsyms->names, front->bytes + names, kallsyms->names_len);
	return NULL;
}

/*
 * Finds the other parts, within `size` bytes in front of the tokens; *whole
 * says whether all were found.
 */
static struct error *find_rest(const struct finding *finding, uint64_t tokens_va, uint64_t index_va,
			       size_t size, struct kallsyms *kallsyms, bool *whole)
{
	struct front front;
	size_t names, end;
	uint32_t n;

	read_front(finding, tokens_va, size, &front);
	for (size_t at = front.len & ~(size_t)(ALIGN_LEAST - 1); at >= 48;) {
		size_t n_markers;

		at -= ALIGN_LEAST;
		n_markers = count_markers(&front, at);
		if (!budget_spend(front.budget, 1 + n_markers))
			break;
		if (n_markers < MARKERS_MIN || !find_names(&front, at, n_markers, &n, &names, &end))
			continue;
		TRY(take_names(&front, names, end, n, kallsyms));
		*whole = find_offsets(finding->memory, tokens_va - front.len + names - 8, index_va,
				      kallsyms);
		break;
	}
	return NULL;
}

/* *out is the table if its index is here. */
static struct error *try_index(const struct finding *finding, uint64_t va, const uint8_t *bytes,
			       struct kallsyms **out)
{
	struct kallsyms *kallsyms;
	struct error *err = NULL;
	uint64_t tokens_va;
	bool whole = false;

	TRY(ARRAY_NEW(&kallsyms, 1));
	kallsyms->budget = finding->memory->budget;
	memcpy(kallsyms->index, bytes, sizeof(kallsyms->index));
	if (find_tokens(finding->memory, va, kallsyms, &tokens_va))
		err = find_rest(finding, tokens_va, va, FRONT_MOST, kallsyms, &whole);
	if (kallsyms->tokens && !kallsyms->names && !err)
		err = find_rest(finding, tokens_va, va, FRONT_MAX, kallsyms, &whole);
	if (whole)
		*out = kallsyms;
	else
		kallsyms_free(kallsyms);
	return err;
}

/* Tries each index that begins in the first CHUNK bytes of `got` bytes at `va`. */
static struct error *search_chunk(const struct finding *finding, uint64_t va, const uint8_t *chunk,
				  size_t got, struct kallsyms **out)
{
	for (size_t at = 0; at + sizeof((*out)->index) <= got && at < CHUNK && !*out;
	     at += ALIGN_LEAST) {
		const size_t n = count_index(chunk + at);

		if (!budget_spend(finding->memory->budget, 1 + n))
			break;
		if (n == KALLSYMS_TOKENS)
			TRY(try_index(finding, va + at, chunk + at, out));
	}
	return NULL;
}

struct error *kallsyms_find(const struct guest_memory *memory, uint64_t start, uint64_t end,
			    struct kallsyms **out)
{
	FREED uint8_t *room = malloc(FRONT_MAX);
	FREED uint8_t *chunk = malloc(CHUNK + PAGE);
	const struct finding finding = {.memory = memory, .room = room};

	*out = NULL;
	if (!room || !chunk)
		return error_no_memory();
	start &= ~(uint64_t)(PAGE - 1);
	/* A chunk is read with the beginning of the next, which may hold an index's end. */
	for (uint64_t va = start; va < end && end - va >= sizeof((*out)->index) && !*out &&
				  !budget_over(memory->budget);) {
		size_t got = guest_memory_read(memory, va, chunk, CHUNK + PAGE);

		TRY(search_chunk(&finding, va, chunk, got, out));
		va += got < CHUNK ? (got & ~(size_t)(PAGE - 1)) + PAGE : CHUNK;
	}
	return NULL;
}

/* Steps to compare a name, of which only few tokens are expanded. */
#define NAME_COMPARE_STEPS 8u
/* Steps to print a name, read the line again and sort the symbols: per name, and per character. */
#define SYMBOL_STEPS	256u
#define CHARACTER_STEPS 8u

void kallsyms_free(struct kallsyms *kallsyms)
{
	if (!kallsyms)
		return;
	free(kallsyms->offset);
	free(kallsyms->names);
	free(kallsyms->tokens);
	free(kallsyms);
}

/* Writes the name at `at` in full, type first; moves on to the next. False if it is damaged. */
static bool expand(const struct kallsyms *kallsyms, size_t *at, char text[KALLSYMS_NAME_MAX + 1])
{
	size_t first, n, len = 0;

	if (!kallsyms_name_at(kallsyms->names, kallsyms->names_len, *at, &first, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *token = kallsyms->tokens + kallsyms->index[kallsyms->names[first + i]];
		size_t more = strlen(token);

		if (more > KALLSYMS_NAME_MAX - len)
			return false;
		memcpy(text + len, token, more);
		len += more;
	}
	text[len] = '\0';
	*at = first + n;
	return len > 1;
}

/* Compares the name at `at` with `name`, and moves on to the next. Not equal at the end. */
static bool is_named(const struct kallsyms *kallsyms, size_t *at, const char *name)
{
	size_t first, n, skip = 1; /* the type */

	if (!kallsyms_name_at(kallsyms->names, kallsyms->names_len, *at, &first, &n))
		return false;
	*at = first + n;
	for (size_t i = 0; i < n; i++) {
		const char *token = kallsyms->tokens + kallsyms->index[kallsyms->names[first + i]];

		for (; *token; token++, skip = 0)
			if (!skip && *token != *name++)
				return false;
	}
	return !*name;
}

bool kallsyms_address(const struct kallsyms *kallsyms, const char *name, uint64_t *address)
{
	size_t at = 0;

	for (uint32_t i = 0; i < kallsyms->n && budget_spend(kallsyms->budget, NAME_COMPARE_STEPS);
	     i++)
		if (is_named(kallsyms, &at, name)) {
			*address = address_of(kallsyms, i);
			return true;
		}
	return false;
}

bool kallsyms_range(const struct kallsyms *kallsyms, const char *name, uint64_t *start,
		    uint64_t *end)
{
	*end = UINT64_MAX;
	if (!kallsyms_address(kallsyms, name, start))
		return false;
	for (uint32_t i = 0; i < kallsyms->n && budget_spend(kallsyms->budget, 1); i++) {
		const uint64_t address = address_of(kallsyms, i);

		if (address > *start && address < *end)
			*end = address;
	}
	return *end != UINT64_MAX;
}

/* A name with a newline in it would be taken for a line of its own. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name <= ' ')
			return false;
	return true;
}

static void print_all(const struct kallsyms *kallsyms, FILE *out)
{
	char text[KALLSYMS_NAME_MAX + 1];
	size_t at = 0;

	for (uint32_t i = 0; i < kallsyms->n && expand(kallsyms, &at, text); i++) {
		if (!budget_spend(kallsyms->budget, SYMBOL_STEPS + CHARACTER_STEPS * strlen(text)))
			break;
		if (is_plain(text))
			fprintf(out, "%016" PRIx64 " %c %s\n", address_of(kallsyms, i), text[0],
				text + 1);
	}
}

/* Goes through the text that the kernel itself would print, so that the rules of nm_read apply. */
struct error *kallsyms_symbols(const struct kallsyms *kallsyms, const char *path,
			       struct symbols **out)
{
	char *text = NULL;
	size_t len;
	FILE *stream = open_memstream(&text, &len);

	if (!stream)
		return error_no_memory();
	print_all(kallsyms, stream);
	if (fclose(stream)) {
		free(text);
		return error_no_memory();
	}
	return nm_read(path, text, len, out);
}
