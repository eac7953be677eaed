/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>

/* The virtual counter, which no hypervisor traps. */
static inline uint64_t ticks(void)
{
	uint64_t count;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(count) : : "memory");
	return count;
}

/* Divides in place and returns the remainder. */
static inline uint32_t divide(uint64_t *value, uint32_t divisor)
{
	uint32_t remainder = (uint32_t)(*value % divisor);

	*value /= divisor;
	return remainder;
}
