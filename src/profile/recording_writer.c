/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>
#include <zlib.h>

#include "profile/bytes.h"
#include "profile/recording.h"
#include "profile/recording_file.h"
#include "profile/recording_format.h"
#include "profile/recording_info.h"

#define FLUSH_NS UINT64_C(1000000000)

/* Nodes are written in records of about this many bytes, so that no record gets too long. */
#define NODES_RECORD (16u << 10)

/* A node takes at most this many bytes, an entry of a tick this many (skip, entry, id). */
#define NODE_MAX  (2 * VARINT_MAX)
#define ENTRY_MAX (4 * VARINT_MAX)

struct recording_writer {
	struct recording_file file;
	const struct stacks *stacks;
	struct bytes stretch; /* what follows the last check; not yet in the file */
	uint32_t nodes;	      /* so many are written, the root included */
	uint32_t vcpus;
	struct tick_entry *last;		/* [vcpus]: what the file says last about each */
	uint64_t time_ns, weight_ns, paused_ns; /* of the last tick */
	uint64_t flushed_ns;			/* time of the last tick that was flushed */
	bool broken; /* a write failed: the file ends there, whatever follows */
};

static struct error *check_usable(const struct recording_writer *writer)
{
	if (writer->broken)
		return error_new(ERR_OUTPUT, "cannot write to %s any more", writer->file.name);
	return NULL;
}

/* Starts a record in room for `max` bytes of payload; put the payload and call end_record. */
static struct error *begin_record(struct bytes *out, size_t max, size_t *start)
{
	struct error *err = bytes_reserve(out, RECORD_HEAD_MAX + max + CHECK_RECORD);

	if (err)
		return err;
	*start = out->len;
	out->len += RECORD_HEAD_MAX;
	return NULL;
}

static void end_record(struct bytes *out, size_t start, enum record_type type)
{
	size_t len = out->len - start - RECORD_HEAD_MAX;
	uint8_t *payload = out->data + start + RECORD_HEAD_MAX;

	out->len = start;
	put_varint(out, len);
	out->data[out->len++] = (uint8_t)type;
	memmove(out->data + out->len, payload, len);
	out->len += len;
}

/* Closes the stretch with a check and writes it to the file. */
static struct error *write_stretch(struct recording_writer *writer)
{
	struct bytes *out = &writer->stretch;
	struct error *err;
	uint32_t crc;

	if (out->len == 0)
		return NULL;
	err = bytes_reserve(out, CHECK_RECORD);
	if (err)
		return err;
	put_varint(out, CHECK_LEN);
	out->data[out->len++] = RECORD_CHECK;
	crc = (uint32_t)crc32(0, out->data, (uInt)out->len);
	for (int i = 0; i < CHECK_LEN; i++)
		out->data[out->len++] = (uint8_t)(crc >> (8 * i));
	err = recording_file_write(&writer->file, out->data, out->len);
	writer->broken = err != NULL;
	out->len = 0;
	return err;
}

static struct error *write_if_long(struct recording_writer *writer)
{
	return writer->stretch.len >= STRETCH_WRITE ? write_stretch(writer) : NULL;
}

static struct error *put_json(struct recording_writer *writer, enum record_type type,
			      const struct bytes *json)
{
	struct error *err;
	size_t start;

	if (json->len > RECORD_MAX)
		return error_new(ERR_FAILED, "the recording's description has more than %u bytes",
				 RECORD_MAX);
	err = begin_record(&writer->stretch, json->len, &start);
	if (err)
		return err;
	put_bytes(&writer->stretch, json->data, json->len);
	end_record(&writer->stretch, start, type);
	return NULL;
}

static struct error *put_head(struct recording_writer *writer, const struct recording_info *info)
{
	struct bytes *out = &writer->stretch, json = {0};
	struct error *err;

