/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_INTERVAL_H
#define UNIPROF_OUTPUT_INTERVAL_H

/* How exact a share is that was counted in samples. */

struct interval {
	double low, high; /* shares, 0 to 1 */
};

/*
 * Wilson's 95 % interval of a share that was seen in `draws` random draws
 * (profile_draws; 0: nothing is known). Good for few draws and for shares
 * near 0 and 1, too: a function that was never seen in 100 draws may still
 * have up to 3.7 %.
 */
struct interval interval_of_share(double share, double draws);

#endif
