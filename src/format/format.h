/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * One file a format. To add one: write `const struct format format_NAME` in
 * a file of its own, list it in formats.c, and test it in tests/exports/ with
 * the tool that it is made for.
 *
 * A writer writes to `out` and checks nothing but memory: the caller looks
 * at ferror() and fclose() and reports what they say (ERR_OUTPUT).
 *
 * Formats share texts about the guest, JSON, and the lines of the classic
 * trace, below; tables of code addresses, functions and samples (tables.h);
 * messages of Protocol Buffers (protobuf.h).
 */

#include <stdio.h>

#include "analysis/tree.h"
#include "base/bytes.h"
#include "profile/profile.h"
#include "symbol/names/symbolizer.h"

struct format_job {
	const char *path;	       /* the recording, for formats that need samples in order */
	const struct profile *profile; /* loaded from it with `filter` */
	const struct profile_filter *filter;
	struct symbolizer *symbolizer;
	const struct tree_outer *outer; /* of folded stacks; NULL: none */
	const char *host; /* the guest's host, for receivers of profiles; NULL: not known */
	FILE *scratch; /* for samples that do not fit into memory (format_scratch); may be NULL */
};

struct format {
	const char *name;   /* as in --format=NAME */
	const char *ending; /* chosen when the output file ends so: ".folded" */
	bool packed;	    /* its files are compressed anyhow */
	bool counts;	    /* it can hold what is counted, and has no time: exits */
	bool columns;	    /* it goes over the samples again and again, and wants a scratch file */
	struct error *(*write)(const struct format_job *job, FILE *out);
};

/* An empty file without a name in $TMPDIR or /var/tmp; NULL with errno. The caller closes it. */
FILE *format_scratch(void);

/*
 * Compressed, if the output's name ends with ".gz" and the format does not do that itself. `out`
 * must be new, and has no buffer afterwards.
 */
struct error *format_write(const struct format *format, const struct format_job *job,
			   const char *output, FILE *out);

extern const struct format format_folded; /* stack by stack, root first, with counts */
extern const struct format format_raw;	  /* the classic trace, one stack a sample */
extern const struct format format_pprof;  /* profile.proto, for go tool pprof */
extern const struct format format_otlp;	  /* a request of OpenTelemetry's profiles signal */
extern const struct format format_speedscope;
extern const struct format format_firefox;     /* Firefox Profiler, processed */
extern const struct format format_perf_script; /* the text of perf script */
extern const struct format format_perf_data;   /* for perf report, with no names in it */
extern const struct format format_callgrind;
extern const struct format format_chrome; /* a time line of samples */

/* Compressed output in pieces; the same input gives the same bytes. Errors of writing stay with `out`. */

struct gzip;

/* `level` as zlib has it. */
struct error *gzip_new(FILE *out, int level, struct gzip **gzip);
void gzip_put(struct gzip *gzip, const void *data, size_t len);

/* Writes the end, and frees. */
void gzip_end(struct gzip *gzip);

/* A stream in front of `out`, which stays open; fclose(*packed) writes the end. */
struct error *gzip_open(FILE *out, FILE **packed);

/* NULL if no format has that name, or that ending of a file name, with ".gz" behind it or without. */
const struct format *format_by_name(const char *name);
const struct format *format_by_ending(const char *path);
/* For help texts: format i, NULL behind the last. */
const struct format *format_at(size_t i);

/* Texts about the guest for formats. They are cleaned and belong to the job's symbolizer. */

/* Longest guest name in an export, bytes: some formats repeat it in every sample. */
#define FORMAT_GUEST_NAME_MAX 255

/* "web", or its id, or "guest". */
struct error *format_guest_name(const struct format_job *job, const char **name);

/* "xen:web (pv), 9970 samples at 997/s in 10.0 s" and what was not sampled, not cleaned; the caller frees it. NULL: no memory. */
char *format_guest_line(const struct profile *profile);

/* As guest_line, cleaned. */
struct error *format_guest_title(const struct format_job *job, const char **title);

/* Its id as a number for formats that have processes, more than 0; another, if the guest's threads have it. */
uint32_t format_guest_pid(const struct format_job *job);

/* Unit of weights: "nanoseconds", unless the profile says otherwise. */
struct error *format_unit(const struct format_job *job, const char **unit);
bool format_unit_is_time(const struct format_job *job);

/* Was the profile imported, without addresses or times of its own? */
bool format_is_imported(const struct format_job *job);

/*
 * JSON is written as it goes, for files too large to be built in memory. A string, in quotes. The text must be cleaned (symbol/names/display_name.h). Characters
 * that mean something to HTML are escaped, too: these files end up in pages.
 */
void format_json_text(const char *text, FILE *out);

/* The key with all that stands around it, and such a string. */
void format_json_field(const char *key, const char *text, FILE *out);

/* A number in digits. */
void format_number(uint64_t number, FILE *out);

/* A text of at least one byte; holds until the next call. */
struct format_text {
	const void *data;
	size_t len;
};

