/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The host's side of vCPUs (record --host) by perf events, where BPF is not to be had. The kernel's
 * tracepoints tell what the thread of a vCPU did when uniprof was woken on its CPU, or when it was
 * interrupted to be stopped; another event tells where a thread left its CPU, and a third each exit.
 * A sample in an interrupt that ended the guest's code is marked as the guest's by the kernel
 * (perf_guest_state() in arch/x86/events/core.c). It has no stack: for that the thread is stopped
 * by ptrace, before the guest goes on.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

/* Bytes of records: of stacks, of which the newest are kept, and of exits, which are counted at each sample. */
#define STACKS_ROOM 8192u
#define EXITS_ROOM  (512u << 10)

/* Of the thread's own registers, as it entered the kernel (arch/x86/include/uapi/asm/perf_regs.h): ax and si. */
#define USER_REGS ((1u << 0) | (1u << 4))

/* include/uapi/linux/kvm.h; registers in a system call (arch/x86/entry/entry_64.S). */
#define KVM_RUN 0xae80u
#define IN_CALL ((uint64_t)-ENOSYS)

/* What the kernel calls the interrupts that sample (arch/x86/include/asm/idtentry.h). */
#define STOP_INTERRUPT	"asm_sysvec_reschedule_ipi"
#define CLOCK_INTERRUPT "asm_sysvec_apic_timer_interrupt"

/* Where the members of an exit's record are. */
struct exit_format {
	unsigned id; /* of the tracepoint */
	unsigned reason, rip, isa;
};

/* KVM's name for Intel's reasons (include/asm/kvm_host.h: KVM_ISA_VMX). */
#define ISA_VMX 1u

struct exit {
	uint64_t time_ns;
	uint32_t reason;
};

struct watched_thread {
	struct perf_ring leave; /* where it left its CPU */
	struct perf_ring wake;	/* what it did when uniprof was woken on its CPU */
	struct perf_ring kick;	/* ... when another CPU interrupted it, to stop it perhaps */
	struct perf_ring exits;
	uint64_t
		asked_ns; /* the thread is stopped to tell what it did after this; 0: what it did is known: */
	uint64_t guest_ns; /* ... the guest's code ran at this time */
	uint64_t seen_ns;  /* time of the last sample: uniprof is woken by stops, too */
	uint64_t stop_ns;  /* time from which a stop may come that nobody has waited for; 0: none */
	uint64_t read_ns;  /* time of the last exit when the guest's registers were read */
	struct exit last, before; /* exits; time 0: none yet */
	bool counting;		  /* from the first sample on */
	struct bpf_exits *counts;
};

struct host_events {
	uint32_t n;
	struct exit_format format;
	struct watched_thread at[]; /* [n] */
};

/* A record with a stack: of `leave`, `wake` and `kick`. */
struct moment {
	uint32_t size; /* of the record, bytes */
	uint64_t time_ns;
	unsigned mode; /* PERF_RECORD_MISC_... */
	bool in_run;   /* in the system call KVM_RUN */
};

static FILE *open_tracepoint(const char *name, const char *file)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	FILE *f = NULL;
	char path[128];

	for (size_t k = 0; k < sizeof(places) / sizeof(*places) && !f; k++) {
		snprintf(path, sizeof(path), "%s/events/%s/%s", places[k], name, file);
		f = fopen(path, "re");
	}
	return f;
}

static struct error *without_tracepoint(const char *name)
{
	return error_errno(
		ERR_DENIED, errno,
		"the kernel's tracepoint %s (is tracefs mounted at /sys/kernel/tracing?)", name);
}

static struct error *tracepoint_id(const char *name, unsigned *id)
{
	FILE *f = open_tracepoint(name, "id");
	bool read = f && fscanf(f, "%u", id) == 1;

	if (f)
		fclose(f);
	return read ? NULL : without_tracepoint(name);
}

/* A line: "field:unsigned int exit_reason;	offset:8;	size:4;	signed:0;". */
static void take_field(const char *line, struct exit_format *format)
{
	const char *offset = strstr(line, "offset:");
	const unsigned at = offset ? (unsigned)strtoul(offset + 7, NULL, 10) : 0;

	if (strstr(line, " exit_reason;"))
		format->reason = at;
	else if (strstr(line, " guest_rip;"))
		format->rip = at;
	else if (strstr(line, " isa;"))
		format->isa = at;
}

