/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The recording: an append-only file, laid out in docs/recording.md.
 *
 * The writer appends; it never seeks, so a pipe will do. The reader gets
 * everything up to the last whole tick, at whatever byte the file ends, and
 * calls a visitor; it checks every number against what the file can hold.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/progress.h"
#include "base/sample_types.h"
#include "recording/stacks.h"

struct pool;

/*
 * States of samples: those of vCPUs (enum vcpu_state), and behind them those of
 * the guest's threads that do not run.
 */
enum {
	WAIT_QUEUED = VCPU_STATES, /* wanted a vCPU and had none */
	WAIT_SLEEPING,
	WAIT_DISK, /* sleeps, and no signal wakes it */
	WAIT_STOPPED,
	SAMPLE_STATES /* number of values */
};

/* Sets of states: bit n is state n. */
#define STATES_OF_VCPUS ((1u << VCPU_STATES) - 1)
#define STATES_OF_WAITS ((1u << SAMPLE_STATES) - 1 - STATES_OF_VCPUS)

/* "running", "runnable", "blocked"; "queued", "sleeping", "disk", "stopped" */
const char *sample_state_text(unsigned state);

/* In place of a vCPU's number: a thread that does not run. */
#define NO_VCPU 0xffffu

/* Threads that do not run in one tick, at most. */
#define TICK_WAITS_MAX 4096u

/* One vCPU in a tick, or one thread that does not run. */
struct tick_entry {
	uint32_t vcpu;	/* NO_VCPU: a thread that does not run */
	uint32_t stack; /* id in the recording's stack store */
	uint8_t state;	/* of a sample, see above */
	uint8_t end;	/* enum unwind_end: was the stack whole? */
	/* CPU time used since its last entry that ran; whole microseconds are kept. */
	uint64_t ran_ns;
	uint32_t thread;    /* number of the thread that it ran, or that it is; 0: not known */
	uint64_t weight_ns; /* of a thread that does not run: the time that it stands for; else 0 */
};

/* Threads of one recording, at most; bytes of their names, at most. */
#define RECORDED_THREADS_MAX	 (1u << 18)
#define RECORDED_THREAD_NAME_MAX 255

/* A pid or tid that is not known: in imported profiles, never in a recording. */
#define RECORDED_ID_UNKNOWN UINT32_MAX

/* A thread of the system in the guest, as it was called at the time: one that changes its name is another. */
struct recorded_thread {
	uint32_t pid, tid;
	uint64_t start_ns; /* since the guest's boot: tells it from others that had the same tid */
	bool kernel;	   /* belongs to the system itself */
	bool idle;	   /* what a CPU without work runs */
	const char *name;  /* any bytes: sanitize it before it is printed */
	const char *process;   /* the name of its process */
	const char *container; /* path of its control group; NULL: not known */
};

/* Bytes of such a path, at most. */
#define RECORDED_CONTAINER_MAX 511

/* How people call a container, and the most bytes of that with a NUL. Any bytes: sanitize them. */
#define CONTAINER_NAME_ROOM (RECORDED_CONTAINER_MAX + 1)

/* Digits of a container's own id, with a NUL. */
#define CONTAINER_ID_ROOM 65

/* The id of the innermost container that the path has, as its runtime tells it; false: it has none. */
bool recorded_container_id(const char *path, char id[CONTAINER_ID_ROOM]);

/* The path without slices, from the first container's own part on, which is called "docker:0123456789ab". */
void recorded_container_name(const char *path, char name[CONTAINER_NAME_ROOM]);

/* Samples of all vCPUs that belong to one deadline. */
struct tick {
	uint64_t time_ns;   /* since the recording's start */
	uint64_t weight_ns; /* the time that each vCPU's entry stands for */
	uint64_t paused_ns; /* how long the guest stood still for it; 0: not at all */
	uint32_t n;	    /* vCPUs */
	uint32_t waits;	    /* threads that do not run, TICK_WAITS_MAX at most: behind the vCPUs */
	const struct tick_entry *entries; /* [n + waits] */
	/* Set by readers of several recordings: the period of the one that it is of; 0: there is but one. */
	uint64_t period_ns;
	/* Set by readers: entries' threads, number 1 first; good for this call, their names until the reading ends. */
	const struct recorded_thread *threads;
	/*
	 * Number of further samples of the same stack, at unknown times: in
	 * imported profiles (import/import.h), never in a recording.
	 */
	uint64_t more;
};

#define RECORDING_MAX_VCPUS 4096

/*
 * A file and where in the guest its code was (symbol/images/images.h); all addresses
 * are the guest's. Without a path: a build id that was come across in the
 * guest; `start` and `end` are then those of its note, and slide is 0.
 */
