/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/bpf_parts.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/window.h"

/* Longer than an interrupt takes to come to a CPU that is not ours; bringing pages takes a few rounds. */
#define PATIENCE_MS 1

/* Before a tick that is compared, so that the guest has run since it was left last; and how long to watch for that. */
#define RUN_NS	300000u
#define SPIN_NS (RUN_NS + 50000u)
/* ... and how long it is kept from its CPU for the stop at most. */
#define HOLD_NS 100000u

#define VCPUS_MAX 256u

_Static_assert(SHARED_STACKS == 1 + UNWIND_OTHERS, "as many stacks as a sample has");
_Static_assert(SHARED_OTHER_MAX == OTHER_STACK_CAP, "as much of other stacks as is ever wanted");
_Static_assert(SHARED_RED_ZONE <= RED_ZONE_MAX, "no more than there is room for");
_Static_assert(SHARED_SLOTS == RAM_SLOTS_MAX, "as many pieces of memory as there can be");

/* Sizes of maps that are mapped are whole pages; values lie at multiples of 8 bytes. */
static size_t mapped_size(const struct bpf_map *map)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t bytes = (bpf_map__value_size(map) + 7ul) / 8 * 8 * bpf_map__max_entries(map);

	return (bytes + page - 1) / page * page;
}

void *bpf_map_in(const struct bpf_map *map)
{
	void *at = mmap(NULL, mapped_size(map), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(map), 0);

	return at == MAP_FAILED ? NULL : at;
}

void bpf_map_out(void *at, const struct bpf_map *map)
{
	if (at)
		munmap(at, mapped_size(map));
}

static int on_answer(void *ctx, void *data, size_t size)
{
	return 0;
}

static struct error *load(struct bpf_reader *u, bool host)
{
	struct error *err = bpf_program_load(u->n, host, &u->program);

	if (err)
		return err;
	u->vcpus = bpf_map_in(u->program->maps.vcpus);
	u->map = bpf_map_in(u->program->maps.memory);
	u->answers = ring_buffer__new(bpf_map__fd(u->program->maps.answers), on_answer, NULL, NULL);
	u->told = bpf_map_in(u->program->maps.told);
	if (!u->vcpus || !u->map || !u->told || !u->answers)
		return bpf_refused("sharing memory with the program in the kernel", errno);
	return host ? bpf_host_attach(u) : NULL;
}

static struct error *watch(struct perf_event_attr *attr, pid_t tid, struct bpf_program *program,
			   uint32_t i, int *fd, struct bpf_link **link)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options, .bpf_cookie = i);

	attr->size = sizeof(*attr);
	attr->type = PERF_TYPE_SOFTWARE;
	*fd = (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (*fd < 0)
		return bpf_refused("perf_event_open", errno);
	*link = bpf_program__attach_perf_event_opts(program, *fd, &options);
	return *link ? NULL : bpf_refused("attaching the program to a perf event", errno);
}

static struct error *watch_vcpu(struct bpf_reader *u, uint32_t i, pid_t tid)
{
	/* Attaching enables an event; the first tick finds nothing that was asked for. */
	struct perf_event_attr tick = {.config = PERF_COUNT_SW_CPU_CLOCK,
				       .sample_period = PERF_TICK_NS};
	struct perf_event_attr change = {.config = PERF_COUNT_SW_CONTEXT_SWITCHES,
					 .sample_period = 1};
	struct watched_vcpu *at = &u->at[i];

	TRY(watch(&change, tid, u->program->progs.at_switch, i, &at->change, &at->links[1]));
	TRY(watch(&tick, tid, u->program->progs.at_tick, i, &at->tick, &at->links[0]));
	return ioctl(at->tick, PERF_EVENT_IOC_DISABLE, 0) ? bpf_refused("a perf event", errno)
							  : NULL;
}

struct error *bpf_reader_new(const struct kvm_vcpus *vcpus, int memory, bool host,
			     struct bpf_reader **out)
{
	struct bpf_reader *u;
	struct error *err;

