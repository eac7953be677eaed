/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that compilers call on their own, and no others. */
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t length);
void *memset(void *to, int value, size_t length);

void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
	void *result = to;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
	return result;
}

void *memset(void *to, int value, size_t length)
{
	void *result = to;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(value) : "memory");
	return result;
}
