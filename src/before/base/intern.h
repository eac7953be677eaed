/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_IDS_H
#define UNIPROF_BASE_IDS_H

/* Numbers things that are known by a pair of 64-bit values, in the order in which they are met: 0, 1, 2 ... */

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct ids;

struct error *ids_new(struct ids **out);
void ids_free(struct ids *ids);

/* How many there are. */
uint32_t ids_count(const struct ids *ids);

/* The number of (a, b); *added tells whether it is a new one. ERR_FAILED for more than 2^30. */
struct error *ids_get(struct ids *ids, uint64_t a, uint64_t b, uint32_t *id, bool *added);

#endif
