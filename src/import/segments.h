/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_SEGMENTS_H
#define UNIPROF_IMPORT_SEGMENTS_H

/*
 * Segments: recordings of one guest, one after the other, read as if they were
 * one recording of a stretch of time.
 *
 * A *run* is what segments have in common in which the guest has the same code
 * at the same addresses: the same id, and no image that has moved. Addresses
 * of the last run stay as they are. In others, an address that has another
 * name, or none, gets a stand-in (import/import.h): a name never comes from
 * another run. Within a run a segment's names serve all: one whose writer was
 * killed has none of its own.
 */

#include <stddef.h>
#include <stdint.h>

#include "recording/recording.h"

struct segments {
	char *const *paths; /* in order of time */
	size_t n;
	uint64_t from_unix_ns, to_unix_ns; /* samples outside are left out; 0: no bound */
};

/*
 * Tells the visitor one recording, whose time 0 is the later of the first
 * segment's start and from_unix_ns. Memory grows with stacks, names and threads
 * alone. A segment that stops in the middle is no cut: time without samples is
 * told by the samples. One that is gone or damaged is left out from there on,
 * and the end's reason says so. ERR_INPUT: none can be read, or none has
 * samples in this time.
 */
struct error *segments_read(const struct segments *segments, struct stacks *stacks,
			    const struct recording_visitor *visitor);

/*
 * Writes the first segments that are of one run into one recording. *taken:
 * how many; the rest has to be written into others.
 */
struct error *segments_join(const struct segments *segments, const char *output, size_t *taken);

#endif
