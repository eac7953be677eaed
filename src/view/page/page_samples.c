/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The samples of a page. They are packed as they come, in order of time, as differences to
 * the one before:
 *
 *	ns since the one before
 *	vCPU times 16, plus state times 4, plus 2 if squares follow, plus 1 if several were joined
 *	key less that of the one before (zigzag)
 *	samples, weight in ns
 *	squares (8 bytes): those of this and of some that follow it, of the same bucket, vCPU and state
 *
 * Where they take too much memory, those of one bucket of time with the same key, vCPU and state
 * are joined. A page needs no buckets as short as that, as the number of its rows is limited, too.
 */

#include "view/page/page.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/intern.h"
#include "base/owned.h"
#include "profile/time_buckets.h"
#include "profile/weighting.h"

#define CHUNK 65536u

/* Most bytes of a sample. */
#define SAMPLE_MAX 64u

/* Samples are joined when they take more memory than this, and than twice what was left the last time. */
#define PACKED_MOST ((size_t)24 << 20)

/* A sample that others were joined with takes so much, more or less. */
#define PACKED_JOINED 10u

struct page_chunk {
	struct page_chunk *next;
	uint32_t len;
	uint8_t data[CHUNK];
};

struct packed {
	struct page_chunk *first, *last;
	size_t chunks;
	uint64_t n;		   /* samples */
	struct page_sample before; /* the last one */
};

struct page_log {
	struct profile_filter filter;
	struct weighting weighting;
	bool started;
	struct packed packed;
	struct ids *ids; /* of stacks and threads; NULL: keys are stacks */
	size_t pairs_room;
	uint64_t last_ns, ticks;
	uint64_t joined_ns; /* length of the buckets in which samples were joined; 0: none were */
	size_t most;	    /* chunks, before samples are joined */
};

static struct error *packed_put(struct packed *packed, const struct page_sample *sample)
{
	const bool squares = sample->joined && sample->squares > 0;
	struct page_chunk *chunk = packed->last;
	struct bytes bytes;

	if (!chunk || chunk->len > CHUNK - SAMPLE_MAX) {
		chunk = malloc(sizeof(*chunk));
		if (!chunk)
			return error_no_memory();
		chunk->next = NULL;
		chunk->len = 0;
		*(packed->last ? &packed->last->next : &packed->first) = chunk;
		packed->last = chunk;
		packed->chunks++;
	}
	bytes = (struct bytes){.data = chunk->data, .len = chunk->len, .cap = CHUNK};
	put_varint(&bytes, sample->time_ns - packed->before.time_ns);
	put_varint(&bytes, (uint64_t)sample->vcpu << 4 | (uint64_t)sample->state << 2 |
				   (uint64_t)squares << 1 | sample->joined);
	put_varint(&bytes, zigzag((uint64_t)sample->key - packed->before.key));
	put_varint(&bytes, sample->samples);
	put_varint(&bytes, sample->weight_ns);
	if (squares)
		put_bytes(&bytes, &sample->squares, sizeof(sample->squares));
	chunk->len = (uint32_t)bytes.len;
	packed->before = *sample;
	packed->n++;
	return NULL;
}

static struct page_chunk *drop_chunk(struct page_chunk *chunk)
{
	struct page_chunk *next = chunk->next;

	free(chunk);
	return next;
}

static struct page_sample_reader start_at(const struct page_chunk *chunk)
{
	struct page_sample_reader reader = {.chunk = chunk};

	if (chunk)
		reader.in = (struct cursor){chunk->data, chunk->data + chunk->len};
	return reader;
}

struct page_sample_reader page_samples_start(const struct page_samples *samples)
{
	return start_at(samples->log->packed.first);
}

