/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>

/* The timer's count, which QEMU's virt raises ten million times a second. */
#define TICKS_PER_S 10000000

static inline uint64_t ticks(void)
{
	uint64_t count;

	__asm__ volatile("rdtime %0" : "=r"(count) : : "memory");
	return count;
}

/* Divides in place and returns the remainder. */
static inline uint32_t divide(uint64_t *value, uint32_t divisor)
{
	uint32_t remainder = (uint32_t)(*value % divisor);

	*value /= divisor;
	return remainder;
}
