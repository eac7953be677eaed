/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/namer_resolve.h"

#include <inttypes.h>
#include <stdlib.h>

#define CHUNK 1024
struct chunk {
	struct chunk *next;
	size_t used;
	struct location at[CHUNK];
};

/* What a function is called that was inlined and has no name. */
#define NAMELESS "[inlined]"

struct error *resolver_init(struct resolver *resolver)
{
	struct error *err = shown_new(&resolver->shown);

	return err ? err : sources_new(&resolver->sources);
}

void resolver_free(struct resolver *resolver)
{
	while (resolver->chunks) {
		struct chunk *next = resolver->chunks->next;

		free(resolver->chunks);
		resolver->chunks = next;
	}
	shown_free(resolver->shown);
	sources_free(resolver->sources);
}

/* Room for locations, one behind the other; CHUNK at most. */
static struct error *add_locations(struct resolver *r, size_t n, struct location **out)
{
	struct chunk *chunk = r->chunks;

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

static struct error *show_function(struct resolver *r, const char *name, struct location *to)
{
	struct error *err = shown_function(r->shown, name, &to->symbol, &to->function);

	to->resolved = true;
	if (r->options.no_demangle)
		to->function = to->symbol;
	return err;
}

static struct error *show_place(struct resolver *r, const struct source_frame *frame,
				struct location *to)
{
	to->line = frame->line;
	return frame->file ? shown_lasting(r->shown, frame->file, &to->file) : NULL;
}

/*
 * The function that was really called is `name`; `frames` tell what else is at
 * the address, and where. Without any, the function stands for itself.
 */
static struct error *put(struct resolver *r, struct resolved *one, const char *name,
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
			err = show_place(r, &frames[i], &at[i]);
	}
	return err;
}

static struct error *put_address(struct resolver *r, struct resolved *one)
{
	struct location *at = NULL;
	struct error *err = add_locations(r, 1, &at);
	char text[24];

	if (err)
		return err;
	one->at = at;
	one->n = 1;
	snprintf(text, sizeof(text), "0x%" PRIx64, one->addr);
	err = shown_text(r->shown, text, &at->function);
	at->symbol = at->function;
	return err;
}

static struct error *put_recorded(struct resolver *r, struct resolved *one)
{
	const struct profile_name *recorded =
		r->profile ? profile_name(r->profile, one->addr, one->kind) : NULL;

	if (!recorded)
		return put_address(r, one);
	return put(r, one, recorded->name, recorded->offset, recorded->frames,
		   r->options.no_source ? 0 : recorded->n_frames);
}

/* Finds the function. */
static void look_up(const struct resolver *r, struct resolved *one)
{
	/* The call may be the last instruction of its function. */
	uint64_t addr = one->addr - (one->kind == FRAME_RETURN && one->addr);
	const struct image *image =
		r->images ? images_find_in(r->images, addr, true, &one->symbol) : NULL;

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
	struct resolver *resolver;
	struct resolved *list;
};

/*
 * Debugging information of code that the linker has thrown away stays, and
 * then claims other addresses: it must be about the function that is there.
 */
static bool fits(const struct source_answer *answer, const struct resolved *one)
{
	uint64_t slide = one->addr - (one->kind == FRAME_RETURN && one->addr) - one->file_addr;
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

/* Of one file. */
static struct error *ask(struct resolver *r, struct resolved *list, size_t n)
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
static struct error *ask_all(struct resolver *r, struct resolved *list, size_t n)
{
	struct error *err = NULL;
	size_t first = 0;

	/* As a rule there is one file, and who asks has sorted. */
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

struct error *resolve_all(struct resolver *r, struct resolved *list, size_t n)
{
	struct error *err = NULL;

	for (size_t i = 0; i < n; i++)
		look_up(r, &list[i]);
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
