/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Shared by `record` and `run`: their options, and recording an open target into a file. */

#include "cmd/cmd.h"
#include "cmd/shared/image_args.h"
#include "capture/sampler.h"
#include "target/target.h"

struct session_options {
	struct sampler_options sampler;
	const char *output;	 /* recording; NULL: named after the guest */
	struct image_args files; /* of -s; none: the guest's own image, if known */
	const char *snapshot;	 /* replay file to write beside; NULL: none */
	const char *via;	 /* the way to read the guest; NULL: the cheapest that works */
	bool waits;		 /* threads that do not run are sampled, too, */
	uint32_t thread_budget;	 /* and so many of all are looked at in a tick */
	bool always_pause;
	bool inside;	/* the guest samples itself */
	bool host;	/* the host's side of vCPUs is sampled, too */
	bool no_python; /* stacks of interpreters stay as they are */
	bool print_missed;
	bool verbose;
	bool quiet;
	bool keep_rights;
	bool screen;   /* its terminal is used as a screen */
	bool parallel; /* guests at once: no line of progress is theirs alone */
	/* ... and go into this one recording in the end; NULL: each has its own. */
	const char *together;
};

/* Rows of struct session_options: when and how much is sampled; and how a guest is read and named. */
extern const struct option_row session_sampling_options[], session_reading_options[];

void session_defaults(struct session_options *options);

/*
 * Opens what recording needs beside the guest, and gives up all rights. The
 * caller opens the outputs (base/preopen.h), as it knows them.
 */
struct error *session_confine(const struct target *target, const struct session_options *options);

/*
 * Loads the files of the host's kernel and of the monitor, for names. *images stays NULL for a
 * target that does not see the host.
 */
struct error *session_load_host_images(const struct target *target,
				       const struct session_options *options,
				       struct images **images);

/* Gives up all rights, and tells which protections are in force, or missing. */
void session_drop_rights(const struct target *target, const struct session_options *options);

/*
 * Records until the time is over, a signal comes or the guest ends. `path` is
 * the recording, written from the first sample on: if an image is not the one
 * that runs in the guest, the file stays as it was, or empty if it is new. The
 * images that were found are handed out in *images if it is not NULL, after
 * errors as well. Prints progress and a summary. Errors are about recording
 * itself; how it ended is in the recording.
 */
struct error *session_record(struct target *target, const struct session_options *options,
			     const char *path, struct sampler_result *result,
			     struct images **images);

/* Ticks and pauses as they come, the others when a segment has ended. */
struct session_totals {
	uint64_t ticks, missed, failed;
	uint64_t incomplete; /* stacks that were not read or not kept whole */
	uint64_t paused_ns;
};

/*
 * Memory that the process which samples shares with the one that decides how.
 * The latter alone writes `changes` and `sampler`, and reads neither.
 */
struct session_shared {
	_Atomic uint32_t changes;	/* each begins a segment, by `sampler` as it is then */
	struct sampler_options sampler; /* rates and bounds */
	struct session_totals totals;
	char failure[256]; /* the last one; "": none */
};

/*
 * Records as above, to standard output and into a new recording each minute of
 * the wall clock: whoever reads it cuts it where the beginning of a recording
 * is written, which is a write(2) of its own. Names are those of functions,
 * without source lines; nothing is printed but warnings.
 */
struct error *session_record_segments(struct target *target, const struct session_options *options,
				      struct sampler_result *result, struct session_shared *shared);

/*
 * Loads the files that the user named, or else the guest's own image if it
 * can be. *images is never NULL after success, but may hold nothing.
 */
struct error *session_load_images(const struct target *target,
				  const struct session_options *options, struct images **images);

/*
 * Loads the names of JIT-compiled code that there are by now, after the other images: of the process
 * that is the target (target->jit_names), and of those of a guest that the locator knows; NULL: of none.
 */
struct error *session_load_jit_names(const struct target *target,
				     const struct session_options *options, struct images *images,
				     struct image_locator *locator);

/* For image_locator_new: tells warnings, and everything if verbose. ctx is a session_options. */
void session_note(void *ctx, bool warning, const char *text);

/* "GUEST.uniprof"; the name is made harmless. The caller frees it. */
char *session_default_path(const struct target *target, const char *ending);

/* ERR_USAGE for guests that have no snapshots: to be asked before the file is created. */
struct error *snapshot_check(const struct target *target);

/*
 * Writes registers and memory of each sample to options->snapshot, until the
 * time is over, a signal comes or the guest ends; nothing is unwound.
 */
struct error *snapshot_record(struct target *target, const struct session_options *options,
			      struct sampler_result *result);
