/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/importer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"

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
	struct perf_piece comm, ids, event, frame; /* frame: the one behind the event */
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
	uint64_t fraction;

	if (!whole || whole > 10 || word.at[whole] != '.')
		return false;
	part = digits(word.at + whole + 1);
	if (!part || part > 9 || whole + part + 2 != word.len || word.at[word.len - 1] != ':')
		return false;
	fraction = strtoull(word.at + whole + 1, NULL, 10);
	for (size_t i = part; i < 9; i++)
		fraction *= 10;
	*ns = strtoull(word.at, NULL, 10) * 1000000000 + fraction;
	return true;
}

static bool read_number(struct perf_piece word, uint64_t *value)
{
	const bool good = word.len && word.len <= 18 && digits(word.at) >= word.len;

	*value = good ? strtoull(word.at, NULL, 10) : 0;
	return good;
}

static bool read_hex(struct perf_piece word, uint64_t *value)
{
	*value = 0;
	for (size_t i = 0; i < word.len; i++) {
		const char c = word.at[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		*value = *value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
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
	header->ids = last;
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

/* A frame, split. */
struct perf_frame {
	uint64_t addr, offset;
	struct perf_piece name, file; /* of length 0: not known */
};

/* "name+0x12": the offset, and *name without it. */
static uint64_t cut_offset(struct perf_piece *name)
{
	uint64_t offset = 0;

	for (size_t i = name->len; i > 3; i--) {
		struct perf_piece hex = {name->at + i, name->len - i};

		if (strncmp(name->at + i - 3, "+0x", 3))
			continue;
		if (hex.len && hex.len <= 16 && read_hex(hex, &offset))
			name->len = i - 3;
		return offset;
	}
	return 0;
}

static bool is_text(struct perf_piece piece, const char *text)
{
	return piece.len == strlen(text) && !strncmp(piece.at, text, piece.len);
}

/* "name+0x12 (file)" */
static void split_name(struct perf_piece text, struct perf_frame *frame)
{
	const size_t open = find_file(text);

	frame->name = text;
	if (open) {
		frame->name.len = open - 1;
		frame->file = (struct perf_piece){text.at + open + 1, text.len - open - 2};
	}
	frame->offset = cut_offset(&frame->name);
	while (frame->name.len && is_blank(frame->name.at[frame->name.len - 1]))
		frame->name.len--;
	if (is_text(frame->name, "[unknown]"))
		frame->name.len = 0;
	if (is_text(frame->file, "[unknown]") || is_text(frame->file, "inlined"))
		frame->file.len = 0;
}

/* False if the line is no frame. */
static bool perf_read_frame(const char *line, struct perf_frame *frame)
{
	const struct perf_piece addr = next_word(&line);

	*frame = (struct perf_frame){0};
	if (!addr.len || addr.len > 16 || !read_hex(addr, &frame->addr))
		return false;
	while (is_blank(*line))
		line++;
	split_name((struct perf_piece){line, strlen(line)}, frame);
	return true;
}

/*
 * Imports the output of `perf script`, line by line. Only the first event that
 * is met counts: different events cannot be added.
 */

struct perf_event {
	struct import_sample sample;
	bool inside;	  /* frames may follow */
	bool counts;	  /* its event is the one that is imported */
	uint64_t *frames; /* addresses as of import_code, leaf first */
	size_t n_frames, room;
};

struct perf_import {
	struct import *import;
	struct perf_event event;
	char name[48]; /* of the first event */
	bool has_period;
	uint64_t others;
};

static bool has_line(const char *line, size_t len)
{
	struct perf_header header;

	return perf_read_header(line, &header);
}

/* The file without its directories, in brackets: the name of code without one. */
static struct error *name_file(struct import *import, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/'), *file = slash && slash[1] ? slash + 1 : path;
	FREED char *text = NULL;

	if (*file == '[')
		return import_text(import, file, strlen(file), name);
	if (asprintf(&text, "[%s]", file) < 0) {
		text = NULL;
		return error_no_memory();
	}
	return import_text(import, text, strlen(text), name);
}

static struct error *number_frame(struct import *import, const struct perf_frame *frame,
				  uint64_t *addr)
{
	struct import_code code = {.addr = frame->addr, .offset = frame->offset};
	struct import_image image = {0};

	if (frame->file.len) {
		TRY(import_text(import, frame->file.at, frame->file.len, &image.path));
		TRY(import_image(import, &image, &code.image));
	}
	if (frame->name.len)
		TRY(import_text(import, frame->name.at, frame->name.len, &code.name));
	else if (image.path)
		TRY(name_file(import, image.path, &code.name));
	return import_code(import, &code, addr);
}

static struct error *add_frame(struct perf_import *perf, const char *line)
{
	struct perf_event *event = &perf->event;
	struct perf_frame frame;

	if (!perf_read_frame(line, &frame)) {
		/* With -F +srcline there are such lines between. */
		if ((*line == ' ' || *line == '\t') && strchr(line, ':'))
			return NULL;
		return import_error(perf->import->input,
				    "neither a frame nor the beginning of an event");
	}
	if (!event->counts)
		return NULL;
	if (event->n_frames == IMPORT_FRAMES_MAX)
		return import_error(perf->import->input, "a stack with too many frames");
	TRY(ARRAY_RESERVE(&event->frames, &event->room, event->n_frames + 1));
	return number_frame(perf->import, &frame, &event->frames[event->n_frames++]);
}

/* An event is whole. */
static struct error *finish(struct perf_import *perf)
{
	struct perf_event *event = &perf->event;
	uint32_t *stack = &event->sample.stack;
	const bool counts = event->inside && event->counts;

	event->inside = false;
	if (!counts)
		return NULL;
	*stack = STACK_ROOT;
	for (size_t i = event->n_frames; i > 0; i--)
		TRY(import_frame(perf->import, *stack, event->frames[i - 1], FRAME_PC, stack));
	return import_sample(perf->import, &event->sample);
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

/* "815/816" is process and thread, "816" a thread. */
static struct error *number_thread(struct perf_import *perf, const struct perf_header *header)
{
	const size_t n = digits(header->ids.at);
	struct perf_piece first = {header->ids.at, n}, second = {0};
	struct recorded_thread thread = {0};
	uint64_t pid, tid;

	if (n < header->ids.len)
		second = (struct perf_piece){first.at + n + 1, header->ids.len - n - 1};
	if (!read_number(second.len ? second : first, &tid) || !read_number(first, &pid) ||
	    tid >= RECORDED_ID_UNKNOWN || pid >= RECORDED_ID_UNKNOWN)
		return import_error(perf->import->input, "a number of a process is too large");
	TRY(import_text(perf->import, header->comm.at, header->comm.len, &thread.name));
	thread.pid = second.len ? (uint32_t)pid : RECORDED_ID_UNKNOWN;
	thread.tid = (uint32_t)tid;
	return import_thread(perf->import, &thread, &perf->event.sample.thread);
}

static struct error *begin(struct perf_import *perf, const char *line)
{
	struct perf_event *event = &perf->event;
	struct perf_header header;

	if (!perf_read_header(line, &header))
		return import_error(perf->import->input, "not the beginning of an event");
	if (header.cpu >= RECORDING_MAX_VCPUS)
		return import_error(perf->import->input, "a CPU's number is too large");
	event->sample = (struct import_sample){.time_ns = header.time_ns,
					       .weight = header.period,
					       .times = 1,
					       .vcpu = (uint16_t)header.cpu};
	event->counts = is_wanted(perf, &header);
	perf->others += !event->counts;
	event->inside = true;
	event->n_frames = 0;
	if (event->counts)
		TRY(number_thread(perf, &header));
	if (!header.frame.len)
		return NULL;
	TRY(add_frame(perf, header.frame.at));
	return finish(perf);
}

static struct error *add_line(void *ctx, char *line, size_t len)
{
	struct perf_import *perf = ctx;

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

	snprintf(import->host, sizeof(import->host), "perf script, event %s", perf->name);
	if (!perf->has_period)
		strcpy(import->unit, "samples");
	else if (!clock)
		snprintf(import->unit, sizeof(import->unit), "%.*s", (int)len, perf->name);
	import_left_out(import, perf->others);
}

static struct error *read_perf_script(struct import *import)
{
	struct perf_import perf = {.import = import};
	struct error *err = import_lines(import->input, add_line, &perf);

	if (!err)
		err = finish(&perf);
	free(perf.event.frames);
	describe(&perf);
	return err;
}

const struct importer import_perf_script = {.name = "perf-script",
					    .title = "what perf script prints",
					    .has_line = has_line,
					    .read = read_perf_script};
