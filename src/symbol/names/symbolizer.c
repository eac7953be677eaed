/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/names/symbolizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "symbol/names/location_resolver.h"

struct symbolizer {
	struct location_resolver resolver;
	unsigned changes;   /* of the images, when the cache was begun */
	struct row_ids ids; /* of address and kind */
	uint32_t *answer;   /* the cache: numbers of answers; 0: not known yet */
	/* The one store that was prepared, and the numbers of answers by frame. */
	const struct stacks *stacks;
	struct frame_numbers frames;
	uint32_t *of_frame, n_nodes;
};

struct error *symbolizer_new(const struct images *images, const struct profile *profile,
			     struct symbolizer **out)
{
	struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
	struct error *err = symbolizer ? resolver_init(&symbolizer->resolver, images, profile)
				       : error_no_memory();

	if (err)
		symbolizer_free(symbolizer);
	else
		*out = symbolizer;
	return err;
}

static void forget_stacks(struct symbolizer *symbolizer)
{
	frame_numbers_free(&symbolizer->frames);
	free(symbolizer->of_frame);
	symbolizer->of_frame = NULL;
	symbolizer->n_nodes = 0;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
	if (!symbolizer)
		return;
	resolver_free(&symbolizer->resolver);
	ids_free(symbolizer->ids.ids);
	free(symbolizer->answer);
	forget_stacks(symbolizer);
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
			  uint32_t **out)
{
	uint32_t id;

	TRY(ROW_IDS_GET(&symbolizer->ids, addr, kind, &symbolizer->answer, &id));
	*out = &symbolizer->answer[id];
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
		memset(symbolizer->answer, 0, symbolizer->ids.room * sizeof(*symbolizer->answer));
	memset(symbolizer->resolver.lately, 0, sizeof(symbolizer->resolver.lately));
	symbolizer->n_nodes = 0;
}

/* Frames that are resolved together: a megabyte, which caches hold. */
#define BATCH 16384u

/* Room for so many frames, in batches. */
static struct resolved *new_batch(size_t n)
{
	return calloc(n < BATCH ? n + 1 : BATCH, sizeof(struct resolved));
}

/* Resolves the list, and puts the answers where its indexes say. */
static struct error *resolve_into(struct symbolizer *symbolizer, struct resolved *list, size_t n,
				  uint32_t *answer)
{
	TRY(resolve_all(&symbolizer->resolver, list, n));
	for (size_t i = 0; i < n; i++)
		answer[list[i].index] = list[i].answer;
	return NULL;
}

struct error *symbolizer_prepare(struct symbolizer *symbolizer, const struct frame *frames,
				 size_t n)
{
	FREED struct resolved *list = new_batch(n);
	size_t fresh = 0;

	if (!list)
		return error_no_memory();
	forget_if_changed(symbolizer);
	for (size_t i = 0; i < n; i++) {
		uint32_t *answer;

		TRY(find(symbolizer, frames[i].addr, frames[i].kind, &answer));
		if (!*answer)
			list[fresh++] =
				(struct resolved){.addr = frames[i].addr,
						  .kind = frames[i].kind,
						  .index = (uint32_t)(answer - symbolizer->answer)};
		if (fresh == BATCH || i + 1 == n) {
			TRY(resolve_into(symbolizer, list, fresh, symbolizer->answer));
			fresh = 0;
		}
	}
	return NULL;
}

/* Resolves all frames of the store. */
static struct error *resolve_frames(struct symbolizer *symbolizer, const struct stacks *stacks)
{
	const struct frame_numbers *numbers = &symbolizer->frames;
	FREED struct resolved *list = new_batch(numbers->n);

	symbolizer->of_frame = array_zeros(numbers->n + (size_t)1, sizeof(*symbolizer->of_frame));
	if (!list || !symbolizer->of_frame)
		return error_no_memory();
	for (uint32_t i = 0; i < numbers->n; i += BATCH) {
		const uint32_t n = numbers->n - i < BATCH ? numbers->n - i : BATCH;

		for (uint32_t k = 0; k < n; k++) {
			const struct stack_node *node = stacks_node(stacks, numbers->node[i + k]);

			list[k] = (struct resolved){.addr = node->addr,
						    .kind = node->kind,
						    .index = i + k};
		}
		TRY(resolve_into(symbolizer, list, n, symbolizer->of_frame));
	}
	return NULL;
}

struct error *symbolizer_prepare_stacks(struct symbolizer *symbolizer, const struct stacks *stacks)
{
	struct error *err;

	forget_if_changed(symbolizer);
	if (symbolizer->stacks == stacks && symbolizer->n_nodes == stacks_count(stacks))
		return NULL;
	forget_stacks(symbolizer);
	TRY(frame_numbers_new(stacks, &symbolizer->frames));
	err = resolve_frames(symbolizer, stacks);
	if (err) {
		forget_stacks(symbolizer);
		return err;
	}
	symbolizer->stacks = stacks;
	symbolizer->n_nodes = stacks_count(stacks);
	return NULL;
}

