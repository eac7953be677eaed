/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The samples of a recording by their tracks, for formats with a column of each of their members:
 * packed, and in a file where they are many.
 */

#include "format/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/intern.h"

struct collecting {
	const struct format_job *job;
	struct samples *samples;
	struct ids *ids; /* numbers of tracks, in the order of their first samples */
	size_t tracks_room;
};

/* The track that a sample belongs to, without any yet. */
static struct track track_of(const struct format_job *job, const struct sample *sample,
			     struct spill *spill)
{
	const struct recorded_thread *thread = sample_thread(job, sample->thread);
	const bool known = thread && thread->tid != RECORDED_ID_UNKNOWN;

	return (struct track){.thread = sample->thread,
			      .vcpu = known ? 0 : sample->vcpu,
			      .spill = spill,
			      .last.thread = sample->thread};
}

/* The first byte of a packed sample: its state, and these. */
#define PACKED_RESUMED	(1u << 4)
#define PACKED_SWITCHED (1u << 5)
#define PACKED_MORE	(1u << 6) /* how often it was taken, and its vCPU, are not those of the last */

/* Bytes that a packed sample has at most. */
#define PACKED_MAX (1 + 6 * VARINT_MAX)

static void put_difference(struct bytes *bytes, uint64_t from, uint64_t to)
{
	put_varint(bytes, zigzag(to - from));
}

static struct error *pack(struct track *track, const struct sample *sample)
{
	const struct sample *last = &track->last;
	const bool more = sample->times != last->times || sample->vcpu != last->vcpu;
	struct bytes *to = &track->packed;

	TRY(bytes_reserve(to, PACKED_MAX));
	to->data[to->len++] =
		(uint8_t)(sample->state | (sample->resumed ? PACKED_RESUMED : 0) |
			  (sample->switched ? PACKED_SWITCHED : 0) | (more ? PACKED_MORE : 0));
	if (more) {
		put_varint(to, sample->times);
		put_varint(to, sample->vcpu);
	}
	put_difference(to, last->time_ns, sample->time_ns);
	put_difference(to, last->weight_ns, sample->weight_ns);
	put_difference(to, last->stack, sample->stack);
	put_difference(to, last->paused_ns, sample->paused_ns);
	track->last = *sample;
	track->n++;
	return NULL;
}

/* Bytes of packed samples that are in memory at most, if there is a file. */
#define IN_MEMORY (16u << 20)

FILE *format_scratch(void)
{
	const char *directory = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd;

	if (!directory || !*directory)
		directory = "/var/tmp";
	snprintf(path, sizeof(path), "%s/uniprof-XXXXXX", directory);
	/* Not every file system has files without a name from the start. */
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	return fd < 0 ? NULL : fdopen(fd, "w+");
}

