/* SPDX-License-Identifier: BSD-3-Clause */

/* Of monitor.c: vCPUs of x86-64. */

#include <err.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "monitor.h"

#define LEAVES_MAX 256
#define WORK_PORT  0x10
#define FRESH_PORT 0x11
#define WORK	   2000

/* Present, writable, for user mode; and a large page (Intel SDM vol. 3, 4.5). */
#define TABLE 7u
#define LARGE 0x87u

/* The first GiB, each address at itself. */
void make_tables(const struct machine *machine)
{
	uint64_t *table = (uint64_t *)(machine->memory + ROOT);

	table[0] = (ROOT + 0x1000) | TABLE;
	table[512] = (ROOT + 0x2000) | TABLE;
	for (uint64_t i = 0; i < 512; i++)
		table[1024 + i] = i << 21 | LARGE;
}

static void make_segments(const struct machine *machine, struct kvm_sregs *sregs)
{
	const uint8_t level = machine->in_kernel ? 0 : 3;
	const struct kvm_segment code = {.limit = 0xffffffff,
					 .selector = 0x18 | level,
					 .present = 1,
					 .type = 11,
					 .dpl = level,
					 .s = 1,
					 .l = 1,
					 .g = 1};
	struct kvm_segment data = code;

	data.type = 3;
	data.selector = 0x20 | level;
	data.l = 0;
	data.db = 1;
	sregs->cs = code;
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->cr0 = 0x80050033;
	sregs->cr3 = ROOT;
	sregs->cr4 = 0x620;
	sregs->efer = 0x500;
}

/* Offers the guest what KVM can: without long mode in CPUID, KVM of Linux 6.12.117 refuses EFER.LME. */
static void set_cpuid(int kvm, int vcpu)
{
	struct kvm_cpuid2 *leaves =
		calloc(1, sizeof(*leaves) + LEAVES_MAX * sizeof(*leaves->entries));

	if (!leaves)
		err(1, "memory");
	leaves->nent = LEAVES_MAX;
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, leaves) || ioctl(vcpu, KVM_SET_CPUID2, leaves))
		err(1, "CPUID");
	free(leaves);
}

void vcpu_prepare(const struct machine *machine, int vcpu, unsigned id)
{
	struct kvm_regs regs = {.rip = machine->entry, .rflags = 2, .rdi = id};
	struct kvm_sregs sregs;

	set_cpuid(machine->kvm, vcpu);
	/* As if called by nobody: a return address and a frame record of zeros. */
	regs.rsp = STACKS + STACK * (id + 1) - 24;
	if (ioctl(vcpu, KVM_GET_SREGS, &sregs))
		err(1, "KVM_GET_SREGS");
	make_segments(machine, &sregs);
	if (ioctl(vcpu, KVM_SET_SREGS, &sregs))
		err(1, "KVM_SET_SREGS");
	if (ioctl(vcpu, KVM_SET_REGS, &regs))
		err(1, "KVM_SET_REGS");
}

static void work(void)
{
	for (volatile unsigned i = 0; i < WORK; i++)
		;
}

bool vcpu_serve(const struct machine *machine, struct kvm_run *page)
{
	if (page->exit_reason != KVM_EXIT_IO || page->io.direction != KVM_EXIT_IO_OUT)
		return false;
	if (page->io.port == WORK_PORT)
		work();
	else if (page->io.port != FRESH_PORT ||
		 madvise(machine->memory + FRESH, FRESH_SIZE, MADV_DONTNEED))
		return false;
	return true;
}
