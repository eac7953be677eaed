/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_RECORDING_DECODE_H
#define UNIPROF_RECORDING_DECODE_H

/*
 * From the records of a recording to the visitor, one whole record at a time.
 * Keeps what records refer back to: nodes, the last tick, each vCPU's last
 * entry. Every number is checked, whatever a checksum said about it. Private
 * to src/recording.
 */

#include "base/bytes.h"
#include "recording/format.h"
#include "recording/recording.h"

struct decoder {
	const char *name;      /* of the file, for sentences; the caller's */
	struct stacks *stacks; /* the caller's */
	const struct recording_visitor *visitor;
	struct recording_info info;
	bool has_info, has_end;
	uint32_t *ids; /* [nodes]: the file's node ids in `stacks`, for these may have others */
	uint32_t nodes, ids_cap;
	struct tick_entry *last;    /* [info.vcpus]: the last entry of each */
	struct tick_entry *entries; /* [info.vcpus]: the tick that is being read */
	uint64_t time_ns, weight_ns, paused_ns;
	struct recorded_thread *thread; /* [threads]: number 1 is thread[0] */
	size_t threads, threads_room;
	char **text; /* [texts]: number 1 is text[0] */
	size_t texts, texts_room;
};

/* A record at byte `offset` of the file. ERR_INPUT names that byte; a visitor's error is passed on. */
struct error *decode_record(struct decoder *decoder, unsigned type, struct cursor payload,
			    uint64_t offset);

/* ERR_INPUT: "NAME is damaged at byte OFFSET: WHY". */
struct error *decode_damaged(const struct decoder *decoder, uint64_t offset, const char *why);

void decoder_free(struct decoder *decoder);

#endif
