/* SPDX-License-Identifier: BSD-3-Clause */

/* Samples of a recording once more: in order of time, in groups, and with the texts of their stacks. */

#include "format/tables.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "import/import.h"

/* The file may have grown since it was loaded. */
const struct recorded_thread *sample_thread(const struct format_job *job, uint32_t number)
{
	const struct profile *profile = job->profile;

	return number && number <= profile->n_threads ? &profile->threads[number - 1] : NULL;
}

struct sample_ids sample_ids(const struct recorded_thread *thread, uint32_t guest, uint32_t vcpu)
{
	const bool has_pid = thread && thread->pid != RECORDED_ID_UNKNOWN;
	const bool has_tid = thread && thread->tid != RECORDED_ID_UNKNOWN;

	return (struct sample_ids){.pid = has_pid ? thread->pid : guest,
				   .tid = has_tid ? thread->tid : guest + vcpu};
}

/* Of a vCPU: ticks that were left at its last sample, and its thread. */
struct last {
	uint64_t ticks_left;
	uint32_t thread;
};

struct reading {
	const struct format_job *job;
	struct error *(*visit)(void *ctx, const struct sample *sample);
	void *ctx;
	uint64_t ticks_left; /* the file may have grown since */
	uint32_t stacks;     /* of the profile: so many were there when it was loaded */
	struct last *last;   /* [RECORDING_MAX_VCPUS] */
	struct weighting weighting;
	bool ahead; /* `visit` looks whether the stacks are the profile's, which takes long */
};

struct error *samples_changed(const struct format_job *job)
{
	return error_new(ERR_INPUT, "%s has changed while it was read", job->path);
}

bool samples_selected(const struct format_job *job, uint32_t stack)
{
	return profile_cell_number(&job->profile->cells, stack) != 0;
}

static struct error *read_entry(struct reading *r, const struct tick *tick,
				const struct tick_entry *entry)
{
	const struct profile_filter *filter = r->job->filter;
	struct sample sample = {.time_ns = tick->time_ns,
				.weight_ns = weighting_entry(&r->weighting, tick, entry).sampled_ns,
				.times = 1 + tick->more,
				.stack = entry->stack,
				.thread = entry->thread,
				.paused_ns = tick->paused_ns < UINT32_MAX
						     ? (uint32_t)tick->paused_ns
						     : UINT32_MAX,
				.vcpu = (uint16_t)entry->vcpu,
				.state = entry->state};

	if (!profile_selects(filter, tick, entry))
		return NULL;
	sample.resumed = r->last[entry->vcpu].ticks_left != r->ticks_left + 1;
	sample.switched = sample.resumed || r->last[entry->vcpu].thread != entry->thread;
	r->last[entry->vcpu].ticks_left = r->ticks_left;
	r->last[entry->vcpu].thread = entry->thread;
	/* Stacks are numbered in the order of the file. */
	return entry->stack < r->stacks && (r->ahead || samples_selected(r->job, entry->stack))
		       ? r->visit(r->ctx, &sample)
		       : samples_changed(r->job);
}

static struct error *read_tick(void *ctx, const struct tick *tick)
{
	struct reading *r = ctx;

	if (!r->ticks_left)
		return NULL;
	r->ticks_left--;
	weighting_tick(&r->weighting, tick);
	for (uint32_t i = 0; i < tick->n; i++)
		TRY(read_entry(r, tick, &tick->entries[i]));
	return NULL;
}

static struct error *read_exits(void *ctx, const struct recorded_exits *exits)
{
	struct reading *r = ctx;
	struct tick_entry entry;
	const struct tick tick = profile_tick_of_exits(exits, &entry);

	return exits->count ? read_entry(r, &tick, &entry) : NULL;
}

struct error *samples_check(const struct format_job *job)
{
	if (!strcmp(job->path, "-"))
		return error_new(ERR_USAGE, "this format reads its recording twice, so the "
					    "recording cannot come from standard input");
	if (job->filter->states & STATES_OF_WAITS)
		return error_new(ERR_USAGE, "this format has no threads that do not run: --state "
					    "chooses states of vCPUs for it (folded has all)");
	return NULL;
}

static struct error *read_all(const struct format_job *job, bool ahead,
			      struct error *(*visit)(void *ctx, const struct sample *sample),
			      void *ctx)
{
	FREED struct last *last = calloc(RECORDING_MAX_VCPUS, sizeof(*last));
	struct reading r = {.job = job,
			    .visit = visit,
			    .ctx = ctx,
			    .ahead = ahead,
			    .ticks_left = job->profile->ticks_read,
			    .stacks = stacks_count(job->profile->stacks),
			    .last = last};
	const bool exits = job->filter->exits;
	const struct recording_visitor visitor = {.ctx = &r,
						  .progress = job->filter->progress,
						  .stage = "exporting",
						  .tick = exits ? NULL : read_tick,
						  .exits = exits ? read_exits : NULL};
	bool cut;

	if (!last)
		return error_no_memory();
	TRY(samples_check(job));
	weighting_start(&r.weighting, job->filter->weight, job->filter->states,
			&job->profile->info);
	/* The profile's own store: it has these stacks, under these numbers. */
	return source_read(job->path, job->profile->stacks, &visitor, &cut);
}

