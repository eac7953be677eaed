/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Registers of stopped vCPUs on arm64, where KVM leaves none in the page that it
 * shares with the monitor: the vCPU's thread is made to ask for them
 * (KVM_GET_ONE_REG), which KVM allows its own process alone.
 *
 * We may die at any moment, and the thread goes on then with the registers that
 * it has. So before they are changed for the first time, a signal frame with its own stands at
 * the end of the page, which neither KVM nor monitors use, and is the stack of
 * the call: what comes after it is a return to the vDSO's rt_sigreturn, which
 * loads all of the frame. Signals are blocked until then: a handler would need that stack.
 */

#include <asm/sigcontext.h>
#include <elf.h>
#include <limits.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <ucontext.h>
#include <unistd.h>

#include "arch/arm/arm.h"
#include "base/privilege.h"
#include "target/host/proc.h"
#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

const struct arch *const kvm_arch = &arch_arm64;
const int kvm_role = SECCOMP_TRACER | SECCOMP_CALLER;

/* Instructions (DDI 0487, C6.2): svc #0; ret; cmn x0, #4095; b.cs; mov x8, #139 (rt_sigreturn). */
#define INSN_SVC       0xd4000001u
#define INSN_RET       0xd65f03c0u
#define INSN_IS_ERROR  0xb13ffc1fu
#define INSN_IF_CARRY  0x54000002u
#define IF_CARRY_MASK  0xff00001fu
#define INSN_SIGRETURN 0xd2801168u
#define INSN	       4u
#define SEARCHED_MAX   (64u << 20) /* bytes of the monitor's code */
#define PIECE	       0x10000u
#define OVERLAP	       (3 * INSN)
#define PSTATE_BTYPE   0xc00u
#define EL1	       4u
#define EL1H	       5u
#define CALL_NS	       50000000u

enum {
	PC,
	PSTATE,
	TTBR0,
	TTBR1,
	TCR,
	SCTLR,
	STATES,
	SP = STATES,
	X29,
	X30,
	ELR,
	SPSR,
	TPIDR,
	REGISTERS
};

#define CORE(member)                                           \
	(KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE | \
	 offsetof(struct kvm_regs, member) / sizeof(uint32_t))
#define SP_EL1 CORE(sp_el1)

static const uint64_t ids[REGISTERS] = {
	[PC] = CORE(regs.pc),
	[PSTATE] = CORE(regs.pstate),
	[TTBR0] = ARM64_SYS_REG(3, 0, 2, 0, 0),
	[TTBR1] = ARM64_SYS_REG(3, 0, 2, 0, 1),
	[TCR] = ARM64_SYS_REG(3, 0, 2, 0, 2),
	[SCTLR] = ARM64_SYS_REG(3, 0, 1, 0, 0),
	[SP] = CORE(regs.sp),
	[X29] = CORE(regs.regs[29]),
	[X30] = CORE(regs.regs[30]),
	[ELR] = CORE(elr_el1),
	[SPSR] = CORE(spsr[KVM_SPSR_EL1]),
	[TPIDR] = ARM64_SYS_REG(3, 0, 13, 0, 4),
};

/* As the kernel reads it (struct rt_sigframe); the end of `context` is not needed. */
struct signal_frame {
	siginfo_t info;
	ucontext_t context;
};

#define FRAME_BYTES                                                      \
	(offsetof(struct signal_frame, context.uc_mcontext.__reserved) + \
	 sizeof(struct fpsimd_context) + sizeof(struct _aarch64_ctx))

/* At the end of the page. */
struct scratch {
	_Alignas(16) uint8_t frame[(FRAME_BYTES + 15) / 16 * 16];
	struct kvm_one_reg ask[REGISTERS];
	uint64_t value[REGISTERS];
};

#define PAGE 4096u
#define AT   (PAGE - sizeof(struct scratch) / 16 * 16)

_Static_assert(sizeof(struct scratch) % 16 == 0, "the frame is aligned");
_Static_assert(sizeof(struct kvm_run) + sizeof(struct scratch) <= PAGE,
	       "KVM and the monitor have the begin of the page");

/* A thread that makes calls for us, until its registers are its own again. */
struct caller {
	struct threads *threads;
	struct thread *thread;
	const struct kvm_pages *pages;
	int fd;
	uint64_t scratch; /* in the monitor */
	struct user_regs_struct own;
	uint64_t mask;
};

static bool get(pid_t tid, unsigned long set, void *to, size_t size)
{
	struct iovec io = {to, size};

	return !ptrace(PTRACE_GETREGSET, tid, set, &io) && io.iov_len == size;
}

static bool set(pid_t tid, const struct user_regs_struct *regs)
{
	struct user_regs_struct copy = *regs;
	struct iovec io = {&copy, sizeof(copy)};

	return !ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &io);
}

