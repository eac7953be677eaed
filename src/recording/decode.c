/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"

struct error *decode_damaged(const struct decoder *decoder, uint64_t offset, const char *why)
{
	return error_new(ERR_INPUT, "%s is damaged at byte %" PRIu64 ": %s", decoder->name, offset,
			 why);
}

static struct error *damaged(const struct decoder *decoder, const char *why)
{
	return decode_damaged(decoder, decoder->offset, why);
}

static struct error *decode_info(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct recording_info *info = &decoder->info;

	if (!recording_info_read(in.at, (size_t)(in.end - in.at), info))
		return damaged(decoder, "the description cannot be read");
	decoder->has_info = true;
	if (info->vcpus > RECORDING_MAX_VCPUS)
		return damaged(decoder, "too many vCPUs");
	decoder->last = calloc(info->vcpus + 1, sizeof(*decoder->last));
	decoder->entries = calloc(info->vcpus + TICK_WAITS_MAX, sizeof(*decoder->entries));
	decoder->waits = calloc(TICK_WAITS_MAX, sizeof(*decoder->waits));
	if (!decoder->last || !decoder->entries || !decoder->waits)
		return error_no_memory();
	TRY(pool_new(&decoder->pool));
	decoder->nodes = 1;
	return visitor->info ? visitor->info(visitor->ctx, info) : NULL;
}

static struct error *add_id(struct decoder *decoder, uint32_t id)
{
	TRY(ARRAY_RESERVE(&decoder->ids, &decoder->ids_room, decoder->nodes + (size_t)1));
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
	TRY(ARRAY_RESERVE(&decoder->ids, &decoder->ids_room, decoder->nodes));
	for (uint32_t i = 0; i < decoder->nodes; i++)
		decoder->ids[i] = i;
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
	uint32_t id;

	if (!decoder->ids && is_there(decoder, parent, frame)) {
		decoder->nodes++;
		return NULL;
	}
	if (!decoder->ids && decoder->nodes == stacks_count(stacks) && stacks_may_append(stacks)) {
		TRY(stacks_append(stacks, parent, frame));
		decoder->nodes++;
		return NULL;
	}
	if (!decoder->ids)
		TRY(begin_ids(decoder));
	TRY(stacks_child(stacks, parent, frame, &id));
	return add_id(decoder, id);
}