static struct error *spill_write(struct spill *spill, const struct bytes *bytes)
{
	for (size_t done = 0; done < bytes->len;) {
		const ssize_t n = pwrite(fileno(spill->file), bytes->data + done, bytes->len - done,
					 (off_t)(spill->len + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_new(ERR_OUTPUT, "cannot write samples to a file in TMPDIR: %s",
					 n ? strerror(errno) : "it is full");
		done += (size_t)n;
	}
	spill->len += bytes->len;
	return NULL;
}

/* Moves the samples of all tracks to the file. */
static struct error *spill_all(struct samples *samples)
{
	struct spill *spill = &samples->spill;

	spill->in_memory = 0;
	/* Without such a file all are kept in memory. */
	if (!spill->file)
		return NULL;
	for (size_t i = 0; i < samples->n_tracks; i++) {
		struct track *track = &samples->tracks[i];
		const struct spilled block = {spill->len, track->packed.len};

		if (!block.len)
			continue;
		TRY(ARRAY_RESERVE(&track->blocks, &track->blocks_room, track->n_blocks + 1));
		TRY(spill_write(spill, &track->packed));
		track->blocks[track->n_blocks++] = block;
		track->packed.len = 0;
	}
	return NULL;
}

/* Reads more of the block behind what is left in the buffer; false: the file cannot be read. */
static bool read_block(struct track_reader *reader)
{
	const struct spilled *block = &reader->track->blocks[reader->block];
	const size_t left = (size_t)(reader->in.end - reader->in.at);
	size_t want = sizeof(reader->buffer) - left;
	ssize_t n;

	memmove(reader->buffer, reader->in.at, left);
	if (want > block->len - reader->read)
		want = (size_t)(block->len - reader->read);
	do
		n = pread(fileno(reader->track->spill->file), reader->buffer + left, want,
			  (off_t)(block->offset + reader->read));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	reader->read += (uint64_t)n;
	reader->in = (struct cursor){reader->buffer, reader->buffer + left + n};
	return true;
}

/* Samples are whole in a block, but not in the buffer. */
static void fill(struct track_reader *reader)
{
	const struct track *track = reader->track;
	struct spill *spill = track->spill;

	while (reader->block < track->n_blocks && reader->in.end - reader->in.at < PACKED_MAX) {
		if (reader->read < track->blocks[reader->block].len) {
			if (read_block(reader))
				continue;
			if (!spill->err)
				spill->err = error_new(ERR_OUTPUT, "cannot read samples back from "
								   "the file in TMPDIR");
			reader->block = track->n_blocks;
			reader->in = (struct cursor){0};
			return;
		}
		if (reader->in.at != reader->in.end)
			return;
		reader->read = 0;
		if (++reader->block == track->n_blocks)
			reader->in = (struct cursor){track->packed.data,
						     track->packed.data + track->packed.len};
	}
}

void track_start(const struct track *track, struct track_reader *reader)
{
	*reader = (struct track_reader){.sample.thread = track->thread, .track = track};
	reader->in = (struct cursor){reader->buffer, reader->buffer};
	if (!track->n_blocks && track->packed.data)
		reader->in =
			(struct cursor){track->packed.data, track->packed.data + track->packed.len};
}

/* What pack has put is all there. */
static uint64_t unpack(struct cursor *in)
{
	uint64_t value = 0;

	(void)get_varint(in, &value);
	return value;
}

bool track_next(struct track_reader *reader)
{
	struct sample *sample = &reader->sample;
	struct cursor *in = &reader->in;
	unsigned head;

	fill(reader);
	if (in->at == in->end)
		return false;
	head = *in->at++;
	sample->state = head & (PACKED_RESUMED - 1);
	sample->resumed = (head & PACKED_RESUMED) != 0;
	sample->switched = (head & PACKED_SWITCHED) != 0;
	if (head & PACKED_MORE) {
		sample->times = unpack(in);
		sample->vcpu = (uint16_t)unpack(in);
	}
	sample->time_ns += unzigzag(unpack(in));
	sample->weight_ns += unzigzag(unpack(in));
	sample->stack += (uint32_t)unzigzag(unpack(in));
	sample->paused_ns += (uint32_t)unzigzag(unpack(in));
	return true;
}

static struct error *collect(void *ctx, const struct sample *sample)
{
	struct collecting *c = ctx;
	struct samples *samples = c->samples;
	const struct track track = track_of(c->job, sample, &samples->spill);
	size_t before;
	uint32_t id;
	bool added;

	TRY(ids_get(c->ids, track.thread, track.vcpu, &id, &added));
	if (added) {
		TRY(ARRAY_RESERVE(&samples->tracks, &c->tracks_room, samples->n_tracks + 1));
		samples->tracks[samples->n_tracks++] = track;
	}
	before = samples->tracks[id].packed.len;
	TRY(pack(&samples->tracks[id], sample));
	samples->n++;
	samples->spill.in_memory += samples->tracks[id].packed.len - before;
	return samples->spill.in_memory > IN_MEMORY ? spill_all(samples) : NULL;
}

static int by_thread(const void *left, const void *right)
{
	const struct track *a = left, *b = right;

	return COMPARE(a->thread, b->thread) ?: COMPARE(a->vcpu, b->vcpu);
}

struct error *samples_collect(const struct format_job *job, struct samples **out)
{
	struct samples *samples = *out = calloc(1, sizeof(*samples));
	struct collecting c = {.job = job, .samples = samples};
	struct error *err = samples ? ids_new(&c.ids) : error_no_memory();

	if (err)
		return err;
	samples->spill.file = job->scratch;
	err = samples_read(job, collect, &c);
	ids_free(c.ids);
	if (samples->n)
		qsort(samples->tracks, samples->n_tracks, sizeof(*samples->tracks), by_thread);
	return err;
}

struct error *samples_free(struct samples *samples)
{
	struct error *err;

	if (!samples)
		return NULL;
	for (size_t i = 0; i < samples->n_tracks; i++) {
		bytes_free(&samples->tracks[i].packed);
		free(samples->tracks[i].blocks);
	}
	err = samples->spill.err;
	free(samples->tracks);
	free(samples);
	return err;
}
