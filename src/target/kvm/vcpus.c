/* SPDX-License-Identifier: BSD-3-Clause */
#include <elf.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/privilege.h"
#include "target/host/proc.h"
#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

/* Names that KVM gives to a vCPU's descriptor and page (virt/kvm/kvm_main.c, create_vcpu_fd). */
#define VCPU_NAME "anon_inode:kvm-vcpu:%d"

/*
 * A vCPU that handles an exit is not in KVM_RUN for that moment, or for longer where its thread waits
 * for a CPU: it is looked for that often, at distances that double every PROBES_ALIKE, as does the time
 * that a thread on a busy host is given to stop. All of it ends at PROBE_ALL_NS.
 */
#define PROBES	      60
#define PROBES_ALIKE  10
#define PROBE_WAIT_NS UINT64_C(2000000)
#define STOP_NS	      UINT64_C(20000000)
#define PROBE_ALL_NS  UINT64_C(8000000000)

#define VCPUS_MAX 4096

struct vcpu_scan {
	pid_t pid;
	struct kvm_vcpus *vcpus;
	bool no_memory;
};

static struct kvm_thread *find_id(const struct kvm_vcpus *vcpus, int id)
{
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (vcpus->at[i].id == id)
			return &vcpus->at[i];
	return NULL;
}

static bool add_fd(void *ctx, int fd)
{
	struct vcpu_scan *scan = ctx;
	struct kvm_vcpus *vcpus = scan->vcpus;
	struct kvm_thread *at;
	char name[64];
	int id;

	proc_link(scan->pid, "fd", fd, name, sizeof(name));
	if (sscanf(name, VCPU_NAME, &id) != 1 || find_id(vcpus, id) || vcpus->n == VCPUS_MAX)
		return true;
	at = reallocarray(vcpus->at, vcpus->n + 1, sizeof(*at));
	scan->no_memory = !at;
	if (!at)
		return false;
	vcpus->at = at;
	at[vcpus->n++] = (struct kvm_thread){.id = id, .fd = fd};
	return true;
}

static bool add_page(void *ctx, const struct proc_map *map)
{
	struct vcpu_scan *scan = ctx;
	struct kvm_thread *vcpu;
	int id;

	if (sscanf(map->path, VCPU_NAME, &id) != 1)
		return true;
	vcpu = find_id(scan->vcpus, id);
	if (vcpu && !map->offset)
		vcpu->run = map->start;
	return true;
}

static int compare_ids(const void *a, const void *b)
{
	const struct kvm_thread *x = a, *y = b;

	return x->id - y->id;
}

bool kvm_is_there(void)
{
	return access("/sys/module", F_OK) || !access("/sys/module/kvm", F_OK);
}

uint32_t kvm_vcpus_count(pid_t pid)
{
	struct kvm_vcpus vcpus = {0};
	struct vcpu_scan scan = {.pid = pid, .vcpus = &vcpus};

	/* Descriptors need not be looked through where there is no KVM. */
	if (!kvm_is_there())
		return 0;
	proc_numbers(pid, "fd", add_fd, &scan);
	kvm_vcpus_free(&vcpus);
	return vcpus.n;
}

static bool count_page(void *ctx, const struct proc_map *map)
{
	uint32_t *n = ctx;
	int id;

	*n += sscanf(map->path, VCPU_NAME, &id) == 1 && !map->offset;
	return true;
}

uint32_t kvm_vcpus_mapped(FILE *maps)
{
	uint32_t n = 0;

	proc_maps_read(maps, count_page, &n);
	return n;
}

#define UNSEEN "cannot be seen from outside"

static const char private_memory[] = "the guest's memory is its own (KVM's guest_memfd, as for "
				     "SEV-SNP and TDX): it " UNSEEN;

struct protection_scan {
	pid_t pid;
	const char *why;
};

/*
 * Where KVM's notes cannot be read: QEMU keeps the device open to whose firmware it speaks for SEV
 * (Documentation/virt/kvm/x86/amd-memory-encryption.rst), and virt/kvm/guest_memfd.c names files.
 */
static bool find_protection(void *ctx, int fd)
{
	struct protection_scan *scan = ctx;
	char name[64];

	proc_link(scan->pid, "fd", fd, name, sizeof(name));
	if (!strcmp(name, "/dev/sev"))
		scan->why = "the guest is encrypted (its monitor has /dev/sev open): it " UNSEEN;
	else if (!strcmp(name, "anon_inode:[kvm-gmem]"))
		scan->why = private_memory;
	return !scan->why;
}

