/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "format/format.h"
#include "import/import.h"
#include "symbol/images/code.h"

struct building {
	const struct format_job *job;
	struct location_table *table;
	struct ids *function_ids; /* numbers of functions */
	size_t entry_room, line_room, function_room;
};

static struct error *add_function(struct building *b, const struct location *at, uint32_t *id)
{
	struct location_table *p = b->table;
	bool added;
	struct error *err =
		ids_get(b->function_ids, (uintptr_t)at->function, (uintptr_t)at->file, id, &added);

	if (err || !added)
		return err;
	err = ARRAY_RESERVE(&p->functions, &b->function_room, p->n_functions + (size_t)1);
	if (!err)
		p->functions[p->n_functions++] =
			(struct location_function){.name = at->function,
						   .symbol = at->symbol,
						   .file = at->file,
						   .resolved = at->resolved};
	return err;
}

static struct error *add_line(struct building *b, const struct location *at)
{
	struct location_table *p = b->table;
	struct location_line line = {.line = at->line, .entry = p->n};
	struct error *err = add_function(b, at, &line.function);

	if (!err)
		err = ARRAY_RESERVE(&p->lines, &b->line_room, p->n_lines + (size_t)1);
	if (!err)
		p->lines[p->n_lines++] = line;
	return err;
}

static uint32_t image_at(const struct location_table *p, uint64_t code)
{
	for (uint32_t i = 0; i < p->n_images; i++)
		if (code >= p->images[i].start && code < p->images[i].end)
			return i;
	return LOCATION_NONE;
}

static struct error *add_entry(struct building *b, uint32_t id)
{
	const struct stack_node *node = stacks_node(b->table->profile->stacks, id);
	struct location_table *p = b->table;
	bool known = !format_is_imported(b->job) || !import_is_stand_in(node->addr);
	struct location_entry entry = {.addr = known ? node->addr : 0, .lines = p->n_lines};
	const struct location *at;
	size_t n;
	struct error *err =
		symbolizer_locate_node(b->job->symbolizer, b->table->profile->stacks, id, &at, &n);

	for (size_t i = 0; i < n && !err; i++)
		err = add_line(b, &at[i]);
	if (!err)
		err = ARRAY_RESERVE(&p->at, &b->entry_room, p->n + (size_t)1);
	if (err)
		return err;
	entry.code = frame_code(entry.addr, node->kind);
	entry.offset = location_offset(&at[n - 1], node->addr);
	entry.n_lines = p->n_lines - entry.lines;
	entry.image = node->kind & FRAME_FOREIGN ? LOCATION_NONE : image_at(p, entry.code);
	p->at[p->n++] = entry;
	return NULL;
}

/* The entry of a frame, which is new if no stack before had it. */
static struct error *add_node(struct building *b, uint32_t id, uint32_t *entry)
{
	if (*entry != LOCATION_NONE)
		return NULL;
	*entry = b->table->n;
	return add_entry(b, id);
}

/* Adds each selected stack with all its callers; a parent's id is smaller. */
static struct error *add_used(struct building *b, const struct frame_numbers *numbers,
			      uint32_t *entries)
{
	const struct profile *profile = b->job->profile;
	const uint32_t n = stacks_count(profile->stacks);
	bool *used = calloc(n, sizeof(*used));
	struct error *err = NULL;

	if (!used)
		return error_no_memory();
	profile_mark_used(profile, &profile->cells, used);
	for (uint32_t id = STACK_ROOT + 1; id < n && !err; id++) {
		uint32_t *entry = &entries[numbers->of_node[id]];

		if (used[id])
			err = add_node(b, id, entry);
		numbers->of_node[id] = used[id] ? *entry : LOCATION_NONE;
	}
	free(used);
	return err;
}

static struct error *add_nodes(struct building *b)
{
	struct frame_numbers numbers;
	struct error *err = frame_numbers_new(b->job->profile->stacks, &numbers);
	uint32_t *entries;

