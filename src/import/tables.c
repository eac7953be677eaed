/* SPDX-License-Identifier: BSD-3-Clause */

/* Texts, images, code and threads of a profile that is imported, each once. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "import/import.h"
#include "import/importer.h"
#include "recording/format.h"

/* More images than this are none that one could tell apart: no more ranges are told. */
#define RANGES_MAX 16384u

struct image_row {
	struct import_image image;
	uint32_t stand_ins; /* addresses that stand for code in it */
};

struct code_row {
	uint64_t addr; /* in stacks */
	uint64_t offset;
	const char *name;
	struct source_frame *frames; /* NULL: no lines are known */
	uint32_t n_frames, image;
};

/* The parts of a key, which come one behind the other; each is numbered with all before it. */
enum part {
	PART_NAME_ALONE = 1,
	PART_NAME,
	PART_FILE,
	PART_LINE,
	PART_OFFSET,
	PART_ADDR,
	PART_INLINED,
	PART_INLINED_FILE,
	PART_INLINED_LINE,
	PART_TAKEN,
	PART_PATH,
	PART_BUILD_ID,
	PART_START,
	PART_END,
	PART_IDS,
	PART_THREAD,
	PART_PROCESS,
	PART_CONTAINER,
};

struct import_tables {
	struct pool *pool;
	struct ids *keys;
	uint32_t *rows; /* [key]: number of what it stands for; 0: of nothing */
	struct code_row *code;
	struct image_row *images;
	struct recorded_thread *threads;
	uint32_t n_code, n_images, n_threads;
	uint32_t stand_ins; /* of code whose image is not known */
	size_t rows_room, code_room, images_room, threads_room;
};

struct error *import_tables_new(struct import_tables **out)
{
	TRY(ARRAY_NEW(out, 1));
	TRY(pool_new(&(*out)->pool));
	return ids_new(&(*out)->keys);
}

void import_tables_free(struct import_tables *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n_code; i++)
		free(t->code[i].frames);
	free(t->rows);
	free(t->code);
	free(t->images);
	free(t->threads);
	pool_free(t->pool);
	ids_free(t->keys);
	free(t);
}

struct error *import_text(struct import *import, const char *text, size_t len, const char **out)
{
	return pool_intern(import->tables->pool, text, len < NAME_MAX_LEN ? len : NAME_MAX_LEN,
			   out);
}

/* Adds a part to a key, which starts as 0. */
static struct error *add_part(struct import_tables *t, uint32_t *key, enum part part,
			      uint64_t value)
{
	bool added;

	return ids_get(t->keys, (uint64_t)part << 32 | *key, value, key, &added);
}

static struct error *add_parts(struct import_tables *t, uint32_t *key, size_t n,
			       const uint64_t values[][2])
{
	for (size_t i = 0; i < n; i++)
		TRY(add_part(t, key, (enum part)values[i][0], values[i][1]));
	return NULL;
}

#define ADD_PARTS(t, key, values) add_parts(t, key, sizeof(values) / sizeof((values)[0]), values)

/* The number that belongs to a whole key; 0: none yet. */
static struct error *row_of(struct import_tables *t, uint32_t key, uint32_t **row)
{
	TRY(ARRAY_RESERVE_ZERO(&t->rows, &t->rows_room, key + (size_t)1));
	*row = &t->rows[key];
	return NULL;
}

struct error *import_image(struct import *import, const struct import_image *image,
			   uint32_t *number)
{
	struct import_tables *t = import->tables;
	const uint64_t parts[][2] = {{PART_PATH, (uintptr_t)image->path},
				     {PART_BUILD_ID, (uintptr_t)image->build_id},
				     {PART_START, image->start},
				     {PART_END, image->end},
				     {PART_OFFSET, image->offset}};
	uint32_t key = 0, *row;

	TRY(ADD_PARTS(t, &key, parts));
	TRY(row_of(t, key, &row));
	if (!*row) {
		if (t->n_images == IMPORT_IMAGES_MAX)
			return import_damaged(import, "too many files with code");
		TRY(ARRAY_RESERVE(&t->images, &t->images_room, t->n_images + (size_t)1));
		t->images[t->n_images++] = (struct image_row){.image = *image};
		*row = t->n_images;
	}
	*number = *row;
	return NULL;
}

static struct error *code_key(struct import_tables *t, const struct import_code *code,
			      uint32_t *key)
{
	const uint64_t parts[][2] = {{PART_NAME, (uintptr_t)code->name},
				     {PART_FILE, (uintptr_t)code->file},
				     {PART_LINE, (uint64_t)code->line << 32 | code->image},
				     {PART_OFFSET, code->offset},
				     {PART_ADDR, code->addr}};

	*key = 0;
	if (code->addr == IMPORT_NO_ADDR && !code->file && !code->line && !code->image &&
	    !code->offset && !code->n_inlined)
		return add_part(t, key, PART_NAME_ALONE, (uintptr_t)code->name);
	TRY(ADD_PARTS(t, key, parts));
	for (uint32_t i = 0; i < code->n_inlined; i++) {
		const struct source_frame *frame = &code->inlined[i];
		const uint64_t more[][2] = {{PART_INLINED, (uintptr_t)frame->function},
					    {PART_INLINED_FILE, (uintptr_t)frame->file},
					    {PART_INLINED_LINE, frame->line}};

		TRY(ADD_PARTS(t, key, more));
	}
	return NULL;
}