	err = bytes_reserve(out, RECORDING_HEAD_LEN);
	if (err)
		return err;
	put_bytes(out, RECORDING_MAGIC, RECORDING_MAGIC_LEN);
	out->data[out->len++] = RECORDING_MAJOR;
	out->data[out->len++] = RECORDING_MINOR;
	err = recording_info_write(info, &json);
	if (!err)
		err = put_json(writer, RECORD_INFO, &json);
	bytes_free(&json);
	return err;
}

static void writer_free(struct recording_writer *writer)
{
	bytes_free(&writer->stretch);
	free(writer->last);
	free(writer);
}

struct error *recording_create(const char *path, const struct recording_info *info,
			       const struct stacks *stacks, struct recording_writer **out)
{
	struct recording_writer *writer;
	struct error *err;

	if (info->vcpus > RECORDING_MAX_VCPUS)
		return error_new(ERR_GUEST, "the guest has %u vCPUs, a recording at most %u",
				 info->vcpus, RECORDING_MAX_VCPUS);
	if (!isfinite(info->rate_hz) || info->rate_hz < 0)
		return error_new(ERR_FAILED, "a recording's rate must be a number, not below 0");
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return error_no_memory();
	writer->stacks = stacks;
	writer->nodes = 1;
	writer->vcpus = info->vcpus;
	writer->last = calloc(info->vcpus + 1, sizeof(*writer->last));
	err = writer->last ? put_head(writer, info) : error_no_memory();
	if (!err)
		err = recording_file_create(path, &writer->file);
	if (err) {
		writer_free(writer);
		return err;
	}
	err = write_stretch(writer);
	if (err) {
		recording_abandon(writer);
		return err;
	}
	*out = writer;
	return NULL;
}

static void put_node(struct bytes *out, const struct stacks *stacks, uint32_t id)
{
	const struct stack_node *node = stacks_node(stacks, id);
	uint64_t from = stacks_node(stacks, node->parent)->addr;
	uint64_t back = id - node->parent - 1;

	put_varint(out, (back << NODE_TRUST_BITS | node->trust) << NODE_KIND_BITS | node->kind);
	put_varint(out, zigzag(node->addr - from));
}

/* Writes the nodes up to `last` that are not yet written. */
static struct error *put_nodes(struct recording_writer *writer, uint32_t last)
{
	struct bytes *out = &writer->stretch;
	struct error *err = NULL;
	size_t start;

	while (writer->nodes <= last && !err) {
		err = begin_record(out, NODES_RECORD + NODE_MAX, &start);
		if (err)
			return err;
		while (writer->nodes <= last && out->len - start < NODES_RECORD)
			put_node(out, writer->stacks, writer->nodes++);
		end_record(out, start, RECORD_NODES);
		err = write_if_long(writer);
	}
	return err;
}

/* Whether the caller keeps to what recording_tick asks for; *newest is the highest id in it. */
static bool is_tick(const struct recording_writer *writer, const struct tick *tick,
		    uint32_t *newest)
{
	*newest = STACK_ROOT;
	if (tick->time_ns < writer->time_ns)
		return false;
	for (uint32_t i = 0; i < tick->n; i++) {
		const struct tick_entry *entry = &tick->entries[i];

		if (entry->vcpu >= writer->vcpus || (i > 0 && entry->vcpu <= entry[-1].vcpu) ||
		    entry->state >= VCPU_STATES || entry->end >= UNWIND_ENDS ||
		    entry->stack >= stacks_count(writer->stacks))
			return false;
		if (entry->stack > *newest)
			*newest = entry->stack;
	}
	return true;
}

static void put_op(struct bytes *out, enum tick_op op, uint64_t rest)
{
	put_varint(out, rest << TICK_OP_BITS | op);
}

