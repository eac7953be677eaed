/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Memory that the BPF program (vcpu.bpf.c) and uniprof share, a record for each
 * vCPU. uniprof asks by a number, the program answers by the same number once
 * the rest of the answer is written; each time that a vCPU's thread leaves a
 * CPU, the program saves its registers.
 */

#include <linux/types.h>
#include <stdbool.h>

/* The stack, and those that it leads to: as many and as large as a sample has them (target/target.h). */
#define SHARED_STACKS	 4
#define SHARED_STACK_MAX (256u << 10)
#define SHARED_OTHER_MAX (16u << 10)
/* The red zone below the stack (arch/arch.h) comes first, and with the stack. */
#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
#define SHARED_RED_ZONE 0u
#else
#define SHARED_RED_ZONE 128u
#endif
#define SHARED_OTHERS_AT (SHARED_RED_ZONE + SHARED_STACK_MAX)
/* Last, the stack of a thread that left its CPU to uniprof; a larger one is read later. */
#define SHARED_LEFT	SHARED_STACKS
#define SHARED_LEFT_MAX (16u << 10)
#define SHARED_LEFT_AT	(SHARED_OTHERS_AT + (SHARED_STACKS - 1) * SHARED_OTHER_MAX)
#define SHARED_BYTES	(SHARED_LEFT_AT + SHARED_RED_ZONE + SHARED_LEFT_MAX)

/* Reasons why the guest's own registers cannot be read. */
enum bpf_lack {
	LACK_NONE,
	LACK_NO_VCPU,	   /* the thread was never seen in KVM_RUN */
	LACK_NOT_LONG,	   /* no paging of 64-bit mode: nothing that could be walked */
	LACK_IN_PROCESSOR, /* Intel's: KVM has not read them since the guest ran */
	LACK_CR3_UNKNOWN,  /* nested paging, and the kernel module's offset of CR3 is unknown */
	LACK_NESTED,	   /* a guest of the guest ran */
	LACK_PROTECTED,	   /* encrypted (SEV-ES, TDX) */
	LACK_VHE,  /* arm64: those of EL1 are in the processor while the thread is on a CPU */
	LACK_PKVM, /* arm64: KVM's part at EL2 keeps them (pKVM) */
};

/* What keeps others from looking into a guest. */
enum bpf_protection {
	PROTECTED_REGISTERS = 1, /* encrypted, as is the memory: SEV-ES, SEV-SNP, TDX */
	PROTECTED_PAGES = 2,	 /* memory that its monitor has not mapped: SEV-SNP, TDX */
	PROTECTED_MEMORY = 4,	 /* encrypted: SEV */
};

struct bpf_x86 {
	/* As processors number them. */
	__u64 gp[17]; /* rip is the last */
	__u64 cr0, cr3, cr4, efer;
	__u64 gdt;	/* valid with `segments` */
	__u64 rflags;	/* valid with `segments`, as are the next two */
	__u32 segments; /* told by the VMCB */
	__u16 cs_attrib;
	__u8 cpl, unused;
};

struct bpf_arm64 {
	__u64 x[31];
	__u64 pc, pstate;
	__u64 sctlr, ttbr0, ttbr1, tcr; /* of EL1, as are the next three */
	__u64 elr, spsr, tpidr;
};

struct bpf_regs {
	__u64 round;	  /* odd: being written */
	__u64 timeslices; /* how often the thread had been put on a CPU */
	/* If these two are as before, the guest has neither run nor been changed by KVM since. */
	__u64 exit;    /* x86: when it was left last; arm64: how often */
	__u64 changes; /* x86: interrupts that it got; arm64: its hypercalls */
	__u64 sp;      /* of the code that ran */
	union {
		struct bpf_x86 x86;
		struct bpf_arm64 arm64;
	};
	__u32 lack;    /* enum bpf_lack; nothing else is valid but with LACK_NONE */
	__u32 between; /* KVM was at changing registers */
	__u32 asleep;  /* the thread waited for something else than a CPU, or that is not known */
	__u8 in_guest; /* an interrupt took the CPU: the guest ran until then */
	__u8 complete; /* x86: KVM has nothing to emulate before the guest continues (Linux 5.19) */
	__u16 unused;
};

struct bpf_stack {
	__u64 va;   /* of the first, the stack pointer comes instead */
	__u32 want; /* bytes, the red zone among them; 0: nothing */
	__u32 got;
	__u32 cut;   /* there would have been more */
	__u32 below; /* of these bytes, so many are the red zone's */
};

/* Pieces of the guest's thread that runs: as a sample has them (threads/threads.h). */
#define SHARED_PIECES 4
#define SHARED_PIECE  16u