bool page_samples_next(struct page_sample_reader *reader)
{
	struct page_sample *sample = &reader->sample;
	uint64_t since, where, key;

	if (reader->in.at == reader->in.end && reader->chunk && reader->chunk->next) {
		reader->chunk = reader->chunk->next;
		reader->in = (struct cursor){reader->chunk->data,
					     reader->chunk->data + reader->chunk->len};
	}
	if (!get_varint(&reader->in, &since) || !get_varint(&reader->in, &where) ||
	    !get_varint(&reader->in, &key) || !get_varint(&reader->in, &sample->samples) ||
	    !get_varint(&reader->in, &sample->weight_ns))
		return false;
	sample->time_ns += since;
	sample->vcpu = (uint16_t)(where >> 4);
	sample->state = where >> 2 & 3;
	sample->joined = where & 1;
	sample->key += (uint32_t)unzigzag(key);
	sample->squares = 0;
	if (where & 2) {
		memcpy(&sample->squares, reader->in.at, sizeof(sample->squares));
		reader->in.at += sizeof(sample->squares);
	}
	return true;
}

/* Samples of one bucket with the same node, vCPU and state. */
struct sample_row {
	struct profile_cell cell;
	uint32_t node; /* or key */
	uint16_t vcpu;
	uint8_t state;
};

/* The rows of a bucket; found by open addressing. */
struct bucket {
	struct sample_row *row;
	uint32_t *slots; /* numbers of rows + 1; 0: free */
	size_t n, room, slots_room;
	uint32_t n_slots; /* a power of two, at most half of them used */
	uint64_t number;
};

