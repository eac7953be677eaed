/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/snapshot.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/preopen.h"

struct stored_frame {
	uint64_t gfn;
	uint8_t *bytes; /* NULL: free */
	uint64_t round; /* the store's, when it was stored last */
};

#define FIRST_SIZE 64

/* Open addressing; the size is a power of two, at least twice the number of frames. */
struct frame_store {
	struct stored_frame *entries;
	size_t size, n;
	uint64_t round; /* of a writer: the samples, and their repetitions, up to now */
};

static struct stored_frame *find_frame(const struct frame_store *store, uint64_t gfn)
{
	size_t i = (size_t)(gfn * 0x9e3779b97f4a7c15ull >> 32) & (store->size - 1);

	while (store->entries[i].bytes && store->entries[i].gfn != gfn)
		i = (i + 1) & (store->size - 1);
	return &store->entries[i];
}

static struct error *grow_store(struct frame_store *store)
{
	struct frame_store larger = {.size = store->size * 2, .n = store->n, .round = store->round};

	TRY(ARRAY_NEW(&larger.entries, larger.size));
	for (size_t i = 0; i < store->size; i++)
		if (store->entries[i].bytes)
			*find_frame(&larger, store->entries[i].gfn) = store->entries[i];
	free(store->entries);
	*store = larger;
	return NULL;
}

struct error *frame_store_new(struct frame_store **out)
{
	struct frame_store *store = calloc(1, sizeof(*store));

	if (store)
		store->entries = calloc(FIRST_SIZE, sizeof(*store->entries));
	if (!store || !store->entries) {
		free(store);
		return error_no_memory();
	}
	store->size = FIRST_SIZE;
	*out = store;
	return NULL;
}

void frame_store_free(struct frame_store *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < store->size; i++)
		free(store->entries[i].bytes);
	free(store->entries);
	free(store);
}

struct error *frame_store_put(struct frame_store *store, uint64_t gfn, const void *bytes,
			      bool *changed)
{
	struct stored_frame *stored = find_frame(store, gfn);

	*changed = !stored->bytes || memcmp(stored->bytes, bytes, FRAME_SIZE);
	if (!stored->bytes) {
		if (store->n == FRAME_STORE_MAX)
			return error_new(ERR_FAILED, "a snapshot holds at most %u frames",
					 FRAME_STORE_MAX);
		if (2 * (store->n + 1) > store->size) {
			TRY(grow_store(store));
			stored = find_frame(store, gfn);
		}
		stored->bytes = malloc(FRAME_SIZE);
		if (!stored->bytes)
			return error_no_memory();
		stored->gfn = gfn;
		store->n++;
	}
	memcpy(stored->bytes, bytes, FRAME_SIZE);
	stored->round = store->round;
	return NULL;
}

const void *frame_store_get(void *store, uint64_t gfn)
{
	return find_frame(store, gfn)->bytes;
}

/* More than the registers of one vCPU, or all numbers of a head or sample, take. */
#define VCPU_MAX    (64 * VARINT_MAX)
#define NUMBERS_MAX (16 * VARINT_MAX)

struct snapshot_writer {
	FILE *file;
	char *path;
	struct frame_store *frames; /* contents of the file so far */
	struct bytes record;
	uint64_t samples;
};

static struct error *begin(struct snapshot_writer *writer, char tag, size_t payload)
{
	writer->record.len = 0;
	TRY(bytes_reserve(&writer->record, SNAPSHOT_RECORD_HEAD + payload + SNAPSHOT_RECORD_TAIL));
	writer->record.data[0] = (uint8_t)tag;
	writer->record.len = SNAPSHOT_RECORD_HEAD;
	return NULL;
}

static struct error *cannot_write(const struct snapshot_writer *writer)
{
	return error_errno(ERR_OUTPUT, errno, "cannot write %s", writer->path);
}

/* Fills in length and checksum and writes the record. */
static struct error *finish(struct snapshot_writer *writer)
{
	struct bytes *record = &writer->record;
	const uint32_t len = htole32((uint32_t)(record->len - SNAPSHOT_RECORD_HEAD));
	uint32_t crc;

	memcpy(record->data + 1, &len, sizeof(len));
	crc = htole32((uint32_t)crc32(0, record->data, (unsigned)record->len));
	put_bytes(record, &crc, SNAPSHOT_RECORD_TAIL);
	if (fwrite(record->data, 1, record->len, writer->file) != record->len)
		return cannot_write(writer);
	return NULL;
}

static void put_text(struct bytes *bytes, const char *text)
{
	put_varint(bytes, strlen(text));
	put_bytes(bytes, text, strlen(text));
}

static struct error *write_head(struct snapshot_writer *writer, const struct target_info *info)
{
	const char *texts[] = {info->arch->name, info->name, info->id,
			       info->type,	 info->host, info->image};
	size_t size = NUMBERS_MAX;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		size += strlen(texts[i]);
	if (fwrite(SNAPSHOT_MAGIC, 1, SNAPSHOT_MAGIC_LEN, writer->file) != SNAPSHOT_MAGIC_LEN)
		return cannot_write(writer);
	TRY(begin(writer, SNAPSHOT_HEAD, size));
	put_varint(&writer->record, SNAPSHOT_MAJOR);
	put_varint(&writer->record, SNAPSHOT_MINOR);
	put_varint(&writer->record, info->vcpus);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		put_text(&writer->record, texts[i]);
	return finish(writer);
}

