/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/owned.h"

/* Nodes are encoded in records of about this many bytes, so that no record gets too long. */
#define NODES_RECORD (16u << 10)

/* A node takes at most this many bytes, an entry of a tick this many (repeat, skip, CPU, entry, id). */
#define NODE_MAX  (2 * VARINT_MAX)
#define ENTRY_MAX (5 * VARINT_MAX)

struct error *encoder_init(struct encoder *encoder, const struct stacks *stacks, uint32_t vcpus)
{
	*encoder = (struct encoder){.stacks = stacks,
				    .nodes = 1,
				    .vcpus = vcpus,
				    .time_grain_ns = 1,
				    .pause_grain_ns = 1,
				    .ran_grain_ns = NS_PER_US};
	encoder->last = calloc(vcpus + 1, sizeof(*encoder->last));
	return encoder->last ? NULL : error_no_memory();
}

#define PERIOD_GRAINS  64
#define PAUSE_GRAIN_NS NS_PER_US
#define RAN_GRAIN_NS   (100 * NS_PER_US)

void encoder_coarsen(struct encoder *encoder, uint64_t period_ns)
{
	encoder->time_grain_ns = period_ns > PERIOD_GRAINS ? period_ns / PERIOD_GRAINS : 1;
	encoder->pause_grain_ns = PAUSE_GRAIN_NS;
	encoder->ran_grain_ns = RAN_GRAIN_NS;
}

void encoder_free(struct encoder *encoder)
{
	free(encoder->last);
}

/* Starts a record in room for `max` bytes of payload; put the payload and call end_record. */
static struct error *begin_record(struct bytes *out, size_t max, size_t *start)
{
	TRY(bytes_reserve(out, RECORD_HEAD_MAX + max));
	*start = out->len;
	out->len += RECORD_HEAD_MAX;
	return NULL;
}

/* The length's own length is known only now: moves the payload down to it. */
static void end_record(struct bytes *out, size_t start, enum record_type type)
{
	size_t len = out->len - start - RECORD_HEAD_MAX;
	const uint8_t *payload = out->data + start + RECORD_HEAD_MAX;

	out->len = start;
	put_varint(out, len);
	out->data[out->len++] = (uint8_t)type;
	memmove(out->data + out->len, payload, len);
	out->len += len;
}

/* A record of numbers, and bytes behind them. */
static struct error *encode_plain(enum record_type type, const uint64_t *numbers, size_t n,
				  const void *data, size_t len, struct bytes *out)
{
	size_t start;

	TRY(begin_record(out, n * VARINT_MAX + len, &start));
	for (size_t i = 0; i < n; i++)
		put_varint(out, numbers[i]);
	if (len)
		put_bytes(out, data, len);
	end_record(out, start, type);
	return NULL;
}

struct error *encode_head(struct bytes *out)
{
	TRY(bytes_reserve(out, RECORDING_HEAD_LEN));
	put_bytes(out, RECORDING_MAGIC, RECORDING_MAGIC_LEN);
	out->data[out->len++] = RECORDING_MAJOR;
	out->data[out->len++] = RECORDING_MINOR;
	return NULL;
}

struct error *encode_json(const struct bytes *json, enum record_type type, struct bytes *out)
{
	if (json->len > RECORD_MAX)
		return error_new(ERR_FAILED, "the recording's description has more than %u bytes",
				 RECORD_MAX);
	return encode_plain(type, NULL, 0, json->data, json->len, out);
}

static bool fits(const struct encoder *encoder, const struct tick_entry *entry, uint32_t *newest)
{
	if (entry->stack > *newest)
		*newest = entry->stack;
	return entry->end < UNWIND_ENDS && entry->stack < stacks_count(encoder->stacks) &&
	       entry->thread <= encoder->threads;
}

bool encode_allows(const struct encoder *encoder, const struct tick *tick, uint32_t *newest)
{
	*newest = STACK_ROOT;
	if (tick->time_ns < encoder->time_ns || tick->waits > TICK_WAITS_MAX)
		return false;
	for (uint32_t i = 0; i < tick->n; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (entry->vcpu >= encoder->vcpus || (i > 0 && entry->vcpu <= entry[-1].vcpu) ||
		    entry->state >= VCPU_STATES || !fits(encoder, entry, newest))
			return false;
	}
	for (uint32_t i = tick->n; i < tick->n + tick->waits; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (!entry->thread || entry->state < WAIT_QUEUED || entry->state >= SAMPLE_STATES ||
		    !fits(encoder, entry, newest))
			return false;
	}
	return true;
}

static void put_node(struct bytes *out, const struct stacks *stacks, uint32_t id)
{
	const struct stack_node *node = stacks_node(stacks, id);
	uint64_t from = stacks_node(stacks, node->parent)->addr;
	uint64_t back = id - node->parent - 1;

	put_varint(out, (back << NODE_TRUST_BITS | node->trust) << NODE_KIND_BITS | node->kind);
	put_varint(out, zigzag(node->addr - from));
}

