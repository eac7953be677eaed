/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Ranges of addresses may overlap (a function inlined into another, one entry point inside another's
 * body), so that the range of an address is not always the nearest one below. They are cut once into
 * stretches that belong to the innermost range, or to none; ranges are added in order of their starts,
 * outer ones before those in them, by numbers that mean something to the caller.
 */

#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

#define STRETCH_NOBODY UINT32_MAX

struct stretches {
	uint64_t *edge;	 /* where a stretch starts */
	uint32_t *owner; /* whose it is */
	size_t n;
	/* The ranges that are open at some address while they are added, innermost last. */
	struct stretch_open {
		uint64_t end;
		uint32_t owner;
	} * open;
	size_t n_open;
};

/* Makes room for so many ranges: each sets two edges at most. stretches_free is due after an error, too. */
static inline struct error *stretches_new(struct stretches *all, size_t ranges)
{
	all->edge = calloc(2 * ranges + 1, sizeof(*all->edge));
	all->owner = calloc(2 * ranges + 1, sizeof(*all->owner));
	all->open = calloc(ranges + 1, sizeof(*all->open));
	return all->edge && all->owner && all->open ? NULL : error_no_memory();
}

static inline void stretches_free(struct stretches *all)
{
	free(all->edge);
	free(all->owner);
	free(all->open);
}

static inline void stretches_set(struct stretches *all, uint64_t addr, uint32_t owner)
{
	if (!all->n || all->edge[all->n - 1] != addr)
		all->edge[all->n++] = addr;
	all->owner[all->n - 1] = owner;
}

static inline void stretches_open(struct stretches *all, uint64_t start, uint64_t end,
				  uint32_t owner)
{
	stretches_set(all, start, owner);
	all->open[all->n_open++] = (struct stretch_open){end, owner};
}

/* Closes ranges that end at or before `upto`, and gives the space behind each to its outer range. */
static inline void stretches_close(struct stretches *all, uint64_t upto)
{
	while (all->n_open && all->open[all->n_open - 1].end <= upto) {
		const uint64_t end = all->open[all->n_open - 1].end;

		while (all->n_open && all->open[all->n_open - 1].end <= end)
			all->n_open--;
		stretches_set(all, end,
			      all->n_open ? all->open[all->n_open - 1].owner : STRETCH_NOBODY);
	}
}

/* Closes all: no more ranges are added. */
static inline void stretches_end(struct stretches *all)
{
	stretches_close(all, UINT64_MAX);
	free(all->open);
	all->open = NULL;
}

/* The innermost range at an address. */
static inline uint32_t stretches_find(const struct stretches *all, uint64_t addr)
{
	const uint64_t *base = all->edge;
	size_t n = all->n;

	if (!n || addr < base[0])
		return STRETCH_NOBODY;
	/* Keeps base[0] <= addr < base[n]. A branch would be guessed wrong every second time. */
	while (n > 1) {
		const size_t half = n / 2;

		base += half * (base[half] <= addr);
		n -= half;
	}
	return all->owner[base - all->edge];
}
