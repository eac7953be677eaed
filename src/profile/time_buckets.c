/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/time_buckets.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "import/import.h"

/* 0, the root, for what is not in it. */
static uint32_t node_map_get(const struct node_map *map, uint32_t stack, uint32_t thread)
{
	uint32_t number = stack;

	if (map->pairs && !ids_find(map->pairs, stack, thread, &number))
		return 0;
	if (number >= map->n)
		return 0;
	return map->node ? map->node[number] : number;
}

void node_map_free(struct node_map *map)
{
	free(map->node);
	ids_free(map->pairs);
	*map = (struct node_map){0};
}

struct bucketing {
	const struct node_map *nodes;
	struct time_buckets *buckets;
	size_t room, max_rows;
	uint32_t current;
	struct ids *ids; /* rows of the current bucket, from `first` on, by vCPU, state and node */
	size_t first, reduced; /* rows before the latter were reduced */
};

struct reading {
	const struct profile_filter *filter;
	struct weighting weighting;
	struct bucketing bucketing;
};

/* The number of a row of the current bucket, counted from its first; *added: there is none yet. */
static struct error *row_number(struct bucketing *b, const struct time_bucket_row *row,
				uint32_t *number, bool *added)
{
	return ids_get(b->ids, (uint64_t)row->vcpu * VCPU_STATES + row->state, row->node, number,
		       added);
}

/* Finds the rows of the current bucket, which are the last ones, again. */
static struct error *index_rows(struct bucketing *b)
{
	const struct time_buckets *buckets = b->buckets;
	uint32_t number;
	bool added;

	ids_free(b->ids);
	b->ids = NULL;
	TRY(ids_new(&b->ids));
	b->first = buckets->n_rows;
	while (b->first > b->reduced && buckets->rows[b->first - 1].bucket == b->current)
		b->first--;
	for (size_t i = b->first; i < buckets->n_rows; i++)
		TRY(row_number(b, &buckets->rows[i], &number, &added));
	return NULL;
}

static int by_row(const void *left, const void *right)
{
	const struct time_bucket_row *a = left, *b = right;
	const int order = COMPARE(a->bucket, b->bucket) ?: COMPARE(a->vcpu, b->vcpu);

	return order ?: COMPARE(a->state, b->state) ?: COMPARE(a->node, b->node);
}

static void add_to_row(struct time_bucket_row *row, const struct profile_cell *cell)
{
	struct profile_cell sum = {row->samples, row->weight_ns, row->squares};

	profile_cell_add(&sum, cell);
	row->samples = sum.samples;
	row->weight_ns = sum.weight_ns;
	row->squares = sum.squares;
}

/* Rows that come do not join those that are there. */
static struct error *reduce(struct bucketing *b)
{
	struct time_buckets *buckets = b->buckets;
	const struct time_bucket_reducer *reducer = buckets->reducer;
	size_t n = buckets->n_rows - b->reduced;

	if (!reducer || !n)
		return NULL;
	TRY(reducer->reduce(reducer->ctx, buckets->rows + b->reduced, &n));
	buckets->n_rows = b->reduced += n;
	return index_rows(b);
}

/* Two buckets become one. */
static struct error *halve(struct bucketing *b)
{
	struct time_buckets *buckets = b->buckets;
	struct time_bucket_row *rows = buckets->rows;
	size_t n = 0;

	buckets->bucket_ns *= 2;
	b->current /= 2;
	for (size_t i = 0; i < buckets->n_rows; i++)
		rows[i].bucket /= 2;
	if (buckets->n_rows)
		qsort(rows, buckets->n_rows, sizeof(*rows), by_row);
	for (size_t i = 0; i < buckets->n_rows; i++) {
		if (!n || by_row(&rows[n - 1], &rows[i])) {
			rows[n++] = rows[i];
			continue;
		}
		add_to_row(&rows[n - 1], &(struct profile_cell){rows[i].samples, rows[i].weight_ns,
								rows[i].squares});
	}
	buckets->n_rows = n;
	b->reduced = buckets->reducer ? n : 0;
	return index_rows(b);
}