static void writer_free(struct snapshot_writer *writer)
{
	if (writer->file)
		fclose(writer->file);
	frame_store_free(writer->frames);
	bytes_free(&writer->record);
	free(writer->path);
	free(writer);
}

static FILE *create(const char *path)
{
	int fd = open_to_write(path);

	return fd < 0 ? NULL : fdopen(fd, "wb");
}

struct error *snapshot_create(const char *path, const struct target_info *info,
			      struct snapshot_writer **out)
{
	struct snapshot_writer *writer;
	struct error *err;

	TRY(ARRAY_NEW(&writer, 1));
	err = frame_store_new(&writer->frames);
	writer->path = strdup(path);
	if (!err && !writer->path)
		err = error_no_memory();
	if (!err) {
		writer->file = create(path);
		if (!writer->file)
			err = error_errno(ERR_OUTPUT, errno, "cannot create %s", path);
	}
	if (!err)
		err = write_head(writer, info);
	if (err)
		writer_free(writer);
	else
		*out = writer;
	return err;
}

struct error *snapshot_frame(struct snapshot_writer *writer, uint64_t gfn, const void *bytes)
{
	const struct stored_frame *stored = find_frame(writer->frames, gfn);
	const uint8_t *data = bytes;
	size_t len = FRAME_SIZE;
	bool changed;

	if (stored->bytes && stored->round == writer->frames->round)
		return NULL;
	TRY(frame_store_put(writer->frames, gfn, bytes, &changed));
	if (!changed)
		return NULL;
	TRY(begin(writer, SNAPSHOT_FRAME, VARINT_MAX + FRAME_SIZE));
	while (len && !data[len - 1])
		len--;
	put_varint(&writer->record, gfn);
	put_bytes(&writer->record, data, len);
	return finish(writer);
}

void snapshot_restart(struct snapshot_writer *writer)
{
	writer->frames->round++;
}

static void put_vcpu(struct bytes *bytes, const struct vcpu_sample *vcpu)
{
	const struct regs *regs = &vcpu->regs;
	unsigned flags = (vcpu->online ? SNAPSHOT_ONLINE : 0) | (regs->user ? SNAPSHOT_USER : 0) |
			 (regs->mmu.pse ? SNAPSHOT_PSE : 0) |
			 (regs->isa == ISA_ARM ? SNAPSHOT_ARM : regs->isa << SNAPSHOT_ISA_AT) |
			 (regs->has_elr ? SNAPSHOT_ELR : 0);

	if (!vcpu->online) {
		put_varint(bytes, 0);
		return;
	}
	put_varint(bytes, flags);
	put_varint(bytes, vcpu->state);
	put_varint(bytes, regs->segmented == 16 ? SNAPSHOT_16_BITS
			  : regs->segmented	? SNAPSHOT_SEGMENT
						: regs->word);
	put_varint(bytes, regs->mmu.mode);
	put_varint(bytes, regs->mmu.root);
	if (regs->isa == ISA_ARM) {
		put_varint(bytes, regs->mmu.root_high);
		put_varint(bytes, regs->mmu.control);
	}
	put_varint(bytes, regs->pc);
	put_varint(bytes, regs->sp);
	put_varint(bytes, regs->fp);
	put_varint(bytes, regs->flags);
	if (regs->has_elr) {
		put_varint(bytes, regs->elr);
		put_varint(bytes, regs->spsr);
	}
	put_varint(bytes, regs->gp_valid);
	for (unsigned i = 0; i < 32; i++)
		if (regs->gp_valid >> i & 1)
			put_varint(bytes, regs->gp[i]);
}

struct error *snapshot_sample(struct snapshot_writer *writer, const struct sample *sample)
{
	TRY(begin(writer, SNAPSHOT_SAMPLE, NUMBERS_MAX + (size_t)sample->vcpus * VCPU_MAX));
	put_varint(&writer->record, sample->time_ns);
	put_varint(&writer->record, sample->paused_ns);
	put_varint(&writer->record, sample->stolen_ns);
	put_varint(&writer->record, sample->retakes);
	put_varint(&writer->record, sample->vcpus);
	for (uint32_t i = 0; i < sample->vcpus; i++)
		put_vcpu(&writer->record, &sample->vcpu[i]);
	writer->samples++;
	writer->frames->round++;
	return finish(writer);
}

struct error *snapshot_close(struct snapshot_writer *writer)
{
	struct error *err = begin(writer, SNAPSHOT_END, NUMBERS_MAX);

	if (!err) {
		put_varint(&writer->record, writer->samples);
		err = finish(writer);
	}
	if (fclose(writer->file) && !err)
		err = cannot_write(writer);
	writer->file = NULL;
	writer_free(writer);
	return err;
}
