/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/process.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "target/host/memory.h"

/* Longer than an interrupt takes to come to a CPU that is not ours; bringing pages takes a few rounds. */
#define PATIENCE_MS 1
#define ROUNDS	    8

/* Bytes of stack in a record; records in the ring, and the ring's size in bytes. */
#define STACK	   32760u
#define TICK_ROOM  (64u << 10)
#define LEAVE_ROOM 4096u

/* Bound on watched threads: each takes two descriptors, and memory that cannot be paged out. */
#define WATCHED_MAX 128u

/* Head of a record; a stack follows if one was asked for. */
struct perf_sample {
	struct perf_event_header head;
	uint64_t abi;
	uint64_t regs[PROCESS_PERF_REGS];
};

struct watched_thread {
	pid_t tid;  /* 0: nobody */
	bool asked; /* a tick was asked for, and has not come */
	struct perf_ring tick, leave;
};

struct perf {
	uint32_t n, watched;
	struct watched_thread *at;
};

static struct perf_event_attr tick_attr(void)
{
	return (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CPU_CLOCK,
					.sample_period = PERF_TICK_NS,
					.sample_type =
						PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
					.sample_regs_user = process_perf_mask,
					.sample_stack_user = STACK,
					.wakeup_events = 1,
					.disabled = 1};
}

/* Written backwards, newest record first, with a mark at each switch on or off a CPU. */
static struct perf_event_attr leave_attr(void)
{
	return (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CONTEXT_SWITCHES,
					.sample_period = 1,
					.sample_type = PERF_SAMPLE_REGS_USER,
					.sample_regs_user = process_perf_mask,
					.context_switch = 1,
					.write_backward = 1};
}

const char *perf_missing(void)
{
	struct perf_event_attr attr = tick_attr();
	struct perf_ring ring;
	struct error *err;

	if (!process_perf_mask)
		return "perf events would not stop it, which this uniprof knows of x86-64 only";
	err = perf_ring_open(&attr, 0, TICK_ROOM, &ring);
	perf_ring_close(&ring);
	error_free(err);
	return err ? "perf events would not stop it, but take root, or CAP_PERFMON" : NULL;
}

struct error *perf_new(uint32_t slots, struct perf **out)
{
	struct perf *perf;

	if (!process_perf_mask)
		return error_new(ERR_DENIED, "this uniprof reads perf events on x86-64 only");
	perf = calloc(1, sizeof(*perf));
	if (perf)
		perf->at = calloc(slots, sizeof(*perf->at));
	if (!perf || !perf->at) {
		free(perf);
		return error_no_memory();
	}
	perf->n = slots;
	*out = perf;
	return NULL;
}

void perf_free(struct perf *perf)
{
	if (!perf)
		return;
	for (uint32_t i = 0; i < perf->n; i++) {
		perf_ring_close(&perf->at[i].tick);
		perf_ring_close(&perf->at[i].leave);
	}
	free(perf->at);
	free(perf);
}

struct error *perf_watch(struct perf *perf, uint32_t slot, pid_t tid)
{
	struct perf_event_attr tick = tick_attr(), leave = leave_attr();
	struct watched_thread *at = &perf->at[slot];
	struct error *err;

	if (perf->watched == WATCHED_MAX)
		return error_new(ERR_DENIED, "that many threads are too many for perf events");
	err = perf_ring_open(&tick, tid, TICK_ROOM, &at->tick);
	if (!err)
		err = perf_ring_open(&leave, tid, LEAVE_ROOM, &at->leave);
	if (err && err->kind != ERR_GUEST)
		return err;
	at->tid = err ? 0 : tid;
	perf->watched += !err;
	error_free(err);
	return NULL;
}

bool perf_watches(const struct perf *perf, uint32_t slot, pid_t tid)
{
	return tid && perf->at[slot].tid == tid;
}

static bool is_whole(const struct perf_sample *record)
{
	return record->head.type == PERF_RECORD_SAMPLE && record->head.size >= sizeof(*record);
}

