/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/namer.h"

#include <stdlib.h>
#include <string.h>

#include "symbol/namer_resolve.h"

struct memo {
	uint64_t addr;
	const struct location *at; /* NULL: free */
	uint32_t n;
	uint8_t kind;
};

struct namer {
	struct resolver resolver;
	unsigned changes;  /* of the images, when the memo was begun */
	struct memo *memo; /* open addressing; a power of two, at most half used */
	size_t n, room;
};

struct error *namer_new(const struct images *images, const struct profile *profile,
			struct namer **out)
{
	struct namer *namer = calloc(1, sizeof(*namer));
	struct error *err;

	if (!namer)
		return error_no_memory();
	namer->resolver.images = images;
	namer->resolver.profile = profile;
	namer->room = 1024;
	namer->memo = calloc(namer->room, sizeof(*namer->memo));
	err = namer->memo ? resolver_init(&namer->resolver) : error_no_memory();
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
	resolver_free(&namer->resolver);
	free(namer->memo);
	free(namer);
}

void namer_set(struct namer *namer, const struct namer_options *options)
{
	namer->resolver.options = *options;
}

struct error *namer_intern(struct namer *namer, const char *text, const char **out)
{
	return shown_text(namer->resolver.shown, text, out);
}

const char *namer_trouble(const struct namer *namer)
{
	return sources_trouble(namer->resolver.sources);
}

static size_t slot_of(const struct memo *memo, size_t room, uint64_t addr, uint8_t kind)
{
	uint64_t hash = (addr + kind) * 0x9e3779b97f4a7c15ull;
	size_t at = (hash ^ hash >> 32) & (room - 1);

	while (memo[at].at && (memo[at].addr != addr || memo[at].kind != kind))
		at = (at + 1) & (room - 1);
	return at;
}

static struct memo *find(const struct namer *namer, uint64_t addr, uint8_t kind)
{
	return &namer->memo[slot_of(namer->memo, namer->room, addr, kind)];
}

static struct error *grow(struct namer *namer)
{
	size_t room = 2 * namer->room;
	struct memo *memo = calloc(room, sizeof(*memo));

	if (!memo)
		return error_no_memory();
	for (size_t i = 0; i < namer->room; i++)
		if (namer->memo[i].at)
			memo[slot_of(memo, room, namer->memo[i].addr, namer->memo[i].kind)] =
				namer->memo[i];
	free(namer->memo);
	namer->memo = memo;
	namer->room = room;
	return NULL;
}

static struct error *remember(struct namer *namer, const struct resolved *one)
{
	struct error *err = 2 * namer->n >= namer->room ? grow(namer) : NULL;
	struct memo *memo;

	if (err)
		return err;
	memo = find(namer, one->addr, one->kind);
	namer->n += !memo->at;
	*memo = (struct memo){one->addr, one->at, one->n, one->kind};
	return NULL;
}

/* Images may be found while they are in use: then what was said before may not hold. */
static void forget_if_changed(struct namer *namer)
{
	const struct images *images = namer->resolver.images;

	if (!images || namer->changes == images_changes(images))
		return;
	namer->changes = images_changes(images);
	memset(namer->memo, 0, namer->room * sizeof(*namer->memo));
	namer->n = 0;
}

struct error *namer_prepare(struct namer *namer, const struct frame *frames, size_t n)
{
	struct resolved *list = calloc(n ? n : 1, sizeof(*list));
	struct error *err;
	size_t fresh = 0;

	if (!list)
		return error_no_memory();
	forget_if_changed(namer);
	for (size_t i = 0; i < n; i++)
		if (!find(namer, frames[i].addr, frames[i].kind)->at)
			list[fresh++] =
				(struct resolved){.addr = frames[i].addr, .kind = frames[i].kind};
	err = resolve_all(&namer->resolver, list, fresh);
	for (size_t i = 0; i < fresh && !err; i++)
		err = remember(namer, &list[i]);
	free(list);
	return err;
}

struct error *namer_locate(struct namer *namer, uint64_t addr, uint8_t kind,
			   const struct location **out, size_t *n)
{
	struct resolved one = {.addr = addr, .kind = kind};
	const struct memo *memo;
	struct error *err;

	forget_if_changed(namer);
	memo = find(namer, addr, kind);
	*out = memo->at;
	*n = memo->n;
	if (memo->at)
		return NULL;
	err = resolve_all(&namer->resolver, &one, 1);
	if (!err)
		err = remember(namer, &one);
	*out = one.at;
	*n = one.n;
	return err;
}

struct error *namer_name(struct namer *namer, uint64_t addr, uint8_t kind, struct named *out)
{
	const struct location *at;
	size_t n;
	struct error *err = namer_locate(namer, addr, kind, &at, &n);

	if (err)
		return err;
	at += n - 1;
	*out = (struct named){at->function, at->symbol, at->offset, at->resolved};
	return NULL;
}
