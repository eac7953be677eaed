/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/importer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Lines of `perf script`. An event begins with one such as
 *
 *	web server 815/816 [003]  4711.123456:   10101010 cpu-clock:
 *
 * of which pid, CPU and period may be missing; its frames follow, leaf first:
 *
 *	        7f1234 name+0x12 (/lib/file.so)
 *
 * and an empty line ends it. Without call chains the one frame stands behind
 * the event.
 */

/* A part of the line. */
struct perf_piece {
	const char *at;
	size_t len;
};

struct perf_header {
	struct perf_piece comm, event, frame; /* frame: the one behind the event */
	uint64_t time_ns, cpu, period;
	bool has_period;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The next word from *at on; empty at the end. */
static struct perf_piece next_word(const char **at)
{
	struct perf_piece word;

	while (is_blank(**at))
		++*at;
	word.at = *at;
	while (**at && !is_blank(**at))
		++*at;
	word.len = (size_t)(*at - word.at);
	return word;
}

static size_t digits(const char *text)
{
	return strspn(text, "0123456789");
}

/* "4711.123456:" as nanoseconds. */
static bool read_time(struct perf_piece word, uint64_t *ns)
{
	size_t whole = digits(word.at), part;
	uint64_t seconds = 0, fraction = 0;

	if (!whole || whole > 10 || word.at[whole] != '.')
		return false;
	part = digits(word.at + whole + 1);
	if (!part || part > 9 || whole + part + 2 != word.len || word.at[word.len - 1] != ':')
		return false;
	for (size_t i = 0; i < whole; i++)
		seconds = seconds * 10 + (uint64_t)(word.at[i] - '0');
	for (size_t i = 0; i < 9; i++)
		fraction =
			fraction * 10 + (i < part ? (uint64_t)(word.at[whole + 1 + i] - '0') : 0);
	*ns = seconds * 1000000000 + fraction;
	return true;
}

static bool read_number(struct perf_piece word, uint64_t *value)
{
	*value = 0;
	if (!word.len || word.len > 18 || digits(word.at) < word.len)
		return false;
	for (size_t i = 0; i < word.len; i++)
		*value = *value * 10 + (uint64_t)(word.at[i] - '0');
	return true;
}

/* "[003]" */
static bool read_cpu(struct perf_piece word, uint64_t *cpu)
{
	return word.len > 2 && word.at[0] == '[' && word.at[word.len - 1] == ']' &&
	       read_number((struct perf_piece){word.at + 1, word.len - 2}, cpu);
}

/* "815" or "815/816" */
static bool is_pid(struct perf_piece word)
{
	size_t pid = digits(word.at);

	if (!pid || pid == word.len)
		return pid > 0;
	return pid < word.len && word.at[pid] == '/' &&
	       pid + 1 + digits(word.at + pid + 1) >= word.len && pid + 1 < word.len;
}

/* The words before the time: the command with all its blanks, pid, CPU. */
static bool read_who(const char *line, const char *time, struct perf_header *header)
{
	struct perf_piece last = {line, 0}, before = {line, 0};
	const char *at = line;

	for (;;) {
		struct perf_piece word = next_word(&at);

		if (!word.len || word.at >= time)
			break;
		before = last;
		last = word;
	}
	if (read_cpu(last, &header->cpu))
		last = before;
	while (is_blank(*line))
		line++;
	if (!last.len || !is_pid(last) || last.at <= line)
		return false;
	header->comm = (struct perf_piece){line, (size_t)(last.at - line)};
	while (header->comm.len && is_blank(header->comm.at[header->comm.len - 1]))
		header->comm.len--;
	return header->comm.len > 0;
}

/* False if no event begins there. */
static bool perf_read_header(const char *line, struct perf_header *header)
{
	const char *at = line;
	struct perf_piece word;

	*header = (struct perf_header){.period = 1};
	do {
		word = next_word(&at);
		if (!word.len)
			return false;
	} while (!read_time(word, &header->time_ns));
	if (!read_who(line, word.at, header))
		return false;
	word = next_word(&at);
	header->has_period = read_number(word, &header->period);
	if (header->has_period)
		word = next_word(&at);
	else
		header->period = 1;
	/* "cycles:u:" ends with a colon. */
	if (word.len < 2 || word.at[word.len - 1] != ':')
		return false;
	header->event = (struct perf_piece){word.at, word.len - 1};
	while (is_blank(*at))
		at++;
	header->frame = (struct perf_piece){at, strlen(at)};
	return true;
}

/*
 * Offset of the parenthesis that opens the file, 0 if there is none: names and
 * files may contain blanks and parentheses, too ("/lib/x (deleted)").
 */
static size_t find_file(struct perf_piece text)
{
	size_t any = 0;

	if (!text.len || text.at[text.len - 1] != ')')
		return 0;
	for (size_t i = text.len - 1; i > 0; i--) {
		if (text.at[i] != '(' || !is_blank(text.at[i - 1]))
			continue;
		if (text.at[i + 1] == '/' || text.at[i + 1] == '[')
			return i;
		any = any ? any : i;
	}
	return any;
}

/* "name+0x12 (file)" becomes "name", "[unknown] (/lib/file.so)" "[file.so]". */
static struct perf_piece name_of(struct perf_piece text, bool *is_file)
{
	struct perf_piece name = text, file = {text.at, 0};
	size_t open;

