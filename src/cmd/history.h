/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The load of a guest over days: what `history` collects, and what it is shown as. */

#include "cmd/shared/load.h"
#include "profile/time_buckets.h"
#include "symbol/names/display_name.h"
#include "view/tty_writer.h"

struct history_args {
	struct load_options load;
	struct group_by keys;	/* one */
	uint64_t rows, step_ns; /* 0: not given */
	bool all;		/* no stretch was given: all that there is of some days */
	bool json, html, full_names;
	const char *title;
	enum color_mode color;
};

struct history {
	const struct history_args *args;
	struct loaded loaded;
	struct grouped_tree grouped; /* flat: of its rows, the first `n` are shown */
	struct short_names *names;   /* NULL: full names */
	uint32_t n;
	int64_t from_s, to_s;	   /* what is shown; buckets may begin earlier and end later */
	struct load_series series; /* its last row has all that have none of their own */
	uint32_t *row_of;	   /* 1 + the row of a stack, vCPU or thread; 0: not known yet */
	bool waits;		   /* the vCPUs that waited for a CPU are shown besides */
};

/* vCPUs that a row kept busy in a bucket, while that was recorded. */
double history_load(const struct history *history, uint32_t bucket, uint32_t row);

/* ... that wanted a CPU and had none. */
double history_waiting(const struct history *history, uint32_t bucket);

/* ... that all rows kept busy. */
double history_busy(const struct history *history, uint32_t bucket);

/* Sums of all buckets. */
uint64_t history_recorded_ns(const struct history *history);
uint64_t history_row_ns(const struct history *history, uint32_t row);
uint64_t history_state_ns(const struct history *history, unsigned state);

/* The row's name as it is shown; *len are its bytes. */
const char *history_name(const struct history *history, uint32_t row, size_t *len);

void history_put_text(const struct history *history, const struct tty_writer *writer);
