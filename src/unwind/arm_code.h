/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_UNWIND_ARM_CODE_H
#define UNIPROF_UNWIND_ARM_CODE_H

/* The ways from A32 and T32 code to its caller. */

#include "unwind/arm_site.h"

/* By what following the code has said of the place; that may be a guess. */
enum found arm_by_code(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust);

/*
 * By proof, where no symbols say which function stands here: following the
 * code from where a call has led shows that call's return address to be the one.
 */
enum found arm_by_target(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust);

/* By the row of the image's table, of a kind that serves there. */
enum found arm_by_row(struct arm_walk *walk, const struct arm_site *site, uint8_t *trust);

/*
 * By search of the stack for what looks like a return address and, but with
 * UNWIND_SCAN, from which the walk goes on well. Always a guess.
 */
enum found arm_by_scan(struct arm_walk *walk);

/* All of them but the last, in the order of the method. */
enum found arm_find_caller(struct arm_walk *walk, uint8_t *trust);

#endif