struct recorded_image {
	char *path;	/* NULL: none */
	char *build_id; /* in hex; NULL: none */
	uint64_t start, end;
	uint64_t slide; /* guest's addresses minus the file's, modulo 2^64 */
	bool checked;	/* compared with the guest's memory */
	/* `slide` is less the offset in the file, not its address: imported (import/import.h), never recorded. */
	bool by_offset;
};

struct recorded_images {
	struct recorded_image
		*at; /* NULL: no information on images, not even that there are none */
	size_t n;
};

/* Is another file, by its build id, at the address of a file that a guest's programs had mapped? */
bool recorded_image_replaced(const struct recorded_image *before,
			     const struct recorded_image *after);

/*
 * Metadata that is known when a recording starts. Kept as JSON in the file, so
 * that fields can be added; all strings may be NULL. In a struct that a reader
 * filled, the strings belong to the reader.
 */
struct recording_info {
	char *tool;	  /* "uniprof 0.1" */
	char *target;	  /* "xen" */
	char *guest_name; /* "web" */
	char *guest_id;	  /* "7": the domid, a pid, ... */
	char *guest_type; /* "pv", "pvh", "hvm", ... */
	char *host;	  /* "Xen 4.17, libxencall" */
	char *arch;	  /* name of struct arch */
	char *unwind;	  /* "fp" */
	char *image;	  /* the first of the files that go with the guest */
	char *build_id;	  /* of that image, in hex */
	uint32_t vcpus;
	double rate_hz;	       /* samples asked for, per second */
	double wanted_rate_hz; /* ... before they were lowered to keep within max_cpu; 0: they were not */
	double max_cpu;	       /* share of a CPU that the agent may take for all guests */
	uint64_t duration_ns;	/* asked for; 0: until stopped */
	uint64_t start_unix_ns; /* wall clock at time_ns = 0 */
	bool jitter;
	char *scheduler; /* of the hypervisor: "credit2"; only with rate_limit_us */
	/* How long a vCPU keeps a CPU that it has just got, unless it yields, µs; 0: not known. */
	uint32_t rate_limit_us;
	char *weight_unit; /* unit of imported weights other than ns: "samples", "cycles" */
	struct recorded_images images; /* those that had been found */
	bool timeless;		       /* samples have no times: imported, never recorded */
};

/* Metadata that is known when it ends; a recording whose writer died has none. */
struct recording_end {
	uint64_t elapsed_ns; /* from start to end */
	uint64_t missed;     /* deadlines that passed without a sample */
	uint64_t retakes;    /* samples taken again because memory was not at hand */
	uint64_t failed;     /* samples that could not be taken */
	uint64_t
		given_up; /* stacks that were not or not wholly read, to hold the guest no longer */
	/* Segments that could not be read whole: of a list of them (import/import.h), never recorded. */
	uint64_t unread;
	uint64_t waiting;  /* samples of threads that do not run */
	uint64_t unproven; /* threads that ran while they were read as waiting ones: not sampled */
	char *lacked;	   /* "real-time priority", "locked memory", or both; NULL: neither */
	double max_overhead; /* bound on the share of time that the guest was paused; 0: none */
	char *reason;	     /* "time", "interrupted", "guest ended", "guest crashed", ... */
	struct recorded_images images; /* if said, they replace those of the start */
};

/* Copies with strings of its own; nothing to free when that fails. */
struct error *recording_info_copy(const struct recording_info *from, struct recording_info *to);
struct error *recording_end_copy(const struct recording_end *from, struct recording_end *to);
struct error *recorded_thread_copy(const struct recorded_thread *from, struct recorded_thread *to);

/* Frees the strings of a copy. */
void recording_info_free(struct recording_info *info);
void recording_end_free(struct recording_end *end);
void recorded_thread_free(struct recorded_thread *thread);

/* Replaces the thread's texts by the pool's. */
struct error *recorded_thread_intern(struct pool *pool, struct recorded_thread *thread);

/* The period of its ticks, ns, at least 1; 1: not known. */
uint64_t recording_period_ns(const struct recording_info *info);

/* For recordings that are read as one: takes the next one's, without a copy; but of rates that were lowered the lowest. */
void recording_info_follow(struct recording_info *info, const struct recording_info *next);

struct recording_writer;

/*
 * Creates `path` ("-": standard output) and writes the head. The stack store
 * is the caller's and must outlive the writer, which appends each node to the
 * file before the first tick that uses it. ERR_OUTPUT for all that is about
 * the file; to hear of a pipe that nobody reads, ignore SIGPIPE.
 */