	open = find_file(text);
	if (open) {
		name.len = open - 1;
		file = (struct perf_piece){text.at + open + 1, text.len - open - 2};
	}
	for (size_t i = name.len; i > 3; i--) {
		if (strncmp(name.at + i - 3, "+0x", 3))
			continue;
		if (i + strspn(name.at + i, "0123456789abcdef") >= name.len)
			name.len = i - 3;
		break;
	}
	while (name.len && is_blank(name.at[name.len - 1]))
		name.len--;
	*is_file = name.len == strlen("[unknown]") && !strncmp(name.at, "[unknown]", name.len);
	if (!*is_file)
		return name;
	for (size_t i = file.len; i > 0; i--)
		if (file.at[i - 1] == '/')
			return (struct perf_piece){file.at + i, file.len - i};
	return file.len == name.len && !strncmp(file.at, name.at, name.len) ? (struct perf_piece){0}
									    : file;
}

/*
 * Splits a frame; false if the line is none. *name has neither offset nor file;
 * without a name it is the file's, *is_file.
 */
static bool perf_read_frame(const char *line, uint64_t *addr, struct perf_piece *name,
			    bool *is_file)
{
	size_t n;

	while (is_blank(*line))
		line++;
	n = strspn(line, "0123456789abcdef");
	if (!n || n > 16 || (line[n] && !is_blank(line[n])))
		return false;
	*addr = 0;
	for (size_t i = 0; i < n; i++)
		*addr = *addr << 4 |
			(uint64_t)(line[i] <= '9' ? line[i] - '0' : line[i] - 'a' + 10);
	line += n;
	while (is_blank(*line))
		line++;
	*name = name_of((struct perf_piece){line, strlen(line)}, is_file);
	return true;
}

/*
 * Imports the output of `perf script`, line by line. The
 * command becomes the outermost frame. Only the first event that is met counts:
 * different events cannot be added.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 65536

/* A frame as it was met; texts are in the arena. */
struct perf_frame {
	uint64_t addr;
	size_t name, name_len; /* 0 bytes: none */
};

struct perf_event {
	struct import_sample sample;
	bool inside; /* frames may follow */
	bool counts; /* its event is the one that is imported */
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

/* True for events of the kind that is imported, which is that of the first one. */
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
	if (err || !header.frame.len)
		return err;
	err = add_frame(perf, header.frame.at);
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

/* Sets the unit of the weights: clocks count nanoseconds. */
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