static struct error *count(struct bucketing *b, const struct tick_entry *entry, uint64_t times,
			   uint64_t weight)
{
	const uint32_t node = node_map_get(b->nodes, entry->stack, entry->thread);
	struct time_buckets *buckets = b->buckets;
	struct time_bucket_row new = {b->current, entry->vcpu, entry->state, node, 0, 0, 0};
	struct profile_cell cell = {0};
	uint32_t number;
	bool added;

	TRY(row_number(b, &new, &number, &added));
	if (added)
		TRY(ARRAY_RESERVE(&buckets->rows, &b->room, buckets->n_rows + 1));
	if (added)
		buckets->rows[buckets->n_rows++] = new;
	profile_cell_count(&cell, times, weight);
	add_to_row(&buckets->rows[b->first + number], &cell);
	return NULL;
}

/* Makes buckets longer until there is room for those and the rows that come. */
static struct error *make_room(struct bucketing *b, uint64_t *bucket)
{
	const bool many = b->buckets->n_rows >= b->max_rows;
	size_t wanted = many ? b->max_rows / 2 : b->max_rows;
	struct error *err = many || *bucket != b->current ? reduce(b) : NULL;

	while (!err &&
	       (*bucket >= TIME_BUCKETS_MAX || (*bucket > 0 && b->buckets->n_rows > wanted))) {
		err = halve(b);
		*bucket /= 2;
	}
	return err;
}

static struct error *begin_tick(struct bucketing *b, uint64_t time_ns)
{
	uint64_t bucket = (time_ns - b->buckets->first_ns) / b->buckets->bucket_ns;

	TRY(make_room(b, &bucket));
	if (bucket == b->current)
		return NULL;
	b->current = (uint32_t)bucket;
	return index_rows(b);
}

static struct error *add_entry(struct reading *r, const struct tick *tick,
			       const struct tick_entry *entry)
{
	return count(&r->bucketing, entry, 1 + (uint64_t)tick->more,
		     weighting_entry(&r->weighting, tick, entry).sampled_ns);
}

static struct error *add_tick(void *ctx, const struct tick *tick)
{
	struct reading *r = ctx;
	const struct profile_filter *filter = r->filter;

	weighting_tick(&r->weighting, tick);
	if (tick->time_ns < r->bucketing.buckets->first_ns ||
	    (filter->to_ns && tick->time_ns >= filter->to_ns))
		return NULL;
	TRY(begin_tick(&r->bucketing, tick->time_ns));
	for (uint32_t i = 0; i < tick->n; i++)
		if (profile_selects(filter, tick, &tick->entries[i]))
			TRY(add_entry(r, tick, &tick->entries[i]));
	return NULL;
}

#define NS_PER_S 1000000000ull

uint64_t time_buckets_length(uint64_t last_ns, uint64_t ticks)
{
	const uint64_t seconds = last_ns / NS_PER_S + 1;
	uint64_t most = ticks / TIME_BUCKET_TICKS, length = NS_PER_S >> 9;
	uint64_t useful = TIME_BUCKETS_SHOWN;

	if (seconds > TIME_BUCKETS_SHOWN / TIME_BUCKETS_A_SECOND)
		useful = seconds < TIME_BUCKETS_MAX / TIME_BUCKETS_A_SECOND
				 ? seconds * TIME_BUCKETS_A_SECOND
				 : TIME_BUCKETS_MAX;
	if (most > useful)
		most = useful;
	while (length % 5 == 0 && last_ns / length * 5 < most)
		length /= 5;
	while (last_ns / length >= (most ? most : 1))
		length *= 2;
	return length;
}

/* Sorts the rows. */
static void finish(struct bucketing *b, const struct profile *profile)
{
	struct time_buckets *out = b->buckets;

	ids_free(b->ids);
	out->n = profile->last_ns < out->first_ns
			 ? 1
			 : (uint32_t)((profile->last_ns - out->first_ns) / out->bucket_ns) + 1;
	if (out->n_rows)
		qsort(out->rows, out->n_rows, sizeof(*out->rows), by_row);
}

struct error *time_buckets_read(const char *path, const struct profile *profile,
				const struct profile_filter *filter, const struct node_map *nodes,
				size_t max_rows, struct time_buckets *out)
{
	struct reading r = {.filter = filter,
			    .bucketing = {.nodes = nodes, .buckets = out, .max_rows = max_rows}};
	struct recording_visitor visitor = {.ctx = &r,
					    .progress = filter->progress,
					    .stage = "drawing",
					    .tick = add_tick};
	struct error *err;
	bool cut;

	weighting_start(&r.weighting, filter->weight, filter->states, &profile->info);
	*out = (struct time_buckets){.bucket_ns = out->bucket_ns
							  ?: time_buckets_length(profile->last_ns,
										 profile->ticks),
				     .first_ns = out->first_ns,
				     .reducer = out->reducer};
	err = index_rows(&r.bucketing);
	if (!err)
		err = source_read(path, profile->stacks, &visitor, &cut);
	if (!err)
		err = reduce(&r.bucketing);
	finish(&r.bucketing, profile);
	return err;
}