struct error *recording_create(const char *path, const struct recording_info *info,
			       const struct stacks *stacks, struct recording_writer **out);

/*
 * Do these bytes begin a recording? The writer writes the head by itself: of
 * what it writes, that alone begins so.
 */
bool recording_begins(const void *data, size_t len);

/*
 * Compresses all that is appended from now on, which then is not written once a
 * second any more: for recordings of what is known already. So that it packs well,
 * moments are told to a 64th of a period, CPU time to 100 us, pauses to 1 us:
 * sums stay, as a remainder is added to what comes next.
 */
void recording_pack(struct recording_writer *writer, uint64_t period_ns);

/*
 * Appends a tick. Entries of vCPUs come in ascending order, each at most once;
 * time_ns never goes back. Once a second of time_ns the buffer is written to
 * the file: a caller that waits longer for the next tick calls recording_flush.
 * After ERR_OUTPUT (a full disk, ...) nothing more can be appended, and the
 * file is good up to there.
 */
struct error *recording_tick(struct recording_writer *writer, const struct tick *tick);

/*
 * Appends a thread; the first one is number 1. Ticks may tell of it from then
 * on. Names are cut off at RECORDED_THREAD_NAME_MAX bytes.
 */
struct error *recording_thread(struct recording_writer *writer,
			       const struct recorded_thread *thread);

/* How often a vCPU has left the guest: by the stack of the place, if code caused that, below the reason. */
struct recorded_exits {
	uint32_t vcpu;
	uint32_t stack; /* id in the recording's stack store; never the root */
	uint64_t count;
};

struct error *recording_exits(struct recording_writer *writer, const struct recorded_exits *exits);

/*
 * Appends a name for all nodes with this address and kind: "name+0x12", or with
 * offset 0 "name". Names are cut off at 64 KiB.
 */
struct error *recording_name(struct recording_writer *writer, uint64_t addr, uint8_t kind,
			     const char *name, uint64_t offset);

/*
 * Appends the source locations of all nodes with this address and kind: inlined
 * functions, and last the one that recording_name names, without its name;
 * SOURCE_DEPTH at most. Each text is written once per pointer: texts must stay
 * valid as long as locations are appended.
 */
struct error *recording_locations(struct recording_writer *writer, uint64_t addr, uint8_t kind,
				  const struct source_frame *frames, size_t n);

/* Writes out the buffer, with a check behind it: a reader can have it now. */
struct error *recording_flush(struct recording_writer *writer);

/* Appends the end, flushes, closes and frees; `end` may be NULL. Errors of closing are reported. */
struct error *recording_close(struct recording_writer *writer, const struct recording_end *end);

/* Closes and frees without writing anything more. */
void recording_abandon(struct recording_writer *writer);

/*
 * Called while reading, in the order of the file; a NULL function skips. An
 * error ends the reading and is passed on.
 */
struct recording_visitor {
	void *ctx;
	struct progress_sink *progress; /* told how far the file has been read; may be NULL */
	const char *stage;		/* ... and its name; NULL: "reading" */
	struct error *(*info)(void *ctx, const struct recording_info *info);
	struct error *(*tick)(void *ctx, const struct tick *tick);
	/* Numbers come in their order, 1 first; the strings are good until the reading ends. */
	struct error *(*thread)(void *ctx, uint32_t number, const struct recorded_thread *thread);
	struct error *(*name)(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			      uint64_t offset);
	struct error *(*exits)(void *ctx, const struct recorded_exits *exits);
	/* The strings are good for this call; n is never 0. */
	struct error *(*locations)(void *ctx, uint64_t addr, uint8_t kind,
				   const struct source_frame *frames, size_t n);
	struct error *(*end)(void *ctx, const struct recording_end *end);
};

/* So many bytes of `all` (0: not known) have been read. */
static inline void recording_progress(const struct recording_visitor *visitor, uint64_t done,
				      uint64_t all)
{
	progress_at(visitor->progress, visitor->stage ? visitor->stage : "reading", done, all);
}

/*
 * Reads a recording ("-": standard input) in bounded memory, apart from the
 * stacks. `stacks` is filled, and may have stacks already; the ids in the
 * ticks are ids in it; NULL: they do not matter. *cut tells whether the file stops in the middle
 * (writer died): everything before was delivered. A file that is damaged, no
 * recording, or of another major version is ERR_INPUT; what was delivered
 * before that is true. So is a file that ends before its info.
 */
struct error *recording_read(const char *path, struct stacks *stacks,
			     const struct recording_visitor *visitor, bool *cut);
