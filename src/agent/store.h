/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The store of the resident profiler: a directory for each guest, in it
 * recordings of a minute, named by the moment that they begin, UTC:
 *
 *   STORE/web/20261121T140000Z.uniprof
 *   STORE/web/20261121T140000Z-20261121T145900Z.uniprof    minutes that were joined
 *
 * Names alone tell which segments a stretch of time needs. A file of several
 * minutes stands for all that begin from its first to its last, whether they
 * are still there or not: killed at any moment, nothing is lost or read twice.
 */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define STORE_DEFAULT "/var/lib/uniprof"

/* The time that a segment covers at most, from the moment in its name: the sampler begins a new one each minute. */
#define STORE_SEGMENT_S 80

/* Bytes of a guest's directory's name. */
#define STORE_GUEST_MAX 192

struct store_segment {
	const char *guest; /* its directory's name */
	int64_t start_s,
		last_s; /* UTC: of the first and the last minute's begin; the same if it is one */
	uint64_t bytes; /* on the disk */
	bool joined;
	bool superseded; /* its minute is in a joined one, too */
};

struct store_segments {
	struct store_segment *at; /* by guest, then by time */
	size_t n, room;
	struct pool *guests;
};

/*
 * Lists the segments of a guest's directory (NULL: all). ERR_INPUT, where *out is to be freed, too; a guest
 * that is not there has none.
 */
struct error *store_list(const char *store, const char *guest, struct store_segments *out);
void store_segments_free(struct store_segments *segments);

/*
 * The name of a guest's directory: its own name, in which bytes that mean
 * something to file systems or terminals are "%2F"; without a name KIND-ID.
 * Never "", "." or "..", never with a slash; long names end with a number made of the whole.
 */
void store_guest(const char *kind, const char *name, const char *id, char out[STORE_GUEST_MAX]);

/* The path of a segment; the caller frees it. NULL: no memory. */
char *store_path(const char *store, const struct store_segment *segment);

/* Could this segment hold samples of the time from..to (unix ns; to 0: no bound)? */
bool store_covers(const struct store_segment *segment, uint64_t from_ns, uint64_t to_ns);

/* A stretch of time of a guest, or of a recording. */
struct store_query {
	const char *store;
	const char *guest; /* its name, KIND:NAME, or the path of a recording */
	uint64_t from_unix_ns, to_unix_ns;
	const char *as; /* the path under which it is to be read */
};

/*
 * Opens the recordings that hold the stretch ahead (base/preopen.h), and makes
 * them one that source_read (import/import.h) finds under query->as. ERR_INPUT
 * with what there is, if there is nothing.
 */
struct error *store_preopen(const struct store_query *query);

/* Does the store keep recordings of a guest of this name? */
bool store_has(const char *store, const char *guest);

/* The store as its one writer sees it. */

/* Makes the directory if need be, and locks it: ERR_OUTPUT, also if another process writes it. */
struct error *store_open(const char *path, int *store);

/* Creates the file of a segment that begins now; *fd is its descriptor. ERR_OUTPUT. */
struct error *store_begin(int store, const char *guest, int64_t now_s, int *fd);

struct store_limits {
	uint64_t bytes; /* 0: no bound */
	uint64_t age_s; /* 0: no bound */
};

/*
 * Chooses segments to remove: those that are joined elsewhere; those that are
 * too old; and, while there is too much, the oldest of the guest that has
 * most, so that no guest can take another's history. Never one that may still
 * be written. remove: [segments->n].
 */
void store_choose_old(const struct store_segments *segments, const struct store_limits *limits,
		      int64_t now_s, bool *remove);

/*
 * Chooses minutes of one guest and one hour, which is over, to be joined:
 * segments->at[*first] and those behind it, STORE_JOIN_MAX at most. False: none.
 */
bool store_choose_join(const struct store_segments *segments, int64_t now_s, size_t *first,
		       size_t *n);
#define STORE_JOIN_MAX 120

/* Removes a segment, and its directory if that is empty then. */
void store_remove(int store, const struct store_segment *segment);

/* Makes a minute stand for itself alone: it is not chosen to be joined again. */
void store_keep(int store, const struct store_segment *segment);

/* A file for minutes that are being joined: no segment until store_joined. */
struct error *store_join_begin(int store, const char *guest, int *fd);

/* Makes it the segment that stands for these, which are then removed. ERR_OUTPUT. */
struct error *store_joined(int store, const struct store_segment *first, size_t n, int fd);

/*
 * The queue of segments that are to be pushed, in the store: second names of
 * their files, so that they stay until they are delivered, whatever the store
 * removes or joins. The ending of a name tells its state:
 *
 *   STORE/%queue/20261121T140000Z.web.open      is written
 *   STORE/%queue/20261121T140000Z.web.ready     waits
 *   STORE/%queue/20261121T140000Z.web.sending   may be at the receiver already
 */

enum queue_state { QUEUE_OPEN, QUEUE_READY, QUEUE_SENDING };

/* Bytes of a name, without the state. */
#define QUEUE_NAME_MAX (STORE_GUEST_MAX + 24)

struct queued {
	char name[QUEUE_NAME_MAX];
	uint64_t bytes; /* on the disk */
};

struct queue_list {
	struct queued *at; /* oldest first */
	size_t n, room;
	uint64_t bytes; /* of all */
};

/* Queues the segment that begins now, an open file of the store; `name` is "" after an error. ERR_OUTPUT. */
struct error *queue_begin(int store, const char *guest, int64_t now_s, int segment,
			  char name[QUEUE_NAME_MAX]);

/* ERR_OUTPUT. */
struct error *queue_move(int store, const char *name, enum queue_state from, enum queue_state to);
void queue_remove(int store, const char *name, enum queue_state state);

/* Opens a segment of the queue to read it: a descriptor; -1: it is not there. */
int queue_open(int store, const char *name, enum queue_state state);

/* Lists those that are ready; the caller frees list->at. ERR_INPUT; a queue that is not there is empty. */
struct error *queue_list(int store, struct queue_list *list);

/*
 * Makes all of it ready after an end that was none of ours; in *again, how many
 * may have been delivered, and are in for a second time.
 */
struct error *queue_recover(int store, size_t *again);

/* The parts below are for the store and its queue alone. */

/* Seconds after now that a name may tell, where there is one of now already. */
#define STORE_BEGIN_TRIES 10

/* A moment as names have it, UTC; "": it is none. */
#define STORE_MOMENT 20
void store_put_moment(int64_t at_s, char text[STORE_MOMENT]);

/* Opens a directory of the store, which is no link; -1, or NULL, with errno. */
int store_open_directory(int store, const char *name);
DIR *store_read_directory(int store, const char *name);

/* Its size on the disk; false: it is no regular file. */
bool store_is_file(int directory, const char *name, uint64_t *bytes);
