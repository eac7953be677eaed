/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/import.h"
#include "symbol/images/code.h"

struct building {
	const struct format_job *job;
	struct location_table *table;
	struct ids *function_ids; /* numbers of functions */
	size_t entry_room, place_room, answer_room, function_room;
};

static struct error *add_function(struct building *b, const struct location *at, uint32_t *id)
{
	struct location_table *p = b->table;
	bool added;

	TRY(ids_get(b->function_ids, (uintptr_t)at->function, (uintptr_t)at->file, id, &added));
	if (!added)
		return NULL;
	TRY(ARRAY_RESERVE(&p->functions, &b->function_room, p->n_functions + (size_t)1));
	p->functions[p->n_functions++] = (struct location_function){.name = at->function,
								    .symbol = at->symbol,
								    .file = at->file,
								    .resolved = at->resolved};
	return NULL;
}

static struct error *add_place(struct building *b, const struct location *at)
{
	struct location_table *p = b->table;
	struct location_place place = {.line = at->line};

	TRY(add_function(b, at, &place.function));
	TRY(ARRAY_RESERVE(&p->places, &b->place_room, p->n_places + (size_t)1));
	p->places[p->n_places++] = place;
	return NULL;
}

/* The functions of a frame, which are there already if another one has the same. */
static struct error *add_answer(struct building *b, uint32_t frame,
				const struct location_answer **out)
{
	struct location_table *p = b->table;
	const uint32_t number = symbolizer_answer(p->symbolizer, frame);
	struct location_answer *answer;
	const struct location *at;
	size_t n;

	TRY(ARRAY_RESERVE_ZERO(&p->answers, &b->answer_room, number + (size_t)1));
	*out = answer = &p->answers[number];
	if (answer->n)
		return NULL;
	TRY(symbolizer_locate_node(b->job->symbolizer, p->profile->stacks, p->frames->node[frame],
				   &at, &n));
	*answer = (struct location_answer){.start = at[n - 1].start,
					   .places = p->n_places,
					   .n = n & INT32_MAX,
					   .resolved = at[n - 1].resolved};
	for (size_t i = 0; i < n; i++)
		TRY(add_place(b, &at[i]));
	return NULL;
}

static uint32_t image_at(const struct location_table *p, uint64_t code)
{
	for (uint32_t i = 0; i < p->n_images; i++)
		if (code >= p->images[i].start && code < p->images[i].end)
			return i;
	return LOCATION_NONE;
}

static uint64_t addr_of(const struct location_table *p, const struct stack_node *node)
{
	const bool imported = import_is_target(p->profile->info.target);

	return imported && import_is_stand_in(node->addr) ? 0 : node->addr;
}

static const struct stack_node *node_of(const struct location_table *p, uint32_t entry)
{
	return stacks_node(p->profile->stacks, p->frames->node[p->at[entry].frame]);
}

uint64_t location_addr(const struct location_table *table, uint32_t entry)
{
	return addr_of(table, node_of(table, entry));
}

uint64_t location_code(const struct location_table *table, uint32_t entry)
{
	const struct stack_node *node = node_of(table, entry);

	return frame_code(addr_of(table, node), node->kind);
}

uint64_t location_from_start(const struct location_table *table, uint32_t entry)
{
	const struct location_answer *answer = location_answer(table, entry);

	return answer->resolved ? node_of(table, entry)->addr - answer->start : 0;
}

static struct error *add_entry(struct building *b, uint32_t frame)
{
	struct location_table *p = b->table;
	struct location_entry *entry;
	const struct location_answer *answer;

	TRY(add_answer(b, frame, &answer));
	TRY(ARRAY_RESERVE(&p->at, &b->entry_room, p->n + (size_t)1));
	p->of_frame[frame] = p->n;
	entry = &p->at[p->n++];
	*entry = (struct location_entry){.frame = frame, .lines = p->n_lines};
	entry->image = node_of(p, p->n - 1)->kind & FRAME_FOREIGN
			       ? LOCATION_NONE
			       : image_at(p, location_code(p, p->n - 1));
	p->n_lines += answer->n;
	return NULL;
}

/* Adds the frames of each selected stack and of all its callers; a parent's id is smaller. */
static struct error *add_entries(struct building *b)
{
	struct location_table *p = b->table;
	const uint32_t n = stacks_count(p->profile->stacks);

	TRY(symbolizer_prepare_stacks(b->job->symbolizer, p->profile->stacks));
	p->frames = symbolizer_frames(p->symbolizer);
	p->used = calloc(n, sizeof(*p->used));
	p->of_frame = array_resize(NULL, p->frames->n + (size_t)1, sizeof(*p->of_frame));
	if (!p->used || !p->of_frame)
		return error_no_memory();
	memset(p->of_frame, 0xff, (p->frames->n + (size_t)1) * sizeof(*p->of_frame));
	profile_mark_used(p->profile, &p->profile->cells, p->used);
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		if (p->used[id] && location_entry_of(p, id) == LOCATION_NONE)
			TRY(add_entry(b, p->frames->of_node[id]));
	return NULL;
}

/* Readers look for files by it. */
static bool is_build_id(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789abcdefABCDEF")];
}

static uint64_t offset_of(const struct recorded_image *image)
{
	const uint64_t here = image->start - image->slide;

	return image->by_offset ? here : elf_offset(image->path, here);
}

static struct error *add_images(struct building *b)
{
	const struct recorded_images *recorded = profile_images(b->job->profile);
	struct location_table *p = b->table;

	p->profile = b->job->profile;
	p->symbolizer = b->job->symbolizer;
	p->images = calloc(recorded->n + 1, sizeof(*p->images));
	if (!p->images)
		return error_no_memory();
	for (size_t i = 0; i < recorded->n; i++) {
		const struct recorded_image *from = &recorded->at[i];
		struct location_image *to = &p->images[p->n_images];

		if (!from->path || from->end <= from->start)
			continue;
		*to = (struct location_image){.start = from->start,
					      .end = from->end,
					      .slide = from->slide,
					      .offset = offset_of(from),
					      .unplaced = format_is_imported(b->job) &&
							  import_is_stand_in(from->start)};
		TRY(symbolizer_intern(b->job->symbolizer, from->path, &to->path));
		if (is_build_id(from->build_id))
			TRY(symbolizer_intern(b->job->symbolizer, from->build_id, &to->build_id));
		p->n_images++;
	}
	return NULL;
}

struct error *location_table_new(const struct format_job *job, struct location_table **out)
{
	struct building b = {.job = job, .table = *out = calloc(1, sizeof(*b.table))};
	struct error *err = b.table ? ids_new(&b.function_ids) : error_no_memory();

	if (!err)
		err = add_images(&b);
	if (!err)
		err = add_entries(&b);
	ids_free(b.function_ids);
	return err;
}

void location_table_free(struct location_table *table)
{
	if (!table)
		return;
	free(table->at);
	free(table->answers);
	free(table->places);
	free(table->functions);
	free(table->images);
	free(table->of_frame);
	free(table->used);
	free(table);
}