	if (err)
		return err;
	entries = malloc((numbers.n + (size_t)1) * sizeof(*entries));
	for (uint32_t i = 0; entries && i < numbers.n; i++)
		entries[i] = LOCATION_NONE;
	err = entries ? add_used(b, &numbers, entries) : error_no_memory();
	free(entries);
	/* The numbers of frames have become those of entries. */
	b->table->of_node = numbers.of_node;
	numbers.of_node = NULL;
	frame_numbers_free(&numbers);
	return err;
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
	struct error *err = NULL;

	p->images = calloc(recorded->n + 1, sizeof(*p->images));
	if (!p->images)
		return error_no_memory();
	for (size_t i = 0; i < recorded->n && !err; i++) {
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
		err = symbolizer_intern(b->job->symbolizer, from->path, &to->path);
		if (!err && is_build_id(from->build_id))
			err = symbolizer_intern(b->job->symbolizer, from->build_id, &to->build_id);
		p->n_images++;
	}
	return err;
}

struct error *location_table_new(const struct format_job *job, struct location_table **out)
{
	struct building b = {.job = job, .table = calloc(1, sizeof(*b.table))};
	struct error *err = b.table ? NULL : error_no_memory();

	if (!err) {
		b.table->profile = job->profile;
		err = ids_new(&b.function_ids);
	}
	if (!err)
		err = add_images(&b);
	if (!err)
		err = add_nodes(&b);
	ids_free(b.function_ids);
	if (err)
		location_table_free(b.table);
	else
		*out = b.table;
	return err;
}

void location_table_free(struct location_table *table)
{
	if (!table)
		return;
	free(table->at);
	free(table->lines);
	free(table->functions);
	free(table->images);
	free(table->of_node);
	free(table);
}

struct error *location_table_chain(const struct location_table *table, uint32_t stack,
				   struct location_chain *chain)
{
	chain->n = 0;
	for (; stack != STACK_ROOT; stack = stacks_node(table->profile->stacks, stack)->parent) {
		const struct location_entry *entry = &table->at[table->of_node[stack]];
		struct error *err =
			ARRAY_RESERVE(&chain->at, &chain->room, chain->n + entry->n_lines);

		if (err)
			return err;
		for (uint32_t i = 0; i < entry->n_lines; i++)
			chain->at[chain->n++] = entry->lines + i;
	}
	return NULL;
}

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
	    !profile_cell(&r->job->profile->cells, entry->stack)->samples)
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

	if (!err && job->filter->states & STATES_OF_WAITS)
		err = error_new(ERR_USAGE, "this format has no threads that do not run: --state "
					   "chooses states of vCPUs for it (folded has all)");
	if (!err && !strcmp(job->path, "-"))
		err = error_new(ERR_USAGE, "this format reads its recording twice, so the "
					   "recording cannot come from standard input");
	weighting_start(&r.weighting, job->filter->weight, job->filter->states,
			&job->profile->info);
	/* The profile's own store: it has these stacks, under these numbers. */
	if (!err)
		err = source_read(job->path, job->profile->stacks, &visitor, &cut);
	free(r.last);
	return err;
}

struct collecting {
	const struct format_job *job;
	struct samples *samples;
	struct ids *ids; /* numbers of tracks, in the order of their first samples */
	size_t room, order_room, tracks_room;
};

/* The track that a sample belongs to: its samples are counted, and not yet listed. */
static struct track track_of(const struct format_job *job, const struct sample *sample)
{
	const struct recorded_thread *thread = sample_thread(job, sample->thread);
	const bool known = thread && thread->tid != RECORDED_ID_UNKNOWN;

	return (struct track){.thread = sample->thread, .vcpu = known ? 0 : sample->vcpu};
}

static struct error *count_in_track(struct collecting *c, const struct sample *sample, uint32_t *id)
{
	struct samples *samples = c->samples;
	const struct track track = track_of(c->job, sample);
	bool added;
	struct error *err = ids_get(c->ids, track.thread, track.vcpu, id, &added);

	if (!err && added) {
		err = ARRAY_RESERVE(&samples->tracks, &c->tracks_room, samples->n_tracks + 1);
		if (!err)
			samples->tracks[samples->n_tracks++] = track;
	}
	if (!err)
		samples->tracks[*id].n++;
	return err;
}

