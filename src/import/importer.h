/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The seam of the importers, private to src/import. To add a format:
 *
 *	1. a file with a `const struct importer import_NAME`: it reads bytes or
 *	   lines from import->input, numbers texts, images, threads and code, and
 *	   adds samples;
 *	2. a row in importers[] (import.c), before those that would take its files;
 *	3. tests/exports/import_test.py: a round trip if we export the format, and a
 *	   profile made by the real tool;
 *	4. a seed in tests/fuzzing/seeds.py;
 *	5. docs/exports.md (what it carries) and docs/man/uniprof.1.
 *
 * Files are hostile: numbers are checked against the file, sums are bounded,
 * nothing recurses by depth of the file. An importer tells what the file has and
 * nothing else: no times, addresses or processes of its own.
 */

#include <jansson.h>
#include <string.h>
#include <zlib.h>

#include "recording/format.h"

/* Samples of an import at most, so that sums of them cannot overflow. */
#define IMPORT_SAMPLES_MAX (UINT64_C(1) << 60)

/* The largest weight of a sample: doubles, in which other tools count, are exact up to here. */
#define IMPORT_WEIGHT_MAX (UINT64_C(1) << 53)

/* Frames of a stack, and files with code, at most. */
#define IMPORT_FRAMES_MAX 65536u
#define IMPORT_IMAGES_MAX (1u << 20)

struct import;

struct importer {
	const char *name;  /* recording_info.target of its profiles */
	const char *title; /* for sentences: "pprof profiles" */
	/* One of the two: can a file begin with these bytes, ... */
	bool (*has_head)(const uint8_t *head, size_t len);
	/* ... or has a text this line as its first one that is neither blank nor a comment? */
	bool (*has_line)(const char *line, size_t len);
	struct error *(*read)(struct import *import);
};

extern const struct importer import_callgrind;
extern const struct importer import_firefox;
extern const struct importer import_folded;
extern const struct importer import_perf_data;
extern const struct importer import_perf_script;
extern const struct importer import_pprof;
extern const struct importer import_raw;
extern const struct importer import_speedscope;

struct import_sample {
	uint64_t time_ns;
	uint64_t weight; /* of each */
	uint64_t times;	 /* so many like this one */
	uint32_t stack;
	uint32_t thread; /* from import_thread; 0: not known */
	uint16_t vcpu;
	uint8_t state; /* enum vcpu_state */
};

struct import_tables;

struct import {
	struct import_input *input;
	struct stacks *stacks;
	const struct recording_visitor *visitor;
	struct import_tables *tables;
	struct import_sample *samples;
	size_t n, room;
	uint64_t total; /* samples */
	uint32_t vcpus;
	/* To be set by the importer, as far as it is known: */
	bool timeless;	  /* samples have no times */
	char host[128];	  /* where it is from: "perf script, cycles" */
	char unit[64];	  /* of weights; "": nanoseconds */
	char reason[128]; /* why it ended; "": the file ends */
	char *guest_name; /* NULL: the file's name is taken. In memory of its own */
	uint64_t start_unix_ns, elapsed_ns;
	double rate_hz;
};

/* Says that samples of other events were not added: they cannot be. 0: there were none. */
void import_left_out(struct import *import, uint64_t samples);

/* A text that lasts as long as the import, each only once. */
struct error *import_text(struct import *import, const char *text, size_t len, const char **out);

/*
 * A file that code comes from; texts from import_text. Without a range it is
 * known by its name alone.
 */
struct import_image {
	const char *path;
	const char *build_id; /* in hex; NULL: not known */
	uint64_t start, end;
	uint64_t offset; /* of `start` in the file */
};

/* Numbers an image, 1 first; the same path, build id and range have one number. */
struct error *import_image(struct import *import, const struct import_image *image,
			   uint32_t *number);

/* An address that is not known. */
#define IMPORT_NO_ADDR UINT64_MAX

/* What a profile tells of the code that a frame is in; texts from import_text. */
struct import_code {
	uint64_t addr;	  /* or IMPORT_NO_ADDR */
	uint64_t offset;  /* of it from the function's start */
	const char *name; /* NULL: there is only the address */
	const char *file; /* of the source; NULL: not known */
	uint32_t line;
	uint32_t image;			    /* from import_image; 0: not known */
	const struct source_frame *inlined; /* functions inlined there, innermost first */
	uint32_t n_inlined;
};

/*
 * The address that stands for this code in stacks: its own if that tells it
 * from all other code of the profile, else a stand-in. Equal code has one.
 */
struct error *import_code(struct import *import, const struct import_code *code, uint64_t *addr);

/* The child of stack `parent` for this address. */
struct error *import_frame(struct import *import, uint32_t parent, uint64_t addr, uint8_t kind,
			   uint32_t *id);

/* ... for the function of this name, of which nothing else is known. */
struct error *import_function(struct import *import, uint32_t parent, const char *name, size_t len,
			      uint32_t *id);

/*
 * Numbers a thread, 1 first, by its IDs, which are RECORDED_ID_UNKNOWN where they are not
 * known, and its texts, from import_text; `container` is cut off at what a recording has.
 * `process` NULL: the name of the thread with pid as its tid, if there is one, else the thread's own.
 */
struct error *import_thread(struct import *import, const struct recorded_thread *thread,
			    uint32_t *number);

/* ERR_INPUT when there are too many. Samples without `times` are left out. */
struct error *import_sample(struct import *import, const struct import_sample *sample);

/* As import_sample, of samples that weigh `weight` together, which is shared out among them. */
struct error *import_samples(struct import *import, struct import_sample sample, uint64_t weight);

/* "FILE: WHAT", ERR_INPUT. */
struct error *import_damaged(const struct import *import, const char *what);

