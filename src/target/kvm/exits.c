/* SPDX-License-Identifier: BSD-3-Clause */

/* Exits of vCPUs, by what the processor calls their reasons. */

#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

static const struct {
	uint32_t reason;
	const char *text;
} reasons[] = {
	/* AMD APM vol. 2, appendix C. */
	{0x000, "read cr0"},
	{0x003, "read cr3"},
	{0x004, "read cr4"},
	{0x008, "read cr8"},
	{0x010, "write cr0"},
	{0x013, "write cr3"},
	{0x014, "write cr4"},
	{0x018, "write cr8"},
	{0x041, "debug exception"},
	{0x043, "breakpoint"},
	{0x046, "invalid opcode"},
	{0x04e, "page fault"},
	{0x051, "alignment check"},
	{0x052, "machine check"},
	{0x060, "interrupt"},
	{0x061, "nmi"},
	{0x062, "smi"},
	{0x064, "interrupt window"},
	{0x065, "write cr0, selected"},
	{0x06e, "rdtsc"},
	{0x06f, "rdpmc"},
	{0x072, "cpuid"},
	{0x074, "iret"},
	{0x076, "invd"},
	{0x077, "pause"},
	{0x078, "hlt"},
	{0x079, "invlpg"},
	{0x07a, "invlpga"},
	{0x07b, "port"},
	{0x07c, "msr"},
	{0x07f, "shutdown"},
	{0x081, "hypercall"},
	{0x087, "rdtscp"},
	{0x089, "wbinvd"},
	{0x08a, "monitor"},
	{0x08b, "mwait"},
	{0x08d, "xsetbv"},
	{0x400, "nested page fault"},
	{0x401, "avic, incomplete ipi"},
	{0x402, "avic, no acceleration"},
	/* Intel SDM vol. 3, appendix C. */
	{VMX_REASONS + 0, "exception or nmi"},
	{VMX_REASONS + 1, "interrupt"},
	{VMX_REASONS + 2, "triple fault"},
	{VMX_REASONS + 7, "interrupt window"},
	{VMX_REASONS + 8, "nmi window"},
	{VMX_REASONS + 10, "cpuid"},
	{VMX_REASONS + 12, "hlt"},
	{VMX_REASONS + 13, "invd"},
	{VMX_REASONS + 14, "invlpg"},
	{VMX_REASONS + 15, "rdpmc"},
	{VMX_REASONS + 16, "rdtsc"},
	{VMX_REASONS + 18, "hypercall"},
	{VMX_REASONS + 28, "access to control registers"},
	{VMX_REASONS + 29, "access to debug registers"},
	{VMX_REASONS + 30, "port"},
	{VMX_REASONS + 31, "rdmsr"},
	{VMX_REASONS + 32, "wrmsr"},
	{VMX_REASONS + 36, "mwait"},
	{VMX_REASONS + 39, "monitor"},
	{VMX_REASONS + 40, "pause"},
	{VMX_REASONS + 43, "tpr below threshold"},
	{VMX_REASONS + 44, "access to the apic"},
	{VMX_REASONS + 45, "virtualized eoi"},
	{VMX_REASONS + 48, "ept violation"},
	{VMX_REASONS + 49, "ept misconfiguration"},
	{VMX_REASONS + 51, "rdtscp"},
	{VMX_REASONS + 52, "preemption timer"},
	{VMX_REASONS + 54, "wbinvd"},
	{VMX_REASONS + 55, "xsetbv"},
	{VMX_REASONS + 56, "write to the apic"},
	{VMX_REASONS + 58, "invpcid"},
	{VMX_REASONS + 62, "page modification log"},
};

static const char *reason_text(uint32_t reason)
{
	for (size_t k = 0; k < sizeof(reasons) / sizeof(*reasons); k++)
		if (reasons[k].reason == reason)
			return reasons[k].text;
	return "other reasons";
}

void kvm_exits_tell(uint32_t i, const struct bpf_exits *exits,
		    void (*each)(void *ctx, const struct vcpu_exits *exits), void *ctx)
{
	for (unsigned k = 0; k < SHARED_EXITS; k++) {
		const struct bpf_exit *at = &exits->at[k];

		if (at->reason)
			each(ctx, &(struct vcpu_exits){.vcpu = i,
						       .reason = reason_text(at->reason - 1),
						       .caused = at->rip,
						       .user = at->user,
						       .address = at->rip,
						       .count = at->count});
	}
	if (exits->lost)
		each(ctx, &(struct vcpu_exits){.vcpu = i,
					       .reason = "not kept apart",
					       .count = exits->lost});
}
