/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recurse calls itself until it is `depth` calls deep (option, 2,000), calls bottom, which spins,
 * comes all the way back, and main begins again, for `seconds` (option, 60). Nearly every stack has
 * depth + some frames, with bottom above them: expected share of bottom, over 0.9.
 */
#include "guest.h"

#define DEFAULT_DEPTH 2000
/* A frame of recurse takes at most 64 bytes, whatever the flags. */
#define MAX_DEPTH (BOOT_STACK_BYTES / 64 - 256)
#define SPINS	  1000000

enum { MAIN, RECURSE, BOTTOM, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0}, {"recurse", 0, 0}, {"bottom", 0, 0}};

VISIBLE uint64_t bottom(void)
{
	return spin(SPINS);
}

VISIBLE uint64_t recurse(uint64_t depth)
{
	uint64_t value;

	if (depth > 1)
		return recurse(depth - 1) + depth;
	TIMED(&truth[BOTTOM], value = bottom());
	return value;
}

int main(void)
{
	unsigned long depth = option_number("depth", DEFAULT_DEPTH);
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	if (depth < 1 || depth > MAX_DEPTH)
		depth = DEFAULT_DEPTH;
	print("recursion: %lu deep\n", depth);
	while (clock_ns() < end)
		TIMED(&truth[RECURSE], recurse(depth));
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