struct error *samples_read(const struct format_job *job,
			   struct error *(*visit)(void *ctx, const struct sample *sample),
			   void *ctx)
{
	return read_all(job, false, visit, ctx);
}

/* Room for so many bytes beside the text. */
static struct error *make_text_room(struct stack_texts *t, size_t more)
{
	const size_t before = t->room;

	if (t->len + more <= before)
		return NULL;
	TRY(ARRAY_RESERVE(&t->data, &t->room, t->len + more));
	if (t->leaf_first)
		memmove(t->data + t->room - t->len, t->data + before - t->len, t->len);
	return NULL;
}

/* Puts text before what is there, or behind it. */
static struct error *put_callee(struct stack_texts *t, const void *text, size_t len)
{
	TRY(make_text_room(t, len));
	memcpy(t->data + (t->leaf_first ? t->room - t->len - len : t->len), text, len);
	t->len += len;
	return NULL;
}

/* The text of `n` frames has been added: so long is it with each. */
static struct error *move_path(struct stack_texts *t, const uint32_t *lens, size_t n)
{
	struct stack_path *path = &t->path;

	TRY(ARRAY_RESERVE(&t->lens, &t->lens_room, path->n + n));
	for (size_t i = 0; i < n; i++) {
		t->lens[path->n] = t->lens[path->n - 1] + lens[i];
		TRY(stack_path_add(path));
	}
	return NULL;
}

/* Slots for pieces, a power of two, and bytes of pieces. */
#define PIECE_SLOTS (1u << 14)
#define PIECES_MAX  ((size_t)8 << 20)

/* The text of PIECE frames and the lengths of its parts, outermost first. */
#define PIECE 8u
struct stack_piece {
	uint32_t len, lens[PIECE];
	uint8_t text[];
};

/* A piece by its innermost node. The first time it is asked for it is not kept: `at` is 0. */
struct stack_piece_slot {
	uint32_t node, at;
};

static struct stack_piece_slot *piece_slot(const struct stack_texts *t, uint32_t node)
{
	return &t->slots[node * UINT32_C(0x9e3779b1) >> 18];
}

static_assert(PIECE_SLOTS == 1u << (32 - 18), "the hash has as many bits as there are slots");

/* The piece that begins with the outermost frame that is not in the text; NULL: none is kept. */
static const struct stack_piece *find_piece(const struct stack_texts *t)
{
	const struct stack_path *path = &t->path;
	const struct stack_piece_slot *slot;
	uint32_t node;

	if ((path->n - 1) % PIECE || path->n_fresh < PIECE)
		return NULL;
	node = path->fresh[path->n_fresh - PIECE];
	slot = piece_slot(t, node);
	return slot->node == node && slot->at
		       ? (const struct stack_piece *)(const void *)(t->pieces.data + slot->at)
		       : NULL;
}

/* Keeps the text of the innermost frames of the path, if they are a piece that was asked for before. */
static struct error *keep_piece(struct stack_texts *t)
{
	const struct stack_path *path = &t->path;
	const size_t *lens = t->lens + path->n - 1 - PIECE;
	struct stack_piece_slot *slot = piece_slot(t, path->at[path->n - 1]);
	const size_t len = lens[PIECE] - lens[0];
	/* Pieces stand at multiples of their numbers' size, and none at 0. */
	const size_t at = (t->pieces.len + sizeof(*slot) + 3) & ~(size_t)3;
	struct stack_piece *piece;

	if (slot->node != path->at[path->n - 1]) {
		*slot = (struct stack_piece_slot){.node = path->at[path->n - 1]};
		return NULL;
	}
	if (len > PIECES_MAX || at + sizeof(*piece) + len > PIECES_MAX)
		return NULL;
	TRY(bytes_reserve(&t->pieces, at + sizeof(*piece) + len - t->pieces.len));
	slot->at = (uint32_t)at;
	t->pieces.len = at + sizeof(*piece) + len;
	piece = (struct stack_piece *)(void *)(t->pieces.data + at);
	piece->len = (uint32_t)len;
	for (size_t i = 0; i < PIECE; i++)
		piece->lens[i] = (uint32_t)(lens[i + 1] - lens[i]);
	memcpy(piece->text, t->leaf_first ? t->data + t->room - t->len : t->data + lens[0], len);
	return NULL;
}

