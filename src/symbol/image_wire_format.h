/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_IMAGE_WIRE_FORMAT_H
#define UNIPROF_SYMBOL_IMAGE_WIRE_FORMAT_H

/*
 * What goes through the pipe, private to image_send.c and image_receive.c: the
 * head; symbols, then their names, NUL behind each; code, each piece followed
 * by its bytes; rows, rare rows, expressions, kept registers as they are in memory.
 */

#include "symbol/images/images.h"

struct wire_symbol {
	uint64_t start, end, name; /* name: offset in the strings */
};

struct wire_code {
	uint64_t start, end, note_va, note_len, n;
	uint64_t patched;
	uint8_t note[CODE_NOTE_MAX];
	char build_id[2 * CODE_BUILD_ID_MAX + 1];
};

struct wire_piece {
	uint64_t va, len;
};

/* Sizes of all that follows; a part that is not there has 0 entries. */
struct wire_head {
	uint64_t error_kind, error_len; /* not 0: the error's text is all that follows */
	uint64_t symbols, strings;
	uint64_t has_code;
	uint64_t rows, rows_base, rare, expressions, kept;
	char build_id[2 * CODE_BUILD_ID_MAX + 1], symbols_id[2 * CODE_BUILD_ID_MAX + 1];
};

#endif
