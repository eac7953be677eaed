/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/sources.h"

#include <stdio.h>
#include <stdlib.h>

struct known_source {
	const struct image_file *file;
	struct source *source; /* NULL: it knows nothing */
	bool dead;	       /* its process is gone, but not what it said */
};

struct sources {
	struct known_source *at;
	size_t n, room;
	char *trouble;
};

struct error *sources_new(struct sources **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NULL : error_no_memory();
}

void sources_free(struct sources *sources)
{
	if (!sources)
		return;
	for (size_t i = 0; i < sources->n; i++)
		source_close(sources->at[i].source);
	free(sources->at);
	free(sources->trouble);
	free(sources);
}

static struct error *add(struct sources *sources, const struct image_file *file)
{
	struct known_source *known;
	struct error *err = NULL;

	if (sources->n == sources->room) {
		size_t room = 2 * sources->room + 8;
		struct known_source *list = reallocarray(sources->at, room, sizeof(*list));

		if (!list)
			return error_no_memory();
		sources->at = list;
		sources->room = room;
	}
	known = &sources->at[sources->n++];
	*known = (struct known_source){.file = file};
	/* What is no ELF file, such as nm's output, has no DWARF either. */
	if (file->code)
		err = source_open(file->path, file->build_id, &known->source);
	return err;
}

static struct error *find(struct sources *sources, const struct image_file *file,
			  struct known_source **out)
{
	struct error *err = NULL;
	size_t i;

	for (i = 0; i < sources->n && sources->at[i].file != file; i++)
		;
	if (i == sources->n)
		err = add(sources, file);
	*out = &sources->at[i];
	return err;
}

static struct error *give_up(struct sources *sources, struct known_source *known)
{
	source_end(known->source);
	known->dead = true;
	if (!sources->trouble &&
	    asprintf(&sources->trouble,
		     "the debugging information of %s cannot be read (damaged?): inlined functions "
		     "and lines are missing",
		     known->file->path) < 0)
		return error_no_memory();
	return NULL;
}

struct batch {
	source_taker *take;
	void *ctx;
	size_t first;
};

static struct error *take_one(void *ctx, size_t i, const struct source_answer *answer)
{
	const struct batch *batch = ctx;

	return batch->take(batch->ctx, batch->first + i, answer);
}

struct error *sources_ask(struct sources *sources, const struct image_file *file,
			  const uint64_t *addr, size_t n, source_taker *take, void *ctx)
{
	struct batch batch = {take, ctx, 0};
	struct known_source *known;
	struct error *err = find(sources, file, &known);

	while (!err && batch.first < n && known->source && !known->dead) {
		size_t step = n - batch.first < SOURCE_BATCH ? n - batch.first : SOURCE_BATCH;
		bool alive;

		err = source_ask(known->source, addr + batch.first, step, take_one, &batch, &alive);
		batch.first += step;
		if (!err && !alive)
			err = give_up(sources, known);
	}
	return err;
}

const char *sources_trouble(const struct sources *sources)
{
	return sources->trouble;
}