static void put_entries(struct recording_writer *writer, const struct tick *tick)
{
	struct bytes *out = &writer->stretch;
	uint32_t vcpu = 0, repeats = 0;

	for (uint32_t i = 0; i < tick->n; i++, vcpu++) {
		const struct tick_entry *entry = &tick->entries[i];
		struct tick_entry *last = &writer->last[entry->vcpu];
		bool as_before = entry->stack == last->stack && entry->state == last->state &&
				 entry->end == last->end;

		if (repeats > 0 && (entry->vcpu != vcpu || !as_before)) {
			put_op(out, TICK_REPEAT, repeats);
			repeats = 0;
		}
		if (entry->vcpu != vcpu)
			put_op(out, TICK_SKIP, entry->vcpu - vcpu);
		vcpu = entry->vcpu;
		if (as_before) {
			repeats++;
			continue;
		}
		put_op(out, TICK_ENTRY, (uint64_t)entry->end << TICK_STATE_BITS | entry->state);
		put_varint(out, entry->stack);
		*last = *entry;
	}
	if (repeats > 0)
		put_op(out, TICK_REPEAT, repeats);
}

struct error *recording_tick(struct recording_writer *writer, const struct tick *tick)
{
	uint64_t since = tick->time_ns - writer->time_ns;
	struct bytes *out = &writer->stretch;
	enum record_type type;
	struct error *err;
	uint32_t newest;
	size_t start;

	if (!is_tick(writer, tick, &newest))
		return error_new(ERR_FAILED, "a sample does not fit the recording: time, vCPU, "
					     "state or stack is out of range or order");
	err = check_usable(writer);
	if (!err)
		err = put_nodes(writer, newest);
	if (!err)
		err = begin_record(out, 3 * VARINT_MAX + (size_t)tick->n * ENTRY_MAX, &start);
	if (err)
		return err;
	put_varint(out, since);
	put_varint(out, zigzag(tick->paused_ns - writer->paused_ns));
	if (tick->weight_ns == writer->weight_ns) {
		type = RECORD_TICK;
	} else if (tick->weight_ns == since) {
		type = RECORD_TICK_SINCE;
	} else {
		type = RECORD_TICK_WEIGHT;
		put_varint(out, tick->weight_ns);
	}
	put_entries(writer, tick);
	end_record(out, start, type);
	writer->time_ns = tick->time_ns;
	writer->weight_ns = tick->weight_ns;
	writer->paused_ns = tick->paused_ns;
	if (tick->time_ns - writer->flushed_ns >= FLUSH_NS)
		return recording_flush(writer);
	return write_if_long(writer);
}

struct error *recording_name(struct recording_writer *writer, uint64_t addr, uint8_t kind,
			     const char *name, uint64_t offset)
{
	size_t len = strnlen(name, NAME_MAX_LEN), start;
	struct bytes *out = &writer->stretch;
	struct error *err;

	err = check_usable(writer);
	if (!err)
		err = begin_record(out, 3 * VARINT_MAX + len, &start);
	if (err)
		return err;
	put_varint(out, addr);
	put_varint(out, kind);
	put_varint(out, offset);
	put_bytes(out, name, len);
	end_record(out, start, RECORD_NAME);
	return write_if_long(writer);
}

struct error *recording_flush(struct recording_writer *writer)
{
	struct error *err = check_usable(writer);

	writer->flushed_ns = writer->time_ns;
	return err ? err : write_stretch(writer);
}

struct error *recording_close(struct recording_writer *writer, const struct recording_end *end)
{
	struct error *err = NULL;
	struct bytes json = {0};

	if (end && !writer->broken)
		err = recording_end_write(end, &json);
	if (!err && json.len > 0)
		err = put_json(writer, RECORD_END, &json);
	bytes_free(&json);
	/* Who broke it was told. */
	if (!err && !writer->broken)
		err = write_stretch(writer);
	err = error_first(err, recording_file_close(&writer->file));
	writer_free(writer);
	return err;
}

void recording_abandon(struct recording_writer *writer)
{
	error_free(recording_file_close(&writer->file));
	writer_free(writer);
}
