/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"

VISIBLE uint64_t spin(uint64_t rounds)
{
	uint64_t value = rounds;

	while (rounds--) {
		value = value * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(value));
	}
	return value;
}
