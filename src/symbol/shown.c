/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/shown.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/names/display_name.h"
#include "symbol/names/demangle.h"
#include "base/pool.h"

/* What was shown already, by the string itself, be it somebody else's or the pool's. */
struct known {
	const char *from;  /* NULL: free */
	const char *text;  /* cleaned; the pool's, as the next one */
	const char *plain; /* demangled; NULL: nobody has asked yet */
};

struct shown {
	struct pool *pool;
	char *scratch; /* for cleaning */
	size_t scratch_room;
	struct known *known; /* open addressing; a power of two, at most half used */
	size_t n, room;
};

struct error *shown_new(struct shown **out)
{
	struct shown *shown = calloc(1, sizeof(*shown));
	struct error *err;

	if (!shown)
		return error_no_memory();
	shown->room = 1024;
	shown->known = calloc(shown->room, sizeof(*shown->known));
	err = shown->known ? pool_new(&shown->pool) : error_no_memory();
	if (err)
		shown_free(shown);
	else
		*out = shown;
	return err;
}

void shown_free(struct shown *shown)
{
	if (!shown)
		return;
	pool_free(shown->pool);
	free(shown->scratch);
	free(shown->known);
	free(shown);
}

struct error *shown_text(struct shown *shown, const char *text, const char **out)
{
	size_t len = strlen(text);

	if (CLEAN_ROOM(len) > shown->scratch_room) {
		char *scratch = realloc(shown->scratch, 2 * CLEAN_ROOM(len));

		if (!scratch)
			return error_no_memory();
		shown->scratch = scratch;
		shown->scratch_room = 2 * CLEAN_ROOM(len);
	}
	len = clean_name(text, len, shown->scratch);
	return pool_intern(shown->pool, shown->scratch, len, out);
}

static struct known *slot_of(struct known *known, size_t room, const char *from)
{
	uint64_t hash = (uintptr_t)from * 0x9e3779b97f4a7c15ull;
	size_t at = (hash ^ hash >> 32) & (room - 1);

	while (known[at].from && known[at].from != from)
		at = (at + 1) & (room - 1);
	return &known[at];
}

static struct error *grow(struct shown *shown)
{
	size_t room = 2 * shown->room;
	struct known *known = calloc(room, sizeof(*known));

	if (!known)
		return error_no_memory();
	for (size_t i = 0; i < shown->room; i++)
		if (shown->known[i].from)
			*slot_of(known, room, shown->known[i].from) = shown->known[i];
	free(shown->known);
	shown->known = known;
	shown->room = room;
	return NULL;
}

/* The slot of a string that lasts, with what it is when it is cleaned. */
static struct error *find(struct shown *shown, const char *from, struct known **out)
{
	const char *text = NULL;
	struct error *err = 2 * shown->n >= shown->room ? grow(shown) : NULL;

	if (err)
		return err;
	*out = slot_of(shown->known, shown->room, from);
	if ((*out)->from)
		return NULL;
	err = shown_text(shown, from, &text);
	if (err)
		return err;
	**out = (struct known){.from = from, .text = text};
	shown->n++;
	return NULL;
}

struct error *shown_lasting(struct shown *shown, const char *text, const char **out)
{
	struct known *known;
	struct error *err = find(shown, text, &known);

	if (!err)
		*out = known->text;
	return err;
}

/* Of a string of the pool, so that each name is demangled once, wherever it came from. */
static struct error *demangled(struct shown *shown, const char *text, const char **out)
{
	struct known *known;
	struct error *err = find(shown, text, &known);
	char *plain;

	if (err)
		return err;
	if (!known->plain) {
		known->plain = text;
		plain = demangle(text);
		if (plain)
			err = shown_text(shown, plain, &known->plain);
		free(plain);
	}
	*out = known->plain;
	return err;
}

struct error *shown_function(struct shown *shown, const char *name, const char **cleaned,
			     const char **plain)
{
	struct known *known;
	struct error *err = find(shown, name, &known);

	if (err)
		return err;
	*cleaned = known->text;
	*plain = known->plain;
	if (*plain)
		return NULL;
	err = demangled(shown, *cleaned, plain);
	/* What is known may have moved. */
	if (!err)
		slot_of(shown->known, shown->room, name)->plain = *plain;
	return err;
}
