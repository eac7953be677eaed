/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"

/* The guest's memory as one vCPU sees it, with the budget of a search in it. */
struct guest_memory {
	void *ctx;
	/* Copies up to `len` bytes at `va`; returns how many (0: not readable). */
	size_t (*read)(void *ctx, uint64_t va, void *buf, size_t len);
	struct budget *budget; /* NULL: unbounded */
};

#define GUEST_MEMORY_PAGE 4096u

/* Bytes between two checks of the budget. On Xen, pages that are read together cost a fraction. */
#define GUEST_MEMORY_BLOCK (256 * GUEST_MEMORY_PAGE)

/* Steps for a page that is read. */
#define GUEST_MEMORY_PAGE_STEPS 1024u

/* Reads like memory->read, with a step for each item of the budget; 0 once it is over. */
static inline size_t guest_memory_read(const struct guest_memory *memory, uint64_t va, void *buf,
				       size_t len)
{
	size_t done = 0;

	while (done < len) {
		const size_t want =
			len - done < GUEST_MEMORY_BLOCK ? len - done : GUEST_MEMORY_BLOCK;
		size_t got;

		if (!budget_spend(memory->budget, (want / GUEST_MEMORY_PAGE + 1) *
							  (uint64_t)GUEST_MEMORY_PAGE_STEPS))
			break;
		got = memory->read(memory->ctx, va + done, (uint8_t *)buf + done, want);
		done += got;
		if (got < want)
			break;
	}
	return done;
}

/* Reads all of it; false: a part cannot be read. */
static inline bool guest_memory_get(const struct guest_memory *memory, uint64_t va, void *buf,
				    size_t len)
{
	return guest_memory_read(memory, va, buf, len) == len;
}
