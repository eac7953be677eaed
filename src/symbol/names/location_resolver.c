/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/location_resolver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

#define CHUNK 1024
struct location_chunk {
	struct location_chunk *next;
	size_t used;
	struct location at[CHUNK];
};

/* Name of an inlined function that has none. */
#define NAMELESS "[inlined]"

struct error *resolver_init(struct location_resolver *resolver, const struct images *images,
			    const struct profile *profile)
{
	resolver->images = images;
	resolver->profile = profile;
	TRY(display_names_new(&resolver->names));
	return sources_new(&resolver->sources);
}

void resolver_free(struct location_resolver *resolver)
{
	while (resolver->chunks) {
		struct location_chunk *next = resolver->chunks->next;

		free(resolver->chunks);
		resolver->chunks = next;
	}
	free(resolver->answers.at);
	free(resolver->answers.slots);
	display_names_free(resolver->names);
	sources_free(resolver->sources);
}

/* Strings are the same where their pointers are. */
static bool same_location(const struct location *a, const struct location *b)
{
	return a->function == b->function && a->symbol == b->symbol && a->file == b->file &&
	       a->line == b->line && a->inlined == b->inlined && a->resolved == b->resolved &&
	       a->in_image == b->in_image && a->start == b->start;
}

static bool same_answer(const struct answer *a, const struct answer *b)
{
	for (uint32_t i = 0; a->n == b->n && i < a->n; i++)
		if (!same_location(&a->at[i], &b->at[i]))
			return false;
	return a->n == b->n;
}

static uint32_t hash_answer(const struct answer *answer)
{
	uint64_t hash = answer->n;

	for (uint32_t i = 0; i < answer->n; i++) {
		const struct location *at = &answer->at[i];

		hash = (hash ^ (uintptr_t)at->function) * UINT64_C(0x9fb21c651e98df25);
		hash = (hash ^ (uintptr_t)at->file ^ at->line) * UINT64_C(0x9fb21c651e98df25);
		hash = (hash ^ at->start) * UINT64_C(0x9fb21c651e98df25);
		hash ^= hash >> 29;
	}
	return (uint32_t)(hash >> 32);
}

static uint32_t *find_slot(const struct answers *answers, const struct answer *answer)
{
	uint32_t slot = hash_answer(answer) & (answers->n_slots - 1);

	for (;; slot = (slot + 1) & (answers->n_slots - 1)) {
		const uint32_t number = answers->slots[slot];

		if (!number || same_answer(&answers->at[number], answer))
			return &answers->slots[slot];
	}
}

static struct error *grow_slots(struct answers *answers)
{
	const uint32_t n_slots = answers->n_slots ? answers->n_slots * 2 : 1024;
	uint32_t *slots;

	TRY(ARRAY_NEW(&slots, n_slots));
	free(answers->slots);
	answers->slots = slots;
	answers->n_slots = n_slots;
	for (uint32_t i = 1; i < answers->n; i++)
		*find_slot(answers, &answers->at[i]) = i;
	return NULL;
}

/* The number of the answer; *added: it was not there before, and keeps its locations. */
static struct error *number_answer(struct answers *answers, const struct answer *answer,
				   uint32_t *number, bool *added)
{
	uint32_t *slot;

	if (!answers->n)
		answers->n = 1;
	if (answers->n >= answers->n_slots / 2)
		TRY(grow_slots(answers));
	TRY(ARRAY_RESERVE(&answers->at, &answers->room, answers->n + (size_t)1));
	slot = find_slot(answers, answer);
	*added = !*slot;
	if (*added) {
		answers->at[answers->n] = *answer;
		*slot = answers->n++;
	}
	*number = *slot;
	return NULL;
}

/* Room for locations, one behind the other; CHUNK at most. keep_answer is due. */
static struct error *add_locations(struct location_resolver *r, size_t n, struct location **out)
{
	struct location_chunk *chunk = r->chunks;

	if (!chunk || CHUNK - chunk->used < n) {
		TRY(ARRAY_NEW(&chunk, 1));
		chunk->next = r->chunks;
		r->chunks = chunk;
	}
	*out = &chunk->at[chunk->used];
	memset(*out, 0, n * sizeof(**out));
	return NULL;
}

/* Keeps the locations that were added last, unless the same are there already. */
static struct error *keep_answer(struct location_resolver *r, const struct location *at, uint32_t n,
				 struct resolved *one)
{
	bool added;