static bool set_mask(pid_t tid, uint64_t mask)
{
	return !ptrace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask);
}

/* x0 is lost at the end of a call, so the begin of the next one is waited for: there the kernel shows 0 in x7. */
#define CALLS_MAX 8

static bool is_run(const struct user_regs_struct *regs)
{
	return regs->regs[8] == SYS_ioctl && (uint32_t)regs->regs[1] == KVM_RUN;
}

int kvm_thread_fd(struct threads *threads, struct thread *thread)
{
	struct user_regs_struct regs;

	if (!get(thread->tid, NT_PRSTATUS, &regs, sizeof(regs)) || !is_run(&regs))
		return -1;
	for (int i = 0; i < CALLS_MAX && thread_to_call(threads, thread, CALL_NS); i++)
		if (get(thread->tid, NT_PRSTATUS, &regs, sizeof(regs)) && !regs.regs[7] &&
		    is_run(&regs))
			return (int)regs.regs[0];
	return -1;
}

/*
 * In the monitor's own code, registers are not all that there is of a thread: a sequence that must
 * not be interrupted (rseq(2)), vectors longer than a signal frame of ours.
 */
static bool is_plain(const struct caller *caller)
{
	const pid_t tid = caller->thread->tid;
	struct __ptrace_rseq_configuration rseq = {0};
	struct user_sve_header {
		uint32_t size, max_size;
		uint16_t vl, max_vl, flags, unused;
	} vectors = {0};
	struct iovec io = {&vectors, sizeof(vectors)};
	uint64_t sequence = 0;

	if (!ptrace(PTRACE_GETREGSET, tid, NT_ARM_SVE, &io) && vectors.flags & 1)
		return false;
	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof(rseq), &rseq) < 0 ||
	    !rseq.rseq_abi_pointer)
		return true;
	return host_memory_read(caller->pages->memory, rseq.rseq_abi_pointer + 8, &sequence,
				sizeof(sequence)) == sizeof(sequence) &&
	       !sequence;
}

/* A call that is about to be made again has more to it than registers, and the last stop may not have ended yet. */
static bool can_call(const struct caller *caller)
{
	const struct user_regs_struct *own = &caller->own;
	uint32_t code[2];

	if (own->sp - caller->scratch < sizeof(struct scratch) ||
	    host_memory_read(caller->pages->memory, own->pc - INSN, code, sizeof(code)) !=
		    sizeof(code) ||
	    code[1] == INSN_SVC)
		return false;
	return code[0] == INSN_SVC || is_plain(caller);
}

static void fill_frame(const struct caller *caller, const struct user_fpsimd_state *vectors,
		       struct signal_frame *frame)
{
	mcontext_t *context = &frame->context.uc_mcontext;
	struct fpsimd_context *floating = (struct fpsimd_context *)context->__reserved;

	memset(frame, 0, sizeof(*frame));
	/* No such flags: the thread keeps its alternate stack. */
	frame->context.uc_stack.ss_flags = INT_MAX;
	memcpy(&frame->context.uc_sigmask, &caller->mask, sizeof(caller->mask));
	memcpy(context->regs, caller->own.regs, sizeof(caller->own.regs));
	context->sp = caller->own.sp;
	context->pc = caller->own.pc;
	context->pstate = caller->own.pstate;
	floating->head.magic = FPSIMD_MAGIC;
	floating->head.size = sizeof(*floating);
	floating->fpsr = vectors->fpsr;
	floating->fpcr = vectors->fpcr;
	memcpy(floating->vregs, vectors->vregs, sizeof(floating->vregs));
}

static bool put(const struct caller *caller, size_t at, const void *bytes, size_t len)
{
	return pwrite(caller->pages->memory, bytes, len, (off_t)(caller->scratch + at)) ==
	       (ssize_t)len;
}

/* From the end of this on, the thread may go on at any moment. */
static bool begin_calls(struct caller *caller)
{
	const pid_t tid = caller->thread->tid;
	struct user_fpsimd_state vectors;
	struct signal_frame frame;

	if (!get(tid, NT_PRSTATUS, &caller->own, sizeof(caller->own)) || !can_call(caller) ||
	    !get(tid, NT_PRFPREG, &vectors, sizeof(vectors)) ||
	    ptrace(PTRACE_GETSIGMASK, tid, sizeof(caller->mask), &caller->mask))
		return false;
	fill_frame(caller, &vectors, &frame);
	return put(caller, 0, &frame, FRAME_BYTES) && set_mask(tid, UINT64_MAX);
}

/* What did not stop again loads the frame by itself. */
static void end_calls(const struct caller *caller)
{
	const pid_t tid = caller->thread->tid;

	if (caller->thread->stopped && set(tid, &caller->own))
		(void)set_mask(tid, caller->mask);
}

