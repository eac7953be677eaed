/* SPDX-License-Identifier: BSD-3-Clause */
/* The console ring of Xen's protocol: console_write -> ring_push, ring_notify. */
#include "console.h"
#include "guest.h"
#include "platform.h"

/*
 * dom0 takes the ring's bytes at most 30 times in 200 ms, far less often than a guest can fill it.
 * Waiting it out would turn a profile into one of a few long waits; a small number of yields, then
 * dropping the line, keeps the guest busy and every call's cost about the same.
 */
#define YIELDS_BEFORE_LOSS 2
#define FLUSH_PATIENCE_NS  2000000000

static bool wait_for_space;
static uint64_t lost;

void console_wait(bool wait)
{
	wait_for_space = wait;
}

uint64_t console_lost(void)
{
	return lost;
}

static VISIBLE bool ring_push(struct xencons_interface *ring, const char *bytes, size_t length)
{
	XENCONS_RING_IDX produced = ring->out_prod;
	XENCONS_RING_IDX consumed = __atomic_load_n(&ring->out_cons, __ATOMIC_ACQUIRE);

	if (sizeof(ring->out) - (produced - consumed) < length)
		return false;
	for (size_t i = 0; i < length; i++)
		ring->out[MASK_XENCONS_IDX(produced++, ring->out)] = bytes[i];
	__atomic_store_n(&ring->out_prod, produced, __ATOMIC_RELEASE);
	return true;
}

static VISIBLE void ring_wait(void)
{
	platform_yield();
}

static VISIBLE void ring_notify(void)
{
	platform_notify_console();
}

VISIBLE void console_write(const char *bytes, size_t length)
{
	unsigned int yields = 0;

	while (!ring_push(platform.console, bytes, length)) {
		if (!wait_for_space && yields++ == YIELDS_BEFORE_LOSS) {
			lost += length;
			return;
		}
		ring_wait();
	}
	ring_notify();
}

void console_flush(void)
{
	uint64_t deadline = platform_clock_ns() + FLUSH_PATIENCE_NS;
	const XENCONS_RING_IDX *consumed = &platform.console->out_cons;

	while (__atomic_load_n(consumed, __ATOMIC_ACQUIRE) != platform.console->out_prod &&
	       platform_clock_ns() < deadline)
		ring_wait();
}
