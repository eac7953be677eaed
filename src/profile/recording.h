/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_H
#define UNIPROF_PROFILE_RECORDING_H

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
#include "profile/stacks.h"

/* What a vCPU did when it was sampled. */
enum vcpu_state {
	VCPU_RUNNING,  /* on a CPU */
	VCPU_RUNNABLE, /* wanted a CPU and had none (steal) */
	VCPU_BLOCKED,  /* idle, waiting for an event */
	VCPU_STATES
};

/* "running", "runnable", "blocked" */
const char *vcpu_state_text(enum vcpu_state state);

/* One vCPU in a tick. */
struct tick_entry {
	uint32_t vcpu;
	uint32_t stack; /* id in the recording's stack store */
	uint8_t state;	/* enum vcpu_state */
	uint8_t end;	/* enum unwind_end: was the stack whole? */
};

/* One look at the guest. */
struct tick {
	uint64_t time_ns;   /* since the recording's start */
	uint64_t weight_ns; /* the time that each entry stands for */
	uint64_t paused_ns; /* how long the guest stood still for it; 0: not at all */
	uint32_t n;
	const struct tick_entry *entries;
};

#define RECORDING_MAX_VCPUS 4096

/*
 * What is known when a recording starts. Kept as JSON in the file, so that
 * fields can be added; all strings may be NULL. In a struct that a reader
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
	char *image;	  /* the ELF or symbol file that goes with the guest */
	char *build_id;	  /* of that image, in hex */
	uint32_t vcpus;
	double rate_hz;		/* samples asked for, per second */
	uint64_t duration_ns;	/* asked for; 0: until stopped */
	uint64_t start_unix_ns; /* wall clock at time_ns = 0 */
	bool jitter;
};

/* What is known when it ends; a recording whose writer died has none. */
struct recording_end {
	uint64_t elapsed_ns; /* from start to end */
	uint64_t missed;     /* deadlines that passed without a sample */
	uint64_t retakes;    /* samples taken again because memory was not at hand */
	uint64_t failed;     /* samples that could not be taken */
	char *reason;	     /* "time", "interrupted", "guest ended", "guest crashed", ... */
};

/* Copies with strings of its own; nothing to free when that fails. */
struct error *recording_info_copy(const struct recording_info *from, struct recording_info *to);
struct error *recording_end_copy(const struct recording_end *from, struct recording_end *to);

/* Frees the strings of a copy. */
void recording_info_free(struct recording_info *info);
void recording_end_free(struct recording_end *end);

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
 * Appends a tick. Entries come in ascending order of vcpu, each at most once;
 * time_ns never goes back. Once a second of time_ns what is buffered is
 * written to the file: who waits longer for the next tick calls
 * recording_flush. After ERR_OUTPUT (a full disk, ...) nothing more can be
 * appended, and the file is good up to there.
 */
struct error *recording_tick(struct recording_writer *writer, const struct tick *tick);

/*
 * Appends a name for all nodes with this address and kind: "name+0x12", or
 * with offset 0 "name". What is longer than 64 KiB is cut off.
 */
struct error *recording_name(struct recording_writer *writer, uint64_t addr, uint8_t kind,
			     const char *name, uint64_t offset);

/* Writes out what is buffered, with a check behind it: a reader can have it now. */
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
	struct error *(*info)(void *ctx, const struct recording_info *info);
	struct error *(*tick)(void *ctx, const struct tick *tick);
	struct error *(*name)(void *ctx, uint64_t addr, uint8_t kind, const char *name,
			      uint64_t offset);
	struct error *(*end)(void *ctx, const struct recording_end *end);
};

/*
 * Reads a recording ("-": standard input) in bounded memory, apart from the
 * stacks. `stacks` is filled, and may have stacks already; the ids in the
 * ticks are ids in it. *cut tells whether the file stops in the middle
 * (writer died): everything before was delivered. A file that is damaged, no
 * recording, or of another major version is ERR_INPUT; what was delivered
 * before that is true. So is a file that ends before its info.
 */
struct error *recording_read(const char *path, struct stacks *stacks,
			     const struct recording_visitor *visitor, bool *cut);

#endif
