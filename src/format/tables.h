/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The tables that most formats consist of: the code addresses in a profile's
 * selected stacks, the functions there (several, where some were inlined), and
 * the images that the addresses are in. Numbers are dense and start at 0.
 * Memory grows with the stacks. Below them, the samples, by time or in groups.
 */

#include "format/format.h"

#define LOCATION_NONE UINT32_MAX

/* A function, with the source file that it is in. All text is cleaned and belongs to the symbolizer. */
struct location_function {
	const char *name;
	const char *symbol; /* its name in the file; the same if that is not known */
	const char *file;   /* NULL: not known */
	bool resolved;	    /* the name is no address */
};

/* A function at an address, with the line of its file; 0: not known. */
struct location_place {
	uint32_t function, line;
};

/* All functions at an address, innermost first; of most addresses they are those of others, too. */
struct location_answer {
	uint64_t start; /* of the outer function, if `resolved` */
	uint32_t places;
	uint32_t n : 31; /* at least 1 */
	uint32_t resolved : 1;
};

/* A code address that frames have, reached by executing it or by a return. */
struct location_entry {
	uint32_t frame; /* its number in the symbolizer */
	uint32_t
		lines; /* functions of the entries before it: its own ones are numbered from here */
	uint32_t image; /* or LOCATION_NONE */
};

/* A file that code comes from. */
struct location_image {
	const char *path;
	const char *build_id; /* in hex, and nothing else; NULL: none */
	uint64_t start, end;  /* of its code in the guest */
	uint64_t slide;	      /* addresses in the guest less those in the file */
	uint64_t offset;      /* of `start` in the file; 0 if that cannot be read */
	bool unplaced;	      /* known by its name: the range is of stand-ins (import/import.h) */
};

struct location_table {
	const struct profile *profile;
	const struct symbolizer *symbolizer;
	const struct frame_numbers *frames; /* the symbolizer's */
	struct location_entry *at;
	struct location_answer *answers; /* by the symbolizer's numbers */
	struct location_place *places;
	struct location_function *functions;
	struct location_image *images; /* in the order of the recording */
	uint32_t n, n_lines, n_places, n_functions, n_images;
	uint32_t *of_frame; /* entries; LOCATION_NONE: not selected */
	bool *used;	    /* [stacks_count]: it is selected, or a caller of what is */
};

/* location_table_free is due, also after an error. */
struct error *location_table_new(const struct format_job *job, struct location_table **out);
void location_table_free(struct location_table *table);

/* The entry of the innermost frame of a stack that is used. */
static inline uint32_t location_entry_of(const struct location_table *table, uint32_t stack)
{
	return table->of_frame[table->frames->of_node[stack]];
}

static inline const struct location_answer *location_answer(const struct location_table *table,
							    uint32_t entry)
{
	return &table->answers[symbolizer_answer(table->symbolizer, table->at[entry].frame)];
}

/* Function k, from the innermost on. */
static inline const struct location_place *location_place(const struct location_table *table,
							  uint32_t entry, uint32_t k)
{
	return &table->places[location_answer(table, entry)->places + k];
}

/* Of the frame; 0 if it has only a name (import/import.h). */
uint64_t location_addr(const struct location_table *table, uint32_t entry);

/* Of the instruction that was executed, or of a byte of the call. */
uint64_t location_code(const struct location_table *table, uint32_t entry);

/* Of the frame from the start of the outer function; 0 if that is not known. */
uint64_t location_from_start(const struct location_table *table, uint32_t entry);

/* One of the selected samples of a recording, or several alike. */
struct sample {
	uint64_t time_ns;
	uint64_t weight_ns; /* of one; of CPU time, if the job's filter says so */
	uint64_t times;	    /* so many like this one; only of the first the time is known */
	uint32_t stack;	    /* id in the job's profile */
	uint32_t thread;    /* number in the job's profile; 0: not known */
	uint32_t paused_ns; /* so long the guest stood still for its tick */
	uint16_t vcpu;
	uint8_t state : 4;    /* enum vcpu_state */
	uint8_t resumed : 1;  /* the tick before has no sample of its vCPU */
	uint8_t switched : 1; /* ... or one of another thread */
};

/*
 * The time before a sample that no sample of its track stands for, if those before it stand
 * for the time until `until_ns`, and it for `length_ns`. Ticks come early and late: without a
 * tick that tells, what is no longer than the sample is no gap.
 */
static inline uint64_t sample_gap(const struct sample *sample, bool apart, uint64_t until_ns,
				  uint64_t length_ns)
{
	const uint64_t gap = sample->time_ns > until_ns ? sample->time_ns - until_ns : 0;

	return gap > (apart ? length_ns / 2 : length_ns) ? gap : 0;
}

/* The thread of this number; NULL: not known. */
const struct recorded_thread *sample_thread(const struct format_job *job, uint32_t number);

/* Numbers of a process and a thread, for formats that need them. */
struct sample_ids {
	uint32_t pid, tid;
};

