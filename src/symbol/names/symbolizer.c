/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbolizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "symbol/names/display_name.h"
#include "symbol/source/source.h"

/* Memory of answers, which never moves. */
struct location_chunk;

/* Resolves addresses to locations, without a cache. */
struct location_resolver {
	const struct images *images;   /* NULL: none */
	const struct profile *profile; /* NULL: none */
	struct symbolizer_options options;
	struct display_names *names;
	struct sources *sources;
	struct location_chunk *chunks; /* the one that is being filled first */
};

struct resolved {
	uint64_t addr;
	uint8_t kind;
	const struct location *at; /* set by resolve_all; belong to the resolver */
	uint32_t n;
	/* Private: where it was found. */
	const struct image_file *file; /* NULL: in none */
	uint64_t file_addr;
	struct symbol symbol;
};

#define CHUNK 1024
struct location_chunk {
	struct location_chunk *next;
	size_t used;
	struct location at[CHUNK];
};

/* Name of an inlined function that has none. */
#define NAMELESS "[inlined]"

static struct error *resolver_init(struct location_resolver *resolver)
{
	struct error *err = display_names_new(&resolver->names);

	return err ? err : sources_new(&resolver->sources);
}

static void resolver_free(struct location_resolver *resolver)
{
	while (resolver->chunks) {
		struct location_chunk *next = resolver->chunks->next;

		free(resolver->chunks);
		resolver->chunks = next;
	}
	display_names_free(resolver->names);
	sources_free(resolver->sources);
}

/* Room for locations, one behind the other; CHUNK at most. */
static struct error *add_locations(struct location_resolver *r, size_t n, struct location **out)
{
	struct location_chunk *chunk = r->chunks;

	if (!chunk || CHUNK - chunk->used < n) {
		chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return error_no_memory();
		chunk->next = r->chunks;
		r->chunks = chunk;
	}
	*out = &chunk->at[chunk->used];
	chunk->used += n;
	return NULL;
}

static struct error *show_function(struct location_resolver *r, const char *name,
				   struct location *to)
{
	struct error *err = display_names_function(r->names, name, &to->symbol, &to->function);

	to->resolved = true;
	if (r->options.no_demangle)
		to->function = to->symbol;
	return err;
}

static struct error *show_line(struct location_resolver *r, const struct source_frame *frame,
			       struct location *to)
{
	to->line = frame->line;
	return frame->file ? display_names_lasting(r->names, frame->file, &to->file) : NULL;
}

/*
 * Stores the locations of one address: `frames` are the functions inlined
 * there, and last the one that was really called, `name`. No frames: `name`
 * alone.
 */
static struct error *put(struct location_resolver *r, struct resolved *one, const char *name,
			 uint64_t offset, const struct source_frame *frames, size_t n)
{
	struct location *at = NULL;
	struct error *err;

	if (r->options.no_inline && n) {
		frames += n - 1;
		n = 1;
	}
	one->n = (uint32_t)(n ? n : 1);
	err = add_locations(r, one->n, &at);
	if (err)
		return err;
	one->at = at;
	for (size_t i = 0; i < one->n && !err; i++) {
		bool last = i == one->n - 1u;

		at[i].inlined = !last;
		at[i].offset = offset;
		if (last)
			err = show_function(r, name, &at[i]);
		else
			err = show_function(r, frames[i].function ? frames[i].function : NAMELESS,
					    &at[i]);
		if (!err && n)
			err = show_line(r, &frames[i], &at[i]);
	}
	return err;
}

/* The file whose code is at an address, without directories, and the slide; NULL: not known. */
static const char *file_at(const struct location_resolver *r, uint64_t addr, uint64_t *slide)
{
	const struct image *image = r->images ? images_at(r->images, addr) : NULL;
	const struct recorded_images *recorded = r->profile ? profile_images(r->profile) : NULL;

	if (image) {
		*slide = image->slide;
		return basename(image->file->path);
	}
	for (size_t i = 0; recorded && i < recorded->n; i++) {
		const struct recorded_image *one = &recorded->at[i];

		if (!one->path || addr < one->start || addr >= one->end)
			continue;
		*slide = one->slide;
		return basename(one->path);
	}
	return NULL;
}