static struct error *read_format(struct exit_format *format)
{
	static const char name[] = "kvm/kvm_exit";
	char line[256];
	FILE *f;

	TRY(tracepoint_id(name, &format->id));
	f = open_tracepoint(name, "format");
	if (!f)
		return without_tracepoint(name);
	while (fgets(line, sizeof(line), f))
		take_field(line, format);
	fclose(f);
	return format->reason && format->rip && format->isa
		       ? NULL
		       : error_new(ERR_DENIED,
				   "the kernel's tracepoint %s has other members than known", name);
}

static struct perf_event_attr attr_of(uint32_t type, uint64_t config, uint64_t samples)
{
	return (struct perf_event_attr){.type = type,
					.config = config,
					.sample_period = 1,
					.sample_type = PERF_SAMPLE_TIME | samples,
					.sample_regs_user =
						samples & PERF_SAMPLE_REGS_USER ? USER_REGS : 0,
					.sample_max_stack = HOST_FRAMES,
					.wakeup_watermark = UINT32_MAX,
					.watermark = 1,
					.use_clockid = 1,
					.clockid = CLOCK_MONOTONIC};
}

/* Newest record first. */
static struct perf_event_attr stack_attr(uint32_t type, uint64_t config)
{
	struct perf_event_attr attr =
		attr_of(type, config, PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER);

	attr.write_backward = 1;
	return attr;
}

static struct error *watch_stacks(const char *tracepoint, pid_t tid, struct perf_ring *ring)
{
	struct perf_event_attr attr;
	unsigned id;

	TRY(tracepoint_id(tracepoint, &id));
	attr = stack_attr(PERF_TYPE_TRACEPOINT, id);
	return perf_ring_open(&attr, tid, STACKS_ROOM, ring);
}

/* Notes no other thread's waking than uniprof's own. */
static struct error *watch_wakes(pid_t tid, struct perf_ring *ring)
{
	char filter[32];

	TRY(watch_stacks("sched/sched_waking", tid, ring));
	snprintf(filter, sizeof(filter), "pid == %d", (int)syscall(SYS_gettid));
	if (ioctl(ring->fd, PERF_EVENT_IOC_SET_FILTER, filter))
		return error_errno(ERR_DENIED, errno,
				   "a perf event of the tracepoint sched_waking");
	return NULL;
}

static struct error *watch(struct host_events *events, uint32_t i, pid_t tid)
{
	struct watched_thread *at = &events->at[i];
	struct perf_event_attr leave =
		stack_attr(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES);
	struct perf_event_attr exits =
		attr_of(PERF_TYPE_TRACEPOINT, events->format.id, PERF_SAMPLE_RAW);

	leave.context_switch = 1;
	exits.disabled = 1;
	TRY(watch_stacks("irq_vectors/reschedule_entry", tid, &at->kick));
	TRY(watch_wakes(tid, &at->wake));
	TRY(perf_ring_open(&leave, tid, STACKS_ROOM, &at->leave));
	TRY(perf_ring_open(&exits, tid, EXITS_ROOM, &at->exits));
	at->counts = calloc(1, sizeof(*at->counts));
	return at->counts ? NULL : error_no_memory();
}

struct error *host_events_new(const struct kvm_vcpus *vcpus, struct host_events **out)
{
	struct host_events *events = calloc(1, sizeof(*events) + vcpus->n * sizeof(*events->at));
	struct error *err;

	if (!events)
		return error_no_memory();
	events->n = vcpus->n;
	err = read_format(&events->format);
	for (uint32_t i = 0; i < events->n && !err; i++)
		if (vcpus->at[i].tid)
			err = watch(events, i, vcpus->at[i].tid);
	if (err)
		host_events_free(events);
	else
		*out = events;
	return err;
}

void host_events_free(struct host_events *events)
{
	if (!events)
		return;
	for (uint32_t i = 0; i < events->n; i++) {
		struct watched_thread *at = &events->at[i];

		perf_ring_close(&at->leave);
		perf_ring_close(&at->wake);
		perf_ring_close(&at->kick);
		perf_ring_close(&at->exits);
		free(at->counts);
	}
	free(events);
}

