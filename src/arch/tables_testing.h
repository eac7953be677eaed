/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Page tables for tests: a few frames, anywhere in the physical address space. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arch/arch.h"

#define TABLES_MAX 16

struct memory {
	uint64_t gfn[TABLES_MAX];
	uint64_t words[TABLES_MAX][FRAME_SIZE / 8];
	size_t n;
	unsigned reads; /* of frames */
};

static inline const void *frame(void *ctx, uint64_t gfn)
{
	struct memory *memory = ctx;

	memory->reads++;
	for (size_t i = 0; i < memory->n; i++)
		if (memory->gfn[i] == gfn)
			return memory->words[i];
	return NULL;
}

/* The byte at this address, in a frame that is added if need be. */
static inline uint8_t *at(struct memory *memory, uint64_t phys)
{
	size_t i = 0;

	while (i < memory->n && memory->gfn[i] != phys >> FRAME_SHIFT)
		i++;
	assert_true(i < TABLES_MAX);
	if (i == memory->n)
		memory->gfn[memory->n++] = phys >> FRAME_SHIFT;
	return (uint8_t *)memory->words[i] + (phys & (FRAME_SIZE - 1));
}

static inline void put64(struct memory *memory, uint64_t phys, uint64_t entry)
{
	memcpy(at(memory, phys), &entry, 8);
}

static inline void put32(struct memory *memory, uint64_t phys, uint32_t entry)
{
	memcpy(at(memory, phys), &entry, 4);
}
