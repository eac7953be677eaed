/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Samples with the texts of their stacks, some thousands at a time. A batch's texts are made in the
 * order of its stacks, which share callers with their neighbours, and written in the order of time,
 * in which stacks that follow one another can be anywhere in memory.
 */

#include "format/tables.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"

/* Samples of a batch, and bytes of its texts. Texts that find no room are made when they are written. */
#define BATCH_SAMPLES 32768u
#define BATCH_BYTES   ((size_t)20 << 20)

/* Digits that stacks are sorted by. */
#define DIGIT_BITS   11
#define DIGITS	     3
#define DIGIT_VALUES (1u << DIGIT_BITS)

static_assert(DIGITS * DIGIT_BITS >= 32, "numbers of stacks have 32 bits");

/* Runs of a path, and pieces of a text, at most. */
#define RUNS_MAX 8

/* The frames of a path that were new with one stack; their text is in one piece, leaf first. */
struct run {
	size_t outermost; /* in the path */
	uint32_t end;	  /* of its text */
};

struct batch_text {
	uint32_t n; /* 0: not made, or without frames */
	struct text_piece {
		uint32_t at, len;
	} piece[RUNS_MAX];
};

struct batch_stack {
	uint32_t stack, sample;
};

struct sample_batch {
	const struct format_job *job;
	const struct frame_texts *frames;
	struct error *(*visit)(void *ctx, const struct sample *sample, struct sample_batch *batch);
	void *ctx;
	uint32_t n, at; /* samples; the one that is visited */
	struct stack_path path;
	uint32_t *start; /* of a frame's text, by place in the path */
	size_t start_room;
	struct run runs[RUNS_MAX];
	unsigned n_runs;
	struct bytes bytes, scratch;
	struct batch_stack sorted[2][BATCH_SAMPLES];
	struct sample samples[BATCH_SAMPLES];
	struct batch_text texts[BATCH_SAMPLES];
};

static void sort_by_digit(const struct batch_stack *in, struct batch_stack *out, uint32_t n,
			  unsigned digit)
{
	const unsigned shift = digit * DIGIT_BITS;
	uint32_t at[DIGIT_VALUES + 1] = {0};

	for (uint32_t i = 0; i < n; i++)
		at[(in[i].stack >> shift) % DIGIT_VALUES + 1]++;
	for (uint32_t i = 0; i < DIGIT_VALUES; i++)
		at[i + 1] += at[i];
	for (uint32_t i = 0; i < n; i++)
		out[at[(in[i].stack >> shift) % DIGIT_VALUES]++] = in[i];
}

/* Samples in the order of their stacks' numbers. */
static const struct batch_stack *sort(struct sample_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		b->sorted[0][i] = (struct batch_stack){b->samples[i].stack, i};
	for (unsigned digit = 0; digit < DIGITS; digit++)
		sort_by_digit(b->sorted[digit % 2], b->sorted[(digit + 1) % 2], b->n, digit);
	return b->sorted[DIGITS % 2];
}

static void forget_path(struct sample_batch *b)
{
	b->path.n = 0;
	b->n_runs = 0;
}

/* Adds the fresh frames of the path as a run. */
static struct error *add_run(struct sample_batch *b, bool *room)
{
	struct stack_path *path = &b->path;
	const size_t n = path->n_fresh, outermost = path->n;

	TRY(ARRAY_RESERVE(&b->start, &b->start_room, outermost + n));
	*room = true;
	for (size_t i = 0; i < n && *room; i++) {
		struct format_text text;

		b->start[outermost + n - 1 - i] = (uint32_t)b->bytes.len;
		TRY(b->frames->give(b->frames->ctx, path->fresh[i], &b->scratch, &text));
		*room = text.len <= BATCH_BYTES - b->bytes.len;
		if (*room)
			put_bytes(&b->bytes, text.data, text.len);
	}
	while (path->n_fresh)
		TRY(stack_path_add(path));
	if (n)
		b->runs[b->n_runs++] = (struct run){outermost, (uint32_t)b->bytes.len};
	return NULL;
}