/* Records of exits: head, time, and the tracepoint's own members with their size before them. */

static uint32_t member(const uint8_t *raw, uint32_t size, unsigned at)
{
	uint32_t value = 0;

	if (at <= size - sizeof(value))
		memcpy(&value, raw + at, sizeof(value));
	return value;
}

static void count_exit(const struct exit_format *format, struct watched_thread *at,
		       const uint8_t *record, uint32_t size)
{
	const uint8_t *raw = record + sizeof(uint64_t) + sizeof(uint32_t);
	struct exit exit;
	uint64_t rip = 0;

	if (size < sizeof(uint64_t) + sizeof(uint32_t) + sizeof(rip) + format->rip)
		return;
	size -= sizeof(uint64_t) + sizeof(uint32_t);
	memcpy(&exit.time_ns, record, sizeof(exit.time_ns));
	memcpy(&rip, raw + format->rip, sizeof(rip));
	exit.reason = member(raw, size, format->reason);
	if (member(raw, size, format->isa) == ISA_VMX)
		exit.reason = VMX_REASONS + (exit.reason & (VMX_REASONS - 1));
	at->before = at->last;
	at->last = exit;
	/* The record does not tell the mode: programs are below the kernel. */
	if (exit_is_caused(exit.reason))
		exits_count(at->counts, rip, exit.reason, !(rip >> 63));
	else
		exits_count(at->counts, 0, exit.reason, 0);
}

/* Counts what has come, from the first call on; a record that is larger than any of ours ends it. */
static void count_exits(const struct exit_format *format, struct watched_thread *at)
{
	const uint64_t head = perf_ring_head(&at->exits);
	uint64_t tail = at->exits.page->data_tail;
	struct perf_event_header record;
	uint8_t bytes[256];
	uint64_t lost[2];

	if (!at->counting)
		at->counting = !ioctl(at->exits.fd, PERF_EVENT_IOC_ENABLE, 0);
	for (; head - tail >= sizeof(record); tail += record.size) {
		perf_ring_copy(&at->exits, tail, &record, sizeof(record));
		if (record.size < sizeof(record) || record.size > head - tail ||
		    record.size - sizeof(record) > sizeof(bytes))
			break;
		perf_ring_copy(&at->exits, tail + sizeof(record), bytes,
			       record.size - sizeof(record));
		if (record.type == PERF_RECORD_SAMPLE) {
			count_exit(format, at, bytes, record.size - (uint32_t)sizeof(record));
		} else if (record.type == PERF_RECORD_LOST) {
			memcpy(lost, bytes, sizeof(lost));
			at->counts->all += lost[1];
			at->counts->lost += lost[1];
		}
	}
	__atomic_store_n(&at->exits.page->data_tail, head, __ATOMIC_RELEASE);
}

/* Takes the addresses of a call chain, which the kernel marks as its own or the program's. */
static void take_chain(const uint64_t *chain, uint64_t n, struct host_stack *host)
{
	bool user = false;

	host->kernel = host->user = 0;
	for (uint64_t k = 0; k < n; k++) {
		uint32_t *frames = user ? &host->user : &host->kernel;

		if (chain[k] >= PERF_CONTEXT_MAX)
			user = chain[k] == PERF_CONTEXT_USER;
		else if (*frames < HOST_FRAMES)
			host->at[host->kernel + host->user] = chain[k], ++*frames;
	}
}

/* Head, time, frames and their number, the width of registers and these. */
#define MARKS	     8u
#define RECORD_WORDS (HOST_FRAMES + MARKS + 6)

/* Reads a record of a stack; false: it is none, or a new one was written over it. */
static bool read_moment(const struct perf_ring *ring, uint64_t at, struct moment *moment,
			struct host_stack *host)
{
	struct perf_event_header head;
	uint64_t words[RECORD_WORDS];
	const uint64_t *after;
	uint32_t n;

