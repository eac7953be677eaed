/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/unpaused.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/clock.h"
#include "target/host/memory.h"
#include "target/kvm/vcpu_seat.h"
#include "vcpu.skel.h"

const char unpaused_feature[] = "with BPF";

/* The shortest time after which a clock's event comes (kernel/events/core.c, perf_swevent_start_hrtimer). */
#define TICK_NS 10000u

/* Longer than an interrupt takes to come to a CPU that is not ours; bringing pages takes a few rounds. */
#define PATIENCE_MS 1
#define ROUNDS	    8

/* Of what decides how addresses are translated and how wide code is: Intel SDM vol. 3, 2.2 and 2.5. */
#define CR0_MODE  (1ull << 31 | 1)
#define CR4_MODE  (1ull << 12 | 1 << 5 | 1 << 4)
#define EFER_MODE (1ull << 10)

#define VCPUS_MAX 256u

struct watched {
	int tick, change; /* perf events; -1: none */
	struct bpf_link *links[2];
	bool proven;
	struct x86_regs mode; /* what ptrace told last; gp and rip are not used */
};

struct unpaused {
	struct vcpu_bpf *program;
	struct ring_buffer *answers;
	struct seat *seats;
	struct seat_memory *map;
	struct seat_told *told;
	int memory;
	uint32_t n;
	struct watched *at;
};

_Static_assert(SEAT_PARTS == 1 + UNWIND_OTHERS, "a part for each stack");
_Static_assert(SEAT_OTHER == OTHER_STACK_CAP, "as much of other stacks as is ever wanted");
_Static_assert(SEAT_SLOTS == RAM_SLOTS_MAX, "as many pieces of memory as there can be");

/* Sizes of maps that are mapped are whole pages; values lie at multiples of 8 bytes. */
static size_t mapped_size(const struct bpf_map *map)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t bytes = (bpf_map__value_size(map) + 7ul) / 8 * 8 * bpf_map__max_entries(map);

	return (bytes + page - 1) / page * page;
}

static void *map_in(const struct bpf_map *map)
{
	void *at = mmap(NULL, mapped_size(map), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(map), 0);

	return at == MAP_FAILED ? NULL : at;
}

static int on_answer(void *ctx, void *data, size_t size)
{
	return 0;
}

static struct error *refused(const char *what, int number)
{
	if (number == EPERM || number == EACCES)
		return error_new(ERR_DENIED,
				 "%s is refused (it takes root, or CAP_BPF, CAP_PERFMON)", what);
	return error_errno(ERR_DENIED, number, "%s", what);
}

/* capabilities(7): what loading such programs takes; older kernels had one for everything. */
static bool may_load(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
	uint64_t has;

	if (syscall(SYS_capget, &head, sets))
		return false;
	has = (uint64_t)sets[1].effective << 32 | sets[0].effective;
	return has >> CAP_SYS_ADMIN & 1 || (has >> CAP_BPF & 1 && has >> CAP_PERFMON & 1);
}

const char *unpaused_missing(void)
{
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return "BPF would not stop it, but this kernel does not tell its types "
		       "(CONFIG_DEBUG_INFO_BTF)";
	return may_load() ? NULL
			  : "BPF would not stop it, but takes root, or CAP_BPF and CAP_PERFMON";
}

static struct error *load(struct unpaused *u)
{
	int rc;

	libbpf_set_print(NULL);
	u->program = vcpu_bpf__open();
	if (!u->program)
		return refused("opening the program for the kernel", errno);
	bpf_map__set_max_entries(u->program->maps.seats, u->n);
	rc = vcpu_bpf__load(u->program);
	if (rc)
		return refused("loading the program into the kernel", -rc);
	u->seats = map_in(u->program->maps.seats);
	u->map = map_in(u->program->maps.memory);
	u->answers = ring_buffer__new(bpf_map__fd(u->program->maps.answers), on_answer, NULL, NULL);
	u->told = map_in(u->program->maps.told);
	if (!u->seats || !u->map || !u->told || !u->answers)
		return refused("sharing memory with the program in the kernel", errno);
	return NULL;
}

