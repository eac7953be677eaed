/* SPDX-License-Identifier: BSD-3-Clause */
#include "import/perf_file.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/intern.h"

#define MAGIC	      "PERFILE2"
#define MAGIC_SWAPPED "2ELIFREP"
#define FILE_HEADER   104u /* of files; less in a pipe */
#define PIPE_HEADER   16u

/* Sections behind the data (perf/util/header.h). */
#define FEATURE_BUILD_ID   2u
#define FEATURE_EVENT_DESC 12u
#define FEATURES	   256u

/* Records of perf itself (perf/lib/include/perf/event.h). */
enum {
	RECORD_ATTR = 64,
	RECORD_TRACING_DATA = 66,
	RECORD_BUILD_ID = 67,
	RECORD_AUXTRACE = 71,
	RECORD_FEATURE = 80,
	RECORD_COMPRESSED = 81,
	RECORD_COMPRESSED2 = 83,
};

/* In a build id's record: its length stands behind it. */
#define MISC_BUILD_ID_SIZE (1u << 15)

#define EVENTS_MAX 1024u

static struct error *damaged(const struct perf_file *d)
{
	return import_damaged(d->import, "it is no whole perf.data");
}

bool perf_file_has_head(const uint8_t *head, size_t len)
{
	return len >= PIPE_HEADER &&
	       (!memcmp(head, MAGIC, strlen(MAGIC)) || !memcmp(head, MAGIC_SWAPPED, strlen(MAGIC)));
}

/* A section of the file that a header names; empty if it is not in it. */
static struct perf_piece section(const struct perf_file *d, const uint8_t *header)
{
	const uint64_t at = u64_at(header), len = u64_at(header + 8);

	if (at > d->all.len || len > d->all.len - at)
		return (struct perf_piece){0};
	return (struct perf_piece){d->all.at + at, len};
}

static struct error *add_event(struct perf_file *d, struct perf_piece attr, struct perf_piece ids)
{
	struct perf_event event = {0};
	uint32_t number;
	uint64_t id;

	if (d->n_events == EVENTS_MAX || attr.len < PERF_ATTR_SIZE_VER0)
		return damaged(d);
	memcpy(&event.attr, attr.at, attr.len < sizeof(event.attr) ? attr.len : sizeof(event.attr));
	TRY(ARRAY_RESERVE(&d->events, &d->events_room, d->n_events + 1));
	while (take_u64(&ids, &id)) {
		TRY(ROW_IDS_GET(&d->event_ids, id, 0, &d->id_event, &number));
		d->id_event[number] = (uint32_t)d->n_events;
	}
	d->events[d->n_events++] = event;
	return NULL;
}

/* The attributes of a file: entries, at whose end is where their ids are. */
static struct error *read_attributes(struct perf_file *d, struct perf_piece entries, uint64_t size)
{
	const uint8_t *at;

	if (size < PERF_ATTR_SIZE_VER0 + 16)
		return damaged(d);
	while (take(&entries, size, &at))
		TRY(add_event(d, (struct perf_piece){at, size - 16}, section(d, at + size - 16)));
	return NULL;
}

/* pid, build id, path */
static struct error *read_build_id(struct perf_file *d, struct perf_piece record)
{
	const struct perf_event_header header = header_at(record.at);
	const char *path, *build_id;
	size_t size = BUILD_ID_BYTES;

	if (record.len < 36)
		return damaged(d);
	if (header.misc & MISC_BUILD_ID_SIZE && record.at[32] <= BUILD_ID_BYTES)
		size = record.at[32];
	TRY(hex_of(d->import, record.at + 12, size, &build_id));
	TRY(text_of(d->import, record.at + 36, record.len - 36, &path));
	return perf_maps_build_id(d->maps, path, build_id);
}

static struct error *read_build_ids(struct perf_file *d, struct perf_piece piece)
{
	const uint8_t *at;

	while (piece.len >= sizeof(struct perf_event_header)) {
		const uint16_t size = header_at(piece.at).size;

		if (size < sizeof(struct perf_event_header) || !take(&piece, size, &at))
			return damaged(d);
		TRY(read_build_id(d, (struct perf_piece){at, size}));
	}
	return NULL;
}