bool perf_waits(const struct perf *perf, uint32_t slot, struct regs *regs, uint64_t *moment)
{
	const struct perf_ring *ring = &perf->at[slot].leave;
	struct perf_event_header mark;
	struct perf_sample left;

	*moment = perf_ring_head(ring);
	/* The newest record is the thread's switch off its CPU; the sample of that follows. */
	if (!perf_ring_copy_newest(ring, *moment, &mark, sizeof(mark)) ||
	    mark.type != PERF_RECORD_SWITCH || !(mark.misc & PERF_RECORD_MISC_SWITCH_OUT) ||
	    !perf_ring_copy_newest(ring, *moment + mark.size, &left, sizeof(left)) ||
	    !perf_still_waits(perf, slot, *moment) || !is_whole(&left))
		return false;
	return process_perf_regs(left.abi, left.regs, regs);
}

bool perf_still_waits(const struct perf *perf, uint32_t slot, uint64_t moment)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return perf_ring_head(&perf->at[slot].leave) == moment;
}

/* Drops all records; false if there were none. */
static bool forget(const struct perf_ring *ring)
{
	const uint64_t head = perf_ring_head(ring);
	const bool any = ring->page->data_tail != head;

	__atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
	return any;
}

/* Asks for one tick. One that was asked for in vain comes later, and serves the next request. */
static bool ask(struct watched_thread *at)
{
	struct pollfd ready = {.fd = at->tick.fd, .events = POLLIN};

	if (forget(&at->tick))
		at->asked = false;
	if (!at->asked && ioctl(at->tick.fd, PERF_EVENT_IOC_REFRESH, 1))
		return false;
	at->asked = true;
	(void)poll(&ready, 1, PATIENCE_MS);
	return perf_ring_head(&at->tick) != at->tick.page->data_tail;
}

/* The stack of a record, behind its registers: a size, as many bytes, and how many of these are meant. */
static bool take_stack(const struct perf_ring *ring, uint64_t at, struct vcpu_sample *vcpu)
{
	uint64_t size, len;

	perf_ring_copy(ring, at, &size, sizeof(size));
	if (size > STACK)
		return false;
	perf_ring_copy(ring, at + sizeof(size) + size, &len, sizeof(len));
	if (!size || len > size)
		len = 0;
	vcpu->stack = (struct window){.va = vcpu->regs.sp, .bytes = vcpu->buffer, .cut = true};
	vcpu->stack.len = len < vcpu->request.want ? (uint32_t)len : vcpu->request.want;
	perf_ring_copy(ring, at + sizeof(size), vcpu->buffer, vcpu->stack.len);
	return true;
}

static bool take(const struct perf_ring *ring, struct vcpu_sample *vcpu)
{
	const uint64_t at = ring->page->data_tail;
	struct perf_sample record;

	perf_ring_copy(ring, at, &record, sizeof(record));
	return is_whole(&record) && process_perf_regs(record.abi, record.regs, &vcpu->regs) &&
	       !(vcpu->regs.sp % vcpu->regs.word) && take_stack(ring, at + sizeof(record), vcpu);
}

/* The copy ended early: where the stack does, or at a page that would have to be faulted in. */
static bool is_missing(const struct vcpu_sample *vcpu, int memory)
{
	uint8_t byte;

	return vcpu->stack.len < vcpu->request.want &&
	       host_memory_read(memory, vcpu->stack.va + vcpu->stack.len, &byte, 1) == 1;
}

bool perf_read(struct perf *perf, uint32_t slot, int memory, struct vcpu_sample *vcpu)
{
	struct watched_thread *at = &perf->at[slot];

	if (vcpu->request.leads_on || vcpu->request.red_zone || vcpu->request.want > STACK)
		return false;
	for (int round = 0; round < ROUNDS; round++) {
		if (!ask(at) || !take(&at->tick, vcpu))
			return false;
		if (is_missing(vcpu, memory))
			continue;
		vcpu->stack.cut = vcpu->stack.len == vcpu->request.want;
		for (unsigned k = 0; k < UNWIND_OTHERS; k++)
			vcpu->others[k].len = 0;
		return true;
	}
	return false;
}
