/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/inside/inside.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

/* Samples a second of one ring at most: more are the word of a hostile guest. */
#define RATE_MAX 10000ull

/* Without ticks for so long, and much longer than usual, the guest stood still. */
#define STILL_NS    NS_PER_S
#define STILL_TIMES 4u

_Static_assert(sizeof(struct inside_dynamic) + UNIPROF_INSIDE_CONSTANT <=
			       sizeof(struct uniprof_inside) &&
		       offsetof(struct uniprof_inside, lease) ==
			       UNIPROF_INSIDE_CONSTANT + offsetof(struct inside_dynamic, lease),
	       "as in the ring");

uint64_t inside_ring_size(const struct inside_ring *ring)
{
	return ring->first + (uint64_t)ring->slots * ring->slot_bytes;
}

bool inside_ring_check(const void *page, uint64_t at, uint64_t left, struct inside_ring *out)
{
	struct uniprof_inside head;

	memcpy(&head, page, sizeof(head));
	if (memcmp(head.magic, UNIPROF_INSIDE_MAGIC, sizeof(head.magic)) ||
	    head.version != UNIPROF_INSIDE_VERSION ||
	    head.checksum != uniprof_inside_checksum(&head))
		return false;
	*out = (struct inside_ring){.at = at,
				    .address = head.address,
				    .first = head.first,
				    .slots = head.slots,
				    .slot_bytes = head.slot_bytes,
				    .vcpu = head.vcpu,
				    .checksum = head.checksum,
				    .isa = (uint8_t)head.isa,
				    .word = (uint8_t)head.word,
				    .ticks = head.ticks,
				    .next = head.head};
	return head.address % UNIPROF_INSIDE_ALIGN == at % UNIPROF_INSIDE_ALIGN &&
	       head.first >= sizeof(head) && head.first <= UNIPROF_INSIDE_ALIGN && head.slots &&
	       head.slots <= UNIPROF_INSIDE_SLOTS_MAX && !(head.slots & (head.slots - 1)) &&
	       head.slot_bytes >= sizeof(struct uniprof_inside_slot) && head.slot_bytes % 8 == 0 &&
	       head.slot_bytes - sizeof(struct uniprof_inside_slot) <= UNIPROF_INSIDE_STACK_MAX &&
	       head.isa < ISAS && (head.word == 8 || head.word == 4) &&
	       inside_ring_size(out) <= left;
}

/* Distributes the time since the last samples over those that were found. */
static void measure(struct inside_ring *ring, uint32_t ticks, uint64_t now_ns)
{
	const uint64_t since_ns = now_ns - ring->since_ns, advanced = ticks - ring->ticks;
	const uint64_t usual_ns = advanced * ring->usual_ns;

	ring->span_ns = since_ns;
	if (ring->usual_ns && since_ns > STILL_NS && since_ns / STILL_TIMES > usual_ns) {
		ring->span_ns = usual_ns;
		ring->stood_still = true;
	} else if (advanced) {
		ring->usual_ns += (uint64_t)((int64_t)(since_ns / advanced - ring->usual_ns) / 8);
	}
	ring->since_ns = now_ns - ring->span_ns;
	ring->ticks = ticks;
}

void inside_ring_poll(struct inside_ring *ring, const struct inside_memory *memory, uint64_t now_ns,
		      uint32_t *lease)
{
	const uint64_t most = (now_ns - ring->since_ns) / (NS_PER_S / RATE_MAX) + 1;
	struct inside_dynamic now;
	uint32_t fresh;

	assert(!ring->left);
	*lease = 0;
	if (memory->read(memory->ctx, ring->at + UNIPROF_INSIDE_CONSTANT, &now, sizeof(now)) !=
	    sizeof(now))
		return;
	*lease = now.lease;
	fresh = now.head - ring->next;
	if (fresh > INT32_MAX) {
		ring->went_back = true;
		ring->next = now.head;
		ring->ticks = now.ticks;
		ring->since_ns = now_ns;
		return;
	}
	if (!fresh)
		return;
	measure(ring, now.ticks, now_ns);
	ring->found = fresh < ring->slots ? fresh : ring->slots;
	if (ring->found > most)
		ring->found = (uint32_t)most;
	ring->lost += fresh - ring->found;
	ring->next = now.head - ring->found;
	ring->left = ring->found;
}

