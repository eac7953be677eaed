/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The BPF program that reads vCPUs (vcpu.bpf.c): loads it, or says why it cannot be loaded; and
 * its parts for the guest's threads, and for the host's side (record --host): where a thread was, the stacks of the kernel and of
 * the monitor's program, and what the guest was left for.
 */

#include "target/kvm/bpf_parts.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/owned.h"

const char bpf_feature[] = "with BPF";

struct error *bpf_refused(const char *what, int number)
{
	if (number == EPERM || number == EACCES)
		return error_new(ERR_DENIED,
				 "%s is refused (it takes root, or CAP_BPF, CAP_PERFMON)", what);
	return error_errno(ERR_DENIED, number, "%s", what);
}

/* The verifier's reason: its last line before the statistics. */
static char *reason_in(char *log)
{
	char *end = strstr(log, "\nprocessed ");
	char *line;

	if (end)
		*end = 0;
	line = strrchr(log, '\n');
	return line ? line + 1 : log;
}

/* Rights are EPERM; with EACCES and EINVAL the verifier has refused the program, and said why. */
static struct error *not_loaded(char *log, int number)
{
	const char *reason = reason_in(log);

	return number == EPERM || !*reason
		       ? bpf_refused("loading the program into the kernel", number)
		       : error_new(ERR_DENIED, "this kernel refuses the program for it: %s",
				   reason);
}

/*
 * Capabilities for loading such programs (capabilities(7)); older kernels had
 * one for everything.
 */
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

const char *bpf_missing(void)
{
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return "BPF would not stop it, but this kernel does not tell its types "
		       "(CONFIG_DEBUG_INFO_BTF)";
	return may_load() ? NULL
			  : "BPF would not stop it, but takes root, or CAP_BPF and CAP_PERFMON";
}

/* Asked for only when the program does not load; the last of it counts. */
#define LOG_BYTES (4u << 20)

#ifdef __aarch64__

static void choose_host(struct vcpu_bpf *program, uint32_t vcpus, bool host)
{
}

#else

/* What is for --host alone is left out without it. */
static void choose_host(struct vcpu_bpf *program, uint32_t vcpus, bool host)
{
	program->rodata->with_host = host;
	bpf_program__set_autoload(program->progs.at_interrupt, host);
	bpf_program__set_autoload(program->progs.at_wake, host);
	bpf_program__set_autoload(program->progs.learn_sampler, host);
	bpf_program__set_autoload(program->progs.at_exit, host);
	if (!host)
		return;
	bpf_map__set_max_entries(program->maps.tasks, vcpus);
	bpf_map__set_max_entries(program->maps.exits, vcpus);
}

#endif

struct error *bpf_program_load(uint32_t vcpus, bool host, struct vcpu_bpf **out)
{
	FREED char *log = calloc(1, LOG_BYTES);
	LIBBPF_OPTS(bpf_object_open_opts, options, .kernel_log_buf = log,
		    .kernel_log_size = LOG_BYTES);
	int rc;

	*out = NULL;
	if (!log)
		return error_no_memory();
	libbpf_set_print(NULL);
	*out = vcpu_bpf__open_opts(&options);
	if (!*out)
		return bpf_refused("opening the program for the kernel", errno);
	bpf_map__set_max_entries((*out)->maps.vcpus, vcpus);
	(*out)->rodata->host_page_size = (uint64_t)sysconf(_SC_PAGESIZE);
	bpf_program__set_autoload((*out)->progs.examine, false);
	choose_host(*out, vcpus, host);
	rc = vcpu_bpf__load(*out);
	return rc ? not_loaded(log, -rc) : NULL;
}

/* Lets the kernel run the program for each file of each process. */
static bool iterate(const struct bpf_program *examine)
{
	struct bpf_link *link = bpf_program__attach_iter(examine, NULL);
	CLOSED const int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	char text[64];
	/* The program prints nothing: the end comes at once. */
	const ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;

	bpf_link__destroy(link);
	return !n;
}

bool bpf_examine(pid_t pid, uint32_t *protection, uint32_t *lack)
{
	struct vcpu_bpf *program;
	struct bpf_program *each;
	bool seen = false;

	libbpf_set_print(NULL);
	program = vcpu_bpf__open();
	if (!program)
		return false;
	bpf_object__for_each_program(each, program->obj)
		bpf_program__set_autoload(each, each == program->progs.examine);
	program->bss->examined = (uint32_t)pid;
	if (!vcpu_bpf__load(program)) {
		seen = iterate(program->progs.examine) && program->bss->examined_vcpus;
		*protection = program->bss->protection;
		*lack = program->bss->lasting_lack;
	}
	vcpu_bpf__destroy(program);
	return seen;
}