/* Adds the outermost frame that is not in the text. */
static struct error *add_frame(struct stack_texts *t)
{
	const struct stack_path *path = &t->path;
	struct format_text text;

	TRY(t->frames.give(t->frames.ctx, path->fresh[path->n_fresh - 1], &t->scratch, &text));
	if (text.len > UINT32_MAX)
		return error_no_memory();
	TRY(put_callee(t, text.data, text.len));
	TRY(move_path(t, &(uint32_t){(uint32_t)text.len}, 1));
	return (path->n - 1) % PIECE ? NULL : keep_piece(t);
}

/* Adds the outermost frames that are not in the text: one, or a piece. */
static struct error *add_frames(struct stack_texts *t)
{
	const struct stack_piece *piece = find_piece(t);

	if (!piece)
		return add_frame(t);
	TRY(put_callee(t, piece->text, piece->len));
	return move_path(t, piece->lens, PIECE);
}

/* Starts a text, with slots for pieces. */
static struct error *start(struct stack_texts *t)
{
	TRY(ARRAY_RESERVE(&t->lens, &t->lens_room, 1));
	t->lens[0] = 0;
	t->path.stacks = t->frames.stacks;
	t->slots = calloc(PIECE_SLOTS, sizeof(*t->slots));
	return t->slots ? NULL : error_no_memory();
}

struct error *stack_texts_get(struct stack_texts *t, uint32_t stack, struct format_text *out)
{
	if (!t->slots)
		TRY(start(t));
	TRY(stack_path_follow(&t->path, stack));
	t->len = t->lens[t->path.n - 1];
	while (t->path.n_fresh)
		TRY(add_frames(t));
	*out = (struct format_text){t->leaf_first && t->len ? t->data + t->room - t->len : t->data,
				    t->len};
	return NULL;
}

void frame_texts_ahead(const struct frame_texts *frames, uint32_t stack, unsigned step)
{
	/* Frames are one step behind their callees; the root is none. */
	for (; stack != STACK_ROOT; step--) {
		if (frames->ahead)
			frames->ahead(frames->ctx, stack, step);
		if (!step)
			break;
		stack = stacks_node(frames->stacks, stack)->parent;
	}
	__builtin_prefetch(stacks_node(frames->stacks, stack));
}

void stack_texts_clear(struct stack_texts *t)
{
	t->path.n = t->len = t->pieces.len = 0;
	if (t->slots)
		memset(t->slots, 0, PIECE_SLOTS * sizeof(*t->slots));
}

void stack_texts_free(struct stack_texts *t)
{
	bytes_free(&t->scratch);
	bytes_free(&t->pieces);
	free(t->slots);
	free(t->data);
	free(t->lens);
	stack_path_free(&t->path);
}

bool sample_queue_move(struct sample_queue *queue, const struct sample *in, struct sample *out)
{
	const uint64_t n = queue->n++;

	*out = queue->at[n % QUEUE_SAMPLES];
	queue->at[n % QUEUE_SAMPLES] = *in;
	for (unsigned step = 0; step < AHEAD_STEPS; step++) {
		const struct sample *sample = &queue->at[(n - step * QUEUE_STEP) % QUEUE_SAMPLES];

		if (sample->times)
			frame_texts_ahead(queue->frames, sample->stack, step);
	}
	return out->times != 0;
}

struct reading_ahead {
	const struct format_job *job;
	struct sample_queue queue;
	struct error *(*visit)(void *ctx, const struct sample *sample);
	void *ctx;
};

static struct error *read_ahead(void *ctx, const struct sample *sample)
{
	struct reading_ahead *r = ctx;
	struct sample out;

	__builtin_prefetch(&r->job->profile->cells.of[sample->stack]);
	if (!sample_queue_move(&r->queue, sample, &out))
		return NULL;
	return samples_selected(r->job, out.stack) ? r->visit(r->ctx, &out)
						   : samples_changed(r->job);
}

struct error *samples_read_unchecked(const struct format_job *job,
				     struct error *(*visit)(void *ctx, const struct sample *sample),
				     void *ctx)
{
	return read_all(job, true, visit, ctx);
}

struct error *samples_read_ahead(const struct format_job *job, const struct frame_texts *frames,
				 struct error *(*visit)(void *ctx, const struct sample *sample),
				 void *ctx)
{
	static const struct sample none;
	struct reading_ahead r = {.job = job, .queue.frames = frames, .visit = visit, .ctx = ctx};

	TRY(read_all(job, true, read_ahead, &r));
	for (unsigned i = 0; i < QUEUE_SAMPLES; i++)
		TRY(read_ahead(&r, &none));
	return NULL;
}

