/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/snapshot_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/preopen.h"
#include "base/bytes.h"
#include "target/snapshot_format.h"

struct snapshot_reader {
	FILE *file;
	char *path;
	struct bytes payload; /* of the current record */
	long first;	      /* file offset behind the head */
	uint64_t samples;     /* whole ones in the file */
	uint64_t taken;
};

enum got { GOT_RECORD, GOT_END, GOT_DAMAGE };

static uint32_t get_32(const uint8_t *from)
{
	return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Reads one record; a record that is cut off is the end of the file. */
static struct error *read_record(struct snapshot_reader *reader, char *tag, enum got *got)
{
	uint8_t head[SNAPSHOT_RECORD_HEAD], tail[SNAPSHOT_RECORD_TAIL];
	struct error *err;
	uint32_t len;
	uLong crc;

	*got = GOT_END;
	if (fread(head, 1, sizeof(head), reader->file) != sizeof(head))
		return NULL;
	len = get_32(head + 1);
	*tag = (char)head[0];
	if (len > SNAPSHOT_PAYLOAD_MAX) {
		*got = GOT_DAMAGE;
		return NULL;
	}
	reader->payload.len = 0;
	err = bytes_reserve(&reader->payload, len + 1);
	if (err)
		return err;
	if (fread(reader->payload.data, 1, len, reader->file) != len ||
	    fread(tail, 1, sizeof(tail), reader->file) != sizeof(tail))
		return NULL;
	reader->payload.len = len;
	crc = crc32(crc32(0, head, sizeof(head)), reader->payload.data, len);
	*got = crc == get_32(tail) ? GOT_RECORD : GOT_DAMAGE;
	return NULL;
}

static struct cursor payload_of(const struct snapshot_reader *reader)
{
	return (struct cursor){reader->payload.data, reader->payload.data + reader->payload.len};
}

static struct error *damaged(const struct snapshot_reader *reader)
{
	return error_new(ERR_INPUT, "%s is damaged, from byte %ld on", reader->path,
			 ftell(reader->file));
}

static bool get_text(struct cursor *in, char *to, size_t size)
{
	uint64_t len;

	if (!get_varint(in, &len) || len >= size || len > (uint64_t)(in->end - in->at))
		return false;
	memcpy(to, in->at, len);
	to[len] = 0;
	in->at += len;
	return true;
}

static struct error *read_head(struct snapshot_reader *reader, struct target_info *info)
{
	char magic[SNAPSHOT_MAGIC_LEN], tag, arch[32];
	uint64_t major, minor, vcpus;
	struct cursor in;
	struct error *err;
	enum got got;

	if (fread(magic, 1, sizeof(magic), reader->file) != sizeof(magic) && ferror(reader->file))
		return error_errno(ERR_INPUT, errno, "cannot read %s", reader->path);
	if (ftell(reader->file) != sizeof(magic) || memcmp(magic, SNAPSHOT_MAGIC, sizeof(magic)))
		return error_new(ERR_INPUT, "%s is no snapshot of uniprof record --snapshot",
				 reader->path);
	err = read_record(reader, &tag, &got);
	if (err)
		return err;
	if (got != GOT_RECORD || tag != SNAPSHOT_HEAD)
		return damaged(reader);
	in = payload_of(reader);
	if (!get_varint(&in, &major))
		return damaged(reader);
	if (major > SNAPSHOT_MAJOR)
		return error_new(ERR_INPUT, "%s was written by a newer uniprof (format %llu)",
				 reader->path, (unsigned long long)major);
	if (!get_varint(&in, &minor) || !get_varint(&in, &vcpus) || !vcpus ||
	    vcpus > RECORDING_MAX_VCPUS || !get_text(&in, arch, sizeof(arch)) ||
	    !get_text(&in, info->name, sizeof(info->name)) ||
	    !get_text(&in, info->id, sizeof(info->id)) ||
	    !get_text(&in, info->type, sizeof(info->type)) ||
	    !get_text(&in, info->host, sizeof(info->host)) ||
	    !get_text(&in, info->image, sizeof(info->image)))
		return damaged(reader);
	info->vcpus = (uint32_t)vcpus;
	info->arch = arch_by_name(arch);
	if (!info->arch)
		return error_new(ERR_INPUT, "%s is of a guest whose architecture is not known here",
				 reader->path);
	reader->first = ftell(reader->file);
	return NULL;
}

static bool get_mmu(struct cursor *in, uint64_t flags, struct mmu *mmu)
{
	const bool arm = flags & SNAPSHOT_ARM;
	uint64_t mode;

	if (!get_varint(in, &mode) || mode > (arm ? MMU_ARM_SHORT : MMU_X86_5) ||
	    (arm && mode != MMU_OFF && mode < MMU_ARM64) || !get_varint(in, &mmu->root))
		return false;
	mmu->mode = (enum mmu_mode)mode;
	mmu->pse = flags & SNAPSHOT_PSE;
	return !arm || (get_varint(in, &mmu->root_high) && get_varint(in, &mmu->control));
}

static bool get_vcpu(struct cursor *in, struct vcpu_sample *vcpu)
{
	struct regs *regs = &vcpu->regs;
	uint64_t flags, state, word, valid;

	memset(regs, 0, sizeof(*regs));
	vcpu->online = false;
	if (!get_varint(in, &flags))
		return false;
	if (!(flags & SNAPSHOT_ONLINE))
		return true;
	if (!get_varint(in, &state) || state >= VCPU_STATES || !get_varint(in, &word) ||
	    (word != 4 && word != 8) || !get_mmu(in, flags, &regs->mmu) ||
	    !get_varint(in, &regs->pc) || !get_varint(in, &regs->sp) ||
	    !get_varint(in, &regs->fp) || !get_varint(in, &regs->flags) ||
	    (flags & SNAPSHOT_ELR &&
	     (!get_varint(in, &regs->elr) || !get_varint(in, &regs->spsr))) ||
	    !get_varint(in, &valid) || valid > UINT32_MAX)
		return false;
	for (unsigned i = 0; i < 32; i++)
		if ((valid >> i & 1) && !get_varint(in, &regs->gp[i]))
			return false;
	vcpu->online = true;
	vcpu->state = (enum vcpu_state)state;
	regs->word = (uint8_t)word;
	regs->user = flags & SNAPSHOT_USER;
	regs->gp_valid = (uint32_t)valid;
	regs->isa = flags & SNAPSHOT_ARM ? ISA_ARM : ISA_X86;
	regs->has_elr = flags & SNAPSHOT_ELR;
	return true;
}

/* With sample NULL only checks. */
static bool get_sample(const struct snapshot_reader *reader, struct sample *sample)
{
	struct cursor in = payload_of(reader);
	uint64_t time_ns, paused_ns, stolen_ns, retakes, vcpus;

	if (!get_varint(&in, &time_ns) || !get_varint(&in, &paused_ns) ||
	    !get_varint(&in, &stolen_ns) || !get_varint(&in, &retakes) || retakes > UINT32_MAX ||
	    !get_varint(&in, &vcpus) || vcpus > RECORDING_MAX_VCPUS)
		return false;
	if (sample) {
		sample->time_ns = time_ns;
		sample->paused_ns = paused_ns;
		sample->stolen_ns = stolen_ns;
		sample->retakes = (uint32_t)retakes;
		for (uint32_t i = 0; i < sample->vcpus; i++)
			sample->vcpu[i].online = false;
	}
	for (uint64_t i = 0; i < vcpus; i++) {
		struct vcpu_sample spare = {0};

		if (!get_vcpu(&in, sample && i < sample->vcpus ? &sample->vcpu[i] : &spare))
			return false;
	}
	return true;
}

static bool get_frame(const struct snapshot_reader *reader, uint64_t *gfn, uint8_t *bytes)
{
	struct cursor in = payload_of(reader);
	size_t len;

	if (!get_varint(&in, gfn))
		return false;
	len = (size_t)(in.end - in.at);
	if (len > FRAME_SIZE)
		return false;
	memset(bytes, 0, FRAME_SIZE);
	memcpy(bytes, in.at, len);
	return true;
}

/* Reads all records once; later reading can rely on them. */
static struct error *check_records(struct snapshot_reader *reader)
{
	uint8_t bytes[FRAME_SIZE];
	bool good = true;
	struct error *err;
	enum got got;
	uint64_t gfn;
	char tag;

	for (;;) {
		err = read_record(reader, &tag, &got);
		if (err)
			return err;
		if (got == GOT_END || (got == GOT_RECORD && tag == SNAPSHOT_END))
			break;
		if (got == GOT_RECORD && tag == SNAPSHOT_FRAME)
			good = get_frame(reader, &gfn, bytes);
		else if (got == GOT_RECORD && tag == SNAPSHOT_SAMPLE)
			good = get_sample(reader, NULL);
		if (got == GOT_DAMAGE || !good)
			return damaged(reader);
		reader->samples += tag == SNAPSHOT_SAMPLE;
	}
	if (ferror(reader->file) || fseek(reader->file, reader->first, SEEK_SET))
		return error_errno(ERR_INPUT, errno, "cannot read %s", reader->path);
	return NULL;
}

void snapshot_reader_free(struct snapshot_reader *reader)
{
	if (!reader)
		return;
	if (reader->file)
		fclose(reader->file);
	bytes_free(&reader->payload);
	free(reader->path);
	free(reader);
}

static FILE *open_file(const char *path)
{
	int fd = open_to_read(path);

	return fd < 0 ? NULL : fdopen(fd, "rb");
}

struct error *snapshot_open(const char *path, struct target_info *info,
			    struct snapshot_reader **out)
{
	struct snapshot_reader *reader = calloc(1, sizeof(*reader));
	struct error *err = NULL;

	if (!reader)
		return error_no_memory();
	reader->path = strdup(path);
	if (!reader->path)
		err = error_no_memory();
	if (!err) {
		reader->file = open_file(path);
		if (!reader->file)
			err = error_errno(ERR_INPUT, errno, "cannot open %s", path);
	}
	if (!err)
		err = read_head(reader, info);
	if (!err)
		err = check_records(reader);
	if (err)
		snapshot_reader_free(reader);
	else
		*out = reader;
	return err;
}

bool snapshot_has_next(const struct snapshot_reader *reader)
{
	return reader->taken < reader->samples;
}

struct error *snapshot_next(struct snapshot_reader *reader, struct frame_store *frames,
			    struct sample *sample, bool *more)
{
	uint8_t bytes[FRAME_SIZE];
	struct error *err;
	bool changed;
	enum got got;
	uint64_t gfn;
	char tag;

	*more = snapshot_has_next(reader);
	while (*more) {
		err = read_record(reader, &tag, &got);
		if (err)
			return err;
		if (got != GOT_RECORD)
			return error_new(ERR_INPUT, "%s changed while it was read", reader->path);
		if (tag == SNAPSHOT_FRAME && get_frame(reader, &gfn, bytes)) {
			err = frame_store_put(frames, gfn, bytes, &changed);
			if (err)
				return err;
		}
		if (tag == SNAPSHOT_SAMPLE) {
			reader->taken++;
			if (!get_sample(reader, sample))
				return damaged(reader);
			return NULL;
		}
	}
	return NULL;
}
