/* SPDX-License-Identifier: BSD-3-Clause */
#include "sample/rest.h"

/* So much may be owed. */
#define CREDIT_NS 1000000ull

/* Resting is whatever passes between samples. */
static uint64_t owe(struct rest *rest, uint64_t began_ns, uint64_t now_ns)
{
	const uint64_t rested = began_ns > rest->last_ns ? began_ns - rest->last_ns : 0;

	rest->owed_ns -= rested < rest->owed_ns ? rested : rest->owed_ns;
	rest->owed_ns += now_ns - began_ns;
	rest->last_ns = now_ns;
	return rest->owed_ns > CREDIT_NS ? rest->owed_ns - CREDIT_NS : 0;
}

bool rest_after(struct rest *rest, uint64_t began_ns, uint64_t now_ns, uint64_t paused_ns)
{
	const uint64_t least = owe(rest, began_ns, now_ns);
	const double bound = rest->max_overhead;

	rest->until_ns = now_ns + least;
	if (bound > 0) {
		double share = (double)paused_ns * (1 - bound) / bound;

		if (share > (double)least) {
			rest->until_ns = now_ns + (uint64_t)share;
			return true;
		}
	}
	return false;
}

uint64_t rest_due(const struct rest *rest, uint64_t deadline_ns)
{
	return deadline_ns > rest->until_ns ? deadline_ns : rest->until_ns;
}
