/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>

/* The virtual counter, which no hypervisor traps. */
static inline uint64_t ticks(void)
{
	uint64_t count;

	__asm__ volatile("isb\n\tmrrc p15, 1, %Q0, %R0, c14" : "=r"(count) : : "memory");
	return count;
}

static inline uint32_t ticks_per_second(void)
{
	uint32_t hz;

	__asm__("mrc p15, 0, %0, c14, c0, 0" : "=r"(hz));
	return hz;
}

/*
 * Divides in place and returns the remainder: bit by bit, if the processor
 * cannot divide it at once.
 */
static inline uint32_t divide(uint64_t *value, uint32_t divisor)
{
	const uint32_t high = (uint32_t)(*value >> 32), low = (uint32_t)*value;
	uint64_t rest = high % divisor;
	uint32_t quotient = 0;

	if (!high) {
		*value = low / divisor;
		return low % divisor;
	}
	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		rest = rest << 1 | (low & bit ? 1 : 0);
		if (rest >= divisor) {
			rest -= divisor;
			quotient |= bit;
		}
	}
	*value = (uint64_t)(high / divisor) << 32 | quotient;
	return (uint32_t)rest;
}
