/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* The parts of the Firefox Profiler's format: its tables (firefox.c), and its threads (firefox_tracks.c). */

#include "base/intern.h"
#include "format/tables.h"

/* The name of markers, and of what says how they are shown. */
#define FIREFOX_PAUSE "pause"

/* Texts, each once, and their numbers. */
struct firefox_texts {
	struct ids *ids;
	const char **at;
	size_t room;
};

struct firefox {
	const struct format_job *job;
	struct location_table *table;
	struct firefox_texts strings, files; /* files: those of sources, which are strings, too */
	uint32_t *image_of; /* [functions]: of its last entry that is in one; or LOCATION_NONE */
	uint8_t *
		categories; /* [2 functions]: as the guest's and as the kernel's; 0: not known yet */
	uint32_t *stack_of; /* [stacks_count]: the entry of the stack table for a whole stack */
	uint32_t n_stacks;
	bool user; /* there are programs beside a kernel, or alone */
	struct samples *samples;
	const char *guest;
	uint32_t pid, pause_name;
	uint32_t shortest_pause; /* that has a marker, ns */
	FILE *out;
};

/* Decides which pauses have markers; needs the samples. */
struct error *firefox_choose_pauses(struct firefox *f);

/* An element of "threads"; a track without samples will do. */
struct error *firefox_put_track(const struct firefox *f, const struct track *track);
