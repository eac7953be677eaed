/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_COPY_H
#define UNIPROF_TARGET_COPY_H

#include <stdint.h>

/*
 * Copies `len` bytes of a stack, as memcpy does: for the time that a guest is
 * paused, in which this is most of what we do ourselves. How it is done best
 * depends on the processor, hence a file for each.
 */
void copy_stack_bytes(uint8_t *to, const uint8_t *from, uint32_t len);

#endif