	if (vcpus->n > VCPUS_MAX)
		return error_new(ERR_DENIED, "that many vCPUs are too many for BPF");
	u = calloc(1, sizeof(*u) + vcpus->n * sizeof(*u->at));
	if (!u)
		return error_no_memory();
	u->n = vcpus->n;
	u->memory = memory;
	for (uint32_t i = 0; i < u->n; i++)
		u->at[i].tick = u->at[i].change = -1;
	err = load(u, host);
	for (uint32_t i = 0; i < u->n && !err; i++)
		if (vcpus->at[i].tid)
			err = watch_vcpu(u, i, vcpus->at[i].tid);
	if (err)
		bpf_reader_free(u);
	else
		*out = u;
	return err;
}

/* A link closes its event. */
static void unwatch(struct watched_vcpu *at)
{
	const int fds[2] = {at->tick, at->change};

	for (int k = 0; k < 2; k++)
		if (at->links[k])
			bpf_link__destroy(at->links[k]);
		else if (fds[k] >= 0)
			close(fds[k]);
}

void bpf_reader_free(struct bpf_reader *u)
{
	if (!u)
		return;
	for (uint32_t i = 0; i < u->n; i++)
		unwatch(&u->at[i]);
	bpf_host_detach(u);
	ring_buffer__free(u->answers);
	if (u->program) {
		bpf_map_out(u->vcpus, u->program->maps.vcpus);
		bpf_map_out(u->map, u->program->maps.memory);
		bpf_map_out(u->told, u->program->maps.told);
	}
	vcpu_bpf__destroy(u->program);
	free(u);
}

void bpf_reader_map(struct bpf_reader *u, const struct ram_map *map)
{
	/*
	 * The program may be reading: it must not see a mixture of the old
	 * slots and the new ones.
	 */
	for (size_t i = 0; i < SHARED_SLOTS; i++)
		__atomic_store_n(&u->map->slot[i].size, 0, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < map->n; i++) {
		u->map->slot[i].gpa = map->slot[i].gpa;
		u->map->slot[i].hva = map->slot[i].hva;
		__atomic_store_n(&u->map->slot[i].size, map->slot[i].size, __ATOMIC_RELEASE);
	}
	u->map->n = map->n;
}

bool bpf_regs_take(const struct watched_vcpu *at, const struct bpf_regs *seen, struct regs *regs)
{
	return seen->lack == LACK_NONE && !seen->between && bpf_regs_convert(seen, &at->last, regs);
}

bool bpf_regs_copy(const struct bpf_regs *from, struct bpf_regs *to)
{
	const uint64_t round = __atomic_load_n(&from->round, __ATOMIC_ACQUIRE);

	memcpy(to, from, sizeof(*to));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return !(round & 1) && __atomic_load_n(&from->round, __ATOMIC_RELAXED) == round;
}

/* What a thread left that has not been put on a CPU since `time` was read. */
static bool take_left(const struct bpf_vcpu *shared, const struct thread_time *time,
		      struct bpf_regs *left)
{
	return time->known && bpf_regs_copy(&shared->left, left) &&
	       left->timeslices == time->timeslices;
}

bool bpf_reader_waits(const struct bpf_reader *u, uint32_t i, const struct thread_time *time,
		      struct regs *regs)
{
	struct bpf_regs left;

	return bpf_reader_is_checked(u, i, WHEN_WAITING) && take_left(&u->vcpus[i], time, &left) &&
	       bpf_regs_take(&u->at[i], &left, regs);
}

bool kvm_wants_cpu(void *ctx, uint32_t i, const struct thread_time *time)
{
	const struct kvm_target *kvm = ctx;
	struct bpf_regs left;

	return take_left(&kvm->bpf->vcpus[i], time, &left) && !left.asleep;
}

static bool is_answered(const struct bpf_vcpu *shared)
{
	return __atomic_load_n(&shared->answered, __ATOMIC_ACQUIRE) == shared->asked;
}

void bpf_want_stacks(struct bpf_vcpu *shared, const struct vcpu_sample *vcpu)
{
	shared->stack[0].want =
		SHARED_RED_ZONE +
		(vcpu->request.want < SHARED_STACK_MAX ? vcpu->request.want : SHARED_STACK_MAX);
	for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
		shared->stack[1 + k].va = vcpu->request.other[k].va;
		shared->stack[1 + k].want = vcpu->request.other[k].want;
	}
}

