/* SPDX-License-Identifier: BSD-3-Clause */

/* The samples of a recording once more: in order of time, and in groups. */

#include "format/tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
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

struct reading {
	const struct format_job *job;
	struct error *(*visit)(void *ctx, const struct sample *sample);
	void *ctx;
	uint64_t ticks_left; /* the file may have grown since */
	uint32_t stacks;     /* of the profile: so many were there when it was loaded */
	/* [RECORDING_MAX_VCPUS]: ticks that were left at its last sample, and its thread */
	struct {
		uint64_t ticks_left;
		uint32_t thread;
	} * last;
	struct weighting weighting;
};

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
	if (entry->stack >= r->stacks ||
	    !profile_cell_number(&r->job->profile->cells, entry->stack))
		return error_new(ERR_INPUT, "%s has changed while it was read", r->job->path);
	return r->visit(r->ctx, &sample);
}

static struct error *read_tick(void *ctx, const struct tick *tick)
{
	struct reading *r = ctx;
	struct error *err = NULL;

	if (!r->ticks_left)
		return NULL;
	r->ticks_left--;
	weighting_tick(&r->weighting, tick);
	for (uint32_t i = 0; i < tick->n && !err; i++)
		err = read_entry(r, tick, &tick->entries[i]);
	return err;
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

struct error *samples_read(const struct format_job *job,
			   struct error *(*visit)(void *ctx, const struct sample *sample),
			   void *ctx)
{
	struct reading r = {.job = job,
			    .visit = visit,
			    .ctx = ctx,
			    .ticks_left = job->profile->ticks_read,
			    .stacks = stacks_count(job->profile->stacks),
			    .last = calloc(RECORDING_MAX_VCPUS, sizeof(*r.last))};
	const struct recording_visitor visitor = {.ctx = &r,
						  .progress = job->filter->progress,
						  .stage = "exporting",
						  .tick = read_tick};
	struct error *err = r.last ? NULL : error_no_memory();
	bool cut;

	if (!err)
		err = samples_check(job);
	weighting_start(&r.weighting, job->filter->weight, job->filter->states,
			&job->profile->info);
	/* The profile's own store: it has these stacks, under these numbers. */
	if (!err)
		err = source_read(job->path, job->profile->stacks, &visitor, &cut);
	free(r.last);
	return err;
}

bool sample_queue_move(struct sample_queue *queue, const struct sample *in, struct sample *out)
{
	const uint64_t n = queue->n++;

	*out = queue->at[n % QUEUE_SAMPLES];
	queue->at[n % QUEUE_SAMPLES] = *in;
	for (unsigned step = 0; step < AHEAD_STEPS; step++) {
		const struct sample *sample = &queue->at[(n - step * QUEUE_STEP) % QUEUE_SAMPLES];

		if (sample->times)
			stack_texts_ahead(queue->texts, sample->stack, step);
	}
	return out->times != 0;
}

struct reading_ahead {
	struct sample_queue queue;
	struct error *(*visit)(void *ctx, const struct sample *sample);
	void *ctx;
};

static struct error *read_ahead(void *ctx, const struct sample *sample)
{
	struct reading_ahead *r = ctx;
	struct sample out;

	return sample_queue_move(&r->queue, sample, &out) ? r->visit(r->ctx, &out) : NULL;
}

struct error *samples_read_ahead(const struct format_job *job, const struct stack_texts *texts,
				 struct error *(*visit)(void *ctx, const struct sample *sample),
				 void *ctx)
{
	static const struct sample none;
	struct reading_ahead r = {.queue.texts = texts, .visit = visit, .ctx = ctx};
	struct error *err = samples_read(job, read_ahead, &r);

	for (unsigned i = 0; i < QUEUE_SAMPLES && !err; i++)
		err = read_ahead(&r, &none);
	return err;
}

struct error *told_threads_start(struct told_threads *told, const struct format_job *job)
{
	struct error *err;

	*told = (struct told_threads){
		.threads = calloc(job->profile->n_threads + 1, sizeof(*told->threads))};
	err = told->threads ? ids_new(&told->pids) : error_no_memory();
	return err ? err : ids_new(&told->tids);
}

void told_threads_end(struct told_threads *told)
{
	ids_free(told->pids);
	ids_free(told->tids);
	free(told->threads);
	free(told->of_tid);
	*told = (struct told_threads){0};
}

struct error *told_threads_add(struct told_threads *told, const struct recorded_thread *thread,
			       uint32_t number, bool *first)
{
	uint32_t id;
	bool added;
	struct error *err = ids_get(told->pids, thread->pid, 0, &id, first);

	if (!err)
		err = ids_get(told->tids, thread->pid, thread->tid, &id, &added);
	if (!err)
		err = ARRAY_RESERVE(&told->of_tid, &told->of_tid_room, id + (size_t)1);
	if (err)
		return err;
	/* Idle threads all have number 0, and nobody tells them apart by it. */
	if (!added && thread->tid)
		told->threads[told->of_tid[id]] = false;
	told->of_tid[id] = number;
	told->threads[number] = true;
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
	struct error *err = ARRAY_RESERVE(&g->at, &g->room, g->n + (size_t)1);

	if (!err && g->n == UINT32_MAX)
		err = error_no_memory();
	if (err)
		return err;
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
	struct error *err = ids_get(g->ids, sample->stack, what, &id, &added);

	if (!err && added) {
		err = ARRAY_RESERVE(&g->others, &g->others_room, id + (size_t)1);
		if (!err)
			err = new_group(g, sample, &g->others[id]);
	}
	if (!err)
		*group = g->others[id];
	return err;
}

/* Most stacks have one group, which is found without a search. */
static struct error *find_group(struct grouping *g, const struct sample *sample, uint32_t *group)
{
	const uint32_t cell = profile_cell_number(g->cells, sample->stack);
	const struct sample_group *first;
	struct error *err;

	if (!g->first[cell]) {
		err = new_group(g, sample, group);
		g->first[cell] = err ? 0 : *group + 1;
		return err;
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
	uint32_t number;
	struct error *err = find_group(grouping, sample, &number);

	if (err)
		return err;
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
				    .first = calloc(cells->n, sizeof(*grouping.first))};
	struct error *err = grouping.first ? ids_new(&grouping.ids) : error_no_memory();

	if (!err)
		err = samples_read(job, group_sample, &grouping);
	for (unsigned i = 0; i < 2 * AHEAD && !err; i++)
		err = move_on(&grouping);
	ids_free(grouping.ids);
	free(grouping.first);
	free(grouping.others);
	if (err) {
		free(grouping.at);
		return err;
	}
	*out = grouping.at;
	*n = grouping.n;
	return NULL;
}
