/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A sampler inside a unikernel, for `uniprof record --inside` (README.md beside
 * this file). The guest's timer hands in what it interrupted; registers and the
 * top of the stack go into a ring, which uniprof finds in the guest's memory and
 * reads from outside while the guest runs.
 *
 * One ring for each vCPU, one producer for each ring: the vCPU's timer, which
 * must not interrupt itself. Nothing here allocates, waits, calls out or needs a
 * C library. Off, a tick costs some ten instructions.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A ring begins at a multiple of this, bytes. */
#define UNIPROF_INSIDE_ALIGN 4096u

/* Bytes of stack that are copied with a sample, where nothing else is asked for. */
#define UNIPROF_INSIDE_STACK 1000u

/* Ring with room for some 1.3 s at 101 samples a second, with UNIPROF_INSIDE_STACK. */
#define UNIPROF_INSIDE_BYTES (136u << 10)

/* Ticks that uniprof_inside_switch() lets be sampled: 100 s at 100 Hz. */
#define UNIPROF_INSIDE_SWITCHED 10000u

/* Code that was interrupted. */
struct uniprof_inside_regs {
	uintptr_t pc, sp;
	uintptr_t fp;	     /* rbp, x29, s0; r7 or r11 of 32-bit Arm */
	uintptr_t lr;	     /* x30, r14, ra; nothing on x86 */
	uintptr_t flags;     /* RFLAGS, PSTATE, sstatus; 0: not known */
	uintptr_t stack_end; /* first address behind the stack that sp is on; 0: copy none of it */
	bool idle;	     /* it waited for an event: hlt, wfi, SCHEDOP_block */
};

struct uniprof_inside;

/*
 * Makes a ring in `bytes` bytes at `memory`, contiguous in physical memory, and
 * UNIPROF_INSIDE_ALIGNed; static memory of a unikernel is. `stack` bytes are
 * copied with each sample, at most UNIPROF_INSIDE_STACK_MAX; 0: UNIPROF_INSIDE_STACK.
 * NULL: too little memory, too much stack, or not aligned.
 */
struct uniprof_inside *uniprof_inside_init(void *memory, size_t bytes, uint32_t vcpu,
					   uint32_t stack);

/* Takes a sample, if sampling is on. Called by the vCPU's timer, at a steady rate. */
void uniprof_inside_tick(struct uniprof_inside *ring, const struct uniprof_inside_regs *regs);

/*
 * Switches sampling on for UNIPROF_INSIDE_SWITCHED ticks, or off: for guests that
 * nobody can write to from outside, who tell them by a byte on their console or a port.
 */
void uniprof_inside_switch(struct uniprof_inside *ring, bool on);

/* The layout below is for the library and for readers from outside. */

#define UNIPROF_INSIDE_MAGIC   "uniprof inside\r\n"
#define UNIPROF_INSIDE_VERSION 1u

/* Values of isa. */
#define UNIPROF_INSIDE_X86   0u
#define UNIPROF_INSIDE_ARM   1u
#define UNIPROF_INSIDE_RISCV 2u

/* Values of leases beyond this count as 0: a mistake switches nothing on for long. */
#define UNIPROF_INSIDE_LEASE_MAX (1u << 20)

#define UNIPROF_INSIDE_SLOTS_MAX (1u << 16)
#define UNIPROF_INSIDE_STACK_MAX (1u << 15) /* bytes */

/* Flags of slots. */
#define UNIPROF_INSIDE_CUT  1u /* the stack goes on behind what was copied */
#define UNIPROF_INSIDE_IDLE 2u

struct uniprof_inside {
	/* Constant once the ring is made; the checksum is over all of these. */
	uint8_t magic[16];
	uint32_t version;
	uint32_t checksum;   /* counted as 0 */
	uint64_t address;    /* of the ring, as the guest sees it */
	uint32_t first;	     /* offset of the first slot from here, bytes */
	uint32_t slots;	     /* a power of two */
	uint32_t slot_bytes; /* of each, struct uniprof_inside_slot included; a multiple of 8 */
	uint32_t vcpu;
	uint32_t isa;
	uint32_t word; /* bytes: 8 or 4 */

	/* Written by the guest. */
	uint32_t ticks; /* calls of uniprof_inside_tick, modulo 2^32 */
	uint32_t head; /* samples that are whole, modulo 2^32; sample n is in slot n modulo slots */

	/* Written from outside; the guest counts the lease down. */
	uint32_t every; /* so many ticks have one sample; 0 is 1 */
	uint32_t lease; /* ticks in which samples are taken; 0: off */
};

/* Bytes of the constant part. */
#define UNIPROF_INSIDE_CONSTANT offsetof(struct uniprof_inside, ticks)

struct uniprof_inside_slot {
	uint32_t sequence; /* 2n + 1 while sample n is written, 2n + 2 once it is whole */
	uint32_t flags;
	uint64_t pc, sp, fp, lr, processor_flags;
	uint32_t stack_bytes; /* copied from sp, rounded down to a word */
	uint32_t pad;
	uint8_t stack[];
};

/* FNV-1a, 32 bits, over the constant part. */
static inline uint32_t uniprof_inside_checksum(const struct uniprof_inside *ring)
{
	const uint8_t *bytes = (const uint8_t *)ring;
	const size_t at = offsetof(struct uniprof_inside, checksum);
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < UNIPROF_INSIDE_CONSTANT; i++)
		sum = (sum ^ (i - at < sizeof(ring->checksum) ? 0 : bytes[i])) * 16777619u;
	return sum;
}