static struct error *watch(struct perf_event_attr *attr, pid_t tid, struct bpf_program *program,
			   uint32_t i, int *fd, struct bpf_link **link)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options, .bpf_cookie = i);

	attr->size = sizeof(*attr);
	attr->type = PERF_TYPE_SOFTWARE;
	*fd = (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (*fd < 0)
		return refused("perf_event_open", errno);
	*link = bpf_program__attach_perf_event_opts(program, *fd, &options);
	if (!*link)
		return refused("attaching the program to a perf event", errno);
	return NULL;
}

static struct error *watch_vcpu(struct unpaused *u, uint32_t i, pid_t tid)
{
	/* Attaching enables an event; the first tick finds nothing that was asked for. */
	struct perf_event_attr tick = {.config = PERF_COUNT_SW_CPU_CLOCK, .sample_period = TICK_NS};
	struct perf_event_attr change = {.config = PERF_COUNT_SW_CONTEXT_SWITCHES,
					 .sample_period = 1};
	struct watched *at = &u->at[i];
	struct error *err =
		watch(&change, tid, u->program->progs.at_switch, i, &at->change, &at->links[1]);

	if (!err)
		err = watch(&tick, tid, u->program->progs.at_tick, i, &at->tick, &at->links[0]);
	if (!err && ioctl(at->tick, PERF_EVENT_IOC_DISABLE, 0))
		err = refused("a perf event", errno);
	return err;
}

struct error *unpaused_new(const struct kvm_vcpus *vcpus, int memory, struct unpaused **out)
{
	struct unpaused *u;
	struct error *err;

	if (vcpus->n > VCPUS_MAX)
		return error_new(ERR_DENIED, "that many vCPUs are too many for BPF");
	u = calloc(1, sizeof(*u));
	if (u)
		u->at = calloc(vcpus->n, sizeof(*u->at));
	if (!u || !u->at) {
		free(u);
		return error_no_memory();
	}
	u->n = vcpus->n;
	u->memory = memory;
	for (uint32_t i = 0; i < u->n; i++)
		u->at[i].tick = u->at[i].change = -1;
	err = load(u);
	for (uint32_t i = 0; i < u->n && !err; i++)
		if (vcpus->at[i].tid)
			err = watch_vcpu(u, i, vcpus->at[i].tid);
	if (err)
		unpaused_free(u);
	else
		*out = u;
	return err;
}

/* A link closes its event. */
static void unwatch(struct watched *at)
{
	const int fds[2] = {at->tick, at->change};

	for (int k = 0; k < 2; k++)
		if (at->links[k])
			bpf_link__destroy(at->links[k]);
		else if (fds[k] >= 0)
			close(fds[k]);
}

void unpaused_free(struct unpaused *u)
{
	if (!u)
		return;
	for (uint32_t i = 0; i < u->n; i++)
		unwatch(&u->at[i]);
	ring_buffer__free(u->answers);
	if (u->seats)
		munmap(u->seats, mapped_size(u->program->maps.seats));
	if (u->map)
		munmap(u->map, mapped_size(u->program->maps.memory));
	if (u->told)
		munmap(u->told, mapped_size(u->program->maps.told));
	vcpu_bpf__destroy(u->program);
	free(u->at);
	free(u);
}

void unpaused_map(struct unpaused *u, const struct ram_map *map)
{
	/* The program may be looking: rather nothing than half of the old and half of the new. */
	for (size_t i = 0; i < SEAT_SLOTS; i++)
		__atomic_store_n(&u->map->slot[i].size, 0, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < map->n; i++) {
		u->map->slot[i].gpa = map->slot[i].gpa;
		u->map->slot[i].hva = map->slot[i].hva;
		__atomic_store_n(&u->map->slot[i].size, map->slot[i].size, __ATOMIC_RELEASE);
	}
	u->map->n = map->n;
}

