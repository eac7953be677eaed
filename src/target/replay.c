/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A recorded guest: serves the samples of a snapshot file (docs/snapshot.md)
 * one after the other, through the same page walks as a live one. Frames stay
 * as they were recorded last. A request for more of a stack than the last time
 * repeats the sample: a live guest would be sampled again at once.
 */

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/array.h"
#include "base/preopen.h"
#include "base/clock.h"
#include "base/bytes.h"
#include "recording/recording.h"
#include "target/snapshot.h"

struct replay {
	struct target base;
	FILE *file;
	char *path;
	struct bytes payload; /* of the current record */
	long first;	      /* file offset behind the head */
	uint64_t samples;     /* whole ones in the file */
	uint64_t taken;
	struct frame_store *frames;
	struct vcpu_request *asked; /* the last time, of each vCPU of the guest */
	uint64_t shift_ns;	    /* from the recorded time to now's */
};

enum got { GOT_RECORD, GOT_END, GOT_DAMAGE };

/* Reads one record; a record that is cut off is the end of the file. */
static struct error *read_record(struct replay *replay, char *tag, enum got *got)
{
	uint8_t head[SNAPSHOT_RECORD_HEAD];
	uint32_t len, crc;

	*got = GOT_END;
	if (fread(head, 1, sizeof(head), replay->file) != sizeof(head))
		return NULL;
	memcpy(&len, head + 1, sizeof(len));
	len = le32toh(len);
	*tag = (char)head[0];
	if (len > SNAPSHOT_PAYLOAD_MAX) {
		*got = GOT_DAMAGE;
		return NULL;
	}
	replay->payload.len = 0;
	TRY(bytes_reserve(&replay->payload, len + 1));
	if (fread(replay->payload.data, 1, len, replay->file) != len ||
	    fread(&crc, 1, SNAPSHOT_RECORD_TAIL, replay->file) != SNAPSHOT_RECORD_TAIL)
		return NULL;
	replay->payload.len = len;
	*got = crc32(crc32(0, head, sizeof(head)), replay->payload.data, len) == le32toh(crc)
		       ? GOT_RECORD
		       : GOT_DAMAGE;
	return NULL;
}

static struct cursor payload_of(const struct replay *replay)
{
	return (struct cursor){replay->payload.data, replay->payload.data + replay->payload.len};
}

static struct error *damaged(const struct replay *replay)
{
	return error_new(ERR_INPUT, "%s is damaged, from byte %ld on", replay->path,
			 ftell(replay->file));
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

static struct error *read_head(struct replay *replay, struct target_info *info)
{
	char magic[SNAPSHOT_MAGIC_LEN], tag, arch[32];
	uint64_t major, minor, vcpus;
	struct cursor in;
	enum got got;