struct error *encode_nodes(struct encoder *encoder, uint32_t last, struct bytes *out)
{
	size_t start;

	TRY(begin_record(out, NODES_RECORD + NODE_MAX, &start));
	while (encoder->nodes <= last && out->len - start < NODES_RECORD)
		put_node(out, encoder->stacks, encoder->nodes++);
	end_record(out, start, RECORD_NODES);
	return NULL;
}

static void put_op(struct bytes *out, enum tick_op op, uint64_t value)
{
	put_varint(out, value << TICK_OP_BITS | op);
}

/* As many whole grains as there are; the remainder is added to what comes next. */
static uint64_t whole_grains(uint64_t ns, uint64_t *remainder, uint64_t grain_ns)
{
	if (__builtin_add_overflow(ns, *remainder, &ns))
		ns = UINT64_MAX;
	*remainder = ns % grain_ns;
	return ns - *remainder;
}

static void put_entries(struct encoder *encoder, const struct tick *tick, struct bytes *out)
{
	uint32_t vcpu = 0, repeats = 0;

	for (uint32_t i = 0; i < tick->n; i++, vcpu++) {
		const struct tick_entry *entry = &tick->entries[i];
		struct tick_entry *last = &encoder->last[entry->vcpu];
		bool as_before = entry->stack == last->stack && entry->state == last->state &&
				 entry->end == last->end;
		uint64_t cpu = whole_grains(entry->ran_ns, &last->ran_ns, encoder->ran_grain_ns) /
			       NS_PER_US;

		if (repeats > 0 && (entry->vcpu != vcpu || !as_before || cpu)) {
			put_op(out, TICK_REPEAT, repeats);
			repeats = 0;
		}
		if (entry->vcpu != vcpu)
			put_op(out, TICK_SKIP, entry->vcpu - vcpu);
		vcpu = entry->vcpu;
		if (cpu)
			put_op(out, TICK_CPU, cpu);
		if (as_before) {
			repeats++;
			continue;
		}
		put_op(out, TICK_ENTRY, (uint64_t)entry->end << TICK_STATE_BITS | entry->state);
		put_varint(out, entry->stack);
		last->stack = entry->stack;
		last->state = entry->state;
		last->end = entry->end;
	}
	if (repeats > 0)
		put_op(out, TICK_REPEAT, repeats);
}

/* RECORD_CONTAINER, if it is another one than before; "": none is known. */
static struct error *encode_container(struct encoder *encoder, const char *container,
				      struct bytes *out)
{
	const size_t len = strnlen(container, RECORDED_CONTAINER_MAX);

	if (strlen(encoder->container) == len && !memcmp(encoder->container, container, len))
		return NULL;
	TRY(encode_plain(RECORD_CONTAINER, NULL, 0, container, len, out));
	memcpy(encoder->container, container, len);
	encoder->container[len] = '\0';
	return NULL;
}

struct error *encode_thread(struct encoder *encoder, const struct recorded_thread *thread,
			    struct bytes *out)
{
	const size_t name = strnlen(thread->name, RECORDED_THREAD_NAME_MAX);
	const size_t process = strnlen(thread->process, RECORDED_THREAD_NAME_MAX);
	size_t start;

	TRY(encode_container(encoder, thread->container ?: "", out));
	TRY(begin_record(out, 5 * VARINT_MAX + name + process, &start));
	put_varint(out,
		   (thread->kernel ? THREAD_OF_KERNEL : 0) | (thread->idle ? THREAD_IS_IDLE : 0));
	put_varint(out, thread->pid);
	put_varint(out, thread->tid);
	put_varint(out, thread->start_ns);
	put_varint(out, name);
	put_bytes(out, thread->name, name);
	put_bytes(out, thread->process, process);
	end_record(out, start, RECORD_THREAD);
	encoder->threads++;
	return NULL;
}

/* RECORD_RUNNING, if any vCPU of the tick runs another thread than it did. */
static struct error *encode_running(struct encoder *encoder, const struct tick *tick,
				    struct bytes *out)
{
	bool begun = false;
	size_t start = 0;

	for (uint32_t i = 0; i < tick->n; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (entry->thread == encoder->last[entry->vcpu].thread)
			continue;
		if (!begun)
			TRY(begin_record(out, (size_t)(tick->n - i) * 2 * VARINT_MAX, &start));
		begun = true;
		put_varint(out, entry->vcpu);
		put_varint(out, entry->thread);
		encoder->last[entry->vcpu].thread = entry->thread;
	}
	if (begun)
		end_record(out, start, RECORD_RUNNING);
	return NULL;
}

/* RECORD_WAITING, if there are any. */
static struct error *encode_waiting(const struct tick *tick, struct bytes *out)
{
	size_t start;

