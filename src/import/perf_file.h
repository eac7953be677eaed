/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The layout of perf.data (linux/tools/perf/Documentation/perf.data-file-format.txt,
 * linux/perf_event.h): events, records in order of time, and the processes that
 * these tell of. Private to perf_data.c.
 */

#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "base/intern.h"
#include "import/importer.h"

struct perf_event {
	struct perf_event_attr attr;
	uint64_t samples;
	const char *name; /* NULL: the file does not tell */
};

/* A part of the file. */
struct perf_piece {
	const uint8_t *at;
	uint64_t len;
};

/* A record: of samples, maps, names or forks; it is as long as its header says. */
struct perf_timed {
	uint64_t time_ns;
	size_t number; /* in the order of the file */
	const uint8_t *at;
	uint32_t event; /* of samples */
};

/* A sample, as far as it matters. */
struct perf_sample {
	uint64_t ip, time_ns, period;
	uint32_t pid, tid, cpu;	 /* IDs: RECORDED_ID_UNKNOWN if they are not there */
	struct perf_piece chain; /* of 64-bit numbers */
};

struct perf_file {
	struct import *import;
	struct perf_maps *maps; /* gets the build ids */
	struct perf_event *events;
	size_t n_events; /* at least 1 */
	struct perf_timed *timed;
	size_t n_timed;
	bool cut; /* it stops in the middle */
	/* Private: */
	struct perf_piece all;
	struct row_ids event_ids; /* numbers of ids that samples carry, */
	uint32_t *id_event;	  /* and the events that these belong to */
	size_t events_room, timed_room;
	struct bytes unpacked; /* records that were compressed */
	bool inner;	       /* ... are being read */
	ZSTD_DStream *stream;
};

/* The beginning of a perf.data, of any byte order? */
bool perf_file_has_head(const uint8_t *head, size_t len);

/* Reads the file; its bytes must stay where they are. */
struct error *perf_file_read(struct perf_file *file, const uint8_t *data, size_t len);
void perf_file_free(struct perf_file *file);

/* False if the record is too short for what the event says that is in it. */
bool perf_file_sample(const struct perf_event *event, struct perf_piece record,
		      struct perf_sample *sample);

/* Numbers of the file are read where they stand, aligned or not. */
static inline uint64_t u64_at(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint32_t u32_at(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline struct perf_event_header header_at(const uint8_t *at)
{
	struct perf_event_header header;

	memcpy(&header, at, sizeof(header));
	return header;
}

/* A build id in hex, as a text of the import. */
#define BUILD_ID_BYTES 20u
static inline struct error *hex_of(struct import *import, const uint8_t *bytes, size_t len,
				   const char **out)
{
	char hex[2 * BUILD_ID_BYTES + 1];

	for (size_t i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return import_text(import, hex, 2 * len, out);
}

/* A text in a record, which ends with a zero, or with the record, as one of the import. */
static inline struct error *text_of(struct import *import, const uint8_t *at, uint64_t len,
				    const char **out)
{
	return import_text(import, (const char *)at, strnlen((const char *)at, len), out);
}

static inline bool take(struct perf_piece *piece, uint64_t len, const uint8_t **at)
{
	*at = piece->at;
	if (len > piece->len)
		return false;
	piece->at += len;
	piece->len -= len;
	return true;
}

static inline bool take_u64(struct perf_piece *piece, uint64_t *value)
{
	const uint8_t *at;
	const bool good = take(piece, 8, &at);

	*value = good ? u64_at(at) : 0;
	return good;
}

/*
 * Processes, as the records of perf.data tell them: names of threads, and which
 * file is mapped where; all texts are the import's. Each process has addresses of its own; a profile has
 * one address for one piece of code: that of the first process with the file.
 * Later ones are translated to it, and files that would lie on one another in
 * the profile are moved to stand-ins.
 */

/* The process of the kernel's maps. */
#define PERF_KERNEL UINT32_MAX

struct perf_maps;

struct error *perf_maps_new(struct import *import, struct perf_maps **out);
void perf_maps_free(struct perf_maps *maps);

/* A build id from the file's list; it holds for all maps of this path without one. */
struct error *perf_maps_build_id(struct perf_maps *maps, const char *path, const char *build_id);

struct perf_map {
	uint32_t pid;
	uint64_t start, len, offset;
	const char *path, *build_id; /* NULL: as perf_maps_build_id says */
};

struct error *perf_maps_add(struct perf_maps *maps, const struct perf_map *map);

/* `exec`: a new program, whose process has no maps yet. */
struct error *perf_maps_comm(struct perf_maps *maps, uint32_t pid, uint32_t tid, const char *name,
			     bool exec);

/* A process begins with the maps, and a thread with the name, of its parent. */
struct error *perf_maps_fork(struct perf_maps *maps, uint32_t pid, uint32_t tid, uint32_t parent,
			     uint32_t parent_tid);

/*
 * The address in the profile: itself, if nothing is mapped there. *foreign: but
 * something of another process is (FRAME_FOREIGN).
 */
struct error *perf_maps_translate(struct perf_maps *maps, uint32_t pid, uint64_t addr,
				  uint64_t *out, bool *foreign);

/* The thread's number, by its name at the moment. */
struct error *perf_maps_thread(struct perf_maps *maps, uint32_t pid, uint32_t tid,
			       uint32_t *number);