void time_buckets_free(struct time_buckets *buckets)
{
	free(buckets->rows);
	memset(buckets, 0, sizeof(*buckets));
}

#define NS_PER_S 1000000000ull

/* What one stack, or all of them, had in one cell of a map with a column for each second. */
struct heat_entry {
	uint64_t at; /* second * rows + row */
	uint32_t stack;
	struct profile_cell cell;
};

struct heat_log {
	struct ids
		*ids; /* of place and stack: the entry's number; NULL: stacks are not told apart */
	struct heat_entry *entry;
	size_t n, room;
	uint32_t rows;
};

struct error *heat_log_new(uint32_t rows, bool by_stack, struct heat_log **out)
{
	FREED struct heat_log *log = NULL;

	TRY(ARRAY_NEW(&log, 1));
	if (by_stack)
		TRY(ids_new(&log->ids));
	log->rows = rows;
	*out = log;
	log = NULL;
	return NULL;
}

void heat_log_free(struct heat_log *log)
{
	if (!log)
		return;
	ids_free(log->ids);
	free(log->entry);
	free(log);
}

struct error *heat_log_sample(void *ctx, const struct tick *tick, const struct tick_entry *entry,
			      uint64_t weight_ns)
{
	struct heat_log *log = ctx;
	const uint64_t at = tick->time_ns / NS_PER_S * log->rows +
			    tick->time_ns % NS_PER_S * log->rows / NS_PER_S;
	uint32_t number = log->n ? (uint32_t)log->n - 1 : 0;
	bool added = !log->n || log->entry[number].at != at;

	TRY(log->ids ? ids_get(log->ids, at, entry->stack, &number, &added) : NULL);
	if (added)
		TRY(ARRAY_RESERVE(&log->entry, &log->room, log->n + 1));
	if (added) {
		number = (uint32_t)log->n++;
		log->entry[number] = (struct heat_entry){.at = at, .stack = entry->stack};
	}
	profile_cell_count(&log->entry[number].cell, 1 + (uint64_t)tick->more, weight_ns);
	return NULL;
}

/* Columns from the second in which the stretch begins to that of its last tick. */
static struct error *heat_layout(const struct profile *profile, const struct heat_options *options,
				 struct heat *heat)
{
	const uint64_t to = profile->to_ns && profile->to_ns <= profile->last_ns
				    ? profile->to_ns - 1
				    : profile->last_ns;
	const uint64_t first = profile->from_ns / NS_PER_S;
	const uint64_t last = to / NS_PER_S < first ? first : to / NS_PER_S;
	const uint64_t seconds = last - first + 1;

	heat->first_s = first;
	heat->column_s = (seconds - 1) / options->max_columns + 1;
	heat->columns = (uint32_t)((seconds - 1) / heat->column_s + 1);
	heat->cells = calloc((size_t)heat->columns * heat->rows, sizeof(*heat->cells));
	return heat->cells ? NULL : error_no_memory();
}

static bool heat_passes(const struct heat_options *options, uint32_t stack)
{
	return !options->passes || (stack < options->n_passes && options->passes[stack]);
}

struct error *heat_build(const struct heat_log *log, const struct profile *profile,
			 const struct heat_options *options, struct heat *out)
{
	*out = (struct heat){.rows = log->rows};
	TRY(heat_layout(profile, options, out));
	for (size_t i = 0; i < log->n; i++) {
		const struct heat_entry *entry = &log->entry[i];
		const uint64_t second = entry->at / log->rows, row = entry->at % log->rows;
		const uint64_t column = (second - out->first_s) / out->column_s;

		if (second >= out->first_s && column < out->columns &&
		    heat_passes(options, entry->stack))
			profile_cell_add(&out->cells[column * log->rows + row], &entry->cell);
	}
	return NULL;
}

void heat_free(struct heat *heat)
{
	free(heat->cells);
	*heat = (struct heat){0};
}