const char *kvm_protection(pid_t pid)
{
	struct protection_scan scan = {.pid = pid};
	uint32_t found, lack;

	if (!bpf_examine(pid, &found, &lack)) {
		proc_numbers(pid, "fd", find_protection, &scan);
		return scan.why;
	}
	if (found & PROTECTED_REGISTERS)
		return "the guest is encrypted, its registers, too (SEV-ES, SEV-SNP or TDX): "
		       "it " UNSEEN;
	if (found & PROTECTED_PAGES)
		return private_memory;
	return found & PROTECTED_MEMORY ? "the guest's memory is encrypted (SEV): it " UNSEEN
					: NULL;
}

struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out)
{
	struct vcpu_scan scan = {.pid = pid, .vcpus = out};
	const char *why;

	*out = (struct kvm_vcpus){0};
	if (!proc_numbers(pid, "fd", add_fd, &scan))
		return proc_cannot_trace(pid);
	TRY(scan.no_memory ? error_no_memory() : proc_maps(pid, add_page, &scan));
	if (!out->n)
		return error_new(ERR_GUEST, "process %d runs no guest by KVM (it has no vCPU open)",
				 (int)pid);
	why = kvm_protection(pid);
	if (why)
		return error_new(ERR_GUEST, "%s", why);
	qsort(out->at, out->n, sizeof(*out->at), compare_ids);
	for (uint32_t i = 0; i < out->n; i++)
		if (!out->at[i].run)
			return error_new(ERR_GUEST,
					 "process %d does not share vCPU %d's page with KVM (yet?)",
					 (int)pid, out->at[i].id);
	return NULL;
}

void kvm_vcpus_free(struct kvm_vcpus *vcpus)
{
	free(vcpus->at);
	vcpus->at = NULL;
}

static struct kvm_thread *find_fd(const struct kvm_vcpus *vcpus, int fd)
{
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (fd >= 0 && vcpus->at[i].fd == fd)
			return &vcpus->at[i];
	return NULL;
}

struct probing {
	struct kvm_vcpus *vcpus;
	struct threads probe; /* one slot: the thread that is examined */
	struct error *err;
	uint32_t found;
	uint64_t patience_ns, until_ns;
};

static bool is_over(const struct probing *probing)
{
	return probing->found == probing->vcpus->n || clock_now_ns() >= probing->until_ns;
}

/* Stops one thread for a moment, and notes the vCPU that it runs. */
static bool probe(void *ctx, int tid)
{
	struct probing *probing = ctx;
	struct thread *thread = &probing->probe.at[0];
	struct kvm_thread *vcpu = NULL;

	for (uint32_t i = 0; i < probing->vcpus->n; i++)
		if (probing->vcpus->at[i].tid == tid)
			return true;
	probing->err = threads_seize(&probing->probe, tid);
	if (probing->err && probing->err->kind == ERR_GUEST) {
		error_free(probing->err);
		probing->err = NULL;
		return true;
	}
	if (probing->err)
		return false;
	if (thread_stop(&probing->probe, thread, probing->patience_ns))
		vcpu = find_fd(probing->vcpus, kvm_thread_fd(&probing->probe, thread));
	threads_release(&probing->probe, thread);
	if (vcpu && !vcpu->tid) {
		vcpu->tid = tid;
		probing->found++;
	}
	return !is_over(probing);
}

static struct error *probe_all(struct kvm_vcpus *vcpus, pid_t pid)
{
	struct probing probing = {.vcpus = vcpus, .until_ns = clock_now_ns() + PROBE_ALL_NS};
	struct error *err = threads_new(&probing.probe, pid, 1);

	for (int round = 0; !err && round < PROBES && !is_over(&probing); round++) {
		if (round)
			clock_sleep_until(clock_now_ns() + (PROBE_WAIT_NS << round / PROBES_ALIKE));
		probing.patience_ns = STOP_NS << round / PROBES_ALIKE;
		proc_numbers(pid, "task", probe, &probing);
		err = probing.err;
	}
	threads_free(&probing.probe);
	if (!err && !probing.found)
		err = error_new(ERR_GUEST,
				"process %d has %u vCPUs, but none of its threads runs one (is the "
				"guest stopped by its monitor?)",
				(int)pid, vcpus->n);
	return err;
}

struct error *kvm_vcpus_seize(struct kvm_vcpus *vcpus, struct threads *threads)
{
	if (process_is_halted(threads->pid))
		return error_new(ERR_GUEST,
				 "process %d is stopped (SIGSTOP): let it go on first, so that its "
				 "vCPUs can be found",
				 (int)threads->pid);
	TRY(probe_all(vcpus, threads->pid));
	for (uint32_t i = 0; i < vcpus->n; i++) {
		/* One slot a vCPU, so that a vCPU's number is its thread's. */
		threads->at[i].tid = 0;
		if (vcpus->at[i].tid)
			TRY(threads_seize_as(threads, i, vcpus->at[i].tid));
	}
	return NULL;
}

