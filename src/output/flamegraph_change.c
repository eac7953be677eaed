/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/flamegraph_change.h"

#include "output/flamegraph_text.h"

#define NOISE 0xdcdce0

static int mix(int from, int to, double t)
{
	return from + (int)((to - from) * t);
}

uint32_t flamegraph_change_color(const struct tree_change *change)
{
	bool more = change->after > change->before;
	double large = more ? change->after : change->before;
	double small = more ? change->before : change->after;
	double strength;

	if (!change->significant || !(large > 0))
		return NOISE;
	strength = (large - small) / large;
	return more ? (uint32_t)(255 << 16 | mix(205, 92, strength) << 8 | mix(195, 72, strength))
		    : (uint32_t)(mix(195, 84, strength) << 16 | mix(218, 152, strength) << 8 | 255);
}

void flamegraph_put_change(FILE *out, const struct tree_change *change)
{
	double points = 100 * (change->after - change->before);
	const char *sign = points >= 0.005 ? "+" : points <= -0.005 ? "−" : "±";

	flamegraph_put_fixed(out, 100 * change->before);
	fputs(" % before, ", out);
	flamegraph_put_fixed(out, 100 * change->after);
	fprintf(out, " %% after: %s", sign);
	flamegraph_put_fixed(out, points < 0 ? -points : points);
	if (!change->significant)
		fputs(", may be chance", out);
}

void flamegraph_put_change_data(FILE *out, const struct tree_change *change)
{
	fputs(" data-before=\"", out);
	flamegraph_put_fixed(out, 100 * change->before);
	fputs("\" data-after=\"", out);
	flamegraph_put_fixed(out, 100 * change->after);
	fprintf(out, "\" data-significant=\"%s\"", change->significant ? "yes" : "no");
}