static struct error *decode_nodes(struct decoder *decoder, struct cursor in)
{
	while (in.at < in.end) {
		uint64_t head, difference, back;
		struct frame frame;
		uint32_t parent;

		if (!get_varint(&in, &head) || !get_varint(&in, &difference))
			return damaged(decoder, "a stack's frame is cut off");
		frame.kind = head & ((1u << NODE_KIND_BITS) - 1);
		head >>= NODE_KIND_BITS;
		frame.trust = head & ((1u << NODE_TRUST_BITS) - 1);
		back = head >> NODE_TRUST_BITS;
		if (back >= decoder->nodes)
			return damaged(decoder, "a frame's caller is not known");
		if (frame.trust > TRUST_GUESS)
			return damaged(decoder, "a frame of an unknown kind");
		if (decoder->nodes == STACKS_MAX_NODES)
			return damaged(decoder, "too many frames");
		parent = id_of(decoder, decoder->nodes - 1 - (uint32_t)back);
		frame.addr = stacks_node(decoder->stacks, parent)->addr + unzigzag(difference);
		TRY(add_node(decoder, parent, &frame));
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

static struct error *decode_tick(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct tick tick = {.entries = decoder->entries};
	uint64_t since, paused;
	const char *why;

	if (!get_varint(&in, &since) || !get_varint(&in, &paused))
		return damaged(decoder, "a sample is cut off");
	if (decoder->type == RECORD_TICK_SINCE)
		decoder->weight_ns = since;
	if (decoder->type == RECORD_TICK_WEIGHT && !get_varint(&in, &decoder->weight_ns))
		return damaged(decoder, "a sample is cut off");
	if (__builtin_add_overflow(decoder->time_ns, since, &decoder->time_ns))
		return damaged(decoder, "a sample's time is out of range");
	decoder->paused_ns += unzigzag(paused);
	tick.time_ns = decoder->time_ns;
	tick.weight_ns = decoder->weight_ns;
	tick.paused_ns = decoder->paused_ns;
	tick.threads = decoder->thread;
	why = decode_entries(decoder, in, &tick);
	if (why)
		return damaged(decoder, why);
	tick.waits = decoder->n_waits;
	memcpy(decoder->entries + tick.n, decoder->waits, tick.waits * sizeof(*decoder->waits));
	decoder->n_waits = 0;
	return visitor->tick ? visitor->tick(visitor->ctx, &tick) : NULL;
}

static struct error *decode_name(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	uint64_t addr, kind, from;
	FREED char *name = NULL;
	size_t len;

	if (!get_varint(&in, &addr) || !get_varint(&in, &kind) || !get_varint(&in, &from))
		return damaged(decoder, "a name is cut off");
	len = (size_t)(in.end - in.at);
	if (kind >= FRAME_KINDS || len > NAME_MAX_LEN || memchr(in.at, 0, len))
		return damaged(decoder, "a name that cannot be one");
	if (!visitor->name)
		return NULL;
	name = strndup((const char *)in.at, len);
	if (!name)
		return error_no_memory();
	return visitor->name(visitor->ctx, addr, (uint8_t)kind, name, from);
}

/* A text, which lasts as long as the decoder; ERR_INPUT with `why` if it is none, or too long. */
static struct error *keep_text(struct decoder *decoder, struct cursor in, size_t max,
			       const char *why, const char **text)
{
	const size_t len = (size_t)(in.end - in.at);

	if (len > max || memchr(in.at, '\0', len))
		return damaged(decoder, why);
	return pool_intern(decoder->pool, (const char *)in.at, len, text);
}

static struct error *get_thread(struct decoder *decoder, struct cursor in,
				struct recorded_thread *thread)
{
	static const char why[] = "a thread that cannot be one";
	uint64_t kind, pid, tid, len;

	if (!get_varint(&in, &kind) || !get_varint(&in, &pid) || !get_varint(&in, &tid) ||
	    !get_varint(&in, &thread->start_ns) || !get_varint(&in, &len) ||
	    kind & ~(uint64_t)(THREAD_OF_KERNEL | THREAD_IS_IDLE) || pid > UINT32_MAX ||
	    tid > UINT32_MAX || len > (size_t)(in.end - in.at))
		return damaged(decoder, why);
	thread->kernel = kind & THREAD_OF_KERNEL;
	thread->idle = kind & THREAD_IS_IDLE;
	thread->pid = (uint32_t)pid;
	thread->tid = (uint32_t)tid;
	TRY(keep_text(decoder, (struct cursor){in.at, in.at + len}, RECORDED_THREAD_NAME_MAX, why,
		      &thread->name));
	return keep_text(decoder, (struct cursor){in.at + len, in.end}, RECORDED_THREAD_NAME_MAX,
			 why, &thread->process);
}

static struct error *decode_container(struct decoder *decoder, struct cursor in)
{
	TRY(keep_text(decoder, in, RECORDED_CONTAINER_MAX, "a container that cannot be one",
		      &decoder->container));
	if (!*decoder->container)
		decoder->container = NULL;
	return NULL;
}

static struct error *decode_thread(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct recorded_thread *thread;

	if (decoder->threads == RECORDED_THREADS_MAX)
		return damaged(decoder, "too many threads");
	TRY(ARRAY_RESERVE(&decoder->thread, &decoder->threads_room, decoder->threads + 1));
	thread = &decoder->thread[decoder->threads++];
	*thread = (struct recorded_thread){.container = decoder->container};
	TRY(get_thread(decoder, in, thread));
	return visitor->thread ? visitor->thread(visitor->ctx, (uint32_t)decoder->threads, thread)
			       : NULL;
}

static struct error *decode_running(struct decoder *decoder, struct cursor in)
{
	uint64_t vcpu, thread;

	while (in.at < in.end) {
		if (!get_varint(&in, &vcpu) || !get_varint(&in, &thread))
			return damaged(decoder, "a vCPU's thread is cut off");
		if (vcpu >= decoder->info.vcpus)
			return damaged(decoder, "a thread on a vCPU that the guest does not have");
		if (thread > decoder->threads)
			return damaged(decoder, "a vCPU's thread is not known");
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

static struct error *decode_waiting(struct decoder *decoder, struct cursor in)
{
	const char *why = NULL;

	while (in.at < in.end && !why)
		why = decode_wait(decoder, &in);
	return why ? damaged(decoder, why) : NULL;
}

static struct error *decode_exits(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	uint64_t vcpu, stack, count;

	if (!get_varint(&in, &vcpu) || !get_varint(&in, &stack) || !get_varint(&in, &count))
		return damaged(decoder, "exits are cut off");
	if (vcpu >= decoder->info.vcpus)
		return damaged(decoder, "exits of a vCPU that the guest does not have");
	if (stack == STACK_ROOT || stack >= decoder->nodes)
		return damaged(decoder, "exits at a place that is not known");
	if (!visitor->exits)
		return NULL;
	return visitor->exits(visitor->ctx,
			      &(struct recorded_exits){.vcpu = (uint32_t)vcpu,
						       .stack = id_of(decoder, (uint32_t)stack),
						       .count = count});
}

static struct error *decode_end(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	ENDED_BY(recording_end_free) struct recording_end end = {0};

	if (!recording_end_read(in.at, (size_t)(in.end - in.at), &end))
		return damaged(decoder, "the end cannot be read");
	decoder->has_end = true;
	return visitor->end ? visitor->end(visitor->ctx, &end) : NULL;
}

static struct error *decode_text(struct decoder *decoder, struct cursor in)
{
	TRY(ARRAY_RESERVE(&decoder->text, &decoder->texts_room, decoder->texts + 1));
	TRY(keep_text(decoder, in, NAME_MAX_LEN, "a text that cannot be one",
		      &decoder->text[decoder->texts]));
	decoder->texts++;
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

static struct error *decode_locations(struct decoder *decoder, struct cursor in)
{
	const struct recording_visitor *visitor = decoder->visitor;
	struct source_frame frames[SOURCE_DEPTH];
	uint64_t addr, kind, line;
	size_t n = 0;

	if (!get_varint(&in, &addr) || !get_varint(&in, &kind) || kind >= FRAME_KINDS)
		return damaged(decoder, "places that cannot be");
	for (; in.at < in.end; n++) {
		if (n == SOURCE_DEPTH || !get_text(decoder, &in, &frames[n].function) ||
		    !get_text(decoder, &in, &frames[n].file) || !get_varint(&in, &line) ||
		    line > UINT32_MAX)
			return damaged(decoder, "places that cannot be");
		frames[n].line = (uint32_t)line;
	}
	if (!n || !visitor->locations)
		return NULL;
	return visitor->locations(visitor->ctx, addr, (uint8_t)kind, frames, n);
}

struct error *decode_record(struct decoder *decoder, unsigned type, struct cursor payload,
			    uint64_t offset)
{
	static struct error *(*const decode[RECORD_TYPES])(struct decoder *, struct cursor) = {
		[RECORD_INFO] = decode_info,	    [RECORD_NODES] = decode_nodes,
		[RECORD_TICK] = decode_tick,	    [RECORD_TICK_SINCE] = decode_tick,
		[RECORD_TICK_WEIGHT] = decode_tick, [RECORD_NAME] = decode_name,
		[RECORD_TEXT] = decode_text,	    [RECORD_LOCATIONS] = decode_locations,
		[RECORD_THREAD] = decode_thread,    [RECORD_CONTAINER] = decode_container,
		[RECORD_RUNNING] = decode_running,  [RECORD_WAITING] = decode_waiting,
		[RECORD_EXITS] = decode_exits,	    [RECORD_END] = decode_end,
	};

	decoder->type = type;
	decoder->offset = offset;
	if (decoder->has_end)
		return damaged(decoder, "something follows the end");
	if ((type == RECORD_INFO) == decoder->has_info)
		return damaged(decoder, "the description is not at the start");
	return type < RECORD_TYPES && decode[type] ? decode[type](decoder, payload) : NULL;
}

void decoder_free(struct decoder *decoder)
{
	recording_info_free(&decoder->info);
	pool_free(decoder->pool);
	free(decoder->text);
	free(decoder->thread);
	free(decoder->ids);
	free(decoder->last);
	free(decoder->entries);
	free(decoder->waits);
}
