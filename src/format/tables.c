/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/intern.h"
#include "import/import.h"
#include "symbol/images/code.h"

struct building {
	const struct format_job *job;
	struct location_table *table;
	struct ids *function_ids; /* numbers of functions */
	size_t entry_room, place_room, answer_room, function_room;
};

static struct error *add_function(struct building *b, const struct location *at, uint32_t *id)
{
	struct location_table *p = b->table;
	bool added;

	TRY(ids_get(b->function_ids, (uintptr_t)at->function, (uintptr_t)at->file, id, &added));
	if (!added)
		return NULL;
	TRY(ARRAY_RESERVE(&p->functions, &b->function_room, p->n_functions + (size_t)1));
	p->functions[p->n_functions++] = (struct location_function){.name = at->function,
								    .symbol = at->symbol,
								    .file = at->file,
								    .resolved = at->resolved};
	return NULL;
}

static struct error *add_place(struct building *b, const struct location *at)
{
	struct location_table *p = b->table;
	struct location_place place = {.line = at->line};

	TRY(add_function(b, at, &place.function));
	TRY(ARRAY_RESERVE(&p->places, &b->place_room, p->n_places + (size_t)1));
	p->places[p->n_places++] = place;
	return NULL;
}

/* The functions of a frame, which are there already if another one has the same. */
static struct error *add_answer(struct building *b, uint32_t frame,
				const struct location_answer **out)
{
	struct location_table *p = b->table;
	const uint32_t number = symbolizer_answer(p->symbolizer, frame);
	struct location_answer *answer;
	const struct location *at;
	size_t n;

	TRY(ARRAY_RESERVE_ZERO(&p->answers, &b->answer_room, number + (size_t)1));
	*out = answer = &p->answers[number];
	if (answer->n)
		return NULL;
	TRY(symbolizer_locate_node(b->job->symbolizer, p->profile->stacks, p->frames->node[frame],
				   &at, &n));
	*answer = (struct location_answer){.start = at[n - 1].start,
					   .places = p->n_places,
					   .n = n & INT32_MAX,
					   .resolved = at[n - 1].resolved};
	for (size_t i = 0; i < n; i++)
		TRY(add_place(b, &at[i]));
	return NULL;
}

static uint32_t image_at(const struct location_table *p, uint64_t code)
{
	for (uint32_t i = 0; i < p->n_images; i++)
		if (code >= p->images[i].start && code < p->images[i].end)
			return i;
	return LOCATION_NONE;
}

static uint64_t addr_of(const struct location_table *p, const struct stack_node *node)
{
	const bool imported = import_is_target(p->profile->info.target);

	return imported && import_is_stand_in(node->addr) ? 0 : node->addr;
}

static const struct stack_node *node_of(const struct location_table *p, uint32_t entry)
{
	return stacks_node(p->profile->stacks, p->frames->node[p->at[entry].frame]);
}

uint64_t location_addr(const struct location_table *table, uint32_t entry)
{
	return addr_of(table, node_of(table, entry));
}

uint64_t location_code(const struct location_table *table, uint32_t entry)
{
	const struct stack_node *node = node_of(table, entry);

	return frame_code(addr_of(table, node), node->kind);
}

uint64_t location_from_start(const struct location_table *table, uint32_t entry)
{
	const struct location_answer *answer = location_answer(table, entry);

	return answer->resolved ? node_of(table, entry)->addr - answer->start : 0;
}

static struct error *add_entry(struct building *b, uint32_t frame)
{
	struct location_table *p = b->table;
	struct location_entry *entry;
	const struct location_answer *answer;

	TRY(add_answer(b, frame, &answer));
	TRY(ARRAY_RESERVE(&p->at, &b->entry_room, p->n + (size_t)1));
	p->of_frame[frame] = p->n;
	entry = &p->at[p->n++];
	*entry = (struct location_entry){.frame = frame, .lines = p->n_lines};
	entry->image = node_of(p, p->n - 1)->kind & FRAME_FOREIGN
			       ? LOCATION_NONE
			       : image_at(p, location_code(p, p->n - 1));
	p->n_lines += answer->n;
	return NULL;
}

/* Adds the frames of each selected stack and of all its callers; a parent's id is smaller. */
static struct error *add_entries(struct building *b)
{
	struct location_table *p = b->table;
	const uint32_t n = stacks_count(p->profile->stacks);

	TRY(symbolizer_prepare_stacks(b->job->symbolizer, p->profile->stacks));
	p->frames = symbolizer_frames(p->symbolizer);
	p->used = calloc(n, sizeof(*p->used));
	p->of_frame = array_resize(NULL, p->frames->n + (size_t)1, sizeof(*p->of_frame));
	if (!p->used || !p->of_frame)
		return error_no_memory();
	memset(p->of_frame, 0xff, (p->frames->n + (size_t)1) * sizeof(*p->of_frame));
	profile_mark_used(p->profile, &p->profile->cells, p->used);
	for (uint32_t id = STACK_ROOT + 1; id < n; id++)
		if (p->used[id] && location_entry_of(p, id) == LOCATION_NONE)
			TRY(add_entry(b, p->frames->of_node[id]));
	return NULL;
}

/* Readers look for files by it. */
static bool is_build_id(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789abcdefABCDEF")];
}

static uint64_t offset_of(const struct recorded_image *image)
{
	const uint64_t here = image->start - image->slide;

	return image->by_offset ? here : elf_offset(image->path, here);
}

static struct error *add_images(struct building *b)
{
	const struct recorded_images *recorded = profile_images(b->job->profile);
	struct location_table *p = b->table;

	p->profile = b->job->profile;
	p->symbolizer = b->job->symbolizer;
	TRY(ARRAY_NEW(&p->images, recorded->n + 1));
	for (size_t i = 0; i < recorded->n; i++) {
		const struct recorded_image *from = &recorded->at[i];
		struct location_image *to = &p->images[p->n_images];

		if (!from->path || from->end <= from->start)
			continue;
		*to = (struct location_image){.start = from->start,
					      .end = from->end,
					      .slide = from->slide,
					      .offset = offset_of(from),
					      .unplaced = format_is_imported(b->job) &&
							  import_is_stand_in(from->start)};
		TRY(symbolizer_intern(b->job->symbolizer, from->path, &to->path));
		if (is_build_id(from->build_id))
			TRY(symbolizer_intern(b->job->symbolizer, from->build_id, &to->build_id));
		p->n_images++;
	}
	return NULL;
}

struct error *location_table_new(const struct format_job *job, struct location_table **out)
{
	struct building b = {.job = job, .table = *out = calloc(1, sizeof(*b.table))};
	struct error *err = b.table ? ids_new(&b.function_ids) : error_no_memory();

	if (!err)
		err = add_images(&b);
	if (!err)
		err = add_entries(&b);
	ids_free(b.function_ids);
	return err;
}

void location_table_free(struct location_table *table)
{
	if (!table)
		return;
	free(table->at);
	free(table->answers);
	free(table->places);
	free(table->functions);
	free(table->images);
	free(table->of_frame);
	free(table->used);
	free(table);
}

/*
 * The samples of a recording by their tracks, for formats with a column of each of their members:
 * packed, and in a file where they are many.
 */

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
