/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A recording in buckets of time: what each vCPU did in each of them, for
 * pictures with a time line. Samples of the same node, vCPU and state in one
 * bucket are one row, so that long recordings become no larger than asked for:
 * where there would be more rows, buckets become twice as long.
 */

#include "base/intern.h"
#include "profile/profile.h"

/* The node of a tree that a sample ends in: by its stack, or by stack and thread. */
struct node_map {
	uint32_t *
		node; /* [n]: by stack, or by the number of the pair; NULL: it is the number itself */
	uint32_t n;
	struct ids *pairs; /* of stack and thread; NULL: by stack */
};

void node_map_free(struct node_map *map);

struct time_bucket_row {
	uint32_t bucket;
	uint32_t vcpu;
	uint8_t state; /* enum vcpu_state */
	uint32_t node; /* from the node_map */
	uint64_t samples, weight_ns;
	double squares; /* sum of the squares of the samples' weights, for profile_draws */
};

/*
 * Replaces the rows of one bucket, all that there are since its last call, by fewer, so that
 * nodes can be those of stacks, of which no tree needs to be built. It may be called
 * more than once for a bucket, and not at all for one without samples.
 */
struct time_bucket_reducer {
	void *ctx;
	struct error *(*reduce)(void *ctx, struct time_bucket_row *rows, size_t *n);
};

struct time_buckets {
	uint64_t bucket_ns; /* how long each is: a part of a second, or some seconds */
	uint64_t first_ns;  /* where the first one begins; ticks before it are left out */
	const struct time_bucket_reducer *reducer; /* NULL: none */
	uint32_t n;
	/* Sorted by bucket, vcpu, state, node; with a reducer, some may be equal in these. */
	struct time_bucket_row *rows;
	size_t n_rows;
};

/* The number of buckets at first, at most: this, */
#define TIME_BUCKETS_SHOWN 2048

/* in longer recordings so many for each second, */
#define TIME_BUCKETS_A_SECOND 64

/* but never more than this, */
#define TIME_BUCKETS_MAX 32768

/* and not so many that there are fewer ticks in each, on average. */
#define TIME_BUCKET_TICKS 3

/*
 * The length of buckets at first. They get some ticks each, or a time line would be full of holes; more than
 * a heat map has rows for tells nothing. A second is a whole number of them, so that the cells of a heat map are, too.
 */
uint64_t time_buckets_length(uint64_t last_ns, uint64_t ticks);

/*
 * Reads the profile's file once more, so that must be a file and not a pipe.
 * `out` tells where the first bucket begins, how long each is at first (0: as
 * above, from the recording's start on), and its reducer, if it has one.
 * There are more than `max_rows` rows only if one bucket has more than half of
 * that. After an error *out is to be freed, too.
 */
struct error *time_buckets_read(const char *path, const struct profile *profile,
				const struct profile_filter *filter, const struct node_map *nodes,
				size_t max_rows, struct time_buckets *out);
void time_buckets_free(struct time_buckets *buckets);

/*
 * Heat map: columns are seconds (several, where they would be more than asked
 * for), rows the offset in a second. A sample that all columns leave out is none.
 */
struct heat {
	uint32_t columns, rows;
	uint64_t first_s;	    /* the second with which the first column begins */
	uint64_t column_s;	    /* seconds of a column */
	struct profile_cell *cells; /* [columns * rows], column by column */
};

/* What a heat map is made of, collected while the profile is loaded: heat_log_sample is a listener's. */
struct heat_log;

/* `by_stack`: heat_options.passes will choose among the stacks, which takes memory for each sample. */
struct error *heat_log_new(uint32_t rows, bool by_stack, struct heat_log **out);
void heat_log_free(struct heat_log *log);
struct error *heat_log_sample(void *log, const struct tick *tick, const struct tick_entry *entry,
			      uint64_t weight_ns);

struct heat_options {
	const bool *passes; /* [n_passes]: the stack counts; NULL: all do */
	uint32_t n_passes;
	uint32_t max_columns; /* at least 1 */
};

struct error *heat_build(const struct heat_log *log, const struct profile *profile,
			 const struct heat_options *options, struct heat *out);
void heat_free(struct heat *heat);

/* The cell with the most weight; with the most samples, if none has a weight. */
const struct profile_cell *heat_hottest(const struct heat *heat);

/*
 * The load over days: buckets by the wall clock, and in each what some rows
 * (functions, processes, ...) used of the vCPUs. Memory grows with buckets and rows alone.
 */

/* In place of a row's number: the sample counts in none. */
#define LOAD_NO_ROW UINT32_MAX

struct load_bucket {
	uint64_t recorded_ns; /* the time that its ticks stand for; 0: nothing was recorded */
	uint64_t state_ns[VCPU_STATES]; /* of the vCPUs that the filter lets pass, in this state */
};

struct load_series {
	uint64_t from_unix_ns, bucket_ns;
	uint32_t n, rows;
	struct load_bucket *buckets; /* [n] */
	uint64_t *weight_ns;	     /* [n * rows], bucket by bucket */
};

/* The row that a sample counts in, below series->rows, or LOAD_NO_ROW. */
struct load_rows {
	void *ctx;
	struct error *(*row)(void *ctx, const struct tick_entry *entry, uint32_t *row);
};

/*
 * Reads once more what `profile` was loaded from with this filter, not from a pipe,
 * and up to the same tick, though more may have been written since: sums are the profile's. Its
 * from_unix_ns, bucket_ns, n and rows say what is wanted; what lies outside
 * counts in the first and the last bucket.
 */
struct error *load_series_read(const char *path, const struct profile *profile,
			       const struct profile_filter *filter, const struct load_rows *rows,
			       struct load_series *series);
void load_series_free(struct load_series *series);
