/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

struct error *decode_damaged(const struct decoder *decoder, uint64_t offset, const char *why)
{
	return error_new(ERR_INPUT, "%s is damaged at byte %" PRIu64 ": %s", decoder->name, offset,
			 why);
}

static struct error *decode_info(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct recording_info *info = &decoder->info;

	if (!recording_info_read(in.at, (size_t)(in.end - in.at), info))
		return decode_damaged(decoder, offset, "the description cannot be read");
	decoder->has_info = true;
	if (info->vcpus > RECORDING_MAX_VCPUS)
		return decode_damaged(decoder, offset, "too many vCPUs");
	decoder->last = calloc(info->vcpus + 1, sizeof(*decoder->last));
	decoder->entries = calloc(info->vcpus + TICK_WAITS_MAX, sizeof(*decoder->entries));
	decoder->waits = calloc(TICK_WAITS_MAX, sizeof(*decoder->waits));
	if (!decoder->last || !decoder->entries || !decoder->waits)
		return error_no_memory();
	decoder->nodes = 1;
	return visitor->info ? visitor->info(visitor->ctx, info) : NULL;
}

static struct error *add_id(struct decoder *decoder, uint32_t id)
{
	if (decoder->nodes == decoder->ids_cap) {
		size_t size = (size_t)decoder->ids_cap * 2 * sizeof(*decoder->ids);
		uint32_t *ids = realloc(decoder->ids, size);

		if (!ids)
			return error_no_memory();
		decoder->ids = ids;
		decoder->ids_cap *= 2;
	}
	decoder->ids[decoder->nodes++] = id;
	return NULL;
}

/* The store's number of a node of the file. */
static uint32_t id_of(const struct decoder *decoder, uint32_t node)
{
	return decoder->ids ? decoder->ids[node] : node;
}

/* From now on numbers differ; those so far do not. */
static struct error *begin_ids(struct decoder *decoder)
{
	decoder->ids = reallocarray(NULL, decoder->nodes, sizeof(*decoder->ids));
	if (!decoder->ids)
		return error_no_memory();
	for (uint32_t i = 0; i < decoder->nodes; i++)
		decoder->ids[i] = i;
	decoder->ids_cap = decoder->nodes;
	return NULL;
}

/* True if the store has this node under the number that it has in the file: the file was read before. */
static bool is_there(const struct decoder *decoder, uint32_t parent, const struct frame *frame)
{
	const struct stack_node *node;

	if (decoder->nodes >= stacks_count(decoder->stacks))
		return false;
	node = stacks_node(decoder->stacks, decoder->nodes);
	return node->parent == parent && node->addr == frame->addr && node->kind == frame->kind &&
	       node->trust == frame->trust;
}

/*
 * Adds the file's next node. As long as the store has the file's nodes and no others, their
 * numbers are the same and nothing is searched for.
 */
static struct error *add_node(struct decoder *decoder, uint32_t parent, const struct frame *frame)
{
	struct stacks *stacks = decoder->stacks;
	struct error *err = NULL;
	uint32_t id;

	if (!decoder->ids && is_there(decoder, parent, frame)) {
		decoder->nodes++;
		return NULL;
	}
	if (!decoder->ids && decoder->nodes == stacks_count(stacks) && stacks_may_append(stacks)) {
		err = stacks_append(stacks, parent, frame);
		decoder->nodes += !err;
		return err;
	}
	if (!decoder->ids)
		err = begin_ids(decoder);
	if (!err)
		err = stacks_child(stacks, parent, frame, &id);
	return err ? err : add_id(decoder, id);
}

static struct error *decode_nodes(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	while (in.at < in.end) {
		uint64_t head, difference, back;
		struct frame frame;
		uint32_t parent;
		struct error *err;

		if (!get_varint(&in, &head) || !get_varint(&in, &difference))
			return decode_damaged(decoder, offset, "a stack's frame is cut off");
		frame.kind = head & ((1u << NODE_KIND_BITS) - 1);
		head >>= NODE_KIND_BITS;
		frame.trust = head & ((1u << NODE_TRUST_BITS) - 1);
		back = head >> NODE_TRUST_BITS;
		if (back >= decoder->nodes)
			return decode_damaged(decoder, offset, "a frame's caller is not known");
		if (frame.trust > TRUST_GUESS)
			return decode_damaged(decoder, offset, "a frame of an unknown kind");
		if (decoder->nodes == STACKS_MAX_NODES)
			return decode_damaged(decoder, offset, "too many frames");
		parent = id_of(decoder, decoder->nodes - 1 - (uint32_t)back);
		frame.addr = stacks_node(decoder->stacks, parent)->addr + unzigzag(difference);
		err = add_node(decoder, parent, &frame);
		if (err)
			return err;
	}
	return NULL;
}

