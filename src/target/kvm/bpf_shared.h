/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_BPF_SHARED_H
#define UNIPROF_TARGET_KVM_BPF_SHARED_H

/*
 * Memory that the BPF program (vcpu.bpf.c) and uniprof share, a record for each
 * vCPU. uniprof asks by a number, the program answers by the same number once
 * the rest of the answer is written; each time that a vCPU's thread leaves a
 * CPU, the program saves its registers.
 */

#include <linux/types.h>

/* The stack, and those that it leads to: as many and as large as a sample has them (target/target.h). */
#define SHARED_STACKS	 4
#define SHARED_STACK_MAX (256u << 10)
#define SHARED_OTHER_MAX (16u << 10)
/* The red zone below the stack (arch/arch.h) comes first, and with the stack. */
#define SHARED_RED_ZONE	 128u
#define SHARED_OTHERS_AT (SHARED_RED_ZONE + SHARED_STACK_MAX)
#define SHARED_BYTES	 (SHARED_OTHERS_AT + (SHARED_STACKS - 1) * SHARED_OTHER_MAX)

/* Reasons why the guest's own registers cannot be read. */
enum bpf_lack {
	LACK_NONE,
	LACK_NO_VCPU,	   /* the thread was never seen in KVM_RUN */
	LACK_NOT_LONG,	   /* no paging of 64-bit mode: nothing that could be walked */
	LACK_IN_PROCESSOR, /* Intel's: KVM has not read them since the guest ran */
	LACK_CR3_UNKNOWN,  /* nested paging, and the kernel module's offset of CR3 is unknown */
	LACK_NESTED,	   /* a guest of the guest ran */
	LACK_PROTECTED,	   /* encrypted (SEV-ES, TDX) */
};

struct bpf_regs {
	__u64 round;	  /* odd: being written */
	__u64 timeslices; /* how often the thread had been put on a CPU */
	/* If these two are as before, the guest has neither run nor got an interrupt since. */
	__u64 exit_tsc; /* when it was left last */
	__u64 injections;
	/* As processors number them. */
	__u64 gp[17]; /* rip is the last */
	__u64 cr0, cr3, cr4, efer;
	__u64 rflags;	/* valid with `segments`, as are the next two */
	__u32 segments; /* told by the VMCB */
	__u16 cs_attrib;
	__u8 cpl;
	__u8 in_guest; /* an interrupt took the CPU: the guest ran until then */
	__u8 complete; /* KVM has nothing to emulate before the guest continues (Linux 5.19) */
	__u32 lack;    /* enum bpf_lack; nothing else is valid but with LACK_NONE */
	__u32 between; /* KVM was at changing registers */
};

struct bpf_stack {
	__u64 va;   /* of the first, the stack pointer comes instead */
	__u32 want; /* bytes, the red zone among them; 0: nothing */
	__u32 got;
	__u32 cut;   /* there would have been more */
	__u32 below; /* of these bytes, so many are the red zone's */
};

struct bpf_vcpu {
	__u64 asked, answered;
	__u64 missing; /* of the answer: an address in the monitor that could not be read; 0: none */
	__u64 vcpu;    /* KVM's own, once the thread was seen in KVM_RUN */
	struct bpf_regs now, left;
	struct bpf_stack stack[SHARED_STACKS];
	__u8 bytes[SHARED_BYTES +
		   4096]; /* of the stacks, one behind the other; the end is never used */
};

#define SHARED_SLOTS 32

/* The guest's memory in the monitor: struct ram_map. */
struct bpf_memory {
	__u64 n;
	struct {
		__u64 gpa, size, hva;
	} slot[SHARED_SLOTS];
};

/*
 * The guest's memory as KVM has it: asked for and answered by numbers, too, by
 * whichever vCPU comes first, which takes `taken` from the last answer to the
 * question.
 */
struct bpf_told {
	__u64 asked, taken, answered;
	__u64 generation;	  /* of KVM's, when it was read */
	struct bpf_memory memory; /* n > SHARED_SLOTS: that many do not fit */
};

#endif