/*
 * Lines that a format writes again and again, formatted once. A line is kept when it is asked for
 * the second time, while there is room: names can be long, and most of many lines may come once.
 */
struct format_lines {
	struct error *(*format)(void *ctx, uint32_t number, struct bytes *line); /* adds it */
	void *ctx;
	/* Private, and 0 at first: */
	struct bytes text; /* of all, each behind its length */
	uint32_t *at;	   /* of the text, by number */
	size_t room;
};

/* Line `number`, made in `scratch` unless it is kept. */
struct error *format_lines_get(struct format_lines *lines, uint32_t number, struct bytes *scratch,
			       struct format_text *out);
void format_lines_free(struct format_lines *lines);

/*
 * Lines that will soon be asked for are far away in memory, and so is the way to them: each of these
 * steps, from 0 on, asks for what the next one needs. From step 1 on, false: the line is not kept.
 */
#define AHEAD_STEPS 7
bool format_lines_ahead(const struct format_lines *lines, uint32_t number, unsigned step);

/*
 * The nodes of a stack, and which of them it shares with the stack before: those that follow one
 * another mostly have the same callers. Starts with `stacks`, and else 0.
 */
struct stack_path {
	const struct stacks *stacks;
	uint32_t *at; /* outermost first, behind STACK_ROOT */
	size_t n, room;
	uint32_t *fresh; /* those behind them, leaf first */
	size_t n_fresh, fresh_room;
};

/* Leaves in the path what the stack shares with it; the others are fresh. */
struct error *stack_path_follow(struct stack_path *path, uint32_t stack);

/* Moves the outermost fresh node to the path. */
struct error *stack_path_add(struct stack_path *path);
void stack_path_free(struct stack_path *path);

/* Texts of frames, by their nodes. */
struct frame_texts {
	const struct stacks *stacks;
	/* Gives the text of a node's own frame, which may be made in `scratch`. */
	struct error *(*give)(void *ctx, uint32_t node, struct bytes *scratch,
			      struct format_text *out);
	/* Asks for the memory of that text, or of the way to it, in steps; may be NULL. */
	void (*ahead)(void *ctx, uint32_t node, unsigned step);
	void *ctx;
};

/* As format_lines_ahead, for all frames of a stack. */
void frame_texts_ahead(const struct frame_texts *frames, uint32_t stack, unsigned step);

/*
 * Texts of stacks, joined from those of their frames. Those of callers that are shared with the stack
 * before are kept, and in pieces of some frames those of callers that come often.
 */
struct stack_texts {
	struct frame_texts frames;
	bool leaf_first; /* in the text; else the outermost frame is */
	/* Private, and 0 at first: */
	struct stack_path path;
	struct bytes scratch;
	uint8_t *data; /* the text; leaf first it stands at the end */
	size_t len, room;
	size_t *lens; /* by place in the path: of the text with this frame and its callers */
	size_t lens_room;
	struct stack_piece_slot *slots; /* by a hash of the innermost node */
	struct bytes pieces;
};

/* The whole text of a stack. */
struct error *stack_texts_get(struct stack_texts *texts, uint32_t stack, struct format_text *out);

/* Forgets what is kept: frames have other texts now. */
void stack_texts_clear(struct stack_texts *texts);
void stack_texts_free(struct stack_texts *texts);

/*
 * The lines of the classic trace, for its writers and its readers: three lines
 * of head, and for each stack its frames, leaf first, one a line, a line with
 * the count, an empty line.
 *
 *	#unikernel stack tracer using libxencall hypercall interface
 *	#tracing domid 7 on 2026-11-21 09:00:00 UTC (+0000)
 *
 *	console_write+0x4f
 *	main
 *	0x100041
 *	1
 *
 * FlameGraph's stackcollapse.pl reads it, skipping three lines whatever they
 * are. Some names it does not leave as they are: it deletes a leading 'L'
 * (LZ4_compress becomes Z4_compress), makes several frames of a name with
 * "->" in it, cuts C++ names with "::" at the last '(' or '<' behind it, and
 * turns ';' into ':'.
 */

/* Stands for the frames of a stack that has none. */
#define RAW_NO_STACK "[no stack]"

/* Needs target, host, guest_id and start_unix_ns; time is shown in the local zone. */
void raw_write_head(const struct recording_info *info, FILE *out);

/* One frame, by its name in the file; `named` may be NULL: only the address. */
struct error *raw_write_frame(uint64_t addr, const struct named *named, FILE *out);

/* Ends a stack of `n_frames` that was seen `times` times. */
void raw_write_end(size_t n_frames, uint64_t times, FILE *out);

/*
 * Formats the offset behind a name: "+0x1f". Nothing for offset 0, unless
 * readers would take the bare name for something else (a count, an address, a
 * comment, or a name that ends at its '+'). Writes no NUL; returns bytes.
 */
#define RAW_OFFSET_MAX 19
size_t raw_offset(const char *name, uint64_t offset, char out[RAW_OFFSET_MAX]);