	if (!tick->waits)
		return NULL;
	TRY(begin_record(out, (size_t)tick->waits * 4 * VARINT_MAX, &start));
	for (uint32_t i = tick->n; i < tick->n + tick->waits; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		put_varint(out, entry->thread);
		put_varint(out, (uint64_t)entry->end << WAITING_STATE_BITS |
					(entry->state - WAIT_QUEUED));
		put_varint(out, entry->stack);
		put_varint(out, entry->weight_ns);
	}
	end_record(out, start, RECORD_WAITING);
	return NULL;
}

struct error *encode_tick(struct encoder *encoder, const struct tick *tick, struct bytes *out)
{
	const uint64_t time_ns = tick->time_ns - tick->time_ns % encoder->time_grain_ns;
	const uint64_t paused_ns = whole_grains(tick->paused_ns, &encoder->pause_remainder_ns,
						encoder->pause_grain_ns);
	const uint64_t since = time_ns - encoder->time_ns;
	enum record_type type;
	size_t start;

	TRY(encode_running(encoder, tick, out));
	TRY(encode_waiting(tick, out));
	TRY(begin_record(out, 4 * VARINT_MAX + (size_t)tick->n * ENTRY_MAX, &start));
	put_varint(out, since);
	put_varint(out, zigzag(paused_ns - encoder->paused_ns));
	if (tick->weight_ns == encoder->weight_ns) {
		type = RECORD_TICK;
	} else if (tick->weight_ns == since) {
		type = RECORD_TICK_SINCE;
	} else {
		type = RECORD_TICK_WEIGHT;
		put_varint(out, tick->weight_ns);
	}
	put_entries(encoder, tick, out);
	end_record(out, start, type);
	encoder->time_ns = time_ns;
	encoder->weight_ns = tick->weight_ns;
	encoder->paused_ns = paused_ns;
	return NULL;
}

struct error *encode_name(uint64_t addr, uint8_t kind, const char *name, uint64_t offset,
			  struct bytes *out)
{
	const uint64_t numbers[] = {addr, kind, offset};

	return encode_plain(RECORD_NAME, numbers, 3, name, strnlen(name, NAME_MAX_LEN), out);
}

struct error *encode_exits(const struct recorded_exits *exits, struct bytes *out)
{
	const uint64_t numbers[] = {exits->vcpu, exits->stack, exits->count};

	return encode_plain(RECORD_EXITS, numbers, 3, NULL, 0, out);
}

struct error *encode_packed(struct bytes *out)
{
	uLongf len = compressBound(out->len);
	ENDED_BY(bytes_free) struct bytes packed = {0};
	size_t start;

	if (len > RECORD_MAX - VARINT_MAX || out->len > UNPACKED_MAX)
		return NULL;
	TRY(begin_record(&packed, VARINT_MAX + len, &start));
	put_varint(&packed, out->len);
	if (compress2(packed.data + packed.len, &len, out->data, out->len, Z_BEST_COMPRESSION) !=
	    Z_OK)
		return error_no_memory();
	packed.len += len;
	end_record(&packed, start, RECORD_PACKED);
	if (packed.len < out->len) {
		out->len = 0;
		put_bytes(out, packed.data, packed.len);
	}
	return NULL;
}

struct error *encode_check(struct bytes *out)
{
	uint32_t crc;

	TRY(bytes_reserve(out, CHECK_RECORD));
	put_varint(out, CHECK_LEN);
	out->data[out->len++] = RECORD_CHECK;
	crc = (uint32_t)crc32(0, out->data, (uInt)out->len);
	for (int i = 0; i < CHECK_LEN; i++)
		out->data[out->len++] = (uint8_t)(crc >> (8 * i));
	return NULL;
}

/* Its number, 0 for none; the text is written if it is new. */
static struct error *number_of(struct ids *written, const char *text, uint64_t *number,
			       struct bytes *out)
{
	uint32_t id;
	bool added;

	*number = 0;
	if (!text)
		return NULL;
	TRY(ids_get(written, (uintptr_t)text, 0, &id, &added));
	*number = id + (uint64_t)1;
	return added ? encode_plain(RECORD_TEXT, NULL, 0, text, strnlen(text, NAME_MAX_LEN), out)
		     : NULL;
}

struct error *encode_locations(struct ids *written, uint64_t addr, uint8_t kind,
			       const struct source_frame *frames, size_t n, struct bytes *out)
{
	uint64_t numbers[2 + 3 * SOURCE_DEPTH] = {addr, kind};

	for (size_t i = 0; i < n; i++) {
		uint64_t *at = &numbers[2 + 3 * i];

		TRY(number_of(written, frames[i].function, &at[0], out));
		TRY(number_of(written, frames[i].file, &at[1], out));
		at[2] = frames[i].line;
	}
	return encode_plain(RECORD_LOCATIONS, numbers, 2 + 3 * n, NULL, 0, out);
}
