/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Where the parts of kallsyms are. They follow each other, each aligned to 8:
 *
 *   [offsets, base]  number, names, markers, [sequence], tokens, index  [offsets, base, sequence]
 *
 * with offsets and base in front up to Linux 6.3, behind since then; and the
 * sequence (3 bytes for each symbol) since 6.2. The index of the tokens is what
 * can be recognised: 256 rising numbers from 0 which fit the strings in front
 * of it. From there the other parts are found backwards, each by fitting what
 * is known by then.
 */

#include "symbol/kallsyms_table.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN8(n) (((n) + 7) & ~(uint64_t)7)

#define PAGE 4096u
/* What is read at once in front of the tokens. */
#define BLOCK (128u << 10)
/* What is read at once while looking for the index. */
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

/* What is taken for a table and is none: so much work goes into it and no more. */
#define TRIES_MAX 16
#define STEPS_MAX (1u << 26)

/* The memory in front of the tokens, as far as it could be read. */
struct front {
	uint8_t *bytes;
	size_t len;
	unsigned steps; /* names that may still be looked at */
};

static bool read_all(const struct guest_memory *memory, uint64_t va, void *buf, size_t len)
{
	return memory->read(memory->ctx, va, buf, len) == len;
}

static uint32_t u32_at(const uint8_t *bytes, size_t at)
{
	uint32_t value;

	memcpy(&value, bytes + at, sizeof(value));
	return value;
}

static uint16_t u16_at(const uint8_t *bytes, size_t at)
{
	uint16_t value;

	memcpy(&value, bytes + at, sizeof(value));
	return value;
}

/* Do 256 numbers rise from 0 as the index does? */
static bool is_index(const uint8_t *bytes)
{
	if (u16_at(bytes, 0))
		return false;
	for (size_t i = 1; i < KALLSYMS_TOKENS; i++) {
		unsigned step = u16_at(bytes, 2 * i) - (unsigned)u16_at(bytes, 2 * i - 2);

		if (step < 2 || step > TOKEN_MAX + 1)
			return false;
	}
	return true;
}

/* Does every token end where the next begins? */
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

/* The tokens end in front of their index; how long the last one is has to be tried. */
static bool find_tokens(const struct guest_memory *memory, uint64_t index_va,
			struct kallsyms *kallsyms, uint64_t *tokens_va)
{
	size_t last = kallsyms->index[KALLSYMS_TOKENS - 1];
	size_t room = ALIGN8(last + TOKEN_MAX + 1);
	uint8_t *bytes = malloc(room);
	bool found = false;

	for (size_t len = ALIGN8(last + 2); len <= room && bytes && !found; len += 8) {
		const uint8_t *end;

		*tokens_va = index_va - len;
		if (!read_all(memory, *tokens_va, bytes, len))
			break;
		end = memchr(bytes + last, '\0', len - last);
		if (!end)
			continue;
		kallsyms->tokens = (char *)bytes;
		kallsyms->tokens_len = (size_t)(end - bytes) + 1;
		found = ALIGN8(kallsyms->tokens_len) == len && tokens_fit(kallsyms);
	}
	if (!found) {
		free(bytes);
		kallsyms->tokens = NULL;
	}
	return found;
}

/* Reads what is in front of `end`, `size` bytes or down to what cannot be read. */
static struct error *read_front(const struct guest_memory *memory, uint64_t end, size_t size,
				struct front *front)
{
	uint8_t *bytes = malloc(size);
	size_t step = BLOCK;
	uint64_t va = end;

	if (!bytes)
		return error_no_memory();
	while (end - va < size - step) {
		uint64_t from = (va - 1) & ~(uint64_t)(step - 1);

		if (read_all(memory, from, bytes + size - (end - from), (size_t)(va - from)))
			va = from;
		else if (step == PAGE)
			break;
		else
			step = PAGE;
	}
	front->len = (size_t)(end - va);
	memmove(bytes, bytes + size - front->len, front->len);
	front->bytes = bytes;
	front->steps = STEPS_MAX;
	return NULL;
}

/* How many numbers at `at` rise from 0 like the offsets of every 256th name. */
static size_t count_markers(const struct front *front, size_t at)
{
	size_t n = 1;

	if (u32_at(front->bytes, at))
		return 0;
	for (; at + 4 * n + 4 <= front->len; n++) {
		uint32_t step =
			u32_at(front->bytes, at + 4 * n) - u32_at(front->bytes, at + 4 * n - 4);

		if (step < 2 * KALLSYMS_STRIDE || step > KALLSYMS_STRIDE * KALLSYMS_NAME_MAX)
			break;
	}
	return n;
}

/* Walks `n` names from `start`: they must fit the markers. Sets *end behind the last. */
static bool names_fit(struct front *front, size_t start, size_t markers, uint32_t n, size_t *end)
{
	size_t at = start, first, tokens;

	for (uint32_t i = 0; i < n; i++) {
		if (!front->steps)
			return false;
		front->steps--;
		if (i % KALLSYMS_STRIDE == 0 &&
		    at - start != u32_at(front->bytes, markers + 4 * (i / KALLSYMS_STRIDE)))
			return false;
		if (!kallsyms_name_at(front->bytes, markers, at, &first, &tokens))
			return false;
		at = first + tokens;
	}
	*end = at;
	return ALIGN8(at - start) == markers - start;
}

