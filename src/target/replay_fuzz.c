/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for snapshots. The first byte of the input selects: the rest
 * is a file; or records of a tag and a length each, which get the checksums
 * that no fuzzer would find, behind a good beginning.
 */

#include <zlib.h>

#include "base/bytes.h"
#include "base/fuzz_testing.h"
#include "recording/recording.h"
#include "target/snapshot.h"
#include "target/target.h"

#define SAMPLES 64

static void put_record(struct bytes *out, char tag, const void *payload, size_t len)
{
	const uint8_t head[SNAPSHOT_RECORD_HEAD] = {(uint8_t)tag, (uint8_t)len, (uint8_t)(len >> 8),
						    (uint8_t)(len >> 16)};
	uint32_t crc;

	done(bytes_reserve(out, sizeof(head) + len + sizeof(crc)));
	crc = (uint32_t)crc32(crc32(0, head, sizeof(head)), payload, (unsigned)len);
	put_bytes(out, head, sizeof(head));
	put_bytes(out, payload, len);
	put_bytes(out, &crc, sizeof(crc));
}

static void put_head(struct bytes *out, unsigned how)
{
	static const char *const archs[] = {"x86_64", "x86_32", "arm64", "arm32", "riscv64"};
	uint8_t payload[64] = {SNAPSHOT_MAJOR, SNAPSHOT_MINOR, 1 + (how >> 3 & 3)};
	const char *arch = archs[how % 5];
	size_t len = 3;

	payload[len++] = (uint8_t)strlen(arch);
	memcpy(payload + len, arch, strlen(arch));
	len += strlen(arch);
	/* Names, and where it ran: none. */
	put_record(out, SNAPSHOT_HEAD, payload, len + 5);
}

static void make_file(struct fuzz_input *in, unsigned how, struct bytes *out)
{
	done(bytes_reserve(out, SNAPSHOT_MAGIC_LEN + fuzz_left(in)));
	if (how & 0x80) {
		put_bytes(out, in->at, fuzz_left(in));
		return;
	}
	put_bytes(out, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_LEN);
	if (!(how & 0x40))
		put_head(out, how);
	while (fuzz_left(in) > 2) {
		const char tag = (char)fuzz_number(in, 1);
		const size_t len = fuzz_number(in, 2) % (fuzz_left(in) + 1);

		put_record(out, tag, in->at, len);
		in->at += len;
	}
}

static bool take_sample(struct target *target, struct sample *sample)
{
	struct error *err = target->ops->sample(target, sample);
	const bool more = !err;
	uint8_t bytes[64];

	need(!err || err->kind == ERR_ENDED);
	error_free(err);
	for (uint32_t i = 0; more && i < sample->vcpus; i++) {
		const struct vcpu_sample *vcpu = &sample->vcpu[i];

		need(!vcpu->online || vcpu->stack.len <= vcpu->request.want);
		if (vcpu->online)
			(void)target_read(target, &vcpu->regs, vcpu->regs.pc, bytes, sizeof(bytes));
	}
	return more;
}

static void play(struct target *target, unsigned how)
{
	struct sample *sample = NULL;

	need(target->info.arch && target->info.vcpus && target->info.vcpus <= RECORDING_MAX_VCPUS);
	/* A file may tell of another number of vCPUs in each sample. */
	done(sample_new(target->info.vcpus < 4 ? target->info.vcpus : 4, 16384, &sample));
	for (unsigned i = 0; i < SAMPLES && take_sample(target, sample); i++) {
		sample->vcpu[0].request.other[0].want = how & 0x20 ? 64 : 0;
		sample->vcpu[0].request.other[0].va = sample->vcpu[0].regs.fp;
		if (how & 0x20)
			sample->vcpu[0].request.want += 256;
		need(target->ops->life(target) == LIFE_RUNS ||
		     target->ops->life(target) == LIFE_GONE);
	}
	sample_free(sample);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	struct target *target = NULL;
	struct bytes bytes = {0};
	struct fuzz_file file;
	struct error *err;

	make_file(&in, how, &bytes);
	file = fuzz_file_new(bytes.data, bytes.len);
	err = target_replay.open(file.path, NULL, &target);
	need(!err == !!target && (!err || err->kind == ERR_INPUT));
	if (target) {
		play(target, how);
		target_close(target);
	}
	error_free(err);
	bytes_free(&bytes);
	close(file.fd);
}