/* Number and size of attributes; each attribute, number of ids, name, ids. */
static struct error *read_event_names(struct perf_file *d, struct perf_piece piece)
{
	const uint8_t *at;
	uint32_t n, size;

	if (!take(&piece, 8, &at))
		return NULL;
	n = u32_at(at);
	size = u32_at(at + 4);
	for (uint32_t i = 0; i < n && i < d->n_events; i++) {
		uint32_t ids, len;

		if (!take(&piece, size, &at) || !take(&piece, 8, &at))
			return NULL;
		ids = u32_at(at);
		len = u32_at(at + 4);
		if (!take(&piece, len, &at))
			return NULL;
		TRY(text_of(d->import, at, len, &d->events[i].name));
		if (!take(&piece, 8 * (uint64_t)ids, &at))
			return NULL;
	}
	return NULL;
}

static struct error *read_feature(struct perf_file *d, unsigned feature, struct perf_piece piece)
{
	if (feature == FEATURE_BUILD_ID)
		return read_build_ids(d, piece);
	return feature == FEATURE_EVENT_DESC ? read_event_names(d, piece) : NULL;
}

/* Sections stand behind the data, in the order of their bits; a file that was cut has none. */
static struct error *read_features(struct perf_file *d, const uint8_t *bits, uint64_t at)
{
	for (unsigned i = 0; i < FEATURES; i++) {
		if (!(bits[i / 8] >> i % 8 & 1))
			continue;
		if (at > d->all.len || d->all.len - at < 16)
			return NULL;
		TRY(read_feature(d, i, section(d, d->all.at + at)));
		at += 16;
	}
	return NULL;
}

/* The event that a record with this id belongs to. */
static uint32_t event_of(const struct perf_file *d, uint64_t id)
{
	uint32_t number;

	return d->n_events > 1 && row_ids_find(&d->event_ids, id, 0, &number) ? d->id_event[number]
									      : 0;
}

/* Where in a sample's numbers its id is, if it has one: events differ in the rest. */
static uint64_t id_of(const struct perf_file *d, struct perf_piece body)
{
	const uint64_t type = d->events[0].attr.sample_type;
	const uint8_t *header;
	size_t at = 0;

	take(&body, sizeof(struct perf_event_header), &header);
	if (type & PERF_SAMPLE_IDENTIFIER)
		return body.len < 8 ? 0 : u64_at(body.at);
	for (uint64_t bit = 1; bit < PERF_SAMPLE_ID; bit <<= 1)
		at += (type & bit &
		       (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR)) !=
		      0;
	return type & PERF_SAMPLE_ID && body.len >= 8 * (at + 1) ? u64_at(body.at + 8 * at) : 0;
}

/* Passes over the values of counters. */
static bool skip_read(struct perf_piece *body, uint64_t format)
{
	const uint64_t each = 1 + !!(format & PERF_FORMAT_ID) + !!(format & (1u << 4) /* lost */);
	const uint64_t times = !!(format & PERF_FORMAT_TOTAL_TIME_ENABLED) +
			       !!(format & PERF_FORMAT_TOTAL_TIME_RUNNING);
	const uint8_t *at;
	uint64_t n = 1;

	if (format & PERF_FORMAT_GROUP && !take_u64(body, &n))
		return false;
	return n <= body->len && take(body, 8 * (times + n * each), &at);
}

/* Fields stand in the order of their bits, but for the identifier. */
bool perf_file_sample(const struct perf_event *event, struct perf_piece record,
		      struct perf_sample *sample)
{
	const uint64_t type = event->attr.sample_type;
	uint64_t unused, ids = 0, cpu = 0, n = 0;
	const struct {
		uint64_t bit, *to;
	} fields[] = {{PERF_SAMPLE_IDENTIFIER, &unused},
		      {PERF_SAMPLE_IP, &sample->ip},
		      {PERF_SAMPLE_TID, &ids},
		      {PERF_SAMPLE_TIME, &sample->time_ns},
		      {PERF_SAMPLE_ADDR, &unused},
		      {PERF_SAMPLE_ID, &unused},
		      {PERF_SAMPLE_STREAM_ID, &unused},
		      {PERF_SAMPLE_CPU, &cpu},
		      {PERF_SAMPLE_PERIOD, &sample->period}};
	struct perf_piece body = record;
	const uint8_t *at;