static void put_question(struct bpf_vcpu *shared, const struct vcpu_sample *vcpu)
{
	bpf_want_stacks(shared, vcpu);
	__atomic_store_n(&shared->asked, shared->asked + 1, __ATOMIC_RELEASE);
}

/* Asks for one tick; a late one of an earlier question answers this, too. */
static bool ask(struct bpf_reader *u, uint32_t i, const struct vcpu_sample *vcpu)
{
	struct bpf_vcpu *shared = &u->vcpus[i];
	const uint64_t until_ns = clock_now_ns() + PATIENCE_MS * 1000000ull;
	const bool idle = is_answered(shared);

	(void)ring_buffer__consume(u->answers);
	put_question(shared, vcpu);
	if (idle && ioctl(u->at[i].tick, PERF_EVENT_IOC_REFRESH, 1))
		return false;
	while (!is_answered(shared) && clock_now_ns() < until_ns)
		if (ring_buffer__poll(u->answers, PATIENCE_MS) < 0 && errno != EINTR)
			return false;
	return is_answered(shared);
}

static void take_stack(const struct bpf_stack *stack, const uint8_t *bytes, uint32_t cap,
		       uint8_t *buffer, struct window *out)
{
	*out = (struct window){.va = stack->va,
			       .bytes = buffer,
			       .len = stack->got < cap ? stack->got : cap,
			       .cut = stack->cut || stack->got > cap};
	memcpy(buffer, bytes, out->len);
}

static void take_own(const struct bpf_stack *stack, const uint8_t *bytes,
		     const struct bpf_regs *seen, struct vcpu_sample *vcpu)
{
	struct bpf_stack own = *stack;
	const uint32_t below = own.below < RED_ZONE_MAX ? own.below : RED_ZONE_MAX;

	own.va = seen->sp & ~7ull;
	take_stack(&own, bytes, below + vcpu->request.want, vcpu->buffer, &vcpu->stack);
	window_set_below(&vcpu->stack, below);
}

void bpf_take_stacks(const struct bpf_vcpu *shared, struct vcpu_sample *vcpu)
{
	take_own(&shared->stack[0], shared->bytes, &shared->now, vcpu);
	bpf_take_thread(&shared->thread, &vcpu->thread);
	for (unsigned k = 0; k < UNWIND_OTHERS; k++)
		take_stack(&shared->stack[1 + k],
			   shared->bytes + SHARED_OTHERS_AT + k * SHARED_OTHER_MAX, OTHER_STACK_CAP,
			   vcpu->request.other[k].buffer, &vcpu->others[k]);
}

bool bpf_regs_believed(struct bpf_reader *u, uint32_t i, const struct bpf_regs *seen)
{
	const bool checked =
		bpf_reader_is_checked(u, i, seen->in_guest ? WHEN_RUNNING : WHEN_WAITING);

	u->at[i].wanted = !checked;
	return checked;
}

/* Reading it faults the page in, if there is one. */
bool bpf_bring_page(const struct bpf_reader *u, const struct bpf_vcpu *shared)
{
	uint8_t byte;

	return host_memory_read(u->memory, shared->missing & ~1ull, &byte, 1) == 1;
}

bool bpf_reader_read(struct bpf_reader *u, uint32_t i, struct vcpu_sample *vcpu)
{
	const struct bpf_vcpu *shared = &u->vcpus[i];

	if (!bpf_reader_is_checked(u, i, WHEN_WAITING))
		return false;
	for (int round = 0; round < ROUNDS; round++) {
		if (!ask(u, i, vcpu) || !bpf_regs_believed(u, i, &shared->now) ||
		    !bpf_regs_take(&u->at[i], &shared->now, &vcpu->regs))
			return false;
		bpf_take_stacks(shared, vcpu);
		if (!shared->missing || !bpf_bring_page(u, shared))
			return true;
	}
	return true;
}