/* Decodes one vCPU's entry into `last`; NULL, or the error's text. */
static const char *decode_entry(struct decoder *decoder, uint64_t vcpu, uint64_t value,
				struct cursor *in)
{
	unsigned state = value & ((1u << TICK_STATE_BITS) - 1);
	uint64_t end = value >> TICK_STATE_BITS, stack;

	if (!get_varint(in, &stack))
		return "a sample is cut off";
	if (vcpu >= decoder->info.vcpus)
		return "a sample of a vCPU that the guest does not have";
	if (state >= VCPU_STATES || end >= UNWIND_ENDS)
		return "an unknown state of a vCPU or its stack";
	if (stack >= decoder->nodes)
		return "a sample's stack is not known";
	decoder->last[vcpu] = (struct tick_entry){
		.vcpu = (uint32_t)vcpu,
		.stack = id_of(decoder, (uint32_t)stack),
		.state = (uint8_t)state,
		.end = (uint8_t)end,
		.thread = decoder->last[vcpu].thread,
	};
	return NULL;
}

static uint64_t to_ns(uint64_t us)
{
	uint64_t ns;

	return __builtin_mul_overflow(us, (uint64_t)NS_PER_US, &ns) ? UINT64_MAX : ns;
}

/* Fills tick->entries; NULL, or the error's text. */
static const char *decode_entries(struct decoder *decoder, struct cursor in, struct tick *tick)
{
	uint64_t vcpu = 0, op, value, cpu_us = 0;

	while (in.at < in.end) {
		const char *why = NULL;
		uint64_t repeats = 1;

		if (!get_varint(&in, &op))
			return "a sample is cut off";
		value = op >> TICK_OP_BITS;
		switch (op & ((1u << TICK_OP_BITS) - 1)) {
		case TICK_ENTRY:
			why = decode_entry(decoder, vcpu, value, &in);
			break;
		case TICK_REPEAT:
			repeats = value;
			break;
		case TICK_SKIP:
			repeats = 0;
			vcpu = value > decoder->info.vcpus ? value : vcpu + value;
			break;
		case TICK_CPU:
			repeats = 0;
			cpu_us = value;
			break;
		}
		if (why)
			return why;
		if (vcpu > decoder->info.vcpus || repeats > decoder->info.vcpus - vcpu)
			return "a sample of a vCPU that the guest does not have";
		while (repeats-- > 0) {
			decoder->entries[tick->n] = decoder->last[vcpu];
			decoder->entries[tick->n].ran_ns = to_ns(cpu_us);
			cpu_us = 0;
			decoder->entries[tick->n++].vcpu = (uint32_t)vcpu++;
		}
	}
	return cpu_us ? "a sample with CPU time of no vCPU" : NULL;
}

static struct error *decode_tick(struct decoder *decoder, unsigned type, struct cursor in,
				 uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct tick tick = {.entries = decoder->entries};
	uint64_t since, paused;
	const char *why;

	if (!get_varint(&in, &since) || !get_varint(&in, &paused))
		return decode_damaged(decoder, offset, "a sample is cut off");
	if (type == RECORD_TICK_SINCE)
		decoder->weight_ns = since;
	if (type == RECORD_TICK_WEIGHT && !get_varint(&in, &decoder->weight_ns))
		return decode_damaged(decoder, offset, "a sample is cut off");
	if (__builtin_add_overflow(decoder->time_ns, since, &decoder->time_ns))
		return decode_damaged(decoder, offset, "a sample's time is out of range");
	decoder->paused_ns += unzigzag(paused);
	tick.time_ns = decoder->time_ns;
	tick.weight_ns = decoder->weight_ns;
	tick.paused_ns = decoder->paused_ns;
	tick.threads = decoder->thread;
	why = decode_entries(decoder, in, &tick);
	if (why)
		return decode_damaged(decoder, offset, why);
	tick.waits = decoder->n_waits;
	memcpy(decoder->entries + tick.n, decoder->waits, tick.waits * sizeof(*decoder->waits));
	decoder->n_waits = 0;
	return visitor->tick ? visitor->tick(visitor->ctx, &tick) : NULL;
}

static struct error *decode_name(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	uint64_t addr, kind, from;
	struct error *err;
	size_t len;
	char *name;

	if (!get_varint(&in, &addr) || !get_varint(&in, &kind) || !get_varint(&in, &from))
		return decode_damaged(decoder, offset, "a name is cut off");
	len = (size_t)(in.end - in.at);
	if (kind >= FRAME_KINDS || len > NAME_MAX_LEN || memchr(in.at, 0, len))
		return decode_damaged(decoder, offset, "a name that cannot be one");
	if (!visitor->name)
		return NULL;
	name = strndup((const char *)in.at, len);
	if (!name)
		return error_no_memory();
	err = visitor->name(visitor->ctx, addr, (uint8_t)kind, name, from);
	free(name);
	return err;
}