struct bpf_thread {
	/* The request: struct thread_request. */
	__u64 own, stack_size, pointer;
	__u32 at[SHARED_PIECES];
	__u32 wanted; /* 0: nothing */
	/* The answer: struct thread_copy. */
	__u64 from, task;
	__u32 there;
	__u32 unused;
	__u8 piece[SHARED_PIECES][SHARED_PIECE];
};

/* Where the thread of a vCPU was: enum host_place of target/target.h. */
enum bpf_place {
	PLACE_GUEST,  /* the guest's code ran */
	PLACE_SWITCH, /* KVM was about to enter the guest or had just left it, with interrupts off */
	PLACE_EXIT,   /* in KVM_RUN: KVM worked for the guest */
	PLACE_MONITOR, /* outside of KVM_RUN */
	PLACE_HALTED,  /* in KVM_RUN: the guest has halted its vCPU */
};

#define SHARED_HOST_FRAMES 127

/* The host's side of a vCPU's thread, with --host alone; written with the registers of the same moment. */
struct bpf_host {
	__u32 place;
	__s32 kernel, user; /* bytes of each stack; negative: it could not be read */
	__u32 unused;
	__u64 kernel_stack[SHARED_HOST_FRAMES],
		user_stack[SHARED_HOST_FRAMES]; /* innermost first */
};

struct bpf_vcpu {
	__u64 asked, answered;
	__u64 asked_now, answered_now; /* questions to the interrupt that comes at once (--host) */
	__u64 asked_wake,
		woken_ns; /* ... and to the one that wakes us: when that came, 0: not yet */
	/* The thread leaves its CPU at this time (CLOCK_MONOTONIC) or later: copy the stack, once; 0: do not. */
	__u64 copy_ns;
	__u64 copied;  /* timeslices of `left` when that was done */
	__u64 hold_ns; /* after the answer, wait for the thread's stop so long at most */
	__u64 missing; /* of the answer: an address in the monitor that could not be read; 0: none */
	__u64 vcpu;    /* KVM's own, once the thread was seen in KVM_RUN */
	struct bpf_regs now, left;
	struct bpf_host host_now, host_left;
	__u64 task; /* the thread, once it was seen, with --host alone */
	struct bpf_stack stack[SHARED_STACKS + 1];
	struct bpf_thread thread,
		thread_left; /* the guest's, as of `now` and as of the stack that was left */
	__u8 bytes[SHARED_BYTES +
		   4096]; /* of the stacks, one behind the other; the end is never used */
};

/* Places of guest code that exits of one vCPU are counted for; one is looked for at so many of them. */
#define SHARED_EXITS 2048u
#define EXIT_PROBES  8

/* Exits that come whatever code runs: AMD APM vol. 2, appendix C; Intel SDM vol. 3, appendix C. */
#define SVM_EXIT_INTR	0x60u
#define SVM_EXIT_SMI	0x62u
#define SVM_EXIT_VINTR	0x64u
#define VMX_REASONS	0x10000u /* Intel's reasons begin here */
#define VMX_EXIT_INTR	(VMX_REASONS + 1)
#define VMX_EXIT_WINDOW (VMX_REASONS + 7)
#define VMX_EXIT_NMIS	(VMX_REASONS + 8)
#define VMX_EXIT_TIMER	(VMX_REASONS + 52)

struct bpf_exit {
	__u64 rip; /* of the instruction that caused them; 0: none did */
	__u64 count;
	__u32 reason; /* as the processor has it, plus 1; 0: this place is free */
	__u32 user;   /* in user mode */
};

/* Exits of one vCPU, with --host alone: a hash table, of which nothing is ever removed. */
struct bpf_exits {
	__u64 all;
	__u64 lost; /* of these, those that found no place */
	struct bpf_exit at[SHARED_EXITS];
};

/* Exits by interrupts of the host, and for interrupts of the guest, are no code's doing. */
static inline bool exit_is_caused(__u32 reason)
{
	return (reason < SVM_EXIT_INTR || reason > SVM_EXIT_SMI) && reason != SVM_EXIT_VINTR &&
	       reason != VMX_EXIT_INTR && reason != VMX_EXIT_WINDOW && reason != VMX_EXIT_NMIS &&
	       reason != VMX_EXIT_TIMER;
}

/* Counts an exit by the instruction at `rip`, in user mode or not; 0: none caused it. */
static inline void exits_count(struct bpf_exits *exits, __u64 rip, __u32 reason, __u32 user)
{
	const __u32 begin = (__u32)((rip ^ rip >> 11) * 31 + reason);

	exits->all++;
	for (__u32 i = 0; i < EXIT_PROBES; i++) {
		struct bpf_exit *at = &exits->at[(begin + i) % SHARED_EXITS];

		if (!at->reason) {
			at->rip = rip;
			at->user = user;
			at->reason = reason + 1;
		}
		if (at->rip == rip && at->reason == reason + 1 && at->user == user) {
			at->count++;
			return;
		}
	}
	exits->lost++;
}

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
