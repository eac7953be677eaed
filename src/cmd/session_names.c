/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/session_names.h"

#include <stdlib.h>
#include <string.h>

#include "profile/distinct.h"
#include "symbol/namer.h"

static struct error *put_places(struct recording_writer *writer, const struct frame *frame,
				const struct location *at, size_t n)
{
	struct source_frame places[SOURCE_DEPTH];

	if (n == 1 && !at->line)
		return NULL;
	for (size_t i = 0; i < n; i++)
		places[i] = (struct source_frame){.function = at[i].inlined ? at[i].symbol : NULL,
						  .file = at[i].file,
						  .line = at[i].line};
	return recording_places(writer, frame->addr, frame->kind, places, n);
}

static struct error *put(struct recording_writer *writer, struct namer *namer,
			 const struct frame *frame)
{
	const struct location *at, *last;
	size_t n;
	struct error *err = namer_locate(namer, frame->addr, frame->kind, &at, &n);

	if (err)
		return err;
	last = &at[n - 1];
	if (!last->resolved)
		return NULL;
	err = recording_name(writer, frame->addr, frame->kind, last->symbol, last->offset);
	return err ? err : put_places(writer, frame, at, n);
}

struct error *session_names(struct recording_writer *writer, const struct stacks *stacks,
			    const struct images *images, struct progress_sink *progress,
			    char **trouble)
{
	struct namer *namer = NULL;
	struct frame *frames = NULL;
	size_t n;
	struct error *err = distinct_frames(stacks, &frames, &n);

	*trouble = NULL;
	if (!err)
		err = namer_new(images, NULL, &namer);
	if (!err) {
		namer_set(namer, &(struct namer_options){.no_demangle = true});
		err = namer_prepare(namer, frames, n);
	}
	for (size_t i = 0; i < n && !err; i++) {
		if (i % PROGRESS_STEP == 0)
			progress_at(progress, "finding names", i, n);
		err = put(writer, namer, &frames[i]);
	}
	progress_end(progress);
	if (namer && namer_trouble(namer))
		*trouble = strdup(namer_trouble(namer));
	namer_free(namer);
	free(frames);
	return err;
}