void bpf_reader_sleeps(struct bpf_reader *u, uint64_t until_ns)
{
	for (uint32_t i = 0; i < u->n; i++) {
		struct bpf_vcpu *shared = &u->vcpus[i];
		const uint32_t want = u->at[i].want;

		if (!want || want > SHARED_LEFT_MAX)
			continue;
		shared->stack[SHARED_LEFT].want = SHARED_RED_ZONE + want;
		__atomic_store_n(&shared->copy_ns, until_ns, __ATOMIC_RELEASE);
	}
}

bool bpf_reader_left(struct bpf_reader *u, uint32_t i, const struct thread_time *time,
		     struct vcpu_sample *vcpu)
{
	struct bpf_vcpu *shared = &u->vcpus[i];
	const uint32_t want = u->at[i].want;
	struct bpf_regs left;

	__atomic_store_n(&shared->copy_ns, 0, __ATOMIC_RELEASE);
	u->at[i].want = vcpu->request.want;
	if (want < vcpu->request.want || vcpu->request.leads_on ||
	    !bpf_reader_is_checked(u, i, WHEN_WAITING) || !take_left(shared, time, &left) ||
	    __atomic_load_n(&shared->copied, __ATOMIC_ACQUIRE) != left.timeslices ||
	    !bpf_regs_take(&u->at[i], &left, &vcpu->regs))
		return false;
	take_own(&shared->stack[SHARED_LEFT], shared->bytes + SHARED_LEFT_AT, &left, vcpu);
	bpf_take_thread(&shared->thread_left, &vcpu->thread);
	for (unsigned k = 0; k < UNWIND_OTHERS; k++)
		vcpu->others[k].len = 0;
	/* A copy of a later time has later registers before it. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&shared->left.round, __ATOMIC_RELAXED) == left.round;
}

/* The vCPU of a thread is found only while the thread is in KVM_RUN. */
static void find_vcpus(struct bpf_reader *u)
{
	const struct vcpu_sample nothing = {0};

	for (uint32_t i = 0; i < u->n; i++)
		if (u->at[i].tick >= 0 && !u->vcpus[i].vcpu)
			(void)ask(u, i, &nothing);
}

bool bpf_reader_slots(struct bpf_reader *u, struct ram_map *map)
{
	const struct bpf_told *told = u->told;
	const uint64_t answered = __atomic_load_n(&told->answered, __ATOMIC_ACQUIRE);
	const uint64_t n = told->memory.n;

	map->n = 0;
	if (answered && answered == told->asked && n <= SHARED_SLOTS)
		for (uint64_t i = 0; i < n; i++)
			if (told->memory.slot[i].size)
				ram_map_add(map, told->memory.slot[i].gpa,
					    told->memory.slot[i].size, told->memory.slot[i].hva);
	if (answered == told->asked)
		__atomic_store_n(&u->told->asked, answered + 1, __ATOMIC_RELEASE);
	find_vcpus(u);
	return map->n > 0;
}

/*
 * Returns when the program has begun to answer: it waits for the stop, which
 * reaches the thread before its guest continues. If the thread shares our CPU, it can
 * answer only while we sleep.
 */
static void await_tick(struct bpf_reader *u, const struct bpf_vcpu *shared)
{
	const __u64 before = __atomic_load_n(&shared->now.round, __ATOMIC_RELAXED);
	const uint64_t until_ns = clock_now_ns() + SPIN_NS;

	while (__atomic_load_n(&shared->now.round, __ATOMIC_ACQUIRE) == before)
		if (clock_now_ns() > until_ns) {
			(void)ring_buffer__poll(u->answers, PATIENCE_MS);
			return;
		}
}

void bpf_reader_prepare(struct bpf_reader *u, uint32_t i, uint32_t want)
{
	const struct vcpu_sample question = {.request.want = want};
	const bool idle = is_answered(&u->vcpus[i]);
	const int tick = u->at[i].tick;
	__u64 after_ns = RUN_NS;

	(void)ring_buffer__consume(u->answers);
	put_question(&u->vcpus[i], &question);
	if (!idle || ioctl(tick, PERF_EVENT_IOC_PERIOD, &after_ns))
		return;
	__atomic_store_n(&u->vcpus[i].hold_ns, HOLD_NS, __ATOMIC_RELEASE);
	if (!ioctl(tick, PERF_EVENT_IOC_REFRESH, 1))
		await_tick(u, &u->vcpus[i]);
}

void bpf_reader_stopped(struct bpf_reader *u, uint32_t i)
{
	__u64 after_ns = PERF_TICK_NS;

	__atomic_store_n(&u->vcpus[i].hold_ns, 0, __ATOMIC_RELEASE);
	(void)ioctl(u->at[i].tick, PERF_EVENT_IOC_PERIOD, &after_ns);
}

static bool is_same_stack(const struct bpf_vcpu *shared, const struct vcpu_sample *vcpu)
{
	const struct bpf_stack *own = &shared->stack[0];

	return own->below == vcpu->stack.below && own->got == own->below + vcpu->stack.len &&
	       !memcmp(shared->bytes, vcpu->stack.bytes - own->below, own->got);
}

static bool is_whole(const struct bpf_regs *seen)
{
	return seen->lack == LACK_NONE && !seen->between;
}

/* The guest has not run since. */
static bool is_of_last_exit(const struct bpf_regs *seen, const struct bpf_regs *left)
{
	return is_whole(seen) && seen->exit == left->exit;
}

/* True if KVM has changed nothing either: handling other exits may. */
static bool must_be_same(const struct bpf_regs *seen, const struct bpf_regs *left)
{
	return seen->in_guest && seen->changes == left->changes && bpf_regs_untouched(seen, left);
}

static enum check_result compare_tick(struct watched_vcpu *at, const struct bpf_vcpu *shared,
				      const struct bpf_regs *left, const union vcpu_regs *all,
				      const struct vcpu_sample *vcpu)
{
	if (!is_of_last_exit(&shared->now, left) || shared->now.exit == at->compared)
		return CHECK_NOTHING;
	if (!bpf_regs_same(&shared->now, all) || !is_same_stack(shared, vcpu))
		return must_be_same(&shared->now, left) ? CHECK_DIFFERS : CHECK_NOTHING;
	at->compared = shared->now.exit;
	at->same[shared->now.in_guest ? WHEN_RUNNING : WHEN_WAITING]++;
	return CHECK_SAME;
}

enum check_result bpf_reader_compare(struct bpf_reader *u, uint32_t i,
				     const struct thread_time *time, const union vcpu_regs *all,
				     const struct vcpu_sample *vcpu)
{
	const struct bpf_vcpu *shared = &u->vcpus[i];
	struct watched_vcpu *at = &u->at[i];
	struct bpf_regs left;

	/* A stopped thread may still be about to leave its CPU. */
	if (!is_answered(shared) || shared->missing || !bpf_regs_copy(&shared->left, &left) ||
	    !time->known || left.timeslices != time->timeslices || !is_whole(&left))
		return CHECK_NOTHING;
	if (!bpf_regs_same(&left, all))
		return CHECK_DIFFERS;
	bpf_reader_note_ptrace(u, i, all);
	at->same[WHEN_WAITING]++;
	return compare_tick(at, shared, &left, all, vcpu);
}

bool bpf_reader_is_checked(const struct bpf_reader *u, uint32_t i, enum check_when when)
{
	static const unsigned enough[] = {[WHEN_WAITING] = 1, [WHEN_RUNNING] = 8};

	return u->at[i].same[when] >= enough[when];
}

bool bpf_reader_wants_check(const struct bpf_reader *u, uint32_t i)
{
	return u->at[i].wanted || !bpf_reader_is_checked(u, i, WHEN_WAITING);
}

void bpf_reader_note_ptrace(struct bpf_reader *u, uint32_t i, const union vcpu_regs *all)
{
	u->at[i].last = *all;
}

const char *bpf_reader_lack(const struct bpf_reader *u, uint32_t i)
{
	return is_answered(&u->vcpus[i]) ? bpf_lack_text(u->vcpus[i].now.lack) : NULL;
}