/* Takes the next `len` bytes as a name; false if they are none. NULL in *name: no memory. */
static bool get_name(struct cursor *in, uint64_t len, const char **name)
{
	if (len > RECORDED_THREAD_NAME_MAX || len > (size_t)(in->end - in->at) ||
	    memchr(in->at, 0, len))
		return false;
	*name = strndup((const char *)in->at, len);
	in->at += len;
	return true;
}

/* Names that were taken are freed with the decoder. */
static bool get_thread(struct cursor *in, struct recorded_thread *thread)
{
	uint64_t kind, pid, tid, len;

	if (!get_varint(in, &kind) || !get_varint(in, &pid) || !get_varint(in, &tid) ||
	    !get_varint(in, &thread->start_ns) || !get_varint(in, &len))
		return false;
	thread->kernel = kind & THREAD_OF_KERNEL;
	thread->idle = kind & THREAD_IS_IDLE;
	thread->pid = (uint32_t)pid;
	thread->tid = (uint32_t)tid;
	return !(kind & ~(uint64_t)(THREAD_OF_KERNEL | THREAD_IS_IDLE)) && pid <= UINT32_MAX &&
	       tid <= UINT32_MAX && get_name(in, len, &thread->name) &&
	       get_name(in, (uint64_t)(in->end - in->at), &thread->process);
}

static struct error *decode_container(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const size_t len = (size_t)(in.end - in.at);

	if (len > RECORDED_CONTAINER_MAX || memchr(in.at, '\0', len))
		return decode_damaged(decoder, offset, "a container that cannot be one");
	free(decoder->container);
	decoder->container = len ? strndup((const char *)in.at, len) : NULL;
	return len && !decoder->container ? error_no_memory() : NULL;
}

static struct error *decode_thread(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct recorded_thread *thread;
	struct error *err;

	if (decoder->threads == RECORDED_THREADS_MAX)
		return decode_damaged(decoder, offset, "too many threads");
	err = ARRAY_RESERVE(&decoder->thread, &decoder->threads_room, decoder->threads + 1);
	if (err)
		return err;
	thread = &decoder->thread[decoder->threads++];
	*thread = (struct recorded_thread){0};
	if (!get_thread(&in, thread))
		return decode_damaged(decoder, offset, "a thread that cannot be one");
	if (decoder->container)
		thread->container = strdup(decoder->container);
	if (!thread->name || !thread->process || !thread->container != !decoder->container)
		return error_no_memory();
	return visitor->thread ? visitor->thread(visitor->ctx, (uint32_t)decoder->threads, thread)
			       : NULL;
}

static struct error *decode_running(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	uint64_t vcpu, thread;

	while (in.at < in.end) {
		if (!get_varint(&in, &vcpu) || !get_varint(&in, &thread))
			return decode_damaged(decoder, offset, "a vCPU's thread is cut off");
		if (vcpu >= decoder->info.vcpus)
			return decode_damaged(decoder, offset,
					      "a thread on a vCPU that the guest does not have");
		if (thread > decoder->threads)
			return decode_damaged(decoder, offset, "a vCPU's thread is not known");
		decoder->last[vcpu].thread = (uint32_t)thread;
	}
	return NULL;
}

/* One thread that does not run; NULL, or the error's text. */
static const char *decode_wait(struct decoder *decoder, struct cursor *in)
{
	uint64_t thread, how, stack, weight;

	if (!get_varint(in, &thread) || !get_varint(in, &how) || !get_varint(in, &stack) ||
	    !get_varint(in, &weight))
		return "a waiting thread is cut off";
	if (!thread || thread > decoder->threads || stack >= decoder->nodes)
		return "a waiting thread or its stack is not known";
	if ((how & ((1u << WAITING_STATE_BITS) - 1)) >= SAMPLE_STATES - WAIT_QUEUED ||
	    how >> WAITING_STATE_BITS >= UNWIND_ENDS)
		return "an unknown state of a waiting thread or its stack";
	if (decoder->n_waits == TICK_WAITS_MAX)
		return "too many waiting threads";
	decoder->waits[decoder->n_waits++] = (struct tick_entry){
		.vcpu = NO_VCPU,
		.stack = id_of(decoder, (uint32_t)stack),
		.state = (uint8_t)(WAIT_QUEUED + (how & ((1u << WAITING_STATE_BITS) - 1))),
		.end = (uint8_t)(how >> WAITING_STATE_BITS),
		.thread = (uint32_t)thread,
		.weight_ns = weight,
	};
	return NULL;
}

static struct error *decode_waiting(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const char *why = NULL;

	while (in.at < in.end && !why)
		why = decode_wait(decoder, &in);
	return why ? decode_damaged(decoder, offset, why) : NULL;
}

