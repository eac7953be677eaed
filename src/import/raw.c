/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The classic trace (format/raw.c), with names or without: a head, then for each
 * stack its frames, leaf first, a line with the count and an empty line. An
 * offset tells where in the function a frame is; addresses with a name are gone.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "import/importer.h"

#define HEAD	 "#unikernel stack tracer"
#define NO_STACK "[no stack]"

struct raw_frame {
	uint64_t addr;
	uint8_t kind;
};

struct raw_import {
	struct import *import;
	struct raw_frame *frames; /* leaf first */
	size_t n, room;
	bool empty; /* there is a stack, without frames */
};

static bool has_head(const uint8_t *head, size_t len)
{
	return len >= strlen(HEAD) && !memcmp(head, HEAD, strlen(HEAD));
}

/* "... on 2026-11-21 09:00:00 UTC (+0000)" */
static void read_day(struct import *import, const char *line)
{
	const char *day = strstr(line, " on "), *zone = strrchr(line, '(');
	struct tm when = {0};
	int offset;
	time_t start;

	if (!day || !zone || !strptime(day + 4, "%Y-%m-%d %H:%M:%S", &when) ||
	    sscanf(zone, "(%5d)", &offset) != 1)
		return;
	start = timegm(&when) - (offset / 100 * 3600 + offset % 100 * 60);
	if (start > 0)
		import->start_unix_ns = (uint64_t)start * 1000000000u;
}

/* The hexadecimal number that ends the line, if it begins at `at`. */
static bool read_hex(const char *at, uint64_t *value)
{
	const size_t n = strspn(at, "0123456789abcdefABCDEF");

	*value = n && n <= 16 ? strtoull(at, NULL, 16) : 0;
	return n && n <= 16 && !at[n];
}

static struct error *add_frame(struct raw_import *raw, const char *line, size_t len)
{
	struct import_code code = {.addr = IMPORT_NO_ADDR};
	struct raw_frame *frame;
	const char *plus = NULL;

	if (raw->n == IMPORT_FRAMES_MAX)
		return import_error(raw->import->input, "a stack with too many frames");
	if (!raw->n && !strcmp(line, NO_STACK)) {
		raw->empty = true;
		return NULL;
	}
	TRY(ARRAY_RESERVE(&raw->frames, &raw->room, raw->n + 1));
	frame = &raw->frames[raw->n];
	frame->kind = raw->n ? FRAME_RETURN : FRAME_PC;
	raw->n++;
	if (!strncmp(line, "0x", 2) && read_hex(line + 2, &frame->addr))
		return NULL;
	for (const char *at = line; (at = strstr(at, "+0x")); at += 3)
		plus = at;
	if (plus && plus > line && read_hex(plus + 3, &code.offset))
		len = (size_t)(plus - line);
	frame->kind = FRAME_PC;
	TRY(import_text(raw->import, line, len, &code.name));
	return import_code(raw->import, &code, &frame->addr);
}

/* The line with the count ends a stack. */
static struct error *end_stack(struct raw_import *raw, const char *line, size_t len)
{
	struct import_sample sample = {.weight = 1, .times = strtoull(line, NULL, 10)};

	if (len > 16 || sample.times > IMPORT_WEIGHT_MAX)
		return import_error(raw->import->input, "its count is too large");
	if (!raw->n && !raw->empty)
		return import_error(raw->import->input, "a count without a stack");
	for (size_t i = raw->n; i > 0; i--)
		TRY(import_frame(raw->import, sample.stack, raw->frames[i - 1].addr,
				 raw->frames[i - 1].kind, &sample.stack));
	raw->n = 0;
	raw->empty = false;
	return import_sample(raw->import, &sample);
}

static struct error *add_line(void *ctx, char *line, size_t len)
{
	struct raw_import *raw = ctx;

	if (*line == '#' && !strstr(line, "+0x")) {
		read_day(raw->import, line);
		return NULL;
	}
	if (!len)
		return NULL;
	if (strspn(line, "0123456789") == len)
		return end_stack(raw, line, len);
	return add_frame(raw, line, len);
}

static struct error *read_raw(struct import *import)
{
	struct raw_import raw = {.import = import};
	struct error *err;

	import->timeless = true;
	strcpy(import->host, "a classic trace");
	strcpy(import->unit, "samples");
	err = import_lines(import->input, add_line, &raw);
	if (raw.n || raw.empty)
		strcpy(import->reason, "the file ends within a stack");
	free(raw.frames);
	return err;
}

const struct importer import_raw = {.name = "raw",
				    .title = "classic traces",
				    .has_head = has_head,
				    .read = read_raw};