/* By what the program has seen; false if it was not whole, or in another mode. */
static bool take(const struct watched *at, const struct seat_regs *seen, struct regs *regs)
{
	struct x86_regs all = at->mode;

	if (!at->proven || !seen->known || seen->between || (seen->cr0 ^ all.cr0) & CR0_MODE ||
	    (seen->cr4 ^ all.cr4) & CR4_MODE || (seen->efer ^ all.efer) & EFER_MODE)
		return false;
	memcpy(all.gp, seen->gp, sizeof(all.gp));
	all.rflags = 0;
	all.rip = seen->gp[16];
	all.cr3 = seen->cr3;
	x86_regs_take(&all, regs);
	return true;
}

/* A copy of what the program writes meanwhile; false if it was writing. */
static bool snapshot(const struct seat_regs *from, struct seat_regs *to)
{
	const uint64_t round = __atomic_load_n(&from->round, __ATOMIC_ACQUIRE);

	memcpy(to, from, sizeof(*to));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return !(round & 1) && __atomic_load_n(&from->round, __ATOMIC_RELAXED) == round;
}

bool unpaused_waits(const struct unpaused *u, uint32_t i, const struct thread_time *time,
		    struct regs *regs)
{
	struct seat_regs left;

	return time->known && snapshot(&u->seats[i].left, &left) && left.slices == time->slices &&
	       take(&u->at[i], &left, regs);
}

static bool is_answered(const struct seat *seat)
{
	return __atomic_load_n(&seat->answered, __ATOMIC_ACQUIRE) == seat->asked;
}

static void put_question(struct seat *seat, const struct vcpu_sample *vcpu)
{
	seat->part[0].want = vcpu->want < SEAT_STACK ? vcpu->want : SEAT_STACK;
	for (unsigned k = 0; k < UNWIND_OTHERS; k++) {
		seat->part[1 + k].va = vcpu->other[k].va;
		seat->part[1 + k].want = vcpu->other[k].want;
	}
	__atomic_store_n(&seat->asked, seat->asked + 1, __ATOMIC_RELEASE);
}

/* Asks for one tick; one that was asked for in vain comes later, and then serves this, too. */
static bool ask(struct unpaused *u, uint32_t i, const struct vcpu_sample *vcpu)
{
	struct seat *seat = &u->seats[i];
	const uint64_t until_ns = clock_now_ns() + PATIENCE_MS * 1000000ull;
	const bool idle = is_answered(seat);

	(void)ring_buffer__consume(u->answers);
	put_question(seat, vcpu);
	if (idle && ioctl(u->at[i].tick, PERF_EVENT_IOC_REFRESH, 1))
		return false;
	while (!is_answered(seat) && clock_now_ns() < until_ns)
		if (ring_buffer__poll(u->answers, PATIENCE_MS) < 0 && errno != EINTR)
			return false;
	return is_answered(seat);
}

static void take_part(const struct seat_part *part, const uint8_t *bytes, uint32_t cap,
		      uint8_t *buffer, struct window *out)
{
	*out = (struct window){.va = part->va,
			       .bytes = buffer,
			       .len = part->got < cap ? part->got : cap,
			       .cut = part->cut};
	memcpy(buffer, bytes, out->len);
}

static void take_stacks(const struct seat *seat, struct vcpu_sample *vcpu)
{
	struct seat_part own = seat->part[0];

	own.va = seat->now.gp[4] & ~7ull;
	take_part(&own, seat->bytes, vcpu->want, vcpu->buffer, &vcpu->stack);
	for (unsigned k = 0; k < UNWIND_OTHERS; k++)
		take_part(&seat->part[1 + k], seat->bytes + SEAT_STACK + k * SEAT_OTHER,
			  OTHER_STACK_CAP, vcpu->other[k].buffer, &vcpu->others[k]);
}

