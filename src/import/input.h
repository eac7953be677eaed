/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_INPUT_H
#define UNIPROF_IMPORT_INPUT_H

/*
 * The bytes of a file that is imported: by lines, a byte at a time, or all at
 * once. What gzip has compressed comes out decompressed.
 */

#include <zlib.h>

#include "recording/format.h"

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

/* Reads more; bytes that were handed out make room. input->ended if there is none. */
struct error *import_fill(struct import_input *input);

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

#endif