static uint32_t hash_row(const struct sample_row *row)
{
	const uint64_t key = (uint64_t)row->node << 24 | (uint64_t)row->vcpu << 8 | row->state;

	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static uint32_t *find_row(const struct bucket *bucket, const struct sample_row *row)
{
	const uint32_t mask = bucket->n_slots - 1;

	for (uint32_t at = hash_row(row) & mask;; at = (at + 1) & mask) {
		const uint32_t number = bucket->slots[at];
		const struct sample_row *other = number ? &bucket->row[number - 1] : NULL;

		if (!other || (other->node == row->node && other->vcpu == row->vcpu &&
			       other->state == row->state))
			return &bucket->slots[at];
	}
}

/* Makes room for as many rows as there are slots; all rows are found again. */
static struct error *index_rows(struct bucket *bucket, uint32_t n_slots)
{
	TRY(ARRAY_RESERVE(&bucket->slots, &bucket->slots_room, n_slots));
	bucket->n_slots = n_slots;
	memset(bucket->slots, 0, n_slots * sizeof(*bucket->slots));
	for (size_t i = 0; i < bucket->n; i++)
		*find_row(bucket, &bucket->row[i]) = (uint32_t)i + 1;
	return NULL;
}

static struct error *bucket_start(struct bucket *bucket, uint64_t number)
{
	bucket->number = number;
	bucket->n = 0;
	return index_rows(bucket, 1024);
}

static struct error *bucket_add(struct bucket *bucket, const struct page_sample *sample,
				uint32_t node)
{
	const struct profile_cell cell = page_sample_cell(sample);
	const struct sample_row new = {.node = node, .vcpu = sample->vcpu, .state = sample->state};
	uint32_t *slot;

	if (2 * bucket->n >= bucket->n_slots)
		TRY(index_rows(bucket, 2 * bucket->n_slots));
	TRY(ARRAY_RESERVE(&bucket->row, &bucket->room, bucket->n + 1));
	slot = find_row(bucket, &new);
	if (!*slot) {
		bucket->row[bucket->n++] = new;
		*slot = (uint32_t)bucket->n;
	}
	profile_cell_add(&bucket->row[*slot - 1].cell, &cell);
	return NULL;
}

static void bucket_free(struct bucket *bucket)
{
	free(bucket->row);
	free(bucket->slots);
}

static uint32_t node_at(const struct page_places *places, uint32_t key)
{
	const uint32_t at = places->pairs ? places->pairs[key].stack : key;

	return at < places->n ? places->node[at] : 0;
}

/* Places in the table of estimate_length; collisions do no harm. */
#define ESTIMATE_SLOTS (1u << 22)

/*
 * Makes buckets as long as is needed for no more rows than `most`, more or less, or for all in one: a row is saved in those
 * that hold both its sample and the one before it with the same node, vCPU and state.
 */
static struct error *estimate_length(const struct packed *packed, const struct page_places *places,
				     uint64_t most, uint64_t *length)
{
	struct page_sample_reader reader = start_at(packed->first);
	uint64_t rows = 0, saved[64] = {0}; /* by the power of two */
	FREED uint32_t *last = NULL;
	unsigned power = 0;

	if (packed->n <= most)
		return NULL;
	TRY(ARRAY_NEW(&last, ESTIMATE_SLOTS));
	while (page_samples_next(&reader)) {
		const struct sample_row row = {.node = places ? node_at(places, reader.sample.key)
							      : reader.sample.key,
					       .vcpu = reader.sample.vcpu,
					       .state = reader.sample.state};
		const uint32_t bucket = (uint32_t)(reader.sample.time_ns / *length) + 1;
		uint32_t *slot = &last[hash_row(&row) & (ESTIMATE_SLOTS - 1)];
		const uint32_t differ = (bucket - 1) ^ (*slot - 1);

		if (*slot)
			saved[differ ? 32 - __builtin_clz(differ) : 0]++;
		rows++;
		*slot = bucket;
	}
	for (rows -= saved[0]; rows > most && *length <= packed->before.time_ns; *length *= 2)
		rows -= saved[++power];
	return NULL;
}

/* Squares are asked for by bucket, vCPU and state alone: rows that follow one another have them once. */
static void gather_squares(struct bucket *bucket)
{
	struct sample_row *first = bucket->row;

	for (size_t i = 1; i < bucket->n; i++) {
		struct sample_row *row = &bucket->row[i];

		if (row->vcpu != first->vcpu || row->state != first->state) {
			first = row;
			continue;
		}
		first->cell.squares += row->cell.squares;
		row->cell.squares = 0;
	}
}

static struct error *pack_bucket(struct bucket *bucket, uint64_t length, struct packed *packed)
{
	gather_squares(bucket);
	for (size_t i = 0; i < bucket->n; i++) {
		const struct sample_row *row = &bucket->row[i];
		const struct page_sample sample = {.time_ns = bucket->number * length,
						   .samples = row->cell.samples,
						   .weight_ns = row->cell.weight_ns,
						   .squares = row->cell.squares,
						   .key = row->node,
						   .vcpu = row->vcpu,
						   .state = row->state,
						   .joined = true};

		TRY(packed_put(packed, &sample));
	}
	return NULL;
}

static void packed_free(struct packed *packed)
{
	while (packed->first)
		packed->first = drop_chunk(packed->first);
	*packed = (struct packed){0};
}

/* A length that is no shorter, and that the buckets of samples which were joined fill. */
static uint64_t whole_length(const struct page_log *log, uint64_t length)
{
	uint64_t joined = log->joined_ns;

	while (joined && joined < length)
		joined *= 2;
	return joined ?: length;
}

/* Joins samples in buckets, so that they take half of the memory that they may, if that can be. */
static struct error *join(struct page_log *log)
{
	struct packed old = log->packed, new = {0};
	struct bucket bucket = {0};
	struct page_sample_reader reader = start_at(old.first);
	uint64_t length = whole_length(log, time_buckets_length(log->last_ns, log->ticks));
	struct error *err;

	err = estimate_length(&old, NULL, PACKED_MOST / 2 / PACKED_JOINED, &length);
	if (!err)
		err = bucket_start(&bucket, 0);
	while (!err && page_samples_next(&reader)) {
		const uint64_t number = reader.sample.time_ns / length;

		while (old.first != reader.chunk)
			old.first = drop_chunk(old.first);
		if (number != bucket.number) {
			err = pack_bucket(&bucket, length, &new);
			if (!err)
				err = bucket_start(&bucket, number);
		}
		if (!err)
			err = bucket_add(&bucket, &reader.sample, reader.sample.key);
	}
	if (!err)
		err = pack_bucket(&bucket, length, &new);
	bucket_free(&bucket);
	packed_free(&old);
	log->packed = new;
	log->joined_ns = length;
	if (2 * new.chunks > log->most)
		log->most = 2 * new.chunks;
	return err;
}

/* The number of the stack, or of stack and thread. */
static struct error *key_of(struct page_samples *samples, const struct tick_entry *entry,
			    uint32_t *key)
{
	struct page_log *log = samples->log;
	bool added;

	*key = entry->stack;
	if (!log->ids)
		return NULL;
	TRY(ids_get(log->ids, entry->stack, entry->thread, key, &added));
	if (!added)
		return NULL;
	TRY(ARRAY_RESERVE(&samples->pairs, &log->pairs_room, *key + (size_t)1));
	samples->pairs[samples->n_pairs++] = (struct page_pair){entry->stack, entry->thread};
	return NULL;
}

static struct error *add_entry(struct page_samples *samples, const struct tick *tick,
			       const struct tick_entry *entry)
{
	struct page_log *log = samples->log;
	struct page_sample sample = {
		.time_ns = tick->time_ns,
		.samples = 1 + (uint64_t)tick->more,
		.weight_ns = weighting_entry(&log->weighting, tick, entry).sampled_ns,
		.vcpu = (uint16_t)entry->vcpu,
		.state = entry->state};

	TRY(key_of(samples, entry, &sample.key));
	samples->weighted |= sample.weight_ns > 0;
	return packed_put(&log->packed, &sample);
}

static struct error *add_tick(void *ctx, const struct recording_info *info, const struct tick *tick)
{
	struct page_samples *samples = ctx;
	struct page_log *log = samples->log;

	if (!log->started) {
		weighting_start(&log->weighting, log->filter.weight, log->filter.states, info);
		log->started = true;
	}
	weighting_tick(&log->weighting, tick);
	log->last_ns = tick->time_ns;
	log->ticks += 1 + (uint64_t)tick->more;
	for (uint32_t i = 0; i < tick->n; i++)
		if (profile_selects(&log->filter, tick, &tick->entries[i]))
			TRY(add_entry(samples, tick, &tick->entries[i]));
	return log->packed.chunks > log->most ? join(log) : NULL;
}

/* Joins those that came since it was done last: what is left then takes less memory than a page. */
static struct error *end_samples(void *ctx)
{
	struct page_samples *samples = ctx;

	return samples->log->joined_ns ? join(samples->log) : NULL;
}

struct error *page_samples_new(const struct profile_filter *filter, struct page_samples **out)
{
	FREED struct page_samples *samples = calloc(1, sizeof(*samples));
	FREED struct page_log *log = calloc(1, sizeof(*log));

	if (!samples || !log)
		return error_no_memory();
	if (filter->divide)
		TRY(ids_new(&log->ids));
	log->filter = *filter;
	log->most = PACKED_MOST / CHUNK;
	samples->log = log;
	samples->listener =
		(struct profile_listener){.ctx = samples, .tick = add_tick, .end = end_samples};
	*out = samples;
	samples = NULL;
	log = NULL;
	return NULL;
}

void page_samples_drop(struct page_samples *samples)
{
	packed_free(&samples->log->packed);
}

void page_samples_free(struct page_samples *samples)
{
	if (!samples)
		return;
	page_samples_drop(samples);
	ids_free(samples->log->ids);
	free(samples->log);
	free(samples->pairs);
	free(samples);
}

/* Rows on their way into a page. */
struct row_writer {
	struct page_rows *out;
	uint64_t bucket, rows;
};

/* Orders numbers of rows: the sort needs room for as many, and rows are eight times as large. */
static int by_place(const void *left, const void *right, void *rows)
{
	const struct sample_row *a = (const struct sample_row *)rows + *(const uint32_t *)left;
	const struct sample_row *b = (const struct sample_row *)rows + *(const uint32_t *)right;
	const int order = COMPARE(a->vcpu, b->vcpu) ?: COMPARE(a->state, b->state);

	return order ?: COMPARE(a->node, b->node);
}

/* Writes the rows of one vCPU and state, by their numbers. */
static void put_group(const struct sample_row *rows, const uint32_t *order, size_t n,
		      uint64_t since, struct bytes *bytes)
{
	double squares = 0;
	uint32_t node = 0;
	uint64_t word;

	for (size_t i = 0; i < n; i++)
		squares += rows[order[i]].cell.squares;
	put_varint(bytes, since);
	put_varint(bytes, rows[*order].vcpu);
	put_varint(bytes, rows[*order].state);
	memcpy(&word, &squares, sizeof(word));
	word = htole64(word);
	put_bytes(bytes, &word, sizeof(word));
	put_varint(bytes, n);
	for (size_t i = 0; i < n; i++) {
		const struct sample_row *row = &rows[order[i]];

		put_varint(bytes, row->node - node);
		node = row->node;
		put_varint(bytes, row->cell.samples);
		put_varint(bytes, row->cell.weight_ns);
	}
}

static struct error *put_bucket(struct bucket *bucket, struct row_writer *writer)
{
	const struct sample_row *rows = bucket->row;
	struct page_rows *out = writer->out;
	struct error *err = bytes_reserve(&out->written, VARINT_MAX * 8 * bucket->n);
	uint32_t *order = bucket->slots; /* nothing is searched for in this bucket again */
	size_t end;

	if (err)
		return err;
	for (uint32_t i = 0; i < bucket->n; i++)
		order[i] = i;
	qsort_r(order, bucket->n, sizeof(*order), by_place, bucket->row);
	for (size_t i = 0; i < bucket->n; i = end) {
		const struct sample_row *first = &rows[order[i]];

		for (end = i + 1; end < bucket->n && rows[order[end]].vcpu == first->vcpu &&
				  rows[order[end]].state == first->state;)
			end++;
		put_group(rows, order + i, end - i, bucket->number - writer->bucket, &out->written);
		writer->bucket = bucket->number;
		out->groups++;
	}
	writer->rows += bucket->n;
	return NULL;
}

/* Writes all rows, with the length of buckets that `out` has; *n: how many. */
static struct error *put_rows(const struct page_samples *samples, const struct page_places *places,
			      struct page_rows *out, uint64_t *n)
{
	struct page_sample_reader reader = page_samples_start(samples);
	struct row_writer writer = {.out = out};
	ENDED_BY(bucket_free) struct bucket bucket = {0};

	TRY(bucket_start(&bucket, 0));
	while (page_samples_next(&reader)) {
		const uint64_t number = reader.sample.time_ns / out->bucket_ns;

		if (number != bucket.number) {
			TRY(put_bucket(&bucket, &writer));
			TRY(bucket_start(&bucket, number));
		}
		TRY(bucket_add(&bucket, &reader.sample, node_at(places, reader.sample.key)));
	}
	TRY(put_bucket(&bucket, &writer));
	*n = writer.rows;
	return NULL;
}

struct error *page_samples_rows(const struct page_samples *samples, const struct profile *profile,
				const struct page_places *places, uint64_t max_rows,
				struct page_rows *out)
{
	const struct page_log *log = samples->log;
	uint64_t rows;

	*out = (struct page_rows){
		.bucket_ns =
			whole_length(log, time_buckets_length(profile->last_ns, profile->ticks))};
	TRY(estimate_length(&log->packed, places, max_rows, &out->bucket_ns));
	for (;;) {
		TRY(put_rows(samples, places, out, &rows));
		if (rows <= max_rows || profile->last_ns < out->bucket_ns)
			return NULL;
		out->bucket_ns *= 2;
		out->groups = 0;
		out->written.len = 0;
	}
}