const char *bpf_lack_text(uint32_t lack)
{
	static const char *const why[] = {
		[LACK_IN_PROCESSOR] = "KVM leaves registers in this kind of processor, where BPF "
				      "cannot read them",
		[LACK_CR3_UNKNOWN] =
			"the guest changes address spaces without KVM (nested paging), and of this "
			"kind of KVM it is not known where CR3 is then",
		[LACK_PROTECTED] = "the guest's registers are encrypted",
		[LACK_VHE] = "the host's kernel runs at EL2 (VHE): KVM leaves registers of the "
			     "guest's kernel in the processor until the vCPU's thread has left it "
			     "(kvm_arch_vcpu_put), and BPF cannot read them there",
		[LACK_PKVM] = "KVM is protected (pKVM): its part at EL2 keeps the guest's "
			      "registers, which BPF cannot read there",
	};

	return lack < sizeof(why) / sizeof(*why) ? why[lack] : NULL;
}

struct error *bpf_try(void)
{
	struct vcpu_bpf *program;
	struct error *err = bpf_program_load(1, false, &program);
	uint32_t protection, lack = LACK_NONE;

	vcpu_bpf__destroy(program);
	if (!err && bpf_examine(0, &protection, &lack) && bpf_lack_text(lack))
		err = error_new(ERR_DENIED, "%s", bpf_lack_text(lack));
	return err;
}

/* The guest's thread that runs. */

_Static_assert(SHARED_PIECES == THREAD_PIECES && SHARED_PIECE == THREAD_PIECE, "all of a thread");

static void want_thread(const struct thread_request *request, uint64_t own,
			struct bpf_thread *thread)
{
	if (request) {
		thread->own = request->address ? request->address : own;
		thread->stack_size = request->address ? 0 : request->stack_size;
		thread->pointer = request->pointer;
		memcpy(thread->at, request->at, sizeof(thread->at));
	}
	__atomic_store_n(&thread->wanted, request && (thread->own || thread->stack_size),
			 __ATOMIC_RELEASE);
}

void bpf_reader_want_thread(struct bpf_reader *u, uint32_t i, const struct thread_request *request,
			    uint64_t own)
{
	want_thread(request, own, &u->vcpus[i].thread);
	want_thread(request, own, &u->vcpus[i].thread_left);
}

uint64_t bpf_reader_gdt(const struct bpf_reader *u, uint32_t i)
{
	const struct bpf_x86 *seen = &u->vcpus[i].left.x86;

	return seen->segments ? seen->gdt : u->at[i].last.x86.gdt_base;
}

void bpf_take_thread(const struct bpf_thread *thread, struct thread_copy *out)
{
	out->there = thread->wanted && thread->there;
	out->own = thread->from;
	out->at = thread->task;
	memcpy(out->piece, thread->piece, sizeof(out->piece));
}

/* The kernel's entries of the interrupts that sample (arch/x86/include/asm/idtentry.h). */
#define OUR_INTERRUPT	"asm_sysvec_call_function_single"
#define CLOCK_INTERRUPT "asm_sysvec_apic_timer_interrupt"

_Static_assert((int)PLACE_GUEST == HOST_GUEST && (int)PLACE_SWITCH == HOST_SWITCH &&
		       (int)PLACE_EXIT == HOST_EXIT && (int)PLACE_MONITOR == HOST_MONITOR &&
		       (int)PLACE_HALTED == HOST_HALTED,
	       "the program's places are those of samples");
_Static_assert(SHARED_HOST_FRAMES == HOST_FRAMES, "as many frames as a sample has");

#ifdef __aarch64__

struct error *bpf_host_attach(struct bpf_reader *u)
{
	return error_new(ERR_DENIED,
			 "the host's side of a vCPU is read by it on x86-64 hosts only");
}

void bpf_host_detach(struct bpf_reader *u)
{
}

#else

struct error *bpf_host_attach(struct bpf_reader *u)
{
	struct bpf_program *const programs[HOST_LINKS] = {u->program->progs.at_interrupt,
							  u->program->progs.at_wake,
							  u->program->progs.at_exit};
	static const char *const at[HOST_LINKS] = {"call_function_single_entry", "sched_waking",
						   "kvm_exit"};
	LIBBPF_OPTS(bpf_test_run_opts, once);

	if (bpf_prog_test_run_opts(bpf_program__fd(u->program->progs.learn_sampler), &once))
		return bpf_refused("running the program in the kernel", errno);
	u->exits = bpf_map_in(u->program->maps.exits);
	if (!u->exits)
		return bpf_refused("sharing memory with the program in the kernel", errno);
	for (int k = 0; k < HOST_LINKS; k++) {
		u->host_links[k] = bpf_program__attach_raw_tracepoint(programs[k], at[k]);
		if (!u->host_links[k])
			return error_errno(ERR_DENIED, errno, "the kernel's tracepoint %s", at[k]);
	}
	return NULL;
}

void bpf_host_detach(struct bpf_reader *u)
{
	for (int k = 0; k < HOST_LINKS; k++)
		bpf_link__destroy(u->host_links[k]);
	if (u->exits)
		bpf_map_out(u->exits, u->program->maps.exits);
}

#endif

