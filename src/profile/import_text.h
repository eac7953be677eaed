/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_IMPORT_TEXT_H
#define UNIPROF_PROFILE_IMPORT_TEXT_H

/* Lines of a text file, one after the other. Private to src/profile. */

#include "base/bytes.h"
#include "recording/recording.h"
#include "recording/file.h"

/* No line is longer: 4096 frames with names of 4 KiB. */
#define IMPORT_LINE_MAX (16u << 20)

struct import_text {
	struct recording_file *file;
	const struct recording_visitor *visitor; /* told how far it is */
	struct bytes buffer;
	size_t at;	 /* what is before it was handed out */
	uint64_t number; /* of the last line, from 1 */
	uint64_t read;	 /* bytes of the file, what the buffer held before included */
	bool ended;
};

/* The buffer may hold the file's beginning already; the caller frees it. */

/*
 * The next line, without its end and with a NUL behind it; valid until the
 * next call. *line is NULL at the end of the file. ERR_INPUT for lines that
 * are too long or hold a NUL.
 */
struct error *import_line(struct import_text *text, char **line, size_t *len);

/* "FILE, line 12: WHAT" */
struct error *import_error(const struct import_text *text, const char *what);

#endif