static struct error *collect(void *ctx, const struct sample *sample)
{
	struct collecting *c = ctx;
	struct samples *samples = c->samples;
	struct error *err = ARRAY_RESERVE(&samples->at, &c->room, samples->n + 1);

	if (!err)
		err = ARRAY_RESERVE(&samples->order, &c->order_room, samples->n + 1);
	if (!err && samples->n == UINT32_MAX)
		err = error_no_memory();
	/* The number of its track stands there until all are known. */
	if (!err)
		err = count_in_track(c, sample, &samples->order[samples->n]);
	if (!err)
		samples->at[samples->n++] = *sample;
	return err;
}

static int by_thread(const void *left, const void *right)
{
	const struct track *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return (a->vcpu > b->vcpu) - (a->vcpu < b->vcpu);
}

/* Lists the samples of each track. */
static struct error *list(struct collecting *c)
{
	struct samples *samples = c->samples;
	const size_t n = samples->n_tracks;
	uint32_t *order = calloc(samples->n + 1, sizeof(*order));
	uint32_t **next = calloc(n + 1, sizeof(*next)), *at = order, id = 0;
	bool added;
	struct error *err = order && next ? NULL : error_no_memory();

	if (!err && n)
		qsort(samples->tracks, n, sizeof(*samples->tracks), by_thread);
	for (size_t i = 0; i < n && !err; i++) {
		struct track *track = &samples->tracks[i];

		err = ids_get(c->ids, track->thread, track->vcpu, &id, &added);
		next[id] = at;
		track->at = at;
		at += track->n;
	}
	for (size_t i = 0; i < samples->n && !err; i++)
		*next[samples->order[i]]++ = (uint32_t)i;
	free(next);
	free(samples->order);
	samples->order = order;
	return err;
}

struct error *samples_collect(const struct format_job *job, struct samples **out)
{
	struct collecting c = {.job = job, .samples = calloc(1, sizeof(*c.samples))};
	struct error *err = c.samples ? ids_new(&c.ids) : error_no_memory();

	if (!err)
		err = samples_read(job, collect, &c);
	if (!err)
		err = list(&c);
	ids_free(c.ids);
	if (err)
		samples_free(c.samples);
	else
		*out = c.samples;
	return err;
}

void samples_free(struct samples *samples)
{
	if (!samples)
		return;
	free(samples->at);
	free(samples->tracks);
	free(samples->order);
	free(samples);
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

struct grouping {
	struct ids *ids;
	struct sample_group *at;
	size_t room;
};

static struct error *add_to_group(void *ctx, const struct sample *sample)
{
	struct grouping *grouping = ctx;
	const uint64_t weight = sample->weight_ns * sample->times;
	struct sample_group *group;
	uint32_t id;
	bool added;
	const uint64_t what =
		(uint64_t)sample->thread << 32 | (uint32_t)sample->vcpu << 8 | sample->state;
	struct error *err = ids_get(grouping->ids, sample->stack, what, &id, &added);

	if (!err)
		err = ARRAY_RESERVE(&grouping->at, &grouping->room, id + (size_t)1);
	if (err)
		return err;
	group = &grouping->at[id];
	if (added)
		*group = (struct sample_group){.stack = sample->stack,
					       .thread = sample->thread,
					       .vcpu = sample->vcpu,
					       .state = sample->state};
	group->samples += sample->times;
	if (weight <= INT64_MAX - group->weight)
		group->weight += weight;
	return NULL;
}

struct error *samples_group(const struct format_job *job, struct sample_group **out, uint32_t *n)
{
	struct grouping grouping = {0};
	struct error *err = ids_new(&grouping.ids);

	if (!err)
		err = samples_read(job, add_to_group, &grouping);
	if (err) {
		free(grouping.at);
		grouping.at = NULL;
	}
	*out = grouping.at;
	*n = err ? 0 : ids_count(grouping.ids);
	ids_free(grouping.ids);
	return err;
}
