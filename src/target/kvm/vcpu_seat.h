/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_KVM_VCPU_SEAT_H
#define UNIPROF_TARGET_KVM_VCPU_SEAT_H

/*
 * The memory that the program in the kernel (vcpu.bpf.c) and uniprof share, a
 * seat for each vCPU. uniprof asks by a number, the program answers by the
 * same number once all else of the answer stands there; and it notes at every
 * time that a vCPU's thread leaves a CPU with which registers it did.
 */

#include <linux/types.h>

/* The stack, and those that it leads to: as many and as large as a sample has them (target/target.h). */
#define SEAT_PARTS 4
#define SEAT_STACK (256u << 10)
#define SEAT_OTHER (16u << 10)
#define SEAT_BYTES (SEAT_STACK + (SEAT_PARTS - 1) * SEAT_OTHER)

struct seat_regs {
	__u64 round;  /* odd: being written */
	__u64 slices; /* how often the thread had been put on a CPU */
	/* As processors number them. */
	__u64 gp[17]; /* rip is the last */
	__u64 cr0, cr3, cr4, efer;
	__u32 known;   /* KVM had all of these at hand */
	__u32 between; /* ... but was at changing them */
};

struct seat_part {
	__u64 va;   /* of the first, the stack pointer comes instead */
	__u32 want; /* bytes; 0: nothing */
	__u32 got;
	__u32 cut; /* there would have been more */
};

struct seat {
	__u64 asked, answered;
	__u64 missing; /* of the answer: an address in the monitor that could not be read; 0: none */
	__u64 vcpu;    /* KVM's own, once the thread was seen in KVM_RUN */
	struct seat_regs now, left;
	struct seat_part part[SEAT_PARTS];
	__u8 bytes[SEAT_BYTES + 4096]; /* part 0, part 1, ...; the rest is never used */
};

#define SEAT_SLOTS 32

/* The guest's memory in the monitor: struct ram_map. */
struct seat_memory {
	__u64 n;
	struct {
		__u64 gpa, size, hva;
	} slot[SEAT_SLOTS];
};

/*
 * The same as KVM has it: asked for and answered by numbers, too, by whatever
 * vCPU comes first, which takes `taken` from the last answer to the question.
 */
struct seat_told {
	__u64 asked, taken, answered;
	__u64 generation;	   /* of KVM's, when it was read */
	struct seat_memory memory; /* n > SEAT_SLOTS: that many do not fit */
};

#endif