	*sample = (struct perf_sample){.period = event->attr.sample_period,
				       .pid = RECORDED_ID_UNKNOWN,
				       .tid = RECORDED_ID_UNKNOWN};
	take(&body, sizeof(struct perf_event_header), &at);
	if (event->attr.freq)
		sample->period = 1;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (type & fields[i].bit && !take_u64(&body, fields[i].to))
			return false;
	if (type & PERF_SAMPLE_TID) {
		sample->pid = u32_at((const uint8_t *)&ids);
		sample->tid = u32_at((const uint8_t *)&ids + 4);
	}
	sample->cpu = u32_at((const uint8_t *)&cpu);
	if (type & PERF_SAMPLE_READ && !skip_read(&body, event->attr.read_format))
		return false;
	if (type & PERF_SAMPLE_CALLCHAIN && (!take_u64(&body, &n) || n > body.len / 8))
		return false;
	sample->chain = (struct perf_piece){body.at, 8 * n};
	return true;
}

/* The time of a record that is no sample: it stands at the end, with other things behind it. */
static uint64_t time_at_end(const struct perf_file *d, struct perf_piece record)
{
	const struct perf_event_attr *attr = &d->events[0].attr;
	const uint64_t behind =
		PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
	const size_t at = 8 * (1 + (size_t)__builtin_popcountll(attr->sample_type & behind));

	if (!attr->sample_id_all || !(attr->sample_type & PERF_SAMPLE_TIME) ||
	    record.len < at + sizeof(struct perf_event_header))
		return 0;
	return u64_at(record.at + record.len - at);
}

static struct error *add_timed(struct perf_file *d, struct perf_piece record)
{
	const struct perf_event_header header = header_at(record.at);
	struct perf_timed timed = {.at = record.at, .number = d->n_timed};

	if (!d->n_events)
		return damaged(d);
	if (header.type == PERF_RECORD_SAMPLE) {
		struct perf_sample sample;

		timed.event = event_of(d, id_of(d, record));
		if (!perf_file_sample(&d->events[timed.event], record, &sample))
			return damaged(d);
		timed.time_ns = sample.time_ns;
		d->events[timed.event].samples++;
	} else {
		timed.time_ns = time_at_end(d, record);
	}
	TRY(ARRAY_RESERVE(&d->timed, &d->timed_room, d->n_timed + 1));
	d->timed[d->n_timed++] = timed;
	return NULL;
}

/* Adds the records that were compressed to those before them: one may end in the next piece. */
static struct error *unpack(struct perf_file *d, struct perf_piece piece)
{
	ZSTD_inBuffer in = {piece.at, piece.len, 0};
	const size_t step = ZSTD_DStreamOutSize();
	bool full = false;

	if (!d->stream) {
		d->stream = ZSTD_createDStream();
		if (!d->stream || ZSTD_isError(ZSTD_initDStream(d->stream)))
			return error_no_memory();
	}
	while (in.pos < in.size || full) {
		ZSTD_outBuffer out = {.size = step};

		TRY(bytes_reserve(&d->unpacked, step));
		out.dst = d->unpacked.data + d->unpacked.len;
		if (ZSTD_isError(ZSTD_decompressStream(d->stream, &out, &in)))
			return damaged(d);
		d->unpacked.len += out.pos;
		full = out.pos == out.size;
		if (d->unpacked.len > IMPORT_WHOLE_MAX)
			return import_damaged(d->import, "it unpacks to more than 1 GiB");
	}
	return NULL;
}

/* Data that follows a record without being part of its length. */
static uint64_t behind(struct perf_piece record)
{
	const uint32_t type = header_at(record.at).type;

	if (type == RECORD_AUXTRACE && record.len >= 16)
		return u64_at(record.at + 8);
	if (type == RECORD_TRACING_DATA && record.len >= 12)
		return ((uint64_t)u32_at(record.at + 8) + 7) & ~UINT64_C(7);
	return 0;
}