/* Numbers of registers that callers are found by, as DWARF has them; lr: 0, none. */
static const struct register_numbers {
	uint8_t sp, fp, lr;
} numbers[ISAS][2] = {
	[ISA_X86] = {{4, 5, 0}, {7, 6, 0}},
	[ISA_ARM] = {{13, 11, 14}, {31, 29, 30}},
	[ISA_RISCV] = {{2, 8, 1}, {2, 8, 1}},
};

static void fill_regs(const struct inside_ring *ring, const struct uniprof_inside_slot *slot,
		      struct regs *out)
{
	const struct register_numbers number = numbers[ring->isa][ring->word == 8];
	const uint64_t bits = ring->word == 8 ? UINT64_MAX : UINT32_MAX;

	*out = (struct regs){.pc = slot->pc & bits,
			     .sp = slot->sp & bits,
			     .fp = slot->fp & bits,
			     .flags = slot->processor_flags,
			     .word = ring->word,
			     .isa = ring->isa,
			     .mmu.mode = MMU_OFF};
	out->gp[number.sp] = out->sp;
	out->gp[number.fp] = out->fp;
	out->gp_valid = 1u << number.sp | 1u << number.fp;
	if (!number.lr)
		return;
	out->gp[number.lr] = slot->lr & bits;
	out->gp_valid |= 1u << number.lr;
}

/*
 * Copies a slot and its stack; false: it is being overwritten, or was. Its number
 * is read once more after the copy: the guest changes it before all else.
 */
static bool copy_slot(const struct inside_ring *ring, const struct inside_memory *memory,
		      uint32_t n, struct uniprof_inside_slot *slot, struct inside_taken *out)
{
	const uint64_t at =
		ring->at + ring->first + (uint64_t)(n & (ring->slots - 1)) * ring->slot_bytes;
	uint32_t after;

	if (memory->read(memory->ctx, at, slot, sizeof(*slot)) != sizeof(*slot) ||
	    slot->sequence != 2 * n + 2 || slot->stack_bytes > ring->slot_bytes - sizeof(*slot) ||
	    memory->read(memory->ctx, at + sizeof(*slot), out->stack, slot->stack_bytes) !=
		    slot->stack_bytes)
		return false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return memory->read(memory->ctx, at, &after, sizeof(after)) == sizeof(after) &&
	       after == slot->sequence;
}

uint64_t inside_ring_next_ns(const struct inside_ring *ring)
{
	assert(ring->left);
	return ring->since_ns + ring->span_ns / ring->found * (ring->found - ring->left + 1);
}

bool inside_ring_take(struct inside_ring *ring, const struct inside_memory *memory,
		      struct inside_taken *out)
{
	struct uniprof_inside_slot slot;
	uint64_t weight_ns;

	if (!ring->left)
		return false;
	weight_ns = ring->span_ns / ring->found;
	out->time_ns = inside_ring_next_ns(ring);
	ring->left--;
	/* The next poll counts from here. */
	if (!ring->left)
		ring->since_ns += ring->span_ns;
	if (!copy_slot(ring, memory, ring->next++, &slot, out)) {
		ring->owed_ns += weight_ns;
		ring->lost++;
		return false;
	}
	fill_regs(ring, &slot, &out->regs);
	out->state = slot.flags & UNIPROF_INSIDE_IDLE ? VCPU_BLOCKED : VCPU_RUNNING;
	out->cut = slot.flags & UNIPROF_INSIDE_CUT;
	out->stack_bytes = slot.stack_bytes;
	out->weight_ns = weight_ns + ring->owed_ns;
	out->lost = ring->lost;
	ring->owed_ns = ring->lost = 0;
	return true;
}
