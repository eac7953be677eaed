/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Functions that compilers for Arm and RISC-V may call. */

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);

__attribute__((noinline)) void *memcpy(void *to, const void *from, size_t n)
{
	volatile char *at = to;
	const volatile char *byte = from;

	while (n--)
		*at++ = *byte++;
	return to;
}

__attribute__((noinline)) void *memset(void *to, int byte, size_t n)
{
	volatile char *at = to;

	while (n--)
		*at++ = (char)byte;
	return to;
}

static inline void with_library(int (*leaf)(int))
{
	leaf(0);
}