static struct error *decode_exits(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	uint64_t vcpu, stack, count;

	if (!get_varint(&in, &vcpu) || !get_varint(&in, &stack) || !get_varint(&in, &count))
		return decode_damaged(decoder, offset, "exits are cut off");
	if (vcpu >= decoder->info.vcpus)
		return decode_damaged(decoder, offset,
				      "exits of a vCPU that the guest does not have");
	if (stack == STACK_ROOT || stack >= decoder->nodes)
		return decode_damaged(decoder, offset, "exits at a place that is not known");
	if (!visitor->exits)
		return NULL;
	return visitor->exits(visitor->ctx,
			      &(struct recorded_exits){.vcpu = (uint32_t)vcpu,
						       .stack = id_of(decoder, (uint32_t)stack),
						       .count = count});
}

static struct error *decode_end(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct recording_end end;
	struct error *err = NULL;

	if (!recording_end_read(in.at, (size_t)(in.end - in.at), &end))
		return decode_damaged(decoder, offset, "the end cannot be read");
	decoder->has_end = true;
	if (visitor->end)
		err = visitor->end(visitor->ctx, &end);
	recording_end_free(&end);
	return err;
}

static struct error *decode_text(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	size_t len = (size_t)(in.end - in.at);
	char *text;
	struct error *err;

	if (len > NAME_MAX_LEN || memchr(in.at, 0, len))
		return decode_damaged(decoder, offset, "a text that cannot be one");
	err = ARRAY_RESERVE(&decoder->text, &decoder->texts_room, decoder->texts + 1);
	if (err)
		return err;
	text = strndup((const char *)in.at, len);
	if (!text)
		return error_no_memory();
	decoder->text[decoder->texts++] = text;
	return NULL;
}

static bool get_text(const struct decoder *decoder, struct cursor *in, const char **text)
{
	uint64_t number;

	if (!get_varint(in, &number) || number > decoder->texts)
		return false;
	*text = number ? decoder->text[number - 1] : NULL;
	return true;
}

static struct error *decode_locations(struct decoder *decoder, struct cursor in, uint64_t offset)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct source_frame frames[SOURCE_DEPTH];
	uint64_t addr, kind, line;
	size_t n = 0;

	if (!get_varint(&in, &addr) || !get_varint(&in, &kind) || kind >= FRAME_KINDS)
		return decode_damaged(decoder, offset, "places that cannot be");
	for (; in.at < in.end; n++) {
		if (n == SOURCE_DEPTH || !get_text(decoder, &in, &frames[n].function) ||
		    !get_text(decoder, &in, &frames[n].file) || !get_varint(&in, &line) ||
		    line > UINT32_MAX)
			return decode_damaged(decoder, offset, "places that cannot be");
		frames[n].line = (uint32_t)line;
	}
	if (!n || !visitor->locations)
		return NULL;
	return visitor->locations(visitor->ctx, addr, (uint8_t)kind, frames, n);
}

struct error *decode_record(struct decoder *decoder, unsigned type, struct cursor payload,
			    uint64_t offset)
{
	if (decoder->has_end)
		return decode_damaged(decoder, offset, "something follows the end");
	if ((type == RECORD_INFO) == decoder->has_info)
		return decode_damaged(decoder, offset, "the description is not at the start");
	switch (type) {
	case RECORD_INFO:
		return decode_info(decoder, payload, offset);
	case RECORD_NODES:
		return decode_nodes(decoder, payload, offset);
	case RECORD_TICK:
	case RECORD_TICK_SINCE:
	case RECORD_TICK_WEIGHT:
		return decode_tick(decoder, type, payload, offset);
	case RECORD_NAME:
		return decode_name(decoder, payload, offset);
	case RECORD_TEXT:
		return decode_text(decoder, payload, offset);
	case RECORD_LOCATIONS:
		return decode_locations(decoder, payload, offset);
	case RECORD_THREAD:
		return decode_thread(decoder, payload, offset);
	case RECORD_CONTAINER:
		return decode_container(decoder, payload, offset);
	case RECORD_RUNNING:
		return decode_running(decoder, payload, offset);
	case RECORD_WAITING:
		return decode_waiting(decoder, payload, offset);
	case RECORD_EXITS:
		return decode_exits(decoder, payload, offset);
	case RECORD_END:
		return decode_end(decoder, payload, offset);
	default:
		return NULL;
	}
}

void decoder_free(struct decoder *decoder)
{
	recording_info_free(&decoder->info);
	for (size_t i = 0; i < decoder->texts; i++)
		free(decoder->text[i]);
	free(decoder->text);
	for (size_t i = 0; i < decoder->threads; i++)
		recorded_thread_free(&decoder->thread[i]);
	free(decoder->thread);
	free(decoder->container);
	free(decoder->ids);
	free(decoder->last);
	free(decoder->entries);
	free(decoder->waits);
}