/* The name of code without one, which may be cut off; true if it tells the image. */
static bool write_unnamed(const struct location_resolver *r, const struct resolved *one, char *text,
			  size_t size)
{
	const uint64_t called = frame_code(one->addr, one->kind);
	uint64_t slide = 0;
	const char *file = r->options.unnamed == UNNAMED_ADDRESS || one->kind & FRAME_FOREIGN
				   ? NULL
				   : file_at(r, called, &slide);

	if (!file)
		snprintf(text, size, "0x%" PRIx64, one->addr);
	else if (r->options.unnamed == UNNAMED_IMAGE)
		snprintf(text, size, *file == '[' ? "%.255s" : "[%.255s]", file);
	else
		snprintf(text, size, "%.255s+0x%" PRIx64, file, one->addr - slide);
	return file != NULL;
}

static struct error *put_unnamed(struct location_resolver *r, struct resolved *one)
{
	struct location *at = NULL;
	struct error *err = add_locations(r, 1, &at);
	char text[288];

	if (err)
		return err;
	one->at = at;
	one->n = 1;
	at->in_image = write_unnamed(r, one, text, sizeof(text));
	err = display_names_text(r->names, text, &at->function);
	at->symbol = at->function;
	return err;
}

static struct error *put_recorded(struct location_resolver *r, struct resolved *one)
{
	const struct profile_name *recorded =
		r->profile ? profile_name(r->profile, one->addr, one->kind) : NULL;

	if (!recorded)
		return put_unnamed(r, one);
	return put(r, one, recorded->name, recorded->offset, recorded->frames,
		   r->options.no_source ? 0 : recorded->n_frames);
}

static void find_function(const struct location_resolver *r, struct resolved *one)
{
	/* The call may be the last instruction of its function. */
	const uint64_t addr = frame_code(one->addr, one->kind);
	const struct image *image = r->images && !(one->kind & FRAME_FOREIGN)
					    ? images_find(r->images, addr, true, &one->symbol)
					    : NULL;

	one->at = NULL;
	one->file = image ? image->file : NULL;
	one->file_addr = image ? addr - image->slide : 0;
}

static int by_file(const void *left, const void *right)
{
	const struct resolved *a = left, *b = right;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return (a->file_addr > b->file_addr) - (a->file_addr < b->file_addr);
}

static bool is_sorted(const struct resolved *list, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (by_file(&list[i - 1], &list[i]) > 0)
			return false;
	return true;
}

struct asking {
	struct location_resolver *resolver;
	struct resolved *list;
};

/*
 * Debugging information of code that the linker has thrown away stays, and
 * then claims other addresses: it must be about the function that is there.
 */
static bool fits(const struct source_answer *answer, const struct resolved *one)
{
	const uint64_t slide = frame_code(one->addr, one->kind) - one->file_addr;
	uint64_t start = answer->start + slide;

	return !answer->start || start - one->symbol.start < one->symbol.end - one->symbol.start;
}

static struct error *take(void *ctx, size_t i, const struct source_answer *answer)
{
	const struct asking *asking = ctx;
	struct resolved *one = &asking->list[i];

	if (!answer->n || !fits(answer, one))
		return NULL;
	return put(asking->resolver, one, one->symbol.name, one->addr - one->symbol.start,
		   answer->frame, answer->n);
}

/* Asks for the addresses of one file. */
static struct error *ask(struct location_resolver *r, struct resolved *list, size_t n)
{
	struct asking asking = {r, list};
	uint64_t *addr = reallocarray(NULL, n, sizeof(*addr));
	struct error *err;

	if (!addr)
		return error_no_memory();
	for (size_t i = 0; i < n; i++)
		addr[i] = list[i].file_addr;
	err = sources_ask(r->sources, list->file, addr, n, take, &asking);
	free(addr);
	return err;
}

/* Places in the source, file by file. */
static struct error *ask_all(struct location_resolver *r, struct resolved *list, size_t n)
{
	struct error *err = NULL;
	size_t first = 0;

	/* Mostly there is one file, and the caller has sorted. */
	if (!is_sorted(list, n))
		qsort(list, n, sizeof(*list), by_file);
	for (size_t i = 1; i <= n && !err; i++) {
		if (i < n && list[i].file == list[first].file)
			continue;
		if (list[first].file)
			err = ask(r, list + first, i - first);
		first = i;
	}
	return err;
}

/* Resolves all of the list, whose order is changed. */
static struct error *resolve_all(struct location_resolver *r, struct resolved *list, size_t n)
{
	struct error *err = NULL;

	for (size_t i = 0; i < n; i++)
		find_function(r, &list[i]);
	if (!r->options.no_source)
		err = ask_all(r, list, n);
	for (size_t i = 0; i < n && !err; i++) {
		struct resolved *one = &list[i];

		if (one->at)
			continue;
		err = one->file ? put(r, one, one->symbol.name, one->addr - one->symbol.start, NULL,
				      0)
				: put_recorded(r, one);
	}
	return err;
}