/* The path's text: its runs, without what of them is no longer in it. */
static void take_pieces(const struct sample_batch *b, struct batch_text *text)
{
	size_t inner = b->path.n;

	for (unsigned i = b->n_runs; i; i--) {
		const struct run *run = &b->runs[i - 1];
		const uint32_t at = b->start[inner - 1];

		text->piece[text->n++] = (struct text_piece){at, run->end - at};
		inner = run->outermost;
	}
}

static struct error *make_text(struct sample_batch *b, uint32_t stack, struct batch_text *text,
			       bool *room)
{
	if (b->n_runs == RUNS_MAX)
		forget_path(b);
	TRY(stack_path_follow(&b->path, stack));
	while (b->n_runs && b->runs[b->n_runs - 1].outermost >= b->path.n)
		b->n_runs--;
	TRY(add_run(b, room));
	if (*room)
		take_pieces(b, text);
	return NULL;
}

/* Asks for what is needed of the stacks behind number `i`. */
static void ask_ahead(const struct sample_batch *b, const struct batch_stack *sorted, uint32_t i)
{
	for (unsigned step = 0; step < AHEAD_STEPS; step++) {
		const uint32_t at = i + (AHEAD_STEPS - step) * QUEUE_STEP;

		if (at < b->n)
			frame_texts_ahead(b->frames, sorted[at].stack, step);
	}
}

/* Texts of as many samples as there is room for. */
static struct error *make_texts(struct sample_batch *b)
{
	const struct batch_stack *sorted = sort(b);
	const struct batch_text *last = NULL;
	bool room = true;

	b->bytes.len = 0;
	forget_path(b);
	for (uint32_t i = 0; i < b->n; i++) {
		struct batch_text *text = &b->texts[sorted[i].sample];

		text->n = 0;
		ask_ahead(b, sorted, i);
		if (!samples_selected(b->job, sorted[i].stack))
			return samples_changed(b->job);
		if (last && sorted[i].stack == sorted[i - 1].stack)
			*text = *last;
		else if (room)
			TRY(make_text(b, sorted[i].stack, text, &room));
		last = text;
	}
	return NULL;
}

static struct error *visit_all(struct sample_batch *b)
{
	TRY(make_texts(b));
	for (b->at = 0; b->at < b->n; b->at++)
		TRY(b->visit(b->ctx, &b->samples[b->at], b));
	b->n = 0;
	return NULL;
}

static struct error *take(void *ctx, const struct sample *sample)
{
	struct sample_batch *b = ctx;

	b->samples[b->n++] = *sample;
	return b->n == BATCH_SAMPLES ? visit_all(b) : NULL;
}

/* Frame by frame, from the leaf on. */
static struct error *put_frames(struct sample_batch *b, uint32_t stack, FILE *out)
{
	for (; stack != STACK_ROOT; stack = stacks_node(b->path.stacks, stack)->parent) {
		struct format_text text;

		TRY(b->frames->give(b->frames->ctx, stack, &b->scratch, &text));
		fwrite_unlocked(text.data, 1, text.len, out);
	}
	return NULL;
}

struct error *sample_text_put(struct sample_batch *b, FILE *out)
{
	const struct batch_text *text = &b->texts[b->at];

	for (uint32_t i = 0; i < text->n; i++)
		fwrite_unlocked(b->bytes.data + text->piece[i].at, 1, text->piece[i].len, out);
	return text->n ? NULL : put_frames(b, b->samples[b->at].stack, out);
}

struct error *samples_read_texts(const struct format_job *job, const struct frame_texts *frames,
				 struct error *(*visit)(void *ctx, const struct sample *sample,
							struct sample_batch *batch),
				 void *ctx)
{
	struct sample_batch *b;
	struct error *err;

	TRY(ARRAY_NEW(&b, 1));
	b->job = job;
	b->frames = frames;
	b->path.stacks = frames->stacks;
	b->visit = visit;
	b->ctx = ctx;
	err = bytes_reserve(&b->bytes, BATCH_BYTES);
	if (!err)
		err = samples_read_unchecked(job, take, b);
	if (!err)
		err = visit_all(b);
	stack_path_free(&b->path);
	bytes_free(&b->bytes);
	bytes_free(&b->scratch);
	free(b->start);
	free(b);
	return err;
}
