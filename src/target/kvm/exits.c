/* SPDX-License-Identifier: BSD-3-Clause */

/* Exits of vCPUs, by what the processor calls their reasons. */

#include "target/kvm/bpf_shared.h"
#include "target/kvm/kvm.h"

struct exit_reason {
	uint32_t reason;
	const char *text;
};

/* AMD APM vol. 2, appendix C. */
static const struct exit_reason svm_reasons[] = {{0x000, "read cr0"},
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
						 {0x402, "avic, no acceleration"}};

/* Intel SDM vol. 3, appendix C: less VMX_REASONS. */
static const struct exit_reason vmx_reasons[] = {{0, "exception or nmi"},
						 {1, "interrupt"},
						 {2, "triple fault"},
						 {7, "interrupt window"},
						 {8, "nmi window"},
						 {10, "cpuid"},
						 {12, "hlt"},
						 {13, "invd"},
						 {14, "invlpg"},
						 {15, "rdpmc"},
						 {16, "rdtsc"},
						 {18, "hypercall"},
						 {28, "access to control registers"},
						 {29, "access to debug registers"},
						 {30, "port"},
						 {31, "rdmsr"},
						 {32, "wrmsr"},
						 {36, "mwait"},
						 {39, "monitor"},
						 {40, "pause"},
						 {43, "tpr below threshold"},
						 {44, "access to the apic"},
						 {45, "virtualized eoi"},
						 {48, "ept violation"},
						 {49, "ept misconfiguration"},
						 {51, "rdtscp"},
						 {52, "preemption timer"},
						 {54, "wbinvd"},
						 {55, "xsetbv"},
						 {56, "write to the apic"},
						 {58, "invpcid"},
						 {62, "page modification log"}};

static const char *text_of(const struct exit_reason *reasons, size_t n, uint32_t reason)
{
	for (size_t k = 0; k < n; k++)
		if (reasons[k].reason == reason)
			return reasons[k].text;
	return "other reasons";
}

#define TEXT_OF(reasons, reason) text_of(reasons, sizeof(reasons) / sizeof(*(reasons)), reason)

static const char *reason_text(uint32_t reason)
{
	return reason & VMX_REASONS ? TEXT_OF(vmx_reasons, reason - VMX_REASONS)
				    : TEXT_OF(svm_reasons, reason);
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
