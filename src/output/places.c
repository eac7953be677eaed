/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/location_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "output/guest_text.h"
#include "import/import.h"
#include "symbol/elf_offset.h"

struct building {
	const struct output_job *job;
	struct places *places;
	struct ids *by_frame, *by_function; /* numbers of places and functions */
	size_t place_room, line_room, function_room;
};

/* One more element at the end of an array of `n`. */
static void *grow(void *array, uint32_t n, size_t *room, size_t size)
{
	void *more;

	if (n < *room)
		return array;
	more = reallocarray(array, 2 * *room + 64, size);
	if (more)
		*room = 2 * *room + 64;
	return more;
}

static struct error *add_function(struct building *b, const struct location *at, uint32_t *id)
{
	struct places *p = b->places;
	struct place_function *functions;
	bool added;
	struct error *err =
		ids_get(b->by_function, (uintptr_t)at->function, (uintptr_t)at->file, id, &added);

	if (err || !added)
		return err;
	functions = grow(p->functions, p->n_functions, &b->function_room, sizeof(*functions));
	if (!functions)
		return error_no_memory();
	p->functions = functions;
	functions[p->n_functions++] = (struct place_function){at->function, at->file, at->resolved};
	return NULL;
}

static struct error *add_line(struct building *b, const struct location *at)
{
	struct places *p = b->places;
	struct place_line line = {.line = at->line, .place = p->n};
	struct place_line *lines;
	struct error *err = add_function(b, at, &line.function);

	if (err)
		return err;
	lines = grow(p->lines, p->n_lines, &b->line_room, sizeof(*lines));
	if (!lines)
		return error_no_memory();
	p->lines = lines;
	lines[p->n_lines++] = line;
	return NULL;
}

static uint32_t image_at(const struct places *p, uint64_t code)
{
	for (uint32_t i = 0; i < p->n_images; i++)
		if (code >= p->images[i].start && code < p->images[i].end)
			return i;
	return PLACE_NONE;
}

static struct error *add_place(struct building *b, const struct stack_node *node)
{
	struct places *p = b->places;
	bool known = !guest_is_imported(b->job) || node->addr < IMPORT_ADDR;
	struct place place = {.addr = known ? node->addr : 0, .lines = p->n_lines};
	const struct location *at;
	struct place *places;
	size_t n;
	struct error *err = namer_locate(b->job->namer, node->addr, node->kind, &at, &n);

	for (size_t i = 0; i < n && !err; i++)
		err = add_line(b, &at[i]);
	if (err)
		return err;
	places = grow(p->at, p->n, &b->place_room, sizeof(*places));
	if (!places)
		return error_no_memory();
	p->at = places;
	place.code = place.addr - (node->kind == FRAME_RETURN && place.addr);
	place.offset = at[n - 1].offset;
	place.n_lines = p->n_lines - place.lines;
	place.image = image_at(p, place.code);
	places[p->n++] = place;
	return NULL;
}

static struct error *add_node(struct building *b, uint32_t id)
{
	const struct stack_node *node = stacks_node(b->places->profile->stacks, id);
	bool added;
	struct error *err =
		ids_get(b->by_frame, node->addr, node->kind, &b->places->of_node[id], &added);

	return err || !added ? err : add_place(b, node);
}

/* Each stack that was selected, and all that it stands on; a parent's id is smaller. */
static struct error *add_nodes(struct building *b)
{
	const struct profile *profile = b->job->profile;
	uint32_t n = stacks_count(profile->stacks);
	bool *used = calloc(n, sizeof(*used));
	struct error *err = NULL;

	b->places->of_node = calloc(n, sizeof(*b->places->of_node));
	if (!used || !b->places->of_node) {
		free(used);
		return error_no_memory();
	}
	for (uint32_t id = n - 1; id > STACK_ROOT; id--) {
		used[id] |= profile->cells[id].samples > 0;
		if (used[id])
			used[stacks_node(profile->stacks, id)->parent] = true;
	}
	for (uint32_t id = 0; id < n && !err; id++) {
		b->places->of_node[id] = PLACE_NONE;
		if (used[id] && id != STACK_ROOT)
			err = add_node(b, id);
	}
	free(used);
	return err;
}

/* Readers look for files by it. */
static bool is_build_id(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789abcdefABCDEF")];
}

static struct error *add_images(struct building *b)
{
	const struct recorded_images *recorded = profile_images(b->job->profile);
	struct places *p = b->places;
	struct error *err = NULL;

	p->images = calloc(recorded->n + 1, sizeof(*p->images));
	if (!p->images)
		return error_no_memory();
	for (size_t i = 0; i < recorded->n && !err; i++) {
		const struct recorded_image *from = &recorded->at[i];
		struct place_image *to = &p->images[p->n_images];

		if (!from->path || from->end <= from->start)
			continue;
		*to = (struct place_image){.start = from->start,
					   .end = from->end,
					   .slide = from->slide,
					   .offset = elf_offset(from->path,
								from->start - from->slide)};
		err = namer_intern(b->job->namer, from->path, &to->path);
		if (!err && is_build_id(from->build_id))
			err = namer_intern(b->job->namer, from->build_id, &to->build_id);
		p->n_images++;
	}
	return err;
}

struct error *places_new(const struct output_job *job, struct places **out)
{
	struct building b = {.job = job, .places = calloc(1, sizeof(*b.places))};
	struct error *err = b.places ? NULL : error_no_memory();

	if (!err) {
		b.places->profile = job->profile;
		err = ids_new(&b.by_frame);
	}
	if (!err)
		err = ids_new(&b.by_function);
	if (!err)
		err = add_images(&b);
	if (!err)
		err = add_nodes(&b);
	ids_free(b.by_frame);
	ids_free(b.by_function);
	if (err)
		places_free(b.places);
	else
		*out = b.places;
	return err;
}

void places_free(struct places *places)
{
	if (!places)
		return;
	free(places->at);
	free(places->lines);
	free(places->functions);
	free(places->images);
	free(places->of_node);
	free(places);
}

static struct error *make_room(struct place_chain *chain, size_t more)
{
	size_t room = 2 * (chain->n + more);
	uint32_t *at;

	if (chain->room - chain->n >= more)
		return NULL;
	at = reallocarray(chain->at, room, sizeof(*at));
	if (!at)
		return error_no_memory();
	chain->at = at;
	chain->room = room;
	return NULL;
}

struct error *places_chain(const struct places *places, uint32_t stack, struct place_chain *chain)
{
	chain->n = 0;
	for (; stack != STACK_ROOT; stack = stacks_node(places->profile->stacks, stack)->parent) {
		const struct place *place = &places->at[places->of_node[stack]];
		struct error *err = make_room(chain, place->n_lines);

		if (err)
			return err;
		for (uint32_t i = 0; i < place->n_lines; i++)
			chain->at[chain->n++] = place->lines + i;
	}
	return NULL;
}