void vcpu_runs_end(struct vcpu_runs *runs, FILE *out)
{
	if (runs->n)
		fprintf(out, "%s%u,%" PRIu64, runs->written++ ? "," : "", runs->vcpu, runs->n);
	runs->n = 0;
}

void vcpu_runs_add(struct vcpu_runs *runs, uint16_t vcpu, FILE *out)
{
	if (runs->vcpu != vcpu)
		vcpu_runs_end(runs, out);
	runs->vcpu = vcpu;
	runs->n++;
}

/* As of profile_load: so many samples ahead memory is asked for, of the first group's number and of the group. */
#define AHEAD 16u

struct grouping {
	const struct profile_cells *cells;
	struct sample pending[2 * AHEAD];
	uint64_t n_pending; /* that ever were */
	struct sample_group *at;
	uint32_t n;
	size_t room;
	uint32_t *first;  /* [cells.n]: the first group of the stack of a cell + 1 */
	struct ids *ids;  /* of the other groups of stacks */
	uint32_t *others; /* groups by these numbers */
	size_t others_room;
};

static struct error *new_group(struct grouping *g, const struct sample *sample, uint32_t *group)
{
	TRY(ARRAY_RESERVE(&g->at, &g->room, g->n + (size_t)1));
	if (g->n == UINT32_MAX)
		return error_no_memory();
	*group = g->n;
	g->at[g->n++] = (struct sample_group){.stack = sample->stack,
					      .thread = sample->thread,
					      .vcpu = sample->vcpu,
					      .state = sample->state};
	return NULL;
}

static struct error *find_other_group(struct grouping *g, const struct sample *sample,
				      uint32_t *group)
{
	const uint64_t what =
		(uint64_t)sample->thread << 32 | (uint32_t)sample->vcpu << 8 | sample->state;
	uint32_t id;
	bool added;

	TRY(ids_get(g->ids, sample->stack, what, &id, &added));
	if (added) {
		TRY(ARRAY_RESERVE(&g->others, &g->others_room, id + (size_t)1));
		TRY(new_group(g, sample, &g->others[id]));
	}
	*group = g->others[id];
	return NULL;
}

/* Most stacks have one group, which is found without a search. */
static struct error *find_group(struct grouping *g, const struct sample *sample, uint32_t *group)
{
	const uint32_t cell = profile_cell_number(g->cells, sample->stack);
	const struct sample_group *first;

	if (!g->first[cell]) {
		TRY(new_group(g, sample, group));
		g->first[cell] = *group + 1;
		return NULL;
	}
	*group = g->first[cell] - 1;
	first = &g->at[*group];
	return first->thread == sample->thread && first->vcpu == sample->vcpu &&
			       first->state == sample->state
		       ? NULL
		       : find_other_group(g, sample, group);
}

static struct error *add_to_group(struct grouping *grouping, const struct sample *sample)
{
	const uint64_t weight = sample->weight_ns * sample->times;
	struct sample_group *group;
	uint32_t number = 0;

	TRY(find_group(grouping, sample, &number));
	group = &grouping->at[number];
	group->samples += sample->times;
	if (weight <= INT64_MAX - group->weight)
		group->weight += weight;
	return NULL;
}

/* Moves all samples on by one; behind the last ones there is nothing, taken 0 times. */
static struct error *move_on(struct grouping *g)
{
	const uint64_t n = g->n_pending++;
	const struct sample *middle = &g->pending[(n + AHEAD) % (2 * AHEAD)];
	struct sample *last = &g->pending[(n + 1) % (2 * AHEAD)];
	struct error *err = NULL;

	if (middle->times) {
		const uint32_t first = g->first[profile_cell_number(g->cells, middle->stack)];

		if (first)
			__builtin_prefetch(&g->at[first - 1], 1);
	}
	if (last->times)
		err = add_to_group(g, last);
	last->times = 0;
	return err;
}

static struct error *group_sample(void *ctx, const struct sample *sample)
{
	struct grouping *g = ctx;

	g->pending[g->n_pending % (2 * AHEAD)] = *sample;
	__builtin_prefetch(&g->first[profile_cell_number(g->cells, sample->stack)], 1);
	return move_on(g);
}

struct error *samples_group(const struct format_job *job, struct sample_group **out, uint32_t *n)
{
	const struct profile_cells *cells = &job->profile->cells;
	struct grouping grouping = {.cells = cells,
				    .first = array_zeros(cells->n, sizeof(*grouping.first))};
	struct error *err = grouping.first ? ids_new(&grouping.ids) : error_no_memory();

	if (!err)
		err = samples_read(job, group_sample, &grouping);
	for (unsigned i = 0; i < 2 * AHEAD && !err; i++)
		err = move_on(&grouping);
	ids_free(grouping.ids);
	free(grouping.first);
	free(grouping.others);
	*out = grouping.at;
	*n = grouping.n;
	return err;
}
