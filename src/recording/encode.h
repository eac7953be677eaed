/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_RECORDING_ENCODE_H
#define UNIPROF_RECORDING_ENCODE_H

/*
 * From ticks and names to records, appended to a buffer. Keeps what records
 * refer back to: nodes, the last tick, each vCPU's last entry. Private to
 * src/recording; the counterpart of decode.c.
 */

#include "base/bytes.h"
#include "base/intern.h"
#include "recording/format.h"
#include "recording/recording.h"

struct encoder {
	const struct stacks *stacks; /* the caller's */
	uint32_t nodes;		     /* so many are encoded, the root included */
	uint32_t threads;	     /* so many are encoded */
	uint32_t vcpus;
	struct tick_entry *last; /* [vcpus]: the last entry of each */
	uint64_t time_ns, weight_ns, paused_ns;
};

struct error *encoder_init(struct encoder *encoder, const struct stacks *stacks, uint32_t vcpus);
void encoder_free(struct encoder *encoder);

/* The first bytes of a file. */
struct error *encode_head(struct bytes *out);

/* RECORD_INFO or RECORD_END. */
struct error *encode_json(const struct bytes *json, enum record_type type, struct bytes *out);

/*
 * True if the caller keeps recording_tick's rules. *newest is the highest stack
 * id in the tick: encode nodes up to it first.
 */
bool encode_allows(const struct encoder *encoder, const struct tick *tick, uint32_t *newest);

/* One record of nodes not yet encoded, as many as go into one, up to `last` at most. */
struct error *encode_nodes(struct encoder *encoder, uint32_t last, struct bytes *out);

/* The next thread. */
struct error *encode_thread(struct encoder *encoder, const struct recorded_thread *thread,
			    struct bytes *out);

/* A tick; before it, which threads run where others did, and those that do not run. */
struct error *encode_tick(struct encoder *encoder, const struct tick *tick, struct bytes *out);

struct error *encode_name(uint64_t addr, uint8_t kind, const char *name, uint64_t offset,
			  struct bytes *out);

/* The check for all of `out`, which began behind the last check. */
struct error *encode_check(struct bytes *out);

/*
 * Appends the texts that are new, then the source locations of an address. `written` numbers
 * the texts by their pointers, which the caller keeps valid: each is written once.
 */
struct error *encode_locations(struct ids *written, uint64_t addr, uint8_t kind,
			       const struct source_frame *frames, size_t n, struct bytes *out);

#endif
