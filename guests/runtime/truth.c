/* SPDX-License-Identifier: BSD-3-Clause */
#include "console.h"
#include "guest.h"

void print_truth(const struct truth *rows, size_t count)
{
	uint64_t whole = rows[0].ticks;

	console_wait(true);
	print("console lost %lu bytes\n", console_lost());
	for (size_t i = 0; i < count; i++) {
		uint64_t share = whole ? rows[i].ticks / (whole / 10000 + 1) : 0;

		print("truth %s calls %lu ticks %lu share %lu.%04lu\n", rows[i].name, rows[i].calls,
		      rows[i].ticks, share / 10000, share % 10000);
	}
}
