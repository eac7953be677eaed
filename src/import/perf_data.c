/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * perf.data, as perf record writes it to files and to pipes, compressed by zstd
 * or not. It holds addresses and where which file was mapped; names come from
 * those files. Only the first event that has samples counts: different events
 * cannot be added. Stacks that perf would unwind itself (--call-graph dwarf)
 * have their innermost frame only.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "import/perf_file.h"

struct perf_data {
	struct import *import;
	struct perf_maps *maps;
	struct perf_file file;
	uint32_t chosen; /* the event that counts */
	uint64_t others;
	uint64_t *chain; /* of one sample, as addresses of the profile */
	uint8_t *kinds;
	bool dwarf;
};

static struct error *damaged(const struct perf_data *d)
{
	return import_damaged(d->import, "it is no whole perf.data");
}

/* The kernel's map begins with a symbol that tells where: "[kernel.kallsyms]_text". */
static size_t kernel_path(const char *path, size_t len)
{
	const char *end = memchr(path, ']', len);

	return len >= 7 && !memcmp(path, "[kernel", 7) && end ? (size_t)(end + 1 - path) : len;
}

/* MMAP: pid, tid, start, length, offset, path. MMAP2 has more before the path. */
static struct error *apply_map(struct perf_data *d, struct perf_piece record)
{
	const struct perf_event_header header = header_at(record.at);
	const bool second = header.type == PERF_RECORD_MMAP2;
	const size_t path_at = second ? 72 : 40;
	const bool has_id = second && header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID;
	const bool kernel =
		(header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL;
	const char *path;
	struct perf_map map;
	size_t len;

	if (record.len < path_at)
		return damaged(d);
	/* Mapped as data; older files tell it by the bits of protection. */
	if (header.misc & PERF_RECORD_MISC_MMAP_DATA)
		return NULL;
	path = (const char *)record.at + path_at;
	len = strnlen(path, record.len - path_at);
	map = (struct perf_map){.pid = kernel ? PERF_KERNEL : u32_at(record.at + 8),
				.start = u64_at(record.at + 16),
				.len = u64_at(record.at + 24),
				.offset = u64_at(record.at + 32)};
	TRY(import_text(d->import, path, kernel ? kernel_path(path, len) : len, &map.path));
	if (has_id && record.at[40] <= BUILD_ID_BYTES)
		TRY(hex_of(d->import, record.at + 44, record.at[40], &map.build_id));
	/* Addresses of a kernel are those of its file. */
	if (kernel && *map.path == '[')
		map.offset = map.start;
	return perf_maps_add(d->maps, &map);
}

static struct error *apply_comm(struct perf_data *d, struct perf_piece record)
{
	const bool exec = header_at(record.at).misc & PERF_RECORD_MISC_COMM_EXEC;
	const char *name;

	if (record.len < 16)
		return damaged(d);
	TRY(text_of(d->import, record.at + 16, record.len - 16, &name));
	return perf_maps_comm(d->maps, u32_at(record.at + 8), u32_at(record.at + 12), name, exec);
}

/* pid, parent's pid, tid, parent's tid */
static struct error *apply_fork(struct perf_data *d, struct perf_piece record)
{
	if (record.len < 24)
		return damaged(d);
	return perf_maps_fork(d->maps, u32_at(record.at + 8), u32_at(record.at + 16),
			      u32_at(record.at + 12), u32_at(record.at + 20));
}

static struct error *add_frame(struct perf_data *d, uint32_t pid, uint64_t addr, uint8_t kind,
			       size_t *n)
{
	bool foreign;

	TRY(perf_maps_translate(d->maps, pid, addr, &d->chain[*n], &foreign));
	d->kinds[(*n)++] = (uint8_t)(kind | (foreign ? FRAME_FOREIGN : 0));
	return NULL;
}

/*
 * Leaf first. Markers tell whose addresses follow; the first one behind each was
 * being executed, all others are returned to.
 */
static struct error *read_chain(struct perf_data *d, const struct perf_sample *sample, bool kernel,
				size_t *n)
{
	struct perf_piece chain = sample->chain;
	uint32_t pid = kernel ? PERF_KERNEL : sample->pid;
	uint8_t kind = FRAME_PC;
	uint64_t addr;

	*n = 0;
	while (take_u64(&chain, &addr) && *n < IMPORT_FRAMES_MAX) {
		if (addr >= (uint64_t)PERF_CONTEXT_MAX) {
			pid = addr == (uint64_t)PERF_CONTEXT_KERNEL ? PERF_KERNEL : sample->pid;
			kind = FRAME_PC;
			continue;
		}
		TRY(add_frame(d, pid, addr, kind, n));
		kind = FRAME_RETURN;
	}
	if (*n)
		return NULL;
	return add_frame(d, kernel ? PERF_KERNEL : sample->pid, sample->ip, FRAME_PC, n);
}

static struct error *apply_sample(struct perf_data *d, const struct perf_timed *timed,
				  struct perf_piece record)
{
	const struct perf_event *event = &d->file.events[timed->event];
	const struct perf_event_header header = header_at(record.at);
	const bool kernel =
		(header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL;
	struct import_sample told = {.times = 1, .time_ns = timed->time_ns};
	struct perf_sample sample;
	size_t n;

	if (!perf_file_sample(event, record, &sample))
		return damaged(d);
	if (sample.cpu >= RECORDING_MAX_VCPUS)
		return import_damaged(d->import, "a CPU's number is too large");
	told.vcpu = (uint16_t)sample.cpu;
	told.weight = sample.period;
	d->dwarf |= (event->attr.sample_type & PERF_SAMPLE_STACK_USER) != 0;
	TRY(read_chain(d, &sample, kernel, &n));
	for (size_t i = n; i > 0; i--)
		TRY(import_frame(d->import, told.stack, d->chain[i - 1], d->kinds[i - 1],
				 &told.stack));
	if (sample.tid != RECORDED_ID_UNKNOWN)
		TRY(perf_maps_thread(d->maps, sample.pid, sample.tid, &told.thread));
	return import_sample(d->import, &told);
}

static struct error *apply(struct perf_data *d, const struct perf_timed *timed)
{
	const struct perf_event_header header = header_at(timed->at);
	const struct perf_piece record = {timed->at, header.size};

