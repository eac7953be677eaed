/* SPDX-License-Identifier: BSD-3-Clause */
#include "uniprof_inside.h"

#if defined(__x86_64__) || defined(__i386__)
#define ISA UNIPROF_INSIDE_X86
#elif defined(__aarch64__) || defined(__arm__)
#define ISA UNIPROF_INSIDE_ARM
#elif defined(__riscv)
#define ISA UNIPROF_INSIDE_RISCV
#else
#error "uniprof knows no callers of code for this processor"
#endif

/* Offset of the first slot: the header has its cache lines to itself. */
#define FIRST 128u

static uint32_t load(const uint32_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void store(uint32_t *to, uint32_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELAXED);
}

struct uniprof_inside *uniprof_inside_init(void *memory, size_t bytes, uint32_t vcpu,
					   uint32_t stack)
{
	struct uniprof_inside *ring = memory;
	const uint32_t want = stack ? stack : UNIPROF_INSIDE_STACK;
	const uint32_t slot = ((uint32_t)sizeof(struct uniprof_inside_slot) + want + 7) & ~7u;
	uint32_t slots = 1;

	if ((uintptr_t)memory % UNIPROF_INSIDE_ALIGN || want > UNIPROF_INSIDE_STACK_MAX ||
	    bytes < FIRST + (size_t)slot)
		return NULL;
	while (slots < UNIPROF_INSIDE_SLOTS_MAX && (bytes - FIRST) / slot >= (size_t)slots * 2)
		slots *= 2;
	*ring = (struct uniprof_inside){.magic = UNIPROF_INSIDE_MAGIC,
					.version = UNIPROF_INSIDE_VERSION,
					.address = (uintptr_t)memory,
					.first = FIRST,
					.slots = slots,
					.slot_bytes = slot,
					.vcpu = vcpu,
					.isa = ISA,
					.word = sizeof(uintptr_t)};
	/* Whoever finds a ring that is not made yet sees it by that. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	store(&ring->checksum, uniprof_inside_checksum(ring));
	return ring;
}

/* Copies whole words of a stack that other code may be using. */
static uint32_t copy_stack(uint8_t *to, uint32_t room, const struct uniprof_inside_regs *regs)
{
	const uintptr_t from = regs->sp & ~(uintptr_t)(sizeof(uintptr_t) - 1);
	const uintptr_t there = regs->stack_end > from ? regs->stack_end - from : 0;
	const uint32_t words = (uint32_t)((there < room ? there : room) / sizeof(uintptr_t));

	for (uint32_t i = 0; i < words; i++)
		((volatile uintptr_t *)to)[i] = ((const volatile uintptr_t *)from)[i];
	return words * (uint32_t)sizeof(uintptr_t);
}

static void put(struct uniprof_inside *ring, const struct uniprof_inside_regs *regs)
{
	const uint32_t n = ring->head,
		       room = ring->slot_bytes - (uint32_t)sizeof(struct uniprof_inside_slot);
	struct uniprof_inside_slot *slot =
		(void *)((uint8_t *)ring + ring->first +
			 (size_t)(n & (ring->slots - 1)) * ring->slot_bytes);

	store(&slot->sequence, 2 * n + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	slot->pc = regs->pc;
	slot->sp = regs->sp;
	slot->fp = regs->fp;
	slot->lr = regs->lr;
	slot->processor_flags = regs->flags;
	slot->stack_bytes = copy_stack(slot->stack, room, regs);
	slot->flags = (regs->idle ? UNIPROF_INSIDE_IDLE : 0) |
		      (regs->stack_end > regs->sp && regs->stack_end - regs->sp > room
			       ? UNIPROF_INSIDE_CUT
			       : 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	store(&slot->sequence, 2 * n + 2);
	__atomic_store_n(&ring->head, n + 1, __ATOMIC_RELEASE);
}

/*
 * Counts the lease down. One that is renewed from outside in this very moment may be
 * lost: the next renewal, or the end of this lease, makes up for it.
 */
void uniprof_inside_tick(struct uniprof_inside *ring, const struct uniprof_inside_regs *regs)
{
	const uint32_t ticks = load(&ring->ticks) + 1, lease = load(&ring->lease);
	uint32_t every;

	store(&ring->ticks, ticks);
	if (!lease)
		return;
	store(&ring->lease, lease <= UNIPROF_INSIDE_LEASE_MAX ? lease - 1 : 0);
	every = load(&ring->every);
	if (lease <= UNIPROF_INSIDE_LEASE_MAX && (every < 2 || ticks % every == 0))
		put(ring, regs);
}

void uniprof_inside_switch(struct uniprof_inside *ring, bool on)
{
	store(&ring->lease, on ? UNIPROF_INSIDE_SWITCHED : 0);
}