	if (!perf_ring_copy_newest(ring, at, &head, sizeof(head)) ||
	    head.type != PERF_RECORD_SAMPLE || head.size > sizeof(words) ||
	    !perf_ring_copy_newest(ring, at, words, head.size))
		return false;
	n = head.size / (uint32_t)sizeof(*words);
	if (n < 4 || words[2] > n - 4)
		return false;
	*moment = (struct moment){.size = head.size,
				  .time_ns = words[1],
				  .mode = head.misc & PERF_RECORD_MISC_CPUMODE_MASK};
	take_chain(words + 3, words[2], host);
	after = words + 3 + words[2];
	moment->in_run = moment->mode == PERF_RECORD_MISC_KERNEL &&
			 *after == PERF_SAMPLE_REGS_ABI_64 && after + 3 <= words + n &&
			 after[1] == IN_CALL && (uint32_t)after[2] == KVM_RUN;
	return true;
}

static bool is_guest(const struct moment *moment)
{
	return moment->mode == PERF_RECORD_MISC_GUEST_KERNEL ||
	       moment->mode == PERF_RECORD_MISC_GUEST_USER;
}

/* An interrupt that came while KVM, at an exit for another reason, had interrupts switched off came to KVM. */
static bool is_interrupt(const struct exit *exit)
{
	return exit->reason == SVM_EXIT_INTR || exit->reason == VMX_EXIT_INTR;
}

/* More interrupts in the time of a sample are not to be expected. */
#define MOMENTS 8

/* The first moment since then in which the thread was interrupted. False: it was not. */
static bool take_first(const struct perf_ring *ring, uint64_t since_ns, struct moment *moment,
		       struct host_stack *host)
{
	uint64_t at = perf_ring_head(ring), first = at;
	bool any = false;

	for (int k = 0;
	     k < MOMENTS && read_moment(ring, at, moment, host) && moment->time_ns >= since_ns;
	     k++) {
		any = true;
		first = at;
		at += moment->size;
	}
	return any && read_moment(ring, first, moment, host);
}

/*
 * Where a thread left its CPU that is on none now; *position is for still_waits(). The newest record
 * is the switch off its CPU; the sample of that follows.
 */
static bool take_leave(const struct watched_thread *at, uint64_t *position, bool *wants_cpu,
		       struct moment *moment, struct host_stack *host)
{
	struct perf_event_header mark;

	*position = perf_ring_head(&at->leave);
	if (!perf_ring_copy_newest(&at->leave, *position, &mark, sizeof(mark)) ||
	    mark.type != PERF_RECORD_SWITCH || !(mark.misc & PERF_RECORD_MISC_SWITCH_OUT) ||
	    !read_moment(&at->leave, *position + mark.size, moment, host))
		return false;
	*wants_cpu = mark.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
	host->skip = NULL;
	return true;
}

static bool still_waits(const struct watched_thread *at, uint64_t position)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return perf_ring_head(&at->leave) == position;
}

/* What the thread did when the clock woke uniprof for this sample. */
static bool take_wake(const struct kvm_target *kvm, struct watched_thread *at,
		      struct moment *moment, struct host_stack *host)
{
	const uint64_t since_ns =
		at->seen_ns > kvm->sleeps_until_ns ? at->seen_ns : kvm->sleeps_until_ns;
	const bool woken =
		take_first(&at->wake, since_ns, moment, host) && (!at->stop_ns || is_guest(moment));

	host->skip = CLOCK_INTERRUPT;
	at->seen_ns = clock_now_ns();
	return woken;
}

/* A place outside of the guest. */
static bool tell_host(struct vcpu_sample *vcpu, enum host_place place)
{
	vcpu->host->place = place;
	vcpu->host->guest_known = false;
	kvm_forget_stacks(vcpu);
	return true;
}

/* Returns the time. */
static uint64_t ask_to_stop(struct watched_thread *at)
{
	const uint64_t now_ns = clock_now_ns();

	if (!at->stop_ns)
		at->stop_ns = now_ns;
	return now_ns;
}

/* The guest's code ran at this time: its registers have to be read, for which the thread is stopped. */
static bool ask_for_guest(struct watched_thread *at, uint64_t time_ns)
{
	at->asked_ns = 0;
	at->guest_ns = time_ns;
	ask_to_stop(at);
	return false;
}

static bool tell_left(struct watched_thread *at, const struct thread *thread,
		      const struct moment *moment, bool wants_cpu, struct vcpu_sample *vcpu)
{
	if (wants_cpu && moment->in_run && is_interrupt(&at->last))
		return ask_for_guest(at, moment->time_ns);
	if (!moment->in_run)
		return tell_host(vcpu, HOST_MONITOR);
	/* In KVM_RUN, threads sleep like that for nothing but the guest's halt. */
	return tell_host(vcpu,
			 !wants_cpu && thread_letter(thread) == 'S' ? HOST_HALTED : HOST_EXIT);
}