/* Makes the thread ask for registers `from` to `to`; ids are the processor's and KVM's. */
static bool ask(const struct caller *caller, const uint64_t *id, unsigned from, unsigned to)
{
	struct kvm_one_reg asked[REGISTERS];
	struct user_regs_struct regs = caller->own;

	for (unsigned i = from; i < to; i++)
		asked[i] = (struct kvm_one_reg){id[i], caller->scratch +
							       offsetof(struct scratch, value) +
							       i * sizeof(uint64_t)};
	if (!put(caller, offsetof(struct scratch, ask) + from * sizeof(*asked), &asked[from],
		 (to - from) * sizeof(*asked)))
		return false;
	for (unsigned i = from; i < to; i++) {
		regs.regs[0] = (uint64_t)caller->fd;
		regs.regs[1] = KVM_GET_ONE_REG;
		regs.regs[2] = caller->scratch + offsetof(struct scratch, ask) + i * sizeof(*asked);
		regs.regs[8] = SYS_ioctl;
		regs.regs[30] = caller->pages->sigreturn;
		regs.sp = caller->scratch;
		regs.pc = caller->pages->svc;
		regs.pstate = caller->own.pstate & ~(uint64_t)PSTATE_BTYPE;
		if (!set(caller->thread->tid, &regs) ||
		    !thread_to_call(caller->threads, caller->thread, CALL_NS) ||
		    !thread_to_call(caller->threads, caller->thread, CALL_NS) ||
		    !get(caller->thread->tid, NT_PRSTATUS, &regs, sizeof(regs)) || regs.regs[0])
			return false;
	}
	return true;
}

static bool take(const struct caller *caller, uint64_t *value, size_t n)
{
	return host_memory_read(caller->pages->memory,
				caller->scratch + offsetof(struct scratch, value), value,
				n * sizeof(*value)) == n * sizeof(*value);
}

static bool runs_64_bits(const uint64_t *value)
{
	return !(value[PSTATE] & ARM_PSTATE_WIDTH32) && (value[PSTATE] & ARM_PSTATE_EL) <= EL1;
}

/* `n`: of the registers, so many of the first. */
static bool read_all(const struct caller *caller, unsigned n, uint64_t *value)
{
	uint64_t id[REGISTERS];

	memcpy(id, ids, sizeof(ids));
	if (!ask(caller, id, 0, STATES) || !take(caller, value, STATES))
		return false;
	if (!runs_64_bits(value))
		return true;
	if ((value[PSTATE] & ARM_PSTATE_MODE) == EL1H)
		id[SP] = SP_EL1;
	return ask(caller, id, STATES, n) && take(caller, value, n);
}

static void convert(const uint64_t *value, struct regs *out)
{
	struct arm_regs all = {
		.sp = value[SP],
		.pc = value[PC],
		.pstate = (uint32_t)value[PSTATE],
		.sctlr = value[SCTLR],
		.ttbr0 = value[TTBR0],
		.ttbr1 = value[TTBR1],
		.control = value[TCR],
		.wide = true,
	};

	all.r[29] = value[X29];
	all.r[30] = value[X30];
	arm_regs_convert(&all, out);
	out->gp_valid = 7u << 29;
	out->has_elr = true;
	out->elr = value[ELR];
	out->spsr = value[SPSR];
	out->own[0] = out->own[1] = value[TPIDR];
}

/* A kernel does not change TPIDR_EL1 once it runs; each register that is asked for takes its time. */
bool kvm_registers(struct kvm_target *kvm, uint32_t i, union vcpu_regs *all, struct regs *out)
{
	struct caller caller = {
		.threads = &kvm->stops.threads,
		.thread = &kvm->stops.threads.at[i],
		.pages = &kvm->pages,
		.fd = kvm->vcpus.at[i].fd,
		.scratch = kvm->vcpus.at[i].run + AT,
	};
	const bool without_own = !kvm->thread || kvm->vcpus.at[i].own;
	uint64_t value[REGISTERS] = {0};
	bool done;

	if (!begin_calls(&caller))
		return false;
	done = read_all(&caller, without_own ? TPIDR : REGISTERS, value);
	end_calls(&caller);
	if (!done || !caller.thread->stopped)
		return false;
	if (runs_64_bits(value)) {
		convert(value, out);
		all->arm64 = *out;
		return true;
	}
	if (!kvm->told_of_32_bits)
		target_tell(&kvm->base, "code of 32 bits runs in the guest: it is not sampled");
	kvm->told_of_32_bits = true;
	return false;
}

