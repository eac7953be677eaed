/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/interval.h"

#include <math.h>

/* The normal distribution's 97.5 % quantile. */
#define Z 1.959964

struct interval interval_of_share(double share, double draws)
{
	double spread, middle, half;

	if (!(draws > 0))
		return (struct interval){0, 1};
	/* E. B. Wilson, 1927: the shares from which this one is Z standard deviations away. */
	spread = Z * Z / draws;
	middle = (share + spread / 2) / (1 + spread);
	half = sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread);
	return (struct interval){fmax(0, middle - half), fmin(1, middle + half)};
}
