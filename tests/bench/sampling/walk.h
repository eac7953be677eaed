/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A walk by frame pointers over the guest's memory that prints each frame at
 * once. Pages are mapped when first met, found again by their address, and
 * never mapped anew: good for a guest that does not move its stack.
 */

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct walk;

/* Prints to a file that is thrown away. */
struct error *walk_new(uint32_t domid, struct walk **out);
void walk_free(struct walk *walk);

/* Walks one vCPU's stack from its registers, a vcpu_guest_context_any_t; returns the number of frames. */
uint32_t walk_print(struct walk *walk, uint32_t vcpu, const void *context);