/* Appends one of the stacks; it may be empty, or have failed. Returns its frames. */
static uint32_t take_frames(struct host_stack *host, int32_t bytes, const __u64 *frames)
{
	const uint32_t n = bytes > 0 ? (uint32_t)bytes / sizeof(*frames) : 0;
	const uint32_t kept = n < HOST_FRAMES ? n : HOST_FRAMES;

	memcpy(host->at + host->kernel, frames, kept * sizeof(*frames));
	return kept;
}

static void take_host(const struct bpf_host *seen, struct host_stack *host)
{
	*host = (struct host_stack){
		.place = seen->place < HOST_PLACES ? (enum host_place)seen->place : HOST_EXIT};
	host->kernel = take_frames(host, seen->kernel, seen->kernel_stack);
	host->user = take_frames(host, seen->user, seen->user_stack);
}

bool bpf_reader_host_waits(const struct bpf_reader *u, uint32_t i, const struct thread_time *time,
			   struct vcpu_sample *vcpu)
{
	const struct bpf_vcpu *shared = &u->vcpus[i];
	struct bpf_regs left;

	if (!time->known || !bpf_regs_copy(&shared->left, &left) ||
	    left.timeslices != time->timeslices)
		return false;
	take_host(&shared->host_left, vcpu->host);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&shared->left.round, __ATOMIC_RELAXED) != left.round)
		return false;
	kvm_forget_stacks(vcpu);
	vcpu->host->guest_known = bpf_reader_is_checked(u, i, WHEN_WAITING) &&
				  bpf_regs_take(&u->at[i], &left, &vcpu->regs);
	return true;
}

/*
 * Asks the event for what it does anyway: its CPU is interrupted for that, if the thread has one, and
 * has answered when this returns.
 */
static bool ask_now(struct bpf_reader *u, uint32_t i, const struct vcpu_sample *vcpu)
{
	struct bpf_vcpu *shared = &u->vcpus[i];
	__u64 period_ns = PERF_TICK_NS;

	bpf_want_stacks(shared, vcpu);
	__atomic_store_n(&shared->asked_now, shared->asked_now + 1, __ATOMIC_RELEASE);
	return !ioctl(u->at[i].tick, PERF_EVENT_IOC_PERIOD, &period_ns) &&
	       __atomic_load_n(&shared->answered_now, __ATOMIC_ACQUIRE) == shared->asked_now;
}

/* Takes an answer that is there; true if a page of the guest's stack was brought, so that to ask again shows more. */
static bool take_answer(struct bpf_reader *u, uint32_t i, const char *skip,
			struct vcpu_sample *vcpu)
{
	const struct bpf_vcpu *shared = &u->vcpus[i];
	struct host_stack *host = vcpu->host;

	take_host(&shared->host_now, host);
	host->skip = skip;
	kvm_forget_stacks(vcpu);
	if (host->place != HOST_GUEST)
		return false;
	host->guest_known = bpf_regs_believed(u, i, &shared->now) &&
			    bpf_regs_take(&u->at[i], &shared->now, &vcpu->regs);
	if (!host->guest_known)
		return false;
	bpf_take_stacks(shared, vcpu);
	return shared->missing && bpf_bring_page(u, shared);
}

bool bpf_reader_host_now(struct bpf_reader *u, uint32_t i, struct vcpu_sample *vcpu)
{
	bool again = true;

	for (int round = 0; again && round < ROUNDS; round++) {
		/* Pages are brought for a stack of the guest: that it is gone meanwhile says nothing. */
		if (!ask_now(u, i, vcpu))
			return round;
		again = take_answer(u, i, OUR_INTERRUPT, vcpu);
	}
	return true;
}

void bpf_reader_host_sleeps(struct bpf_reader *u, uint64_t until_ns)
{
	for (uint32_t i = 0; i < u->n; i++) {
		struct bpf_vcpu *shared = &u->vcpus[i];

		shared->woken_ns = 0;
		__atomic_store_n(&shared->asked_wake, 1, __ATOMIC_RELEASE);
	}
	u->sleeps_until_ns = until_ns;
}

bool bpf_reader_host_woken(struct bpf_reader *u, uint32_t i, struct vcpu_sample *vcpu)
{
	struct bpf_vcpu *shared = &u->vcpus[i];
	const uint64_t woken_ns = __atomic_load_n(&shared->woken_ns, __ATOMIC_ACQUIRE);

	__atomic_store_n(&shared->asked_wake, 0, __ATOMIC_RELEASE);
	shared->woken_ns = 0;
	bpf_want_stacks(shared, vcpu);
	if (!woken_ns || woken_ns < u->sleeps_until_ns)
		return false;
	(void)take_answer(u, i, CLOCK_INTERRUPT, vcpu);
	return true;
}

void bpf_reader_exits(const struct bpf_reader *u,
		      void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
	for (uint32_t i = 0; i < u->n && u->exits; i++)
		kvm_exits_tell(i, &u->exits[i], each, ctx);
}