bool unpaused_read(struct unpaused *u, uint32_t i, struct vcpu_sample *vcpu)
{
	const struct seat *seat = &u->seats[i];
	uint8_t byte;

	/* More than fits is for who stops the vCPU. */
	if (!u->at[i].proven || vcpu->want > SEAT_STACK)
		return false;
	for (int round = 0; round < ROUNDS; round++) {
		if (!ask(u, i, vcpu) || !take(&u->at[i], &seat->now, &vcpu->regs))
			return false;
		take_stacks(seat, vcpu);
		if (!seat->missing)
			return true;
		/* Reading it brings the page, if there is one. */
		if (host_memory_read(u->memory, seat->missing & ~1ull, &byte, 1) != 1)
			return true;
	}
	return true;
}

/* What ran in a thread is found only while that is in KVM_RUN. */
static void find_vcpus(struct unpaused *u)
{
	const struct vcpu_sample nothing = {0};

	for (uint32_t i = 0; i < u->n; i++)
		if (u->at[i].tick >= 0 && !u->seats[i].vcpu)
			(void)ask(u, i, &nothing);
}

bool unpaused_slots(struct unpaused *u, struct ram_map *map)
{
	const struct seat_told *told = u->told;
	const uint64_t answered = __atomic_load_n(&told->answered, __ATOMIC_ACQUIRE);
	const uint64_t n = told->memory.n;

	map->n = 0;
	if (answered && answered == told->asked && n <= SEAT_SLOTS)
		for (uint64_t i = 0; i < n; i++)
			if (told->memory.slot[i].size)
				ram_map_add(map, told->memory.slot[i].gpa,
					    told->memory.slot[i].size, told->memory.slot[i].hva);
	if (answered == told->asked)
		__atomic_store_n(&u->told->asked, answered + 1, __ATOMIC_RELEASE);
	find_vcpus(u);
	return map->n > 0;
}

void unpaused_prepare(struct unpaused *u, uint32_t i, uint32_t want)
{
	struct vcpu_sample question = {.want = want};

	/*
	 * A thread that is stopped has left KVM_RUN, and what it ran can only be found in there:
	 * where nothing ever takes the CPU from it, by an interrupt of ours.
	 */
	if (!u->seats[i].vcpu)
		(void)ask(u, i, &question);
	put_question(&u->seats[i], &question);
}

static bool is_same(const struct seat_regs *seen, const struct x86_regs *all)
{
	return !memcmp(seen->gp, all->gp, sizeof(all->gp)) && seen->gp[16] == all->rip &&
	       seen->cr3 == all->cr3 && !((seen->cr0 ^ all->cr0) & CR0_MODE) &&
	       !((seen->cr4 ^ all->cr4) & CR4_MODE) && !((seen->efer ^ all->efer) & EFER_MODE);
}

enum unpaused_proof unpaused_compare(struct unpaused *u, uint32_t i, const struct x86_regs *all,
				     const struct vcpu_sample *vcpu)
{
	const struct seat *seat = &u->seats[i];
	struct seat_regs left;

	/* An answer from an earlier time, or from where KVM had not all at hand. */
	if (!is_answered(seat) || !snapshot(&seat->left, &left) || !left.known || left.between ||
	    seat->now.slices != left.slices || !seat->now.known || seat->missing)
		return PROOF_NONE;
	if (!is_same(&left, all) || !is_same(&seat->now, all) ||
	    seat->part[0].got != vcpu->stack.len ||
	    memcmp(seat->bytes, vcpu->stack.bytes, vcpu->stack.len) != 0)
		return PROOF_DIFFERS;
	unpaused_told(u, i, all);
	u->at[i].proven = true;
	return PROOF_SAME;
}

bool unpaused_is_proven(const struct unpaused *u, uint32_t i)
{
	return u->at[i].proven;
}

void unpaused_told(struct unpaused *u, uint32_t i, const struct x86_regs *all)
{
	u->at[i].mode = *all;
}

bool unpaused_is_blind(const struct unpaused *u, uint32_t i)
{
	return is_answered(&u->seats[i]) && !u->seats[i].now.known;
}
