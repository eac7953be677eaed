/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_JSON_H
#define UNIPROF_IMPORT_JSON_H

/*
 * JSON that may be larger than memory: walked by objects and arrays as the
 * importer calls for them, so that it needs no stack of its own; strings and
 * small values are parsed by jansson, columns of numbers become arrays. A value
 * that nobody calls for is skipped. Errors are kept: after the first, all
 * functions do nothing.
 */

#include <jansson.h>

#include "import/importer.h"

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

void import_json_skip(struct import_json *json);

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
