/* SPDX-License-Identifier: BSD-3-Clause */
#include "way.h"

/* The uniprof of 2017 knows no 64-bit Arm, and xenctx shows no stack there. */
const struct way *const all_ways[MAX_WAYS] = {&way_floor,      &way_calls,	&way_pause,
					      &way_auto,       &way_single,	&way_unread,
					      &way_first,      &way_step_clock, &way_step_states,
					      &way_step_pause, &way_step_go};
