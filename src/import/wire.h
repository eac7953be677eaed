/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_WIRE_H
#define UNIPROF_IMPORT_WIRE_H

/*
 * Messages of Protocol Buffers, read field by field (protobuf.dev/programming-guides/encoding),
 * and the numbers of fields of pprof's (github.com/google/pprof/proto).
 */

#include "base/bytes.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A field: a number, or bytes. */
struct field {
	unsigned number;
	enum wire wire;
	uint64_t value;
	struct cursor bytes;
};

/* False at the end, and with in->at NULL where the bytes are no message. */
static inline bool next_field(struct cursor *in, struct field *field)
{
	uint64_t key = 0, len = 0;
	bool good;

	*field = (struct field){0};
	if (!in->at || in->at == in->end)
		return false;
	good = get_varint(in, &key) && key >> 3 && key >> 3 <= 0x1fffffff;
	field->number = (unsigned)(key >> 3);
	field->wire = (enum wire)(key & 7);
	if (good && field->wire == WIRE_VARINT)
		good = get_varint(in, &field->value);
	else if (good && field->wire == WIRE_BYTES)
		good = get_varint(in, &len);
	else if (good && (field->wire == WIRE_64 || field->wire == WIRE_32))
		len = field->wire == WIRE_64 ? 8 : 4;
	else
		good = false;
	if (!good || len > (uint64_t)(in->end - in->at)) {
		in->at = NULL;
		return false;
	}
	field->bytes = (struct cursor){in->at, in->at + len};
	in->at += len;
	return true;
}

/* profile.proto */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRING,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_COMMENT,
	PROFILE_DEFAULT_SAMPLE_TYPE,
};
enum { VALUE_TYPE = 1, VALUE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STR, LABEL_NUM };
enum {
	MAPPING_ID = 1,
	MAPPING_START,
	MAPPING_LIMIT,
	MAPPING_OFFSET,
	MAPPING_FILE,
	MAPPING_BUILD_ID,
	MAPPING_HAS_FUNCTIONS,
	MAPPING_HAS_FILES,
	MAPPING_HAS_LINES,
	MAPPING_HAS_INLINE
};
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };

#endif