#ifdef __x86_64__

const struct arch *const kvm_arch = &arch_x86_64;
const int kvm_role = SECCOMP_TRACER;

int kvm_thread_fd(struct threads *threads, struct thread *thread)
{
	struct user_regs_struct regs;
	struct iovec io = {&regs, sizeof(regs)};

	if (ptrace(PTRACE_GETREGSET, thread->tid, NT_PRSTATUS, &io) || io.iov_len != sizeof(regs) ||
	    regs.orig_rax != SYS_ioctl || (uint32_t)regs.rsi != KVM_RUN)
		return -1;
	return (int)regs.rdi;
}

#define WANTED (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS)

static bool put(int memory, uint64_t va, const void *bytes, size_t len)
{
	return pwrite(memory, bytes, len, (off_t)va) == (ssize_t)len;
}

/* CR0.ET is always set: zero means that KVM has not been there. */
static bool wipe(int memory, uint64_t run)
{
	const __u64 nothing = 0;

	return put(memory, run + offsetof(struct kvm_run, s.regs.sregs.cr0), &nothing,
		   sizeof(nothing));
}

static uint64_t valid_at(uint64_t run)
{
	return run + offsetof(struct kvm_run, kvm_valid_regs);
}

/* Adds a page, and keeps its contents to be restored. */
static struct error *add_run_page(struct kvm_pages *pages, uint64_t run)
{
	__u64 valid;

	if (pages->n == KVM_PAGES_MAX)
		return error_new(ERR_GUEST, "more than %u vCPUs are too many", KVM_PAGES_MAX);
	if (host_memory_read(pages->memory, valid_at(run), &valid, sizeof(valid)) != sizeof(valid))
		return error_new(ERR_DENIED, "the page that KVM shares with the monitor cannot "
					     "be read");
	pages->run[pages->n] = run;
	pages->before[pages->n++] = valid;
	return NULL;
}

/* Runs once the guard is ready, so that our death leaves nothing behind. */
static struct error *tell(const struct kvm_pages *pages)
{
	for (uint32_t i = 0; i < pages->n; i++) {
		const __u64 valid = pages->before[i] | WANTED;

		/* A monitor that has asked for registers itself must not find zeros. */
		if ((pages->before[i] || wipe(pages->memory, pages->run[i])) &&
		    put(pages->memory, valid_at(pages->run[i]), &valid, sizeof(valid)))
			continue;
		return error_errno(ERR_DENIED, errno,
				   "the page that KVM shares with the monitor cannot be written "
				   "to");
	}
	return NULL;
}

static void keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct kvm_pages *)ctx)->memory);
}

static bool prepare(void *ctx)
{
	return ((struct kvm_pages *)ctx)->memory >= 0;
}

static struct error *undo(void *ctx, enum guard_phase phase)
{
	const struct kvm_pages *pages = ctx;

	for (uint32_t i = 0; i < pages->n; i++)
		(void)put(pages->memory, valid_at(pages->run[i]), &pages->before[i],
			  sizeof(pages->before[i]));
	return NULL;
}

static const struct guard_ops pages_guard = {.keeps = keeps, .prepare = prepare, .undo = undo};

struct error *kvm_pages_start(pid_t pid, const struct kvm_vcpus *vcpus, struct kvm_pages *pages)
{
	struct error *err = host_memory_open(pid, true, &pages->memory);

	for (uint32_t i = 0; i < vcpus->n && !err; i++)
		err = add_run_page(pages, vcpus->at[i].run);
	if (!err)
		err = guard_start(&pages_guard, pages, &pages->guard);
	if (!err) {
		guard_set(guard_page(pages->guard), GUARD_STOPPED);
		err = tell(pages);
	}
	/* Drop the writable descriptor before parsing guest data. */
	if (pages->memory >= 0)
		close(pages->memory);
	pages->memory = -1;
	return err;
}

static void take(const struct kvm_regs *regs, const struct kvm_sregs *sregs, struct x86_regs *out)
{
	*out = (struct x86_regs){
		.gp = {regs->rax, regs->rcx, regs->rdx, regs->rbx, regs->rsp, regs->rbp, regs->rsi,
		       regs->rdi, regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13,
		       regs->r14, regs->r15},
		.rip = regs->rip,
		.rflags = regs->rflags,
		.cr0 = sregs->cr0,
		.cr3 = sregs->cr3,
		.cr4 = sregs->cr4,
		.efer = sregs->efer,
		.gdt_base = sregs->gdt.base,
		.cs_base = sregs->cs.base,
		.ss_base = sregs->ss.base,
		.cs_long = sregs->cs.l,
		.cs_short = !sregs->cs.db,
		.ss_short = !sregs->ss.db,
		.cpl = sregs->ss.dpl,
	};
}