/*
 * Those of the guest's thread, as far as they are known; else the guest is the process
 * `guest` (format_guest_pid), and a vCPU a thread of it. `thread` may be NULL.
 */
struct sample_ids sample_ids(const struct recorded_thread *thread, uint32_t guest, uint32_t vcpu);

/* ERR_USAGE if the job's samples cannot be read once more. */
struct error *samples_check(const struct format_job *job);

/*
 * Reads the recording once more, up to where it ended when the profile was
 * loaded. An error of `visit` ends it and is returned. Errors as of samples_check.
 */
struct error *samples_read(const struct format_job *job,
			   struct error *(*visit)(void *ctx, const struct sample *sample),
			   void *ctx);

/* As samples_read, but `visit` has to look whether the stacks are the profile's: that takes long, far away in memory. */
struct error *samples_read_unchecked(const struct format_job *job,
				     struct error *(*visit)(void *ctx, const struct sample *sample),
				     void *ctx);

/* Is a stack in the profile? */
bool samples_selected(const struct format_job *job, uint32_t stack);

/* The error if it is not. */
struct error *samples_changed(const struct format_job *job);

/*
 * Reads samples with the texts of their stacks, leaf first, as samples_read does. `visit` may call
 * sample_text_put, once, for the text of its sample.
 */
struct sample_batch;
struct error *samples_read_texts(const struct format_job *job, const struct frame_texts *frames,
				 struct error *(*visit)(void *ctx, const struct sample *sample,
							struct sample_batch *batch),
				 void *ctx);
struct error *sample_text_put(struct sample_batch *batch, FILE *out);

/*
 * Samples on their way to a visitor: before a stack is needed its text is asked for (frame_texts_ahead),
 * in steps that are so many samples apart. Stacks of samples that follow one another can be anywhere.
 */
#define QUEUE_STEP    8u
#define QUEUE_SAMPLES ((AHEAD_STEPS + 1) * QUEUE_STEP)

struct sample_queue {
	const struct frame_texts *frames;
	struct sample at[QUEUE_SAMPLES];
	uint64_t n; /* that were ever put in */
};

/* Puts one in, and takes out that of QUEUE_SAMPLES before; false: there is none. To take out the rest put in empty ones. */
bool sample_queue_move(struct sample_queue *queue, const struct sample *in, struct sample *out);

/* As samples_read, through such a queue. */
struct error *samples_read_ahead(const struct format_job *job, const struct frame_texts *frames,
				 struct error *(*visit)(void *ctx, const struct sample *sample),
				 void *ctx);

/*
 * The samples of a thread, or of a vCPU where threads are not known; of each
 * vCPU one where a thread has no number, for others may be called as it is.
 */
struct track {
	uint32_t thread; /* its number; 0: not known */
	uint16_t vcpu;	 /* if the thread or its ID is not known */
	size_t n;
	/* Private: samples differ little from one another. The first of many are in a file. */
	struct spill *spill; /* that of all */
	struct spilled {
		uint64_t offset;
		size_t len;
	} * blocks;
	size_t n_blocks, blocks_room;
	struct bytes packed; /* those behind them */
	struct sample last;
};

/* All samples, some ten bytes each. */
struct samples {
	size_t n;
	struct track *tracks; /* vCPUs first, then threads by their number */
	size_t n_tracks;
	/* Private: samples for which there is no room in memory. */
	struct spill {
		FILE *file; /* the job's scratch file */
		uint64_t len;
		size_t in_memory; /* packed samples of all tracks, bytes */
		struct error *err;
	} spill;
};

/* More than 16 MiB of them are in the job's scratch file. samples_free is due, also after an error. */
struct error *samples_collect(const struct format_job *job, struct samples **out);

/* The error, if some could not be read back: what was read of their tracks is not all. */
struct error *samples_free(struct samples *samples);

/* Goes over a track's samples in order of time. */
struct track_reader {
	struct sample sample; /* the one that was read */
	/* Private: */
	const struct track *track;
	size_t block;  /* that is read; behind the last one: those in memory */
	uint64_t read; /* bytes of the block */
	struct cursor in;
	uint8_t buffer[8192];
};

void track_start(const struct track *track, struct track_reader *reader);

/* False at the end. */
bool track_next(struct track_reader *reader);

/* vCPUs that follow one another, as JSON: "0,12,1,3" is twelve times vCPU 0, and three times 1. Starts as {0}. */
struct vcpu_runs {
	uint16_t vcpu;
	uint64_t n, written;
};

void vcpu_runs_add(struct vcpu_runs *runs, uint16_t vcpu, FILE *out);
/* Writes what is left. */
void vcpu_runs_end(struct vcpu_runs *runs, FILE *out);

/* All samples that differ only in time. */
struct sample_group {
	uint64_t samples;
	uint64_t weight; /* at most INT64_MAX: formats have signed numbers */
	uint32_t stack, thread;
	uint16_t vcpu;
	uint8_t state;
};

/* In the order in which the first of each was taken; the caller frees *out, also after an error. */
struct error *samples_group(const struct format_job *job, struct sample_group **out, uint32_t *n);
