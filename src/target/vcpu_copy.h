/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_VCPU_COPY_H
#define UNIPROF_TARGET_VCPU_COPY_H

#include "target/target.h"

/*
 * Copies a vCPU's stack, and the others that it leads to, through its page
 * tables; where a frame is not to be had the stack ends. For targets whose
 * memory is at hand, or is brought by mem->frame().
 */
void vcpu_copy_stacks(const struct arch *arch, const struct physmem *mem, struct vcpu_sample *vcpu);

#endif
