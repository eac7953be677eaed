/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include <stdint.h>

/* The time stamp counter: cheap where the domain runs with tsc_mode="native". */
static inline uint64_t ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

/* Divides in place and returns the remainder. The runtime has no library for it on 32 bits. */
static inline uint32_t divide(uint64_t *value, uint32_t divisor)
{
	uint32_t low = (uint32_t)*value, high = (uint32_t)(*value >> 32),
		 remainder = high % divisor;

	high /= divisor;
	__asm__("divl %[divisor]" : "+a"(low), "+d"(remainder) : [divisor] "rm"(divisor) : "cc");
	*value = (uint64_t)high << 32 | low;
	return remainder;
}
