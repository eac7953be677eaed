/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_SYMBOL_GUEST_MEMORY_H
#define UNIPROF_SYMBOL_GUEST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* The guest's memory as one vCPU sees it. */
struct guest_memory {
	void *ctx;
	/* Copies up to `len` bytes at `va`; returns how many (0: not readable). */
	size_t (*read)(void *ctx, uint64_t va, void *buf, size_t len);
};

#endif