/* An address of its own, or else a stand-in. */
static struct error *choose_address(struct import_tables *t, const struct import_code *code,
				    uint64_t *addr)
{
	uint32_t key = 0, *row, *next = &t->stand_ins;

	if (code->addr != IMPORT_NO_ADDR && !import_is_stand_in(code->addr)) {
		TRY(add_part(t, &key, PART_TAKEN, code->addr));
		TRY(row_of(t, key, &row));
		*addr = code->addr;
		if (!*row) {
			*row = 1;
			return NULL;
		}
	}
	if (code->image)
		next = &t->images[code->image - 1].stand_ins;
	*addr = IMPORT_ADDR | (uint64_t)code->image << 32 | (*next)++;
	return NULL;
}

static struct error *keep_frames(const struct import_code *code, struct code_row *row)
{
	row->n_frames = code->file || code->line || code->n_inlined ? code->n_inlined + 1 : 0;
	if (!row->n_frames)
		return NULL;
	row->frames = reallocarray(NULL, row->n_frames, sizeof(*row->frames));
	if (!row->frames)
		return error_no_memory();
	if (code->n_inlined)
		memcpy(row->frames, code->inlined, code->n_inlined * sizeof(*row->frames));
	row->frames[code->n_inlined] =
		(struct source_frame){.file = code->file, .line = code->line};
	return NULL;
}

static struct error *add_code(struct import_tables *t, const struct import_code *code,
			      uint64_t *addr)
{
	struct code_row row = {.offset = code->offset, .name = code->name, .image = code->image};
	char text[24];

	TRY(ARRAY_RESERVE(&t->code, &t->code_room, t->n_code + (size_t)1));
	TRY(choose_address(t, code, &row.addr));
	/* A stand-in must not be shown for the address. */
	if (!row.name && import_is_stand_in(row.addr)) {
		snprintf(text, sizeof(text), "0x%" PRIx64, code->addr);
		TRY(pool_intern(t->pool, text, strlen(text), &row.name));
	}
	TRY(keep_frames(code, &row));
	*addr = row.addr;
	t->code[t->n_code++] = row;
	return NULL;
}

struct error *import_code(struct import *import, const struct import_code *code, uint64_t *addr)
{
	struct import_tables *t = import->tables;
	uint32_t key, *row;

	if (code->n_inlined >= SOURCE_DEPTH) {
		struct import_code cut = *code;

		cut.inlined += code->n_inlined - (SOURCE_DEPTH - 1);
		cut.n_inlined = SOURCE_DEPTH - 1;
		return import_code(import, &cut, addr);
	}
	TRY(code_key(t, code, &key));
	TRY(row_of(t, key, &row));
	if (*row) {
		*addr = t->code[*row - 1].addr;
		return NULL;
	}
	TRY(add_code(t, code, addr));
	/* Choosing an address may have moved the rows. */
	t->rows[key] = t->n_code;
	return NULL;
}

struct error *import_frame(struct import *import, uint32_t parent, uint64_t addr, uint8_t kind,
			   uint32_t *id)
{
	const struct frame frame = {.addr = addr, .kind = kind};

	return stacks_child(import->stacks, parent, &frame, id);
}

struct error *import_function(struct import *import, uint32_t parent, const char *name, size_t len,
			      uint32_t *id)
{
	struct import_code code = {.addr = IMPORT_NO_ADDR};
	uint64_t addr;

	TRY(import_text(import, name, len, &code.name));
	TRY(import_code(import, &code, &addr));
	return import_frame(import, parent, addr, FRAME_PC, id);
}

static struct error *add_thread(struct import *import, const struct recorded_thread *thread,
				uint32_t *row)
{
	struct import_tables *t = import->tables;
	struct recorded_thread *added;

	if (t->n_threads == RECORDED_THREADS_MAX)
		return import_damaged(import, "too many threads");
	TRY(ARRAY_RESERVE(&t->threads, &t->threads_room, t->n_threads + (size_t)1));
	added = &t->threads[t->n_threads];
	*added = *thread;
	if (thread->container && strlen(thread->container) > RECORDED_CONTAINER_MAX)
		TRY(import_text(import, thread->container, RECORDED_CONTAINER_MAX,
				&added->container));
	*row = ++t->n_threads;
	return NULL;
}

