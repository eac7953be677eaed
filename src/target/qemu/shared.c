/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/shared.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target/host/memory.h"
#include "target/kvm/run_page.h"

struct shared {
	struct kvm_vcpus vcpus;
	struct kvm_pages pages;
	struct guard *guard;
	int memory;
	bool *believed; /* by vCPU */
};

/* Tells KVM to leave registers there, and starts who will tell it back. */
static struct error *tell(struct shared *shared, pid_t pid)
{
	struct error *err = host_memory_open(pid, true, &shared->pages.memory);

	for (uint32_t i = 0; i < shared->vcpus.n && !err; i++)
		err = kvm_pages_add(&shared->pages, shared->vcpus.at[i].run);
	if (!err)
		err = guard_start(&kvm_pages_guard, &shared->pages, &shared->guard);
	if (!err) {
		guard_set(guard_page(shared->guard), GUARD_STOPPED);
		err = kvm_pages_tell(&shared->pages);
	}
	if (shared->pages.memory >= 0)
		close(shared->pages.memory);
	return err;
}

struct shared *shared_new(pid_t pid, int memory, uint32_t vcpus)
{
	struct shared *shared = calloc(1, sizeof(*shared));
	struct error *err;

	if (!shared)
		return NULL;
	shared->memory = memory;
	shared->pages.memory = -1;
	shared->believed = calloc(vcpus, sizeof(*shared->believed));
	err = shared->believed ? kvm_vcpus_find(pid, &shared->vcpus) : error_no_memory();
	/* QEMU numbers vCPUs in the order of KVM's numbers, which may leave some out. */
	if (!err && shared->vcpus.n == vcpus)
		err = tell(shared, pid);
	if (!err && shared->guard)
		return shared;
	error_free(err);
	shared_free(shared);
	return NULL;
}

void shared_free(struct shared *shared)
{
	if (!shared)
		return;
	guard_stop(shared->guard);
	kvm_vcpus_free(&shared->vcpus);
	free(shared->believed);
	free(shared);
}

bool shared_is_believed(const struct shared *shared, uint32_t vcpu)
{
	return shared && shared->believed[vcpu];
}

static bool read_page(const struct shared *shared, uint32_t vcpu, struct regs *out)
{
	struct x86_regs all;

	if (!kvm_page_read(shared->memory, shared->vcpus.at[vcpu].run, &all))
		return false;
	x86_regs_take(&all, out);
	return true;
}

void shared_compare(struct shared *shared, uint32_t vcpu, const struct regs *told)
{
	struct regs regs;

	/* vCPUs that have not begun are all the same. */
	if (shared && told->mmu.mode != MMU_OFF && read_page(shared, vcpu, &regs))
		shared->believed[vcpu] = !memcmp(&regs, told, sizeof(regs));
}

bool shared_take(struct shared *shared, uint32_t vcpu, struct regs *out)
{
	shared->believed[vcpu] = read_page(shared, vcpu, out);
	return shared->believed[vcpu];
}
