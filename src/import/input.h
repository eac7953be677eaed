/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_INPUT_H
#define UNIPROF_IMPORT_INPUT_H

/*
 * The contents of a file that is imported: by lines, a byte at a time, all at once, or
 * as values of JSON. Bytes that gzip compressed come out decompressed.
 */

#include <jansson.h>
#include <zlib.h>

#include "recording/format.h"

struct import;

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

void import_json_start(struct import_json *json, struct import *import);
/* Returns the error, NULL: there was none and the file ends here. */
struct error *import_json_end(struct import_json *json);

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

/* True if the next value is of this kind: '{', '[', '"', 'n' (null), '0' (a number). */
bool import_json_is(struct import_json *json, char kind);

#endif