	TRY(number_answer(&r->answers, &(struct answer){at, n}, &one->answer, &added));
	if (added)
		r->chunks->used += n;
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
			 uint64_t start, const struct source_frame *frames, size_t n)
{
	struct location *at = NULL;
	uint32_t count;

	if (r->options.no_inline && n) {
		frames += n - 1;
		n = 1;
	}
	count = (uint32_t)(n ? n : 1);
	TRY(add_locations(r, count, &at));
	for (size_t i = 0; i < count; i++) {
		const char *function = name;

		at[i].start = start;
		at[i].inlined = i + 1 < count;
		if (at[i].inlined)
			function = frames[i].function ?: NAMELESS;
		TRY(show_function(r, function, &at[i]));
		if (n)
			TRY(show_line(r, &frames[i], &at[i]));
	}
	return keep_answer(r, at, count, one);
}

/* The same where no line is known: most code of most functions has one answer. */
static struct error *put_symbol(struct location_resolver *r, struct resolved *one)
{
	const struct symbol *symbol = &one->symbol;
	struct named_lately *lately =
		&r->lately[(symbol->start * UINT64_C(0x9fb21c651e98df25)) >> 54];
	struct error *err;

	if (lately->name == symbol->name && lately->start == symbol->start && lately->name) {
		one->answer = lately->answer;
		return NULL;
	}
	err = put(r, one, symbol->name, symbol->start, NULL, 0);
	*lately = (struct named_lately){symbol->name, symbol->start, one->answer};
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
	char text[288];

	TRY(add_locations(r, 1, &at));
	at->in_image = write_unnamed(r, one, text, sizeof(text));
	TRY(display_names_text(r->names, text, &at->function));
	at->symbol = at->function;
	return keep_answer(r, at, 1, one);
}

static struct error *put_recorded(struct location_resolver *r, struct resolved *one)
{
	const struct profile_name *recorded =
		r->profile ? profile_name(r->profile, one->addr, one->kind) : NULL;
	struct stand_in running;

	if (stand_ins_find(r->options.stand_ins, one->addr, &running))
		return put(r, one, running.name, running.start,
			   &(struct source_frame){.file = running.file, .line = running.line},
			   r->options.no_source ? 0 : 1);
	if (!recorded)
		return put_unnamed(r, one);
	return put(r, one, recorded->name, one->addr - recorded->offset, recorded->frames,
		   r->options.no_source ? 0 : recorded->n_frames);
}

static void find_function(const struct location_resolver *r, struct resolved *one)
{
	/* The call may be the last instruction of its function. */
	const uint64_t addr = frame_code(one->addr, one->kind);
	const struct image *image = r->images && !(one->kind & FRAME_FOREIGN)
					    ? images_find(r->images, addr, true, &one->symbol)
					    : NULL;

	one->answer = 0;
	one->file = image ? image->file : NULL;
	one->file_addr = image ? addr - image->slide : 0;
}

static int by_file(const void *left, const void *right)
{
	const struct resolved *a = left, *b = right;

	return COMPARE(a->file, b->file) ?: COMPARE(a->file_addr, b->file_addr);
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
	return put(asking->resolver, one, one->symbol.name, one->symbol.start, answer->frame,
		   answer->n);
}

/* Asks for the addresses of one file. */
static struct error *ask(struct location_resolver *r, struct resolved *list, size_t n)
{
	FREED uint64_t *addr = reallocarray(NULL, n, sizeof(*addr));
	struct asking asking = {r, list};

	if (!addr)
		return error_no_memory();
	for (size_t i = 0; i < n; i++)
		addr[i] = list[i].file_addr;
	return sources_ask(r->sources, list->file, addr, n, take, &asking);
}

/* Places in the source, file by file. */
static struct error *ask_all(struct location_resolver *r, struct resolved *list, size_t n)
{
	size_t first = 0;

	/* Mostly there is one file, and the caller has sorted. */
	if (!is_sorted(list, n))
		qsort(list, n, sizeof(*list), by_file);
	for (size_t i = 1; i <= n; i++) {
		if (i < n && list[i].file == list[first].file)
			continue;
		if (list[first].file)
			TRY(ask(r, list + first, i - first));
		first = i;
	}
	return NULL;
}

struct error *resolve_all(struct location_resolver *r, struct resolved *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		find_function(r, &list[i]);
	if (!r->options.no_source)
		TRY(ask_all(r, list, n));
	for (size_t i = 0; i < n; i++) {
		struct resolved *one = &list[i];

		if (!one->answer)
			TRY(one->file ? put_symbol(r, one) : put_recorded(r, one));
	}
	return NULL;
}
