/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "symbol/names/display_name.h"
#include "symbol/names/stretches.h"

/* Bytes that an unsized symbol without a section covers: if it is the last one, and at most. */
#define LAST_SIZE   4096
#define UNSIZED_MAX (16u << 20)

struct symbols {
	struct symbol *list; /* by address */
	size_t n;
	struct stretches cut; /* into functions, by their indices in `list` */
	char *strings;
	char build_id[2 * BUILD_ID_MAX + 1];
};

struct error *symbol_candidates_add(struct symbol_candidates *list,
				    const struct symbol_candidate *one)
{
	return ARRAY_ADD(&list->at, &list->room, &list->n, one);
}

void symbol_candidates_free(struct symbol_candidates *list)
{
	free(list->at);
	*list = (struct symbol_candidates){0};
}

bool is_mapping_symbol(const char *name)
{
	return name[0] == '$' && name[1] && strchr("atdx", name[1]) &&
	       (name[2] == '\0' || name[2] == '.');
}

/* Linux names a system call without arguments twice, and few callers are 32-bit programs. */
static bool is_compat_call(const char *name)
{
	return strncmp(name, "__ia32_", strlen("__ia32_")) == 0;
}

/* Orders by address; of aliases, the one to choose comes first. */
static int candidate_cmp(const void *left, const void *right)
{
	const struct symbol_candidate *a = left, *b = right;
	int diff = COMPARE(a->start, b->start) ?: !a->name - !b->name;

	if (diff || !a->name)
		return diff;
	diff = (a->bind == BIND_DEBUG) - (b->bind == BIND_DEBUG) ?: a->untyped - b->untyped;
	diff = diff ?: a->bind - b->bind ?: !a->size - !b->size;
	diff = diff ?: COMPARE(strspn(a->name, "_"), strspn(b->name, "_"));
	diff = diff ?: is_compat_call(a->name) - is_compat_call(b->name);
	return diff ?: strcmp(a->name, b->name) ?: COMPARE(a->size, b->size);
}

/* Keeps the first of all aliases; if it has no size, the largest of theirs is its size. */
static void merge_aliases(struct symbol_candidates *list)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->n;) {
		struct symbol_candidate *one = &list->at[kept++];
		uint64_t size = 0;

		*one = list->at[i];
		for (; i < list->n && list->at[i].start == one->start; i++)
			if (list->at[i].size > size)
				size = list->at[i].size;
		if (!one->size)
			one->size = size;
	}
	list->n = kept;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t end_of(const struct symbol_candidate *one, const struct symbol_candidate *next)
{
	uint64_t limit = one->limit, end = next ? next->start : UINT64_MAX;

	if (one->size)
		end = add_saturated(one->start, one->size);
	else if (!limit)
		limit = add_saturated(one->start, next ? UNSIZED_MAX : LAST_SIZE);
	return limit && limit < end ? limit : end;
}

bool symbol_candidates_are_poor(struct symbol_candidates *list, uint64_t code)
{
	uint64_t sized = 0, reached = 0;

	if (list->n)
		qsort(list->at, list->n, sizeof(*list->at), candidate_cmp);
	for (size_t i = 0; i < list->n; i++) {
		const struct symbol_candidate *one = &list->at[i];
		const uint64_t start = one->start > reached ? one->start : reached;
		const uint64_t end = end_of(one, i + 1 < list->n ? &list->at[i + 1] : NULL);

		if (end <= start)
			continue;
		if (!one->size && end - start > UNSIZED_USUAL)
			return true;
		if (!one->size)
			continue;
		sized += end - start;
		reached = end;
	}
	return sized < code / 2;
}

/*
 * One pass in order of address. An unsized symbol inside a sized function is
 * a label of that function, and left out.
 */
static void cut(struct symbols *s, const struct symbol_candidates *from)
{
	for (size_t i = 0; i < from->n; i++) {
		const struct symbol_candidate *one = &from->at[i];
		const uint32_t self = (uint32_t)s->n;
		uint64_t end;

		stretches_close(&s->cut, one->start);
		if (!one->name || (!one->size && s->cut.n_open))
			continue;
		end = end_of(one, i + 1 < from->n ? &from->at[i + 1] : NULL);
		if (end <= one->start)
			continue;
		s->list[s->n++] = (struct symbol){one->start, end, one->name};
		if (one->size) {
			stretches_open(&s->cut, one->start, end, self);
			continue;
		}
		stretches_set(&s->cut, one->start, self);
		stretches_set(&s->cut, end, STRETCH_NOBODY);
	}
	stretches_end(&s->cut);
}

struct error *symbols_build(struct symbol_candidates *list, char **strings, struct symbols **out)
{
	struct symbols *s;
	struct error *err;

	TRY(ARRAY_NEW(&s, 1));
	if (list->n)
		qsort(list->at, list->n, sizeof(*list->at), candidate_cmp);
	merge_aliases(list);
	s->list = calloc(list->n + 1, sizeof(*s->list));
	err = s->list && list->n < STRETCH_NOBODY ? stretches_new(&s->cut, list->n)
						  : error_no_memory();
	if (err) {
		symbols_free(s);
		return err;
	}
	cut(s, list);
	if (strings) {
		s->strings = *strings;
		*strings = NULL;
	}
	*out = s;
	return NULL;
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	free(symbols->list);
	stretches_free(&symbols->cut);
	free(symbols->strings);
	free(symbols);
}

size_t symbols_count(const struct symbols *symbols)
{
	return symbols->n;
}

void symbols_get(const struct symbols *symbols, size_t i, struct symbol *out)
{
	*out = symbols->list[i];
}

bool symbols_find(const struct symbols *symbols, uint64_t addr, struct symbol *out)
{
	const uint32_t owner = stretches_find(&symbols->cut, addr);

	if (owner == STRETCH_NOBODY)
		return false;
	*out = symbols->list[owner];
	return true;
}

const char *symbols_build_id(const struct symbols *symbols)
{
	return symbols->build_id[0] ? symbols->build_id : NULL;
}

void symbols_set_build_id(struct symbols *symbols, const char *hex)
{
	strncpy(symbols->build_id, hex, sizeof(symbols->build_id) - 1);
}

struct error *symbols_write_nm(const struct symbols *symbols, uint64_t slide, FILE *out)
{
	for (size_t i = 0; i < symbols->n; i++) {
		FREED char *clean = sanitize_new(symbols->list[i].name);

		if (!clean)
			return error_no_memory();
		fprintf(out, "%016llx t %s\n", (unsigned long long)symbols->list[i].start + slide,
			clean);
	}
	return NULL;
}
