/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/perf.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/memory.h"
#include "target/process/perf_ring.h"
#include "target/process/regs.h"

/* The shortest time after which a clock's event comes (kernel/events/core.c, perf_swevent_start_hrtimer). */
#define TICK_NS 10000u

/* Longer than an interrupt takes to come to a CPU that is not ours; bringing pages takes a few rounds. */
#define PATIENCE_MS 1
#define ROUNDS	    8

/* As much of a stack as a record holds; records, and the room for them, bytes. */
#define STACK	   32760u
#define TICK_ROOM  (64u << 10)
#define LEAVE_ROOM 4096u

/* Each takes two descriptors, and room in memory that cannot be paged out. */
#define WATCHED_MAX 128u

/* What a record begins with; no stack follows where none was asked for. */
struct record {
	struct perf_event_header head;
	uint64_t abi;
	uint64_t regs[PROCESS_PERF_REGS];
};

struct watched {
	pid_t tid;  /* 0: nobody */
	bool asked; /* a tick was asked for that has not come */
	struct ring tick, leave;
};

struct perf {
	uint32_t n, watched;
	struct watched *at;
};

static struct perf_event_attr tick_attr(void)
{
	return (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CPU_CLOCK,
					.sample_period = TICK_NS,
					.sample_type =
						PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
					.sample_regs_user = PROCESS_PERF_MASK,
					.sample_stack_user = STACK,
					.wakeup_events = 1,
					.disabled = 1};
}

/* Newest first, over and over; with marks at each coming and going. */
static struct perf_event_attr leave_attr(void)
{
	return (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CONTEXT_SWITCHES,
					.sample_period = 1,
					.sample_type = PERF_SAMPLE_REGS_USER,
					.sample_regs_user = PROCESS_PERF_MASK,
					.context_switch = 1,
					.write_backward = 1};
}

const char *perf_missing(void)
{
	struct perf_event_attr attr = tick_attr();
	struct ring ring;
	struct error *err = ring_open(&attr, 0, TICK_ROOM, &ring);

	ring_close(&ring);
	error_free(err);
	return err ? "perf events would not stop it, but take root, or CAP_PERFMON" : NULL;
}

struct error *perf_new(uint32_t slots, struct perf **out)
{
	struct perf *perf = calloc(1, sizeof(*perf));

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
		ring_close(&perf->at[i].tick);
		ring_close(&perf->at[i].leave);
	}
	free(perf->at);
	free(perf);
}

struct error *perf_watch(struct perf *perf, uint32_t slot, pid_t tid)
{
	struct perf_event_attr tick = tick_attr(), leave = leave_attr();
	struct watched *at = &perf->at[slot];
	struct error *err;

	if (perf->watched == WATCHED_MAX)
		return error_new(ERR_DENIED, "that many threads are too many for perf events");
	err = ring_open(&tick, tid, TICK_ROOM, &at->tick);
	if (!err)
		err = ring_open(&leave, tid, LEAVE_ROOM, &at->leave);
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

/* What the kernel writes newest first is as far as the end of all, which is place 0. */
static bool copy_newest(const struct ring *ring, uint64_t at, void *to, size_t len)
{
	if (0 - at < len)
		return false;
	ring_copy(ring, at, to, len);
	return true;
}

static bool is_whole(const struct record *record)
{
	return record->head.type == PERF_RECORD_SAMPLE && record->head.size >= sizeof(*record) &&
	       process_perf_regs_known(record->abi);
}

bool perf_waits(const struct perf *perf, uint32_t slot, struct regs *regs, uint64_t *moment)
{
	const struct ring *ring = &perf->at[slot].leave;
	struct perf_event_header mark;
	struct record left;

	*moment = ring_head(ring);
	/* The last thing that it did is going, and what stands behind that is how. */
	if (!copy_newest(ring, *moment, &mark, sizeof(mark)) || mark.type != PERF_RECORD_SWITCH ||
	    !(mark.misc & PERF_RECORD_MISC_SWITCH_OUT) ||
	    !copy_newest(ring, *moment + mark.size, &left, sizeof(left)) ||
	    !perf_still_waits(perf, slot, *moment) || !is_whole(&left))
		return false;
	process_perf_regs(left.abi, left.regs, regs);
	return true;
}

bool perf_still_waits(const struct perf *perf, uint32_t slot, uint64_t moment)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return ring_head(&perf->at[slot].leave) == moment;
}

/* Nothing that came before counts; false if nothing had. */
static bool forget(const struct ring *ring)
{
	const uint64_t head = ring_head(ring);
	const bool any = ring->page->data_tail != head;

	__atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
	return any;
}

/* Asks for one tick; one that was asked for in vain comes later, and then serves this, too. */
static bool ask(struct watched *at)
{
	struct pollfd ready = {.fd = at->tick.fd, .events = POLLIN};

	if (forget(&at->tick))
		at->asked = false;
	if (!at->asked && ioctl(at->tick.fd, PERF_EVENT_IOC_REFRESH, 1))
		return false;
	at->asked = true;
	(void)poll(&ready, 1, PATIENCE_MS);
	return ring_head(&at->tick) != at->tick.page->data_tail;
}

/* The stack of a record, behind its registers: a size, as many bytes, and how many of these are meant. */
static bool take_stack(const struct ring *ring, uint64_t at, struct vcpu_sample *vcpu)
{
	uint64_t size, len;

	ring_copy(ring, at, &size, sizeof(size));
	if (size > STACK)
		return false;
	ring_copy(ring, at + sizeof(size) + size, &len, sizeof(len));
	if (!size || len > size)
		len = 0;
	vcpu->stack = (struct window){.va = vcpu->regs.sp, .bytes = vcpu->buffer, .cut = true};
	vcpu->stack.len = len < vcpu->want ? (uint32_t)len : vcpu->want;
	ring_copy(ring, at + sizeof(size), vcpu->buffer, vcpu->stack.len);
	return true;
}

static bool take(const struct ring *ring, struct vcpu_sample *vcpu)
{
	const uint64_t at = ring->page->data_tail;
	struct record record;

	ring_copy(ring, at, &record, sizeof(record));
	if (!is_whole(&record))
		return false;
	process_perf_regs(record.abi, record.regs, &vcpu->regs);
	return !(vcpu->regs.sp % vcpu->regs.word) && take_stack(ring, at + sizeof(record), vcpu);
}

/* The copy ended early: where the stack does, or where a page would have to be brought. */
static bool is_missing(const struct vcpu_sample *vcpu, int memory)
{
	uint8_t byte;

	return vcpu->stack.len < vcpu->want &&
	       host_memory_read(memory, vcpu->stack.va + vcpu->stack.len, &byte, 1) == 1;
}

bool perf_read(struct perf *perf, uint32_t slot, int memory, struct vcpu_sample *vcpu)
{
	struct watched *at = &perf->at[slot];

	if (vcpu->leads_on || vcpu->want > STACK)
		return false;
	for (int round = 0; round < ROUNDS; round++) {
		if (!ask(at) || !take(&at->tick, vcpu))
			return false;
		if (is_missing(vcpu, memory))
			continue;
		vcpu->stack.cut = vcpu->stack.len == vcpu->want;
		for (unsigned k = 0; k < UNWIND_OTHERS; k++)
			vcpu->others[k].len = 0;
		return true;
	}
	return false;
}