struct error *import_thread(struct import *import, const struct recorded_thread *thread,
			    uint32_t *number)
{
	struct import_tables *t = import->tables;
	const uint64_t parts[][2] = {{PART_IDS, (uint64_t)thread->pid << 32 | thread->tid},
				     {PART_THREAD, (uintptr_t)thread->name},
				     {PART_PROCESS, (uintptr_t)thread->process},
				     {PART_CONTAINER, (uintptr_t)thread->container}};
	uint32_t key = 0, *row;

	TRY(ADD_PARTS(t, &key, parts));
	TRY(row_of(t, key, &row));
	if (!*row)
		TRY(add_thread(import, thread, row));
	*number = *row;
	return NULL;
}

/* The name of a process is that of its first thread. */
static struct error *name_processes(struct import_tables *t)
{
	FREED const char **names = NULL; /* by pid */
	struct row_ids pids = {0};
	struct error *err = NULL;
	uint32_t id;

	for (uint32_t i = 0; i < t->n_threads && !err; i++) {
		const struct recorded_thread *thread = &t->threads[i];

		if (thread->pid == RECORDED_ID_UNKNOWN || thread->pid != thread->tid)
			continue;
		err = ROW_IDS_GET(&pids, thread->pid, 0, &names, &id);
		if (!err && !names[id])
			names[id] = thread->name;
	}
	for (uint32_t i = 0; i < t->n_threads && !err; i++) {
		struct recorded_thread *thread = &t->threads[i];

		if (thread->process)
			continue;
		thread->process = thread->name;
		if (thread->pid != thread->tid && row_ids_find(&pids, thread->pid, 0, &id))
			thread->process = names[id];
	}
	ids_free(pids.ids);
	return err;
}

struct error *import_tables_threads(struct import_tables *t,
				    const struct recording_visitor *visitor,
				    const struct recorded_thread **list)
{
	TRY(name_processes(t));
	*list = t->threads;
	for (uint32_t i = 0; visitor->thread && i < t->n_threads; i++)
		TRY(visitor->thread(visitor->ctx, i + 1, &t->threads[i]));
	return NULL;
}

struct error *import_tables_names(const struct import_tables *t,
				  const struct recording_visitor *visitor)
{
	for (uint32_t i = 0; i < t->n_code; i++) {
		const struct code_row *row = &t->code[i];

		if (row->name && visitor->name)
			TRY(visitor->name(visitor->ctx, row->addr, FRAME_PC, row->name,
					  row->offset));
		if (row->name && row->n_frames && visitor->locations)
			TRY(visitor->locations(visitor->ctx, row->addr, FRAME_PC, row->frames,
					       row->n_frames));
	}
	return NULL;
}

static int by_addr(const void *left, const void *right)
{
	const struct code_row *a = *(const struct code_row *const *)left;
	const struct code_row *b = *(const struct code_row *const *)right;

	return COMPARE(a->addr, b->addr);
}

static struct recorded_image range(const struct image_row *row, uint64_t start, uint64_t end)
{
	return (struct recorded_image){.path = (char *)row->image.path,
				       .build_id = (char *)row->image.build_id,
				       .start = start,
				       .end = end,
				       .by_offset = true};
}

static struct error *add_range(struct recorded_images *images, size_t *room,
			       struct recorded_image image)
{
	if (images->n == RANGES_MAX)
		return NULL;
	TRY(ARRAY_RESERVE(&images->at, room, images->n + 1));
	images->at[images->n++] = image;
	return NULL;
}

/* Where code of an image that is known by name was seen, it is; beyond that, nothing is known. */
static struct error *add_seen(const struct import_tables *t, struct recorded_images *images,
			      size_t *room)
{
	FREED const struct code_row **sorted = calloc(t->n_code + (size_t)1, sizeof(*sorted));

	if (!sorted)
		return error_no_memory();
	for (uint32_t i = 0; i < t->n_code; i++)
		sorted[i] = &t->code[i];
	qsort(sorted, t->n_code, sizeof(*sorted), by_addr);
	for (uint32_t i = 0, end; i < t->n_code; i = end) {
		const struct code_row *first = sorted[i];
		const struct image_row *row = first->image ? &t->images[first->image - 1] : NULL;

		for (end = i + 1; end < t->n_code && sorted[end]->image == first->image; end++)
			;
		if (row && (row->image.end <= row->image.start || import_is_stand_in(first->addr)))
			TRY(add_range(images, room,
				      range(row, first->addr, sorted[end - 1]->addr + 1)));
	}
	return NULL;
}

struct error *import_tables_images(const struct import_tables *t, struct recorded_images *images)
{
	size_t room = 0;

	for (uint32_t i = 0; i < t->n_images; i++) {
		const struct import_image *image = &t->images[i].image;
		struct recorded_image one = range(&t->images[i], image->start, image->end);

		one.slide = image->start - image->offset;
		if (image->end > image->start)
			TRY(add_range(images, &room, one));
	}
	return add_seen(t, images, &room);
}