	switch (header.type) {
	case PERF_RECORD_SAMPLE:
		if (timed->event == d->chosen)
			return apply_sample(d, timed, record);
		d->others++;
		return NULL;
	case PERF_RECORD_COMM:
		return apply_comm(d, record);
	case PERF_RECORD_FORK:
		return apply_fork(d, record);
	default:
		return apply_map(d, record);
	}
}

/* The name of an event that the file does not tell. */
static const char *usual_name(const struct perf_event_attr *attr)
{
	static const char *const hardware[] = {"cycles",       "instructions", "cache-references",
					       "cache-misses", "branches",     "branch-misses"};

	if (attr->type == PERF_TYPE_HARDWARE &&
	    attr->config < sizeof(hardware) / sizeof(hardware[0]))
		return hardware[attr->config];
	if (attr->type == PERF_TYPE_SOFTWARE && attr->config == PERF_COUNT_SW_CPU_CLOCK)
		return "cpu-clock";
	if (attr->type == PERF_TYPE_SOFTWARE && attr->config == PERF_COUNT_SW_TASK_CLOCK)
		return "task-clock";
	return "events";
}

/* Clocks count nanoseconds. */
static void describe(struct perf_data *d)
{
	const struct perf_event *event = &d->file.events[d->chosen];
	const struct perf_event_attr *attr = &event->attr;
	const char *name = event->name && *event->name ? event->name : usual_name(attr);
	const bool clock = attr->type == PERF_TYPE_SOFTWARE && attr->config <= 1;
	const bool has_period = attr->sample_type & PERF_SAMPLE_PERIOD || !attr->freq;
	struct import *import = d->import;

	import->timeless = !(attr->sample_type & PERF_SAMPLE_TIME);
	snprintf(import->host, sizeof(import->host), "perf, event %s%s", name,
		 d->dwarf ? "; stacks are not unwound" : "");
	if (!has_period)
		strcpy(import->unit, "samples");
	else if (!clock)
		snprintf(import->unit, sizeof(import->unit), "%.*s", (int)strcspn(name, ":"), name);
	if (attr->freq)
		import->rate_hz = (double)attr->sample_freq;
	else if (clock && attr->sample_period)
		import->rate_hz = 1e9 / (double)attr->sample_period;
	import_left_out(import, d->others);
	if (d->file.cut)
		strcpy(import->reason, "the file stops in the middle");
}

static struct error *apply_all(struct perf_data *d)
{
	while (d->chosen + 1 < d->file.n_events && !d->file.events[d->chosen].samples)
		d->chosen++;
	d->chain = calloc(IMPORT_FRAMES_MAX, sizeof(*d->chain));
	d->kinds = calloc(IMPORT_FRAMES_MAX, sizeof(*d->kinds));
	if (!d->chain || !d->kinds)
		return error_no_memory();
	for (size_t i = 0; i < d->file.n_timed; i++)
		TRY(apply(d, &d->file.timed[i]));
	describe(d);
	return NULL;
}

static void perf_data_free(struct perf_data *d)
{
	perf_file_free(&d->file);
	perf_maps_free(d->maps);
	free(d->chain);
	free(d->kinds);
}

static struct error *read_perf_data(struct import *import)
{
	ENDED_BY(perf_data_free)
	struct perf_data d = {.import = import, .file = {.import = import}};
	const uint8_t *data;
	size_t len;

	TRY(import_whole(import->input, &data, &len));
	TRY(perf_maps_new(import, &d.maps));
	d.file.maps = d.maps;
	TRY(perf_file_read(&d.file, data, len));
	return apply_all(&d);
}

const struct importer import_perf_data = {.name = "perf.data",
					  .title = "perf.data",
					  .has_head = perf_file_has_head,
					  .read = read_perf_data};
