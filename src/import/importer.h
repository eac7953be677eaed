/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_IMPORT_IMPORTER_H
#define UNIPROF_IMPORT_IMPORTER_H

/*
 * Shared by the importers, private to src/import. To add one: a file with import_X
 * and import_is_X, told here, and a line in import.c. Importers read lines, collect
 * samples, and tell the visitor at the end.
 */

#include "base/bytes.h"
#include "recording/file.h"
#include "recording/recording.h"

/* Samples of an import at most, so that sums of them cannot overflow. */
#define IMPORT_SAMPLES_MAX (UINT64_C(1) << 60)

/* No line is longer: 4096 frames with names of 4 KiB. */
#define IMPORT_LINE_MAX (16u << 20)

/* Lines of a text file, one after the other; the caller frees the buffer, which may hold the file's beginning. */
struct import_text {
	struct recording_file *file;
	const struct recording_visitor *visitor; /* told how far it is */
	struct bytes buffer;
	size_t at;	 /* everything before it was handed out */
	uint64_t number; /* of the last line, from 1 */
	uint64_t read;	 /* bytes of the file, including those that have left the buffer */
	bool ended;
};

struct import_sample {
	uint64_t time_ns;
	uint64_t weight;
	uint64_t times;
	uint32_t stack;
	uint16_t vcpu;
};

struct import {
	struct import_text text;
	struct stacks *stacks;
	const struct recording_visitor *visitor;
	struct import_names *names;
	struct import_sample *samples;
	size_t n, room;
	uint64_t total; /* samples */
	uint32_t vcpus;
	/* To be set by the importer: */
	const char *target; /* "folded" */
	char host[128];	    /* where it is from: "perf script, cycles" */
	char unit[64];	    /* of weights; "": nanoseconds */
	char reason[128];   /* why it ended */
};

/* The child of stack `parent` whose function has this name. */
struct error *import_frame(struct import *import, uint32_t parent, const char *name, size_t len,
			   uint32_t *id);

/* As import_frame, for a frame of which only the address is known. */
struct error *import_address(struct import *import, uint32_t parent, uint64_t addr, uint32_t *id);

/* ERR_INPUT when there are too many. */
struct error *import_sample(struct import *import, const struct import_sample *sample);

/* The importers: from the text to the samples. */
struct error *import_folded(struct import *import);
struct error *import_perf(struct import *import);

/* True if a file can begin with this line. */
bool import_is_folded(const char *line, size_t len);
bool import_is_perf(const char *line);

/*
 * The next line, without its end and with a NUL behind it; valid until the
 * next call. *line is NULL at the end of the file. ERR_INPUT for lines that
 * are too long or hold a NUL.
 */
struct error *import_line(struct import_text *text, char **line, size_t *len);

/* "FILE, line 12: WHAT" */
struct error *import_error(const struct import_text *text, const char *what);

#endif
