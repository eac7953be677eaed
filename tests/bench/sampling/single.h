/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SAMPLING_SINGLE_H
#define BENCH_SAMPLING_SINGLE_H

/*
 * Has every multicall of this program carried out as one call for each of its
 * entries, so that the same sample can be taken both ways.
 */

#include <stdbool.h>

void single_calls(bool on);

#endif
