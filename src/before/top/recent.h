/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TOP_RECENT_H
#define UNIPROF_TOP_RECENT_H

/* The ticks of the last seconds, for a live view; what is older is forgotten. */

#include "recording/recording.h"

/* No more entries are kept, whatever the span: 16 MiB. */
#define RECENT_MAX_ENTRIES (1u << 20)

struct recent;

struct error *recent_new(uint64_t span_ns, struct recent **out);
void recent_free(struct recent *recent);

/* A shorter span forgets at once; a longer one fills up again. */
void recent_set_span(struct recent *recent, uint64_t span_ns);
void recent_clear(struct recent *recent);

struct error *recent_add(struct recent *recent, const struct tick *tick);

/* Oldest first; i < recent_count. The tick's entries are valid until the next recent_add. */
size_t recent_count(const struct recent *recent);
void recent_get(struct recent *recent, size_t i, struct tick *tick);

#endif
