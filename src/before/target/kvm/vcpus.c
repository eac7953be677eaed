/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/vcpus.h"

#include <elf.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "base/clock.h"
#include "target/host/proc.h"

/* What KVM calls a vCPU's descriptor and page (virt/kvm/kvm_main.c, create_vcpu_fd). */
#define VCPU_NAME "anon_inode:kvm-vcpu:%d"

/* A vCPU that handles an exit is not in KVM_RUN for that moment: how often, and how long, to look. */
#define LOOKS	     50
#define LOOK_WAIT_NS 2000000u
#define STOP_NS	     20000000u

#define VCPUS_MAX 4096

struct finding {
	pid_t pid;
	struct kvm_vcpus *vcpus;
	bool no_memory;
};

static struct kvm_vcpu *by_id(const struct kvm_vcpus *vcpus, int id)
{
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (vcpus->at[i].id == id)
			return &vcpus->at[i];
	return NULL;
}

static bool add_fd(void *ctx, int fd)
{
	struct finding *finding = ctx;
	struct kvm_vcpus *vcpus = finding->vcpus;
	struct kvm_vcpu *at;
	char name[64];
	int id;

	proc_link(finding->pid, "fd", fd, name, sizeof(name));
	if (sscanf(name, VCPU_NAME, &id) != 1 || by_id(vcpus, id) || vcpus->n == VCPUS_MAX)
		return true;
	at = reallocarray(vcpus->at, vcpus->n + 1, sizeof(*at));
	finding->no_memory = !at;
	if (!at)
		return false;
	vcpus->at = at;
	at[vcpus->n++] = (struct kvm_vcpu){.id = id, .fd = fd};
	return true;
}

static bool add_page(void *ctx, const struct proc_map *map)
{
	struct finding *finding = ctx;
	struct kvm_vcpu *vcpu;
	int id;

	if (sscanf(map->path, VCPU_NAME, &id) != 1)
		return true;
	vcpu = by_id(finding->vcpus, id);
	if (vcpu && !map->offset)
		vcpu->run = map->start;
	return true;
}

static int by_number(const void *a, const void *b)
{
	const struct kvm_vcpu *x = a, *y = b;

	return x->id - y->id;
}

uint32_t kvm_vcpus_count(pid_t pid)
{
	struct kvm_vcpus vcpus = {0};
	struct finding finding = {.pid = pid, .vcpus = &vcpus};

	proc_numbers(pid, "fd", add_fd, &finding);
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

struct error *kvm_vcpus_find(pid_t pid, struct kvm_vcpus *out)
{
	struct finding finding = {.pid = pid, .vcpus = out};
	struct error *err;

	*out = (struct kvm_vcpus){0};
	if (!proc_numbers(pid, "fd", add_fd, &finding))
		return threads_cannot_trace(pid);
	err = finding.no_memory ? error_no_memory() : proc_maps(pid, add_page, &finding);
	if (err)
		return err;
	if (!out->n)
		return error_new(ERR_GUEST, "process %d runs no guest by KVM (it has no vCPU open)",
				 (int)pid);
	qsort(out->at, out->n, sizeof(*out->at), by_number);
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

/* Is the thread, which is stopped, in KVM_RUN? Then of which vCPU. */
static struct kvm_vcpu *in_run(const struct kvm_vcpus *vcpus, pid_t tid)
{
	struct user_regs_struct regs;
	struct iovec io = {&regs, sizeof(regs)};

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io) || io.iov_len != sizeof(regs) ||
	    regs.orig_rax != SYS_ioctl || (uint32_t)regs.rsi != KVM_RUN)
		return NULL;
	for (uint32_t i = 0; i < vcpus->n; i++)
		if (vcpus->at[i].fd == (int)regs.rdi)
			return &vcpus->at[i];
	return NULL;
}

struct probing {
	struct kvm_vcpus *vcpus;
	struct threads probe; /* one slot: the thread that is looked at */
	struct error *err;
	uint32_t found;
};

/* Looks at one thread, and lets it go again. */
static bool probe(void *ctx, int tid)
{
	struct probing *probing = ctx;
	struct thread *thread = &probing->probe.at[0];
	struct kvm_vcpu *vcpu = NULL;

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
	if (thread_stop(&probing->probe, thread, STOP_NS))
		vcpu = in_run(probing->vcpus, tid);
	threads_release(&probing->probe, thread);
	if (vcpu && !vcpu->tid) {
		vcpu->tid = tid;
		probing->found++;
	}
	return probing->found < probing->vcpus->n;
}

static struct error *probe_all(struct kvm_vcpus *vcpus, pid_t pid)
{
	struct probing probing = {.vcpus = vcpus};
	struct error *err = threads_new(&probing.probe, pid, 1);

	for (int look = 0; !err && look < LOOKS && probing.found < vcpus->n; look++) {
		if (look)
			clock_sleep_until(clock_now_ns() + LOOK_WAIT_NS);
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
	struct error *err =
		process_is_halted(threads->pid)
			? error_new(ERR_GUEST,
				    "process %d is stopped (SIGSTOP): let it go on first, "
				    "so that its vCPUs can be found",
				    (int)threads->pid)
			: probe_all(vcpus, threads->pid);

	for (uint32_t i = 0; i < vcpus->n && !err; i++) {
		/* One slot for each, so that a vCPU's number is its thread's. */
		threads->at[i].tid = 0;
		if (vcpus->at[i].tid)
			err = threads_seize_as(threads, i, vcpus->at[i].tid);
	}
	return err;
}