/* Factor to nanoseconds of a unit of time ("ms", "milliseconds"); 0: none. */
double import_unit_ns(const char *unit);

/* The tables, for import.c; to be freed after an error, too. */
struct error *import_tables_new(struct import_tables **out);
void import_tables_free(struct import_tables *tables);

/* All ranges of images; the caller frees images->at, texts are the tables'. */
struct error *import_tables_images(const struct import_tables *tables,
				   struct recorded_images *images);
struct error *import_tables_names(const struct import_tables *tables,
				  const struct recording_visitor *visitor);
/* *list: all of them, as in struct tick. */
struct error *import_tables_threads(struct import_tables *tables,
				    const struct recording_visitor *visitor,
				    const struct recorded_thread **list);

/*
 * The contents of a file that is imported: by lines, a byte at a time, all at once, or
 * as values of JSON. Bytes that gzip compressed come out decompressed (input.c).
 */

/* No line is longer: 4096 frames with names of 4 KiB. */
#define IMPORT_LINE_MAX (16u << 20)

/* Bytes of a file that is read as a whole, and of what a compressed file unpacks to. */
#define IMPORT_WHOLE_MAX  (UINT64_C(1) << 30)
#define IMPORT_UNPACK_MAX (UINT64_C(8) << 30)

/* So many bytes of a file tell its format. */
#define IMPORT_HEAD (64u << 10)

struct import_input {
	struct recording_file *file;
	const struct recording_visitor *visitor; /* told how far it is */
	struct bytes buffer;
	size_t at;	   /* everything before it was handed out */
	uint64_t handed;   /* bytes that were handed out and have left the buffer */
	uint64_t number;   /* of the last line, from 1 */
	uint64_t read;	   /* bytes of the file */
	uint64_t unpacked; /* ... after decompression */
	bool ended;
	/* Compressed files: what was read and not decompressed yet. */
	struct bytes packed;
	size_t packed_at;
	z_stream stream;
	bool is_packed, file_ended;
	bool more;    /* decompressed bytes are left that found no room */
	bool between; /* two parts of the compressed file */
};

/* Takes over `begun`, the beginning of the file, and finds out whether it is compressed. */
struct error *import_input_begin(struct import_input *input, struct bytes *begun);
void import_input_end(struct import_input *input);

/* Everything from here on; ERR_INPUT if that is more than IMPORT_WHOLE_MAX. */
struct error *import_whole(struct import_input *input, const uint8_t **data, size_t *len);

/*
 * The next line, without its end and with a NUL behind it; valid until the
 * next call. *line is NULL at the end of the file. ERR_INPUT for lines that
 * are too long or hold a NUL.
 */
struct error *import_line(struct import_input *input, char **line, size_t *len);

/* Calls `take` for each line up to the end of the file. */
struct error *import_lines(struct import_input *input,
			   struct error *(*take)(void *ctx, char *line, size_t len), void *ctx);

/* Lets the last line be read once more. */
void import_give_back(struct import_input *input, char *line, size_t len);

/* "FILE, line 12: WHAT" */
struct error *import_error(const struct import_input *input, const char *what);

/*
 * JSON that may be larger than memory: walked by objects and arrays as the
 * importer calls for them, so that it needs no stack of its own; strings and
 * small values are parsed by jansson, columns of numbers become arrays. A value
 * that nobody calls for is skipped. Errors are kept: after the first, all
 * functions do nothing.
 */

/* Bytes of a single value (a string, a frame, a stack). */
#define IMPORT_VALUE_MAX (4u << 20)

struct import_json {
	struct import *import;
	struct import_input *input;
	struct bytes value; /* that is being parsed */
	struct error *err;
};

/* Reads a file that is one object. */
struct error *import_json_read(struct import *import,
			       void (*member)(struct import_json *json, void *ctx, const char *key),
			       void *ctx);

/* Sets the error: the file is not what it should be. */
void import_json_fail(struct import_json *json, const char *what);

/* Calls `member` for each; what it has not read is skipped. The key lasts as long as the call. */
void import_json_object(struct import_json *json,
			void (*member)(struct import_json *json, void *ctx, const char *key),
			void *ctx);

/* Calls `element` for each, which must read or skip it. */
void import_json_array(struct import_json *json,
		       void (*element)(struct import_json *json, void *ctx), void *ctx);

/* The next value, to be freed by json_decref; NULL after an error. */
json_t *import_json_value(struct import_json *json);

/* A number; NAN: it is none, or after an error. */
double import_json_number(struct import_json *json);

/* A string as a text of the import; NULL: it is `null`, or after an error. */
const char *import_json_text(struct import_json *json);

/* An array of numbers; NAN stands for null. Starts as {0}, ends with free(at). */
struct import_column {
	double *at;
	size_t n, room;
};

void import_json_numbers(struct import_json *json, struct import_column *column);

/* vCPUs as our exports tell them: a number, how often it follows itself, the next number, ... */
struct import_vcpus {
	struct import_column runs;
	size_t next;
	double left; /* of the run before `next` */
};

/* Each vCPU in turn; false: there are no more, or it is no number. */
bool import_next_vcpu(struct import_vcpus *vcpus, uint16_t *vcpu);

/* A number as an ID; RECORDED_ID_UNKNOWN: it is none. */
static inline uint32_t import_id(double number)
{
	return number >= 0 && number < RECORDED_ID_UNKNOWN ? (uint32_t)number : RECORDED_ID_UNKNOWN;
}

/* True if the next value begins like this: '{', '[', '"'. */
bool import_json_is(struct import_json *json, char sign);

/* Where what begins at `at` goes on behind blanks; `len` at the end. */
static inline size_t import_after_blanks(const uint8_t *head, size_t len, size_t at)
{
	while (at < len && strchr(" \t\r\n", head[at]))
		at++;
	return at;
}