/* Did the thread leave its CPU for a stop that was given up? Then it tells nothing of what it did before. */
static bool is_late_stop(const struct watched_thread *at, const struct moment *moment,
			 bool wants_cpu)
{
	return at->stop_ns && moment->time_ns > at->stop_ns && !wants_cpu && !moment->in_run;
}

/* The thread may come and go meanwhile. */
#define ROUNDS 3

bool kvm_events_read_nostop(void *ctx, uint32_t i, struct vcpu_sample *vcpu,
			    struct thread_time *time, bool *on_cpu)
{
	struct kvm_target *kvm = ctx;
	const struct thread *thread = &kvm->stops.threads.at[i];
	struct watched_thread *at = &kvm->events->at[i];
	struct moment moment;
	uint64_t position;
	bool wants_cpu;

	at->asked_ns = clock_now_ns();
	count_exits(&kvm->events->format, at);
	*on_cpu = false;
	if (vcpu->request.again)
		return false;
	at->asked_ns = 0;
	*on_cpu = take_wake(kvm, at, &moment, vcpu->host);
	if (*on_cpu)
		return is_guest(&moment)
			       ? ask_for_guest(at, moment.time_ns)
			       : tell_host(vcpu, moment.in_run ? HOST_EXIT : HOST_MONITOR);
	for (int round = 0; round < ROUNDS; round++) {
		if (!take_leave(at, &position, &wants_cpu, &moment, vcpu->host) ||
		    is_late_stop(at, &moment, wants_cpu))
			break;
		count_exits(&kvm->events->format, at);
		thread_time(thread, time);
		if (still_waits(at, position))
			return tell_left(at, thread, &moment, wants_cpu, vcpu);
	}
	*on_cpu = true;
	at->asked_ns = ask_to_stop(at);
	return false;
}

/* The guest that ran at a moment has not run since; its registers say where it was. */
static bool read_guest(struct kvm_target *kvm, uint32_t i, uint64_t moment_ns,
		       struct vcpu_sample *vcpu)
{
	struct watched_thread *at = &kvm->events->at[i];
	union vcpu_regs all;

	at->read_ns = at->last.time_ns;
	if (at->last.time_ns > moment_ns && !is_interrupt(&at->last) &&
	    at->before.time_ns < moment_ns)
		return tell_host(vcpu, HOST_SWITCH);
	vcpu->host->place = HOST_GUEST;
	vcpu->host->guest_known =
		at->before.time_ns < moment_ns && kvm_read_stopped(kvm, i, &all, vcpu);
	if (vcpu->host->guest_known)
		kvm_copy_thread(kvm, i, vcpu);
	else
		kvm_forget_stacks(vcpu);
	return true;
}

bool kvm_events_read(void *ctx, uint32_t i, struct vcpu_sample *vcpu, uint64_t until_ns)
{
	struct kvm_target *kvm = ctx;
	struct watched_thread *at = &kvm->events->at[i];
	struct moment moment;

	at->stop_ns = 0;
	at->seen_ns = clock_now_ns();
	count_exits(&kvm->events->format, at);
	if (!at->asked_ns)
		return read_guest(kvm, i, at->guest_ns, vcpu);
	vcpu->host->skip = STOP_INTERRUPT;
	if (!take_first(&at->kick, at->asked_ns, &moment, vcpu->host))
		/* It has not run since it was read, and is to be read again. */
		return vcpu->request.again && at->read_ns == at->last.time_ns &&
		       read_guest(kvm, i, at->guest_ns, vcpu);
	at->guest_ns = moment.time_ns;
	return is_guest(&moment) ? read_guest(kvm, i, moment.time_ns, vcpu)
				 : tell_host(vcpu, moment.in_run ? HOST_EXIT : HOST_MONITOR);
}

void host_events_exits(struct host_events *events,
		       void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
	for (uint32_t i = 0; i < events->n; i++) {
		if (!events->at[i].counts)
			continue;
		count_exits(&events->format, &events->at[i]);
		kvm_exits_tell(i, events->at[i].counts, each, ctx);
	}
}