struct answer {
	const struct location *at; /* NULL: not known yet */
	uint32_t n;
};

struct symbolizer {
	struct location_resolver resolver;
	unsigned changes;      /* of the images, when the cache was begun */
	struct ids *ids;       /* of address and kind: the index of the answer */
	struct answer *answer; /* the cache */
	size_t room;
};

struct error *symbolizer_new(const struct images *images, const struct profile *profile,
			     struct symbolizer **out)
{
	struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
	struct error *err;

	if (!symbolizer)
		return error_no_memory();
	symbolizer->resolver.images = images;
	symbolizer->resolver.profile = profile;
	err = ids_new(&symbolizer->ids);
	if (!err)
		err = resolver_init(&symbolizer->resolver);
	if (err)
		symbolizer_free(symbolizer);
	else
		*out = symbolizer;
	return err;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
	if (!symbolizer)
		return;
	resolver_free(&symbolizer->resolver);
	ids_free(symbolizer->ids);
	free(symbolizer->answer);
	free(symbolizer);
}

void symbolizer_set(struct symbolizer *symbolizer, const struct symbolizer_options *options)
{
	symbolizer->resolver.options = *options;
}

struct error *symbolizer_intern(struct symbolizer *symbolizer, const char *text, const char **out)
{
	return display_names_text(symbolizer->resolver.names, text, out);
}

const char *symbolizer_trouble(const struct symbolizer *symbolizer)
{
	return sources_trouble(symbolizer->resolver.sources);
}

/* The cache's answer for an address; valid until the next call. */
static struct error *find(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
			  struct answer **out)
{
	struct error *err;
	uint32_t id;
	bool added;

	err = ids_get(symbolizer->ids, addr, kind, &id, &added);
	if (!err)
		err = ARRAY_RESERVE(&symbolizer->answer, &symbolizer->room, id + (size_t)1);
	if (err)
		return err;
	*out = &symbolizer->answer[id];
	if (added)
		**out = (struct answer){0};
	return NULL;
}

/* Images may be found while the symbolizer is in use: earlier answers may not hold then. */
static void forget_if_changed(struct symbolizer *symbolizer)
{
	const struct images *images = symbolizer->resolver.images;

	if (!images || symbolizer->changes == images_changes(images))
		return;
	symbolizer->changes = images_changes(images);
	if (symbolizer->answer)
		memset(symbolizer->answer, 0, symbolizer->room * sizeof(*symbolizer->answer));
}

struct error *symbolizer_prepare(struct symbolizer *symbolizer, const struct frame *frames,
				 size_t n)
{
	struct resolved *list = calloc(n ? n : 1, sizeof(*list));
	struct error *err = list ? NULL : error_no_memory();
	struct answer *answer;
	size_t fresh = 0;

	forget_if_changed(symbolizer);
	for (size_t i = 0; i < n && !err; i++) {
		err = find(symbolizer, frames[i].addr, frames[i].kind, &answer);
		if (!err && !answer->at)
			list[fresh++] =
				(struct resolved){.addr = frames[i].addr, .kind = frames[i].kind};
	}
	if (!err)
		err = resolve_all(&symbolizer->resolver, list, fresh);
	for (size_t i = 0; i < fresh && !err; i++) {
		err = find(symbolizer, list[i].addr, list[i].kind, &answer);
		if (!err)
			*answer = (struct answer){list[i].at, list[i].n};
	}
	free(list);
	return err;
}

struct error *symbolizer_locate(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
				const struct location **out, size_t *n)
{
	struct resolved one = {.addr = addr, .kind = kind};
	struct answer *answer;
	struct error *err;

	forget_if_changed(symbolizer);
	err = find(symbolizer, addr, kind, &answer);
	if (err)
		return err;
	if (!answer->at) {
		err = resolve_all(&symbolizer->resolver, &one, 1);
		if (!err)
			*answer = (struct answer){one.at, one.n};
	}
	*out = answer->at;
	*n = answer->n;
	return err;
}

struct error *symbolizer_name(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
			      struct named *out)
{
	const struct location *at;
	size_t n;
	struct error *err = symbolizer_locate(symbolizer, addr, kind, &at, &n);

	if (err)
		return err;
	at += n - 1;
	*out = (struct named){at->function, at->symbol, at->offset, at->resolved, at->in_image};
	return NULL;
}
