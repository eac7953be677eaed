/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What `perf script` prints, line by line (perf_script.h). The command becomes
 * the outermost frame. Of several events only the first one met counts: they
 * cannot be added.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/importer.h"
#include "profile/perf_script.h"

#define FRAMES_MAX 65536

/* A frame as it was met; texts are in the arena. */
struct perf_frame {
	uint64_t addr;
	size_t name, name_len; /* 0 bytes: none */
};

struct perf_event {
	struct import_sample sample;
	bool inside; /* frames may follow */
	bool counts; /* it is one of those that are imported */
	struct perf_frame *frames;
	size_t n_frames;
	struct bytes arena;
	size_t comm_len; /* at the arena's start */
};

struct perf_import {
	struct import *import;
	struct perf_event event;
	char name[48]; /* of the first event */
	bool has_period;
	uint64_t others;
};

bool import_is_perf(const char *line)
{
	struct perf_header header;

	return perf_read_header(line, &header);
}

static struct error *keep(struct perf_event *event, const char *text, size_t len)
{
	struct error *err = len ? bytes_reserve(&event->arena, len) : NULL;

	if (!err && len)
		put_bytes(&event->arena, text, len);
	return err;
}

static struct error *add_frame(struct perf_import *perf, const char *line)
{
	struct perf_event *event = &perf->event;
	struct perf_frame frame = {0};
	struct perf_piece name;
	bool is_file, bracket;
	struct error *err;

	if (!perf_read_frame(line, &frame.addr, &name, &is_file)) {
		/* With -F +srcline there are such lines between. */
		if ((*line == ' ' || *line == '\t') && strchr(line, ':'))
			return NULL;
		return import_error(&perf->import->text,
				    "neither a frame nor the beginning of an event");
	}
	if (event->n_frames == FRAMES_MAX)
		return import_error(&perf->import->text, "a stack with too many frames");
	frame.name = event->arena.len;
	bracket = is_file && name.len && *name.at != '[';
	err = keep(event, "[", bracket);
	if (!err)
		err = keep(event, name.at, name.len);
	if (!err)
		err = keep(event, "]", bracket);
	frame.name_len = event->arena.len - frame.name;
	if (!err)
		event->frames[event->n_frames++] = frame;
	return err;
}

static struct error *add_to_stack(struct perf_import *perf, const struct perf_frame *frame,
				  uint32_t *stack)
{
	const char *name = (const char *)perf->event.arena.data + frame->name;

	if (frame->name_len)
		return import_frame(perf->import, *stack, name, frame->name_len, stack);
	return import_address(perf->import, *stack, frame->addr, stack);
}

/* An event is whole. */
static struct error *finish(struct perf_import *perf)
{
	struct perf_event *event = &perf->event;
	uint32_t *stack = &event->sample.stack;
	struct error *err;

	if (!event->inside)
		return NULL;
	event->inside = false;
	if (!event->counts)
		return NULL;
	err = import_frame(perf->import, STACK_ROOT, (const char *)event->arena.data,
			   event->comm_len, stack);
	for (size_t i = event->n_frames; i > 0 && !err; i--)
		err = add_to_stack(perf, &event->frames[i - 1], stack);
	return err ? err : import_sample(perf->import, &event->sample);
}

/* Is it an event of the kind that is imported, which is that of the first one? */
static bool is_wanted(struct perf_import *perf, const struct perf_header *header)
{
	size_t room = sizeof(perf->name) - 1;
	size_t len = header->event.len < room ? header->event.len : room;

	if (!*perf->name) {
		memcpy(perf->name, header->event.at, len);
		perf->has_period = header->has_period;
	}
	return strlen(perf->name) == len && !strncmp(perf->name, header->event.at, len) &&
	       perf->has_period == header->has_period;
}

static struct error *begin(struct perf_import *perf, const char *line)
{
	struct perf_event *event = &perf->event;
	struct perf_header header;
	struct error *err;

	if (!perf_read_header(line, &header))
		return import_error(&perf->import->text, "not the beginning of an event");
	if (header.cpu >= RECORDING_MAX_VCPUS)
		return import_error(&perf->import->text, "a CPU's number is too large");
	event->sample = (struct import_sample){.time_ns = header.time_ns,
					       .weight = header.period,
					       .times = 1,
					       .vcpu = (uint16_t)header.cpu};
	event->counts = is_wanted(perf, &header);
	perf->others += !event->counts;
	event->inside = true;
	event->n_frames = 0;
	event->arena.len = 0;
	event->comm_len = header.comm.len;
	err = keep(event, header.comm.at, header.comm.len);
	if (err || !header.rest.len)
		return err;
	err = add_frame(perf, header.rest.at);
	return err ? err : finish(perf);
}

static struct error *add_line(struct perf_import *perf, const char *line, size_t len)
{
	if (!line[strspn(line, " \t")])
		return finish(perf);
	if (*line == '#' && !perf->event.inside)
		return NULL;
	return perf->event.inside ? add_frame(perf, line) : begin(perf, line);
}

/* Says what the weights are: clocks count nanoseconds. */
static void describe(struct perf_import *perf)
{
	struct import *import = perf->import;
	size_t len = strcspn(perf->name, ":");
	bool clock = !strncmp(perf->name, "cpu-clock", 9) || !strncmp(perf->name, "task-clock", 10);

	import->target = "perf-script";
	snprintf(import->host, sizeof(import->host), "perf script, event %s", perf->name);
	if (!perf->has_period)
		strcpy(import->unit, "samples");
	else if (!clock)
		snprintf(import->unit, sizeof(import->unit), "%.*s", (int)len, perf->name);
	if (perf->others)
		snprintf(import->reason, sizeof(import->reason),
			 "the text ends; %" PRIu64 " samples of other events are left out",
			 perf->others);
	else
		strcpy(import->reason, "the text ends");
}

static struct error *read_all(struct perf_import *perf)
{
	struct error *err;
	size_t len;
	char *line;

	for (;;) {
		err = import_line(&perf->import->text, &line, &len);
		if (!err && !line)
			err = finish(perf);
		else if (!err)
			err = add_line(perf, line, len);
		if (err || !line)
			return err;
	}
}

struct error *import_perf(struct import *import)
{
	struct perf_import perf = {.import = import};
	struct error *err;

	perf.event.frames = calloc(FRAMES_MAX, sizeof(*perf.event.frames));
	err = perf.event.frames ? read_all(&perf) : error_no_memory();
	free(perf.event.frames);
	bytes_free(&perf.event.arena);
	describe(&perf);
	return err;
}