	if (fread(magic, 1, sizeof(magic), replay->file) != sizeof(magic) && ferror(replay->file))
		return error_errno(ERR_INPUT, errno, "cannot read %s", replay->path);
	if (ftell(replay->file) != sizeof(magic) || memcmp(magic, SNAPSHOT_MAGIC, sizeof(magic)))
		return error_new(ERR_INPUT, "%s is no snapshot of uniprof record --snapshot",
				 replay->path);
	TRY(read_record(replay, &tag, &got));
	if (got != GOT_RECORD || tag != SNAPSHOT_HEAD)
		return damaged(replay);
	in = payload_of(replay);
	if (!get_varint(&in, &major))
		return damaged(replay);
	if (major > SNAPSHOT_MAJOR)
		return error_new(ERR_INPUT, "%s was written by a newer uniprof (format %llu)",
				 replay->path, (unsigned long long)major);
	if (!get_varint(&in, &minor) || !get_varint(&in, &vcpus) || !vcpus ||
	    vcpus > RECORDING_MAX_VCPUS || !get_text(&in, arch, sizeof(arch)) ||
	    !get_text(&in, info->name, sizeof(info->name)) ||
	    !get_text(&in, info->id, sizeof(info->id)) ||
	    !get_text(&in, info->type, sizeof(info->type)) ||
	    !get_text(&in, info->host, sizeof(info->host)) ||
	    !get_text(&in, info->image, sizeof(info->image)))
		return damaged(replay);
	info->vcpus = (uint32_t)vcpus;
	info->arch = arch_by_name(arch);
	if (!info->arch)
		return error_new(ERR_INPUT, "%s is of a guest whose architecture is not known here",
				 replay->path);
	replay->first = ftell(replay->file);
	return NULL;
}

static bool get_mmu(struct cursor *in, uint64_t flags, struct regs *regs)
{
	const struct arch *arch = arch_of_code(regs);
	struct mmu *mmu = &regs->mmu;
	uint64_t mode;

	if (!arch || !get_varint(in, &mode) || mode >= MMU_MODES || !(arch->modes >> mode & 1) ||
	    !get_varint(in, &mmu->root))
		return false;
	mmu->mode = (enum mmu_mode)mode;
	mmu->pse = flags & SNAPSHOT_PSE;
	return !(flags & SNAPSHOT_ARM) ||
	       (get_varint(in, &mmu->root_high) && get_varint(in, &mmu->control));
}

static bool get_code(struct cursor *in, uint64_t flags, struct regs *regs)
{
	const uint64_t isa = flags & SNAPSHOT_ARM ? ISA_ARM : flags >> SNAPSHOT_ISA_AT;
	uint64_t word;

	if (isa >= ISAS || !get_varint(in, &word) || word < SNAPSHOT_16_BITS || word > 8 ||
	    (word > 4 && word < 8))
		return false;
	regs->isa = (uint8_t)isa;
	regs->word = word == 8 ? 8 : 4;
	regs->segmented = word == SNAPSHOT_16_BITS ? 16 : word == SNAPSHOT_SEGMENT ? 32 : 0;
	return get_mmu(in, flags, regs);
}

static bool get_vcpu(struct cursor *in, struct vcpu_sample *vcpu)
{
	struct regs *regs = &vcpu->regs;
	uint64_t flags, state, valid;

	memset(regs, 0, sizeof(*regs));
	vcpu->online = false;
	if (!get_varint(in, &flags))
		return false;
	if (!(flags & SNAPSHOT_ONLINE))
		return true;
	if (!get_varint(in, &state) || state >= VCPU_STATES || !get_code(in, flags, regs) ||
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
	regs->user = flags & SNAPSHOT_USER;
	regs->gp_valid = (uint32_t)valid;
	regs->has_elr = flags & SNAPSHOT_ELR;
	return true;
}

static bool get_sample(const struct replay *replay, struct sample *sample)
{
	struct cursor in = payload_of(replay);
	uint64_t retakes, vcpus;

	if (!get_varint(&in, &sample->time_ns) || !get_varint(&in, &sample->paused_ns) ||
	    !get_varint(&in, &sample->stolen_ns) || !get_varint(&in, &retakes) ||
	    retakes > UINT32_MAX || !get_varint(&in, &vcpus) || vcpus > RECORDING_MAX_VCPUS)
		return false;
	sample->retakes = (uint32_t)retakes;
	for (uint32_t i = 0; i < sample->vcpus; i++)
		sample->vcpu[i].online = false;
	for (uint64_t i = 0; i < vcpus; i++) {
		struct vcpu_sample spare = {0};

		if (!get_vcpu(&in, i < sample->vcpus ? &sample->vcpu[i] : &spare))
			return false;
	}
	return true;
}

static bool get_frame(const struct replay *replay, uint64_t *gfn, uint8_t *bytes)
{
	struct cursor in = payload_of(replay);
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
static struct error *check_records(struct replay *replay)
{
	/* Without room for vCPUs: what is read of them is dropped. */
	struct sample sample = {0};
	uint8_t bytes[FRAME_SIZE];
	enum got got;
	uint64_t gfn;
	char tag;

	for (;;) {
		TRY(read_record(replay, &tag, &got));
		if (got == GOT_END || (got == GOT_RECORD && tag == SNAPSHOT_END))
			break;
		if (got == GOT_DAMAGE ||
		    (tag == SNAPSHOT_FRAME && !get_frame(replay, &gfn, bytes)) ||
		    (tag == SNAPSHOT_SAMPLE && !get_sample(replay, &sample)))
			return damaged(replay);
		replay->samples += tag == SNAPSHOT_SAMPLE;
	}
	if (ferror(replay->file) || fseek(replay->file, replay->first, SEEK_SET))
		return error_errno(ERR_INPUT, errno, "cannot read %s", replay->path);
	return NULL;
}

static void replay_close(struct target *target)
{
	struct replay *replay = (struct replay *)target;

	if (replay->file)
		fclose(replay->file);
	bytes_free(&replay->payload);
	frame_store_free(replay->frames);
	free(replay->asked);
	free(replay->path);
	free(replay);
}

static struct error *open_file(struct replay *replay, const char *path)
{
	const int fd = open_to_read(path);

	replay->path = strdup(path);
	replay->file = fd < 0 ? NULL : fdopen(fd, "rb");
	if (!replay->file)
		return error_errno(ERR_INPUT, errno, "cannot open %s", path);
	return replay->path ? NULL : error_no_memory();
}

/*
 * Checks the whole file: ERR_INPUT if it is damaged, no snapshot, or of a newer
 * major version. One that ends in the middle of a record (its writer died) is
 * read up to its last whole sample.
 */
static struct error *replay_open(const char *name, const char *via, struct target **out)
{
	struct replay *replay;
	struct error *err;

	TRY(ARRAY_NEW(&replay, 1));
	replay->base.ops = &target_replay;
	err = open_file(replay, name);
	if (!err)
		err = read_head(replay, &replay->base.info);
	if (!err)
		err = check_records(replay);
	if (!err)
		err = frame_store_new(&replay->frames);
	replay->base.memory = (struct paged_memory){
		.frames = {.frame = frame_store_get, .ctx = replay->frames},
		.partial = true,
	};
	if (!err) {
		replay->asked = calloc(replay->base.info.vcpus, sizeof(*replay->asked));
		if (!replay->asked)
			err = error_no_memory();
	}
	if (err)
		replay_close(&replay->base);
	else
		*out = &replay->base;
	return err;
}

/* True if more of any stack is asked for than the last time. Notes the request. */
static bool asks_for_more(struct replay *replay, const struct sample *sample)
{
	bool more = false;

	for (uint32_t i = 0; i < sample->vcpus && i < replay->base.info.vcpus; i++) {
		const struct vcpu_request *request = &sample->vcpu[i].request;
		struct vcpu_request *asked = &replay->asked[i];

		more = more || request->want > asked->want;
		for (unsigned k = 0; k < UNWIND_OTHERS; k++)
			more = more || (request->other[k].want &&
					(!asked->other[k].want ||
					 request->other[k].va != asked->other[k].va));
		*asked = *request;
	}
	return more;
}

/*
 * Goes to the next sample: stores the frames that come with it, fills times,
 * states and registers, and leaves the stacks empty. vCPUs that only the sample
 * or only the file has are off-line.
 */
static struct error *next_sample(struct replay *replay, struct sample *sample)
{
	uint8_t bytes[FRAME_SIZE];
	struct error *err;
	bool changed;
	enum got got;
	uint64_t gfn;
	char tag = 0;

	if (replay->taken == replay->samples)
		return error_new(ERR_ENDED, "the snapshot is through");
	do {
		err = read_record(replay, &tag, &got);
		if (!err && got != GOT_RECORD)
			err = error_new(ERR_INPUT, "%s changed while it was read", replay->path);
		if (!err && tag == SNAPSHOT_FRAME && get_frame(replay, &gfn, bytes))
			err = frame_store_put(replay->frames, gfn, bytes, &changed);
		if (err)
			return err;
	} while (tag != SNAPSHOT_SAMPLE);
	if (!get_sample(replay, sample))
		return damaged(replay);
	if (!replay->taken++)
		replay->shift_ns = clock_now_ns() - sample->time_ns;
	sample->time_ns += replay->shift_ns;
	return NULL;
}

/* Stack that was not recorded counts as cut off. */
static struct error *replay_sample(struct target *target, struct sample *sample)
{
	struct replay *replay = (struct replay *)target;

	if (!asks_for_more(replay, sample) || !replay->taken)
		TRY(next_sample(replay, sample));
	for (uint32_t i = 0; i < sample->vcpus; i++)
		if (sample->vcpu[i].online)
			paged_memory_copy_stacks(&target->memory, target->info.arch,
						 &sample->vcpu[i]);
	return NULL;
}

static enum target_life replay_life(struct target *target)
{
	const struct replay *replay = (struct replay *)target;

	return replay->taken < replay->samples ? LIFE_RUNS : LIFE_GONE;
}

const struct target_ops target_replay = {
	.scheme = "replay",
	.open = replay_open,
	.close = replay_close,
	.sample = replay_sample,
	.life = replay_life,
};
