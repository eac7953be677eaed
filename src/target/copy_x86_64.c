/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/copy.h"

#include <string.h>

#define WORD 8u

/*
 * By string moves, eight bytes at a time: as fast as AVX from a page on, 3 ns
 * slower for the half KiB of a flat stack. Stacks do not lie on 16 bytes, and
 * the C library's way for processors without AVX then takes up to 2.5 times
 * the instructions.
 */
void copy_stack_bytes(uint8_t *to, const uint8_t *from, uint32_t len)
{
	uint64_t words = len / WORD;

	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	if (len % WORD)
		memcpy(to, from, len % WORD);
}
