/* SPDX-License-Identifier: BSD-3-Clause */
#include "console.h"
#include "guest.h"

/* part / whole in ten-thousandths, from as many of their upper bits as can be computed with. */
static unsigned int share(uint64_t part, uint64_t whole)
{
	while ((whole | part) > UINT32_MAX / 10000) {
		whole >>= 1;
		part >>= 1;
	}
	return whole ? (uint32_t)part * 10000 / (uint32_t)whole : 0;
}

void print_truth(const struct truth *rows, size_t count)
{
	console_wait(true);
	print("console lost %llu bytes\n", (unsigned long long)console_lost());
	for (size_t i = 0; i < count; i++) {
		unsigned long part = share(rows[i].ticks, rows[0].ticks);

		print("truth %s calls %llu ticks %llu share %lu.%04lu\n", rows[i].name,
		      (unsigned long long)rows[i].calls, (unsigned long long)rows[i].ticks,
		      part / 10000, part % 10000);
	}
}