static struct error *sort_out(struct perf_file *d, struct perf_piece record)
{
	const struct perf_event_header header = header_at(record.at);
	struct perf_piece body = {record.at + sizeof(header), record.len - sizeof(header)};
	uint64_t len = 0;
	const uint8_t *at;

	switch (header.type) {
	case PERF_RECORD_SAMPLE:
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
	case PERF_RECORD_COMM:
	case PERF_RECORD_FORK:
		return add_timed(d, record);
	case RECORD_COMPRESSED:
		return d->inner ? damaged(d) : unpack(d, body);
	case RECORD_COMPRESSED2:
		return !d->inner && take_u64(&body, &len) && len <= body.len
			       ? unpack(d, (struct perf_piece){body.at, len})
			       : damaged(d);
	case RECORD_ATTR:
		/* The attribute tells its size, behind it are the ids. */
		if (body.len < PERF_ATTR_SIZE_VER0)
			return damaged(d);
		len = u32_at(body.at + 4);
		return take(&body, len, &at) ? add_event(d, (struct perf_piece){at, len}, body)
					     : damaged(d);
	case RECORD_BUILD_ID:
		return read_build_id(d, record);
	case RECORD_FEATURE:
		return take_u64(&body, &len) && len < FEATURES
			       ? read_feature(d, (unsigned)len, body)
			       : NULL;
	default:
		return NULL;
	}
}

static struct error *read_records(struct perf_file *d, struct perf_piece piece)
{
	const uint8_t *at;

	while (piece.len) {
		const uint8_t *const start = piece.at;
		struct perf_piece record;

		/* A writer that was killed leaves a part of a record, or zeros. */
		if (piece.len < sizeof(struct perf_event_header) ||
		    header_at(piece.at).size < sizeof(struct perf_event_header) ||
		    !take(&piece, header_at(piece.at).size, &at)) {
			d->cut = true;
			return NULL;
		}
		record = (struct perf_piece){start, (uint64_t)(piece.at - start)};
		TRY(sort_out(d, record));
		if (!take(&piece, behind(record), &at)) {
			d->cut = true;
			return NULL;
		}
	}
	return NULL;
}

static struct error *read_all(struct perf_file *d)
{
	const uint8_t *header = d->all.at;
	uint64_t size = u64_at(header + 8);
	struct perf_piece data;
	bool killed; /* its writer was */

	if (!memcmp(header, MAGIC_SWAPPED, strlen(MAGIC_SWAPPED)))
		return import_damaged(d->import, "it comes from a machine with another byte order");
	if (size < FILE_HEADER)
		return size == PIPE_HEADER ? read_records(d, (struct perf_piece){header + size,
										 d->all.len - size})
					   : damaged(d);
	if (d->all.len < FILE_HEADER)
		return damaged(d);
	TRY(read_attributes(d, section(d, header + 24), u64_at(header + 16)));
	data = section(d, header + 40);
	size = u64_at(header + 40);
	killed = !data.len && size < d->all.len;
	if (killed)
		data = (struct perf_piece){header + size, d->all.len - size};
	else if (data.len)
		TRY(read_features(d, header + 72, size + data.len));
	TRY(read_records(d, data));
	d->cut |= killed;
	return NULL;
}

static int by_time(const void *left, const void *right)
{
	const struct perf_timed *a = left, *b = right;

	return COMPARE(a->time_ns, b->time_ns) ?: COMPARE(a->number, b->number);
}

struct error *perf_file_read(struct perf_file *d, const uint8_t *data, size_t len)
{
	d->all = (struct perf_piece){data, len};
	TRY(read_all(d));
	/* Once it does not move any more. */
	d->inner = true;
	if (d->unpacked.len)
		TRY(read_records(d, (struct perf_piece){d->unpacked.data, d->unpacked.len}));
	if (!d->n_events)
		return damaged(d);
	if (d->n_timed)
		qsort(d->timed, d->n_timed, sizeof(*d->timed), by_time);
	return NULL;
}

void perf_file_free(struct perf_file *d)
{
	ids_free(d->event_ids.ids);
	free(d->id_event);
	free(d->events);
	free(d->timed);
	bytes_free(&d->unpacked);
	ZSTD_freeDStream(d->stream);
}
