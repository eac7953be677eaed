/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_WALK_H
#define UNIPROF_UNWIND_ARM_WALK_H

#include "unwind/walk.h"

struct arm_unwinder;
struct arm_unwinder *arm_unwinder_new(void);
void arm_unwinder_free(struct arm_unwinder *unwinder);

/*
 * unwind_stack() for A32 and T32 code. Callers are found by following the code
 * of the function that stands there, whatever its frame looks like and whether
 * it has one; the link register counts only where that shows that it is fresh.
 * Where nothing says where the function starts, its image's table says who
 * called it; the innermost frame may be where tables are wrong, so there the
 * caller must be proven: by following the code from what it has called. What
 * no table knows is left to frame records, in each of the layouts that
 * compilers make.
 */
void arm_unwind(const struct unwind_input *in, struct frame *frames, struct unwind_result *out);

#endif