const struct profile_cell *heat_hottest(const struct heat *heat)
{
	const struct profile_cell *best = heat->cells;

	for (size_t i = 1; i < (size_t)heat->columns * heat->rows; i++) {
		const struct profile_cell *cell = &heat->cells[i];

		if (cell->weight_ns > best->weight_ns ||
		    (cell->weight_ns == best->weight_ns && cell->samples > best->samples))
			best = cell;
	}
	return best;
}

struct load_reading {
	const struct profile *profile;
	const struct profile_filter *filter;
	struct profile_filter any; /* lets all states of the same vCPUs pass, of any thread */
	const struct load_rows *rows;
	struct load_series *series;
	struct weighting weighting;
	uint64_t ticks;
};

static uint32_t load_bucket_at(const struct load_series *series, uint64_t unix_ns)
{
	const uint64_t since = unix_ns < series->from_unix_ns ? 0 : unix_ns - series->from_unix_ns;
	const uint64_t bucket = since / series->bucket_ns;

	return bucket < series->n ? (uint32_t)bucket : series->n - 1;
}

static struct error *load_add_entry(const struct load_reading *reading, const struct tick *tick,
				    const struct tick_entry *entry, uint32_t bucket)
{
	const struct load_series *series = reading->series;
	const uint64_t times = 1 + (uint64_t)tick->more;
	const uint64_t weight =
		weighting_entry(&reading->weighting, tick, entry).sampled_ns * times;
	uint32_t row;

	TRY(reading->rows->row(reading->rows->ctx, entry, &row));
	if (row != LOAD_NO_ROW) {
		uint64_t *sum = &series->weight_ns[(size_t)bucket * series->rows + row];

		*sum = weight_sum(*sum, weight);
	}
	return NULL;
}

static struct error *load_add_tick(void *ctx, const struct tick *tick)
{
	struct load_reading *reading = ctx;
	const struct profile_filter *filter = reading->filter;
	const uint32_t at = load_bucket_at(reading->series,
					   reading->profile->info.start_unix_ns + tick->time_ns);
	struct load_bucket *bucket = &reading->series->buckets[at];
	uint64_t stretch_ns;

	if (reading->ticks++ == reading->profile->ticks_read)
		return error_new(ERR_ENDED, "more was recorded since");
	weighting_tick(&reading->weighting, tick);
	if (tick->time_ns < filter->from_ns || (filter->to_ns && tick->time_ns >= filter->to_ns))
		return NULL;
	stretch_ns = weighting_time(&reading->weighting, tick).sampled_ns;
	bucket->recorded_ns = weight_sum(bucket->recorded_ns, stretch_ns);
	for (uint32_t i = 0; i < tick->n + tick->waits; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (i < tick->n && profile_selects(&reading->any, tick, entry))
			bucket->state_ns[entry->state] =
				weight_sum(bucket->state_ns[entry->state], stretch_ns);
		if (profile_selects(filter, tick, entry))
			TRY(load_add_entry(reading, tick, entry, at));
	}
	return NULL;
}

struct error *load_series_read(const char *path, const struct profile *profile,
			       const struct profile_filter *filter, const struct load_rows *rows,
			       struct load_series *series)
{
	struct load_reading reading = {.profile = profile,
				       .filter = filter,
				       .any = *filter,
				       .rows = rows,
				       .series = series};
	const struct recording_visitor visitor = {.ctx = &reading,
						  .progress = filter->progress,
						  .stage = "drawing",
						  .tick = load_add_tick};
	struct error *err;
	bool cut;

	series->buckets = calloc(series->n, sizeof(*series->buckets));
	series->weight_ns =
		calloc((size_t)series->n * (series->rows ? series->rows : 1), sizeof(uint64_t));
	if (!series->buckets || !series->weight_ns)
		return error_no_memory();
	reading.any.states = STATES_OF_VCPUS;
	reading.any.comm = reading.any.pid = reading.any.tid = reading.any.container = NULL;
	weighting_start(&reading.weighting, filter->weight, filter->states, &profile->info);
	err = source_read(path, profile->stacks, &visitor, &cut);
	if (err && err->kind == ERR_ENDED && reading.ticks > profile->ticks_read) {
		error_free(err);
		err = NULL;
	}
	return err;
}

void load_series_free(struct load_series *series)
{
	free(series->buckets);
	free(series->weight_ns);
	*series = (struct load_series){0};
}
