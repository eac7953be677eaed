/* SPDX-License-Identifier: BSD-3-Clause */
#include "way.h"

const struct way *const all_ways[MAX_WAYS] = {&way_floor,      &way_floor_context, &way_calls,
					      &way_classic,    &way_libxc,	   &way_pause,
					      &way_auto,       &way_single,	   &way_unread,
					      &way_first,      &way_step_clock,	   &way_step_states,
					      &way_step_pause, &way_step_go,	   &way_xenctx};
