/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_DISTINCT_H
#define UNIPROF_PROFILE_DISTINCT_H

#include "recording/stacks.h"

/* The frames of all stacks in order of address and kind, each once; the caller frees *out. */
struct error *distinct_frames(const struct stacks *stacks, struct frame **out, size_t *n);

#endif