bool kvm_page_read(int memory, uint64_t run, struct x86_regs *regs)
{
	struct {
		__u64 valid, dirty;
		struct kvm_regs regs;
		struct kvm_sregs sregs;
	} page;

	_Static_assert(offsetof(struct kvm_run, s.regs) ==
				       sizeof(page.valid) + sizeof(page.dirty) +
					       offsetof(struct kvm_run, kvm_valid_regs) &&
			       offsetof(struct kvm_sync_regs, sregs) == sizeof(page.regs),
		       "all are read in one piece");
	if (host_memory_read(memory, valid_at(run), &page, sizeof(page)) != sizeof(page) ||
	    (page.valid & WANTED) != WANTED || !page.sregs.cr0)
		return false;
	take(&page.regs, &page.sregs, regs);
	return true;
}

bool kvm_registers(struct kvm_target *kvm, uint32_t i, union vcpu_regs *all, struct regs *out)
{
	if (!kvm_page_read(kvm->memory, kvm->vcpus.at[i].run, &all->x86))
		return false;
	kvm->vcpus.at[i].gdt = all->x86.gdt_base;
	x86_regs_convert(&all->x86, out);
	return true;
}

/*
 * Bits that decide how addresses are translated and how wide code is: Intel SDM
 * vol. 3, 2.2 and 2.5.
 */
#define CR0_MODE  (1ull << 31 | 1)
#define CR4_MODE  (1ull << 12 | 1 << 5 | 1 << 4)
#define EFER_MODE (1ull << 10)

/* CS.L in a VMCB: AMD APM vol. 2, 15.5.1. TF and RF come and go with debugging. */
#define ATTRIB_LONG  (1u << 9)
#define ATTRIB_BIG   (1u << 10)
#define RFLAGS_DEBUG (1ull << 8 | 1ull << 16)

static bool is_same_mode(const struct bpf_x86 *seen, const struct x86_regs *all)
{
	return !((seen->cr0 ^ all->cr0) & CR0_MODE) && !((seen->cr4 ^ all->cr4) & CR4_MODE) &&
	       !((seen->efer ^ all->efer) & EFER_MODE);
}

/*
 * Registers that the program has seen, as ptrace gives them; without segments,
 * those stay as they were.
 */
static void merge(const struct bpf_x86 *seen, struct x86_regs *all)
{
	memcpy(all->gp, seen->gp, sizeof(all->gp));
	all->rip = seen->gp[16];
	all->cr3 = seen->cr3;
	all->rflags = seen->segments ? seen->rflags : 0;
	if (!seen->segments)
		return;
	all->cs_long = seen->cs_attrib & ATTRIB_LONG;
	/* The stack segment is not told: code has one of its own kind, as a rule. */
	all->cs_short = all->ss_short = !(seen->cs_attrib & ATTRIB_BIG);
	all->cpl = seen->cpl;
}

/* 64-bit code can be read without ptrace, which alone tells the bases of segments: it has none. */
static bool is_wide(const struct bpf_x86 *seen)
{
	return seen->segments && (seen->cr0 & CR0_MODE) == CR0_MODE && seen->efer & EFER_MODE &&
	       seen->cs_attrib & ATTRIB_LONG;
}

bool bpf_regs_convert(const struct bpf_regs *seen, const union vcpu_regs *last, struct regs *out)
{
	struct x86_regs all = last->x86;

	if (!is_same_mode(&seen->x86, &all)) {
		if (!is_wide(&seen->x86))
			return false;
		all.cr0 = seen->x86.cr0;
		all.cr4 = seen->x86.cr4;
		all.efer = seen->x86.efer;
	}
	merge(&seen->x86, &all);
	x86_regs_convert(&all, out);
	return true;
}

bool bpf_regs_same(const struct bpf_regs *seen, const union vcpu_regs *ptraced)
{
	const struct x86_regs *all = &ptraced->x86;
	struct x86_regs told = *all;

	merge(&seen->x86, &told);
	return is_same_mode(&seen->x86, all) && told.rip == all->rip && told.cr3 == all->cr3 &&
	       told.cs_long == all->cs_long && told.cpl == all->cpl &&
	       !memcmp(told.gp, all->gp, sizeof(all->gp)) &&
	       (!seen->x86.segments || !((told.rflags ^ all->rflags) & ~RFLAGS_DEBUG));
}

bool bpf_regs_untouched(const struct bpf_regs *seen, const struct bpf_regs *left)
{
	return seen->complete;
}

#endif