/* The number of names and the names themselves, in front of these markers. */
static bool find_names(struct front *front, size_t markers, size_t n_markers, uint32_t *n_names,
		       size_t *names, size_t *end)
{
	size_t least = u32_at(front->bytes, markers + 4 * (MARKERS_MIN - 1));

	if (least > markers)
		return false;
	/* More numbers may seem to rise than there are markers. */
	for (size_t at = (markers - least) & ~(size_t)7;
	     at >= 8 && markers - at < FRONT_MAX && front->steps; at -= 8) {
		uint32_t n = u32_at(front->bytes, at - 8);
		size_t need = (n + KALLSYMS_STRIDE - 1ull) / KALLSYMS_STRIDE;

		if (n > KALLSYMS_MAX || need < MARKERS_MIN || need > n_markers ||
		    u32_at(front->bytes, at - 4) || !names_fit(front, at, markers, n, end))
			continue;
		*n_names = n;
		*names = at;
		return true;
	}
	return false;
}

/* Does the table hold addresses in order? */
static bool offsets_fit(struct kallsyms *kallsyms, uint64_t va)
{
	uint32_t below = 0;

	if (va - kallsyms->base > KERNEL_SIZE_MAX || kallsyms->base % PAGE)
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

/* Offsets and base in front of the number, or behind the index. */
static bool find_offsets(const struct guest_memory *memory, uint64_t number_va, uint64_t index_va,
			 struct kallsyms *kallsyms)
{
	size_t len = 4 * (size_t)kallsyms->n, room = ALIGN8(len);
	const uint64_t places[] = {number_va - 8 - room, index_va + sizeof(kallsyms->index)};

	for (size_t i = 0; i < 2; i++)
		if (read_all(memory, places[i], kallsyms->offset, len) &&
		    read_all(memory, places[i] + room, &kallsyms->base, sizeof(kallsyms->base)) &&
		    offsets_fit(kallsyms, number_va))
			return true;
	return false;
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
 * The rest, from the tokens and their index, in so many bytes in front of
 * them; *whole says whether all was found.
 */
static struct error *find_rest(const struct guest_memory *memory, uint64_t tokens_va,
			       uint64_t index_va, size_t size, struct kallsyms *kallsyms,
			       bool *whole)
{
	struct front front = {0};
	struct error *err = read_front(memory, tokens_va, size, &front);
	size_t names, end;
	uint32_t n;

	if (err)
		return err;
	for (size_t at = front.len & ~(size_t)7; at >= 48 && front.steps;) {
		size_t n_markers;

		at -= 8;
		n_markers = count_markers(&front, at);
		if (n_markers < MARKERS_MIN || !find_names(&front, at, n_markers, &n, &names, &end))
			continue;
		err = take_names(&front, names, end, n, kallsyms);
		*whole = !err && find_offsets(memory, tokens_va - front.len + names - 8, index_va,
					      kallsyms);
		break;
	}
	free(front.bytes);
	return err;
}

/* Is the table's index here? Then *out is the table. */
static struct error *try_index(const struct guest_memory *memory, uint64_t va, const uint8_t *bytes,
			       struct kallsyms **out)
{
	struct kallsyms *kallsyms;
	struct error *err = NULL;
	uint64_t tokens_va;
	bool whole = false;

	kallsyms = calloc(1, sizeof(*kallsyms));
	if (!kallsyms)
		return error_no_memory();
	memcpy(kallsyms->index, bytes, sizeof(kallsyms->index));
	if (find_tokens(memory, va, kallsyms, &tokens_va))
		err = find_rest(memory, tokens_va, va, FRONT_MOST, kallsyms, &whole);
	if (kallsyms->tokens && !kallsyms->names && !err)
		err = find_rest(memory, tokens_va, va, FRONT_MAX, kallsyms, &whole);
	if (whole)
		*out = kallsyms;
	else
		kallsyms_free(kallsyms);
	return err;
}

struct error *kallsyms_find(const struct guest_memory *memory, uint64_t start, uint64_t end,
			    struct kallsyms **out)
{
	const size_t index_len = sizeof((*out)->index);
	uint8_t *chunk = malloc(CHUNK + PAGE);
	struct error *err = chunk ? NULL : error_no_memory();
	unsigned tries = 0;

	*out = NULL;
	start &= ~(uint64_t)(PAGE - 1);
	/* A chunk is read with the beginning of the next, which may hold an index's end. */
	for (uint64_t va = start; va < end && end - va >= index_len && !err && !*out;) {
		size_t got = memory->read(memory->ctx, va, chunk, CHUNK + PAGE);

		for (size_t at = 0; at + index_len <= got && at < CHUNK && !err && !*out; at += 8)
			if (is_index(chunk + at) && tries++ < TRIES_MAX)
				err = try_index(memory, va + at, chunk + at, out);
		va += got < CHUNK ? (got & ~(size_t)(PAGE - 1)) + PAGE : CHUNK;
	}
	free(chunk);
	return err;
}