const struct frame_numbers *symbolizer_frames(const struct symbolizer *symbolizer)
{
	return &symbolizer->frames;
}

uint32_t symbolizer_answer(const struct symbolizer *symbolizer, uint32_t frame)
{
	return symbolizer->of_frame[frame];
}

void symbolizer_answer_ahead(const struct symbolizer *symbolizer, uint32_t frame)
{
	__builtin_prefetch(&symbolizer->of_frame[frame]);
}

static void give(const struct symbolizer *symbolizer, uint32_t number, const struct location **out,
		 size_t *n)
{
	const struct answer *answer = &symbolizer->resolver.answers.at[number];

	*out = answer->at;
	*n = answer->n;
}

struct error *symbolizer_locate(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
				const struct location **out, size_t *n)
{
	struct resolved one = {.addr = addr, .kind = kind};
	uint32_t *answer;

	forget_if_changed(symbolizer);
	TRY(find(symbolizer, addr, kind, &answer));
	if (!*answer)
		TRY(resolve_into(symbolizer, &one, 1, answer));
	give(symbolizer, *answer, out, n);
	return NULL;
}

struct error *symbolizer_locate_node(struct symbolizer *symbolizer, const struct stacks *stacks,
				     uint32_t id, const struct location **out, size_t *n)
{
	const struct stack_node *node;

	forget_if_changed(symbolizer);
	if (symbolizer->stacks == stacks && id != STACK_ROOT && id < symbolizer->n_nodes) {
		give(symbolizer, symbolizer->of_frame[symbolizer->frames.of_node[id]], out, n);
		return NULL;
	}
	node = stacks_node(stacks, id);
	return symbolizer_locate(symbolizer, node->addr, node->kind, out, n);
}

static void name_of(const struct location *last, uint64_t addr, struct named *out)
{
	*out = (struct named){last->function, last->symbol, location_offset(last, addr),
			      last->resolved, last->in_image};
}

struct error *symbolizer_name(struct symbolizer *symbolizer, uint64_t addr, uint8_t kind,
			      struct named *out)
{
	const struct location *at;
	size_t n;

	TRY(symbolizer_locate(symbolizer, addr, kind, &at, &n));
	name_of(&at[n - 1], addr, out);
	return NULL;
}

struct error *symbolizer_name_node(struct symbolizer *symbolizer, const struct stacks *stacks,
				   uint32_t id, struct named *out)
{
	const struct location *at;
	size_t n;

	TRY(symbolizer_locate_node(symbolizer, stacks, id, &at, &n));
	name_of(&at[n - 1], stacks_node(stacks, id)->addr, out);
	return NULL;
}

struct texts {
	const char *name, *file;
};

struct stand_ins {
	struct pool *pool;
	struct row_ids ids; /* by the pool's pointers */
	struct texts *at;
};

struct error *stand_ins_new(struct stand_ins **out)
{
	struct stand_ins *all = calloc(1, sizeof(*all));
	struct error *err = all ? pool_new(&all->pool) : error_no_memory();

	if (err)
		stand_ins_free(all);
	else
		*out = all;
	return err;
}

void stand_ins_free(struct stand_ins *all)
{
	if (!all)
		return;
	pool_free(all->pool);
	ids_free(all->ids.ids);
	free(all->at);
	free(all);
}

struct error *stand_ins_function(struct stand_ins *all, const char *name, const char *file,
				 uint32_t *number)
{
	struct texts texts;

	*number = STAND_IN_NO_FUNCTION;
	TRY(pool_intern(all->pool, name, strlen(name), &texts.name));
	TRY(pool_intern(all->pool, file, strlen(file), &texts.file));
	if (row_ids_find(&all->ids, (uintptr_t)texts.name, (uintptr_t)texts.file, number) ||
	    row_ids_count(&all->ids) == STAND_IN_FUNCTIONS)
		return NULL;
	TRY(ROW_IDS_GET(&all->ids, (uintptr_t)texts.name, (uintptr_t)texts.file, &all->at, number));
	all->at[*number] = texts;
	return NULL;
}

bool stand_ins_find(const struct stand_ins *all, uint64_t addr, struct stand_in *out)
{
	const uint64_t number = (addr - STAND_IN_ADDR) / STAND_IN_LINES;

	if (!all || addr < STAND_IN_ADDR || number >= row_ids_count(&all->ids))
		return false;
	*out = (struct stand_in){.name = all->at[number].name,
				 .file = all->at[number].file,
				 .line = (uint32_t)(addr % STAND_IN_LINES),
				 .start = addr - addr % STAND_IN_LINES};
	return true;
}
