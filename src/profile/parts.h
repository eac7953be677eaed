/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_PARTS_H
#define UNIPROF_PROFILE_PARTS_H

/* Samples by stack, vCPU and state: a hash table that grows with what is different. */

#include "profile/profile.h"

struct error *parts_new(struct parts **out);
void parts_free(struct parts *parts);

struct error *parts_add(struct parts *parts, const struct tick_entry *entry, uint64_t times,
			uint64_t weight_ns);

/* In no order that means anything; i < parts_count. */
size_t parts_count(const struct parts *parts);
const struct profile_part *parts_at(const struct parts *parts, size_t i);

#endif
