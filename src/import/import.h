/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Profiles of other tools (importer.h), told to a visitor as recordings are.
 * Code of which no address is known, or that shares its address with other code
 * of the profile, gets a stand-in: an address that no guest has. Samples that
 * have no time are at the start, and info->timeless says so.
 */

#include <stdio.h>

#include "recording/recording.h"

/* Addresses from here on are stand-ins; no processor has them. */
#define IMPORT_ADDR UINT64_C(0x4e00000000000000)

static inline bool import_is_stand_in(uint64_t addr)
{
	return addr >> 56 == IMPORT_ADDR >> 56;
}

/*
 * Reads `path` ("-": standard input), whatever it is, as its contents tell,
 * compressed by gzip or not. For a recording as recording_read; other profiles
 * are held in memory until their end, less their repetitions: about 40 bytes a
 * sample. Errors in them are ERR_INPUT; in text they name the line. A list of
 * segments (below) is read as the recording that they make.
 */
struct error *source_read(const char *path, struct stacks *stacks,
			  const struct recording_visitor *visitor, bool *cut);

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

/*
 * Writes a list of segments, which source_read reads. Every path on it must
 * have been opened ahead (base/preopen.h) by the process that reads it: a list
 * from elsewhere leads to no file.
 */
struct error *source_list(const struct segments *segments, FILE *out);

/* Did the info of a profile come from another tool's file? */
bool import_is_target(const char *target);

/*
 * Several recordings as one. Above the stacks of each guest stands a frame with
 * its name (and its id, where two have the same name); its vCPUs are numbered
 * behind those of the guests before it. Times are from the start of the
 * recording that began first, by the wall clock.
 *
 * Guests have different code at the same addresses: in the result they all have
 * stand-ins (IMPORT_ADDR), with the names and places in the source that
 * the recordings carry, but without the files these came from.
 *
 * Reads the recordings, each of them twice, and writes `output` ("-": standard
 * output). Holds some 32 bytes in memory for each entry of a tick. If one of
 * them stops in the middle, so does the result. ERR_INPUT, ERR_OUTPUT.
 */
struct error *merge_recordings(char *const *paths, size_t n, const char *output);