bool bpf_regs_convert(const struct bpf_regs *seen, const union vcpu_regs *last, struct regs *out)
{
	const struct bpf_arm64 *from = &seen->arm64;
	struct arm_regs all = {
		.sp = seen->sp,
		.pc = from->pc,
		.pstate = (uint32_t)from->pstate,
		.sctlr = from->sctlr,
		.ttbr0 = from->ttbr0,
		.ttbr1 = from->ttbr1,
		.control = from->tcr,
		.wide = true,
	};

	memcpy(all.r, from->x, sizeof(all.r));
	arm_regs_convert(&all, out);
	out->has_elr = true;
	out->elr = from->elr;
	out->spsr = from->spsr;
	out->own[0] = out->own[1] = from->tpidr;
	return true;
}

/* ptrace reads a few of the general registers. */
bool bpf_regs_same(const struct bpf_regs *seen, const union vcpu_regs *all)
{
	const struct regs *told = &all->arm64;
	struct regs now;

	bpf_regs_convert(seen, all, &now);
	for (unsigned n = 0; n < 32; n++)
		if (told->gp_valid >> n & 1 && now.gp[n] != told->gp[n])
			return false;
	return now.pc == told->pc && now.flags == told->flags && now.elr == told->elr &&
	       now.spsr == told->spsr && now.mmu.mode == told->mmu.mode &&
	       now.mmu.root == told->mmu.root && now.mmu.root_high == told->mmu.root_high &&
	       now.mmu.control == told->mmu.control;
}

/* Instructions that KVM emulates, and exceptions that it makes, change the program counter. */
bool bpf_regs_untouched(const struct bpf_regs *seen, const struct bpf_regs *left)
{
	return seen->arm64.pc == left->arm64.pc;
}

struct search {
	struct kvm_pages *pages;
	uint64_t left; /* bytes to be read */
};

/* What comes after a call that succeeds is a return. */
static bool is_call(const uint32_t *code)
{
	return code[0] == INSN_SVC &&
	       (code[1] == INSN_RET ||
		(code[1] == INSN_IS_ERROR && (code[2] & IF_CARRY_MASK) == INSN_IF_CARRY &&
		 code[3] == INSN_RET));
}

static void search_piece(struct kvm_pages *pages, const uint32_t *code, size_t n, uint64_t va,
			 bool vdso)
{
	for (size_t i = 0; i + OVERLAP / INSN < n; i++) {
		if (!pages->svc && is_call(code + i))
			pages->svc = va + i * INSN;
		if (vdso && !pages->sigreturn && code[i] == INSN_SIGRETURN &&
		    code[i + 1] == INSN_SVC)
			pages->sigreturn = va + i * INSN;
	}
}

static bool search_map(void *ctx, const struct proc_map *map)
{
	struct search *search = ctx;
	const bool vdso = !strcmp(map->path, "[vdso]");
	uint32_t code[PIECE / INSN];

	if (!map->executable || (search->pages->svc && !vdso))
		return true;
	for (uint64_t at = map->start; at < map->end && search->left >= PIECE;
	     at += PIECE - OVERLAP, search->left -= PIECE) {
		const size_t want = map->end - at < PIECE ? map->end - at : PIECE;
		const size_t got = host_memory_read(search->pages->memory, at, code, want);

		search_piece(search->pages, code, got / INSN, at, vdso);
	}
	return true;
}

/* A filter may kill a monitor for a call that it never makes. */
static struct error *check_filters(const struct kvm_vcpus *vcpus, uint32_t *threads)
{
	*threads = 0;
	for (uint32_t i = 0; i < vcpus->n; i++) {
		if (!vcpus->at[i].tid)
			continue;
		++*threads;
		if (proc_status(vcpus->at[i].tid, "Seccomp", 0))
			return error_new(
				ERR_DENIED,
				"the thread of vCPU %d filters its system calls (seccomp), and "
				"could be killed for the one that reads registers on arm64: "
				"start the monitor without the filter",
				vcpus->at[i].id);
	}
	return NULL;
}

struct error *kvm_pages_start(pid_t pid, const struct kvm_vcpus *vcpus, struct kvm_pages *pages)
{
	struct search search = {pages, SEARCHED_MAX};
	uint32_t threads;

	TRY(check_filters(vcpus, &threads));
	/* Nothing is left in pages, whoever asks. */
	if (!threads)
		return NULL;
	TRY(host_memory_open(pid, true, &pages->memory));
	TRY(proc_maps(pid, search_map, &search));
	if (pages->svc && pages->sigreturn)
		return NULL;
	return error_new(ERR_GUEST,
			 "process %d has no code (svc #0, ret; rt_sigreturn of the vDSO) by which "
			 "its threads could be made to read their vCPUs' registers",
			 (int)pid);
}

/* KVM leaves none on arm64. */
bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs)
{
	return false;
}
