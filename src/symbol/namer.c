/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/namer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/clean.h"
#include "symbol/pool.h"

struct memo {
	uint64_t addr;
	uint64_t offset;
	const char *name; /* NULL: free */
	uint8_t kind;
	bool resolved;
};

struct namer {
	const struct symbols *symbols;
	const struct profile *profile;
	struct pool *pool;
	char *scratch; /* for cleaning */
	size_t scratch_room;
	struct memo *memo; /* open addressing; a power of two, at most half used */
	size_t n, room;
};

struct error *namer_new(const struct symbols *symbols, const struct profile *profile,
			struct namer **out)
{
	struct namer *namer = calloc(1, sizeof(*namer));
	struct error *err;

	if (!namer)
		return error_no_memory();
	namer->symbols = symbols;
	namer->profile = profile;
	namer->room = 1024;
	namer->memo = calloc(namer->room, sizeof(*namer->memo));
	err = namer->memo ? pool_new(&namer->pool) : error_no_memory();
	if (err)
		namer_free(namer);
	else
		*out = namer;
	return err;
}

void namer_free(struct namer *namer)
{
	if (!namer)
		return;
	pool_free(namer->pool);
	free(namer->scratch);
	free(namer->memo);
	free(namer);
}

struct error *namer_intern(struct namer *namer, const char *text, const char **out)
{
	size_t len = strlen(text);

	if (CLEAN_ROOM(len) > namer->scratch_room) {
		char *scratch = realloc(namer->scratch, 2 * CLEAN_ROOM(len));

		if (!scratch)
			return error_no_memory();
		namer->scratch = scratch;
		namer->scratch_room = 2 * CLEAN_ROOM(len);
	}
	len = clean_name(text, len, namer->scratch);
	return pool_intern(namer->pool, namer->scratch, len, out);
}

static size_t slot_of(const struct memo *memo, size_t room, uint64_t addr, uint8_t kind)
{
	uint64_t hash = (addr + kind) * 0x9e3779b97f4a7c15ull;
	size_t at = (hash ^ hash >> 32) & (room - 1);

	while (memo[at].name && (memo[at].addr != addr || memo[at].kind != kind))
		at = (at + 1) & (room - 1);
	return at;
}

static struct error *grow(struct namer *namer)
{
	size_t room = 2 * namer->room;
	struct memo *memo = calloc(room, sizeof(*memo));

	if (!memo)
		return error_no_memory();
	for (size_t i = 0; i < namer->room; i++)
		if (namer->memo[i].name)
			memo[slot_of(memo, room, namer->memo[i].addr, namer->memo[i].kind)] =
				namer->memo[i];
	free(namer->memo);
	namer->memo = memo;
	namer->room = room;
	return NULL;
}

static struct error *resolve(struct namer *namer, struct memo *memo)
{
	/* The call may be the last instruction of its function. */
	uint64_t addr = memo->addr - (memo->kind == FRAME_RETURN && memo->addr);
	const struct profile_name *recorded;
	struct symbol symbol;
	char text[24];

	memo->resolved = true;
	if (namer->symbols && symbols_find(namer->symbols, addr, &symbol)) {
		memo->offset = memo->addr - symbol.start;
		return namer_intern(namer, symbol.name, &memo->name);
	}
	recorded = namer->profile ? profile_name(namer->profile, memo->addr, memo->kind) : NULL;
	if (recorded) {
		memo->offset = recorded->offset;
		return namer_intern(namer, recorded->name, &memo->name);
	}
	memo->resolved = false;
	memo->offset = 0;
	snprintf(text, sizeof(text), "0x%" PRIx64, memo->addr);
	return namer_intern(namer, text, &memo->name);
}

struct error *namer_name(struct namer *namer, uint64_t addr, uint8_t kind, struct named *out)
{
	struct memo *memo = &namer->memo[slot_of(namer->memo, namer->room, addr, kind)];
	struct error *err = NULL;

	if (!memo->name) {
		struct memo fresh = {.addr = addr, .kind = kind};

		if (2 * namer->n >= namer->room)
			err = grow(namer);
		if (!err)
			err = resolve(namer, &fresh);
		if (err)
			return err;
		memo = &namer->memo[slot_of(namer->memo, namer->room, addr, kind)];
		*memo = fresh;
		namer->n++;
	}
	*out = (struct named){memo->name, memo->offset, memo->resolved};
	return NULL;
}
