/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_OUTPUT_RESOLVE_LINE_H
#define UNIPROF_OUTPUT_RESOLVE_LINE_H

/* One line of a trace after the other; the lower half of output/resolve.h. */

#include "classic/resolve.h"
#include "output/sink.h"

struct line_resolver {
	const struct images *images;
	struct sink *sink;
	struct resolve_result result; /* so far */
	bool inside;		      /* of a stack: the next address is a return address */
	struct line_cache *cache;
};

struct error *line_resolver_new(struct line_resolver *r, const struct images *images,
				struct sink *sink);
void line_resolver_free(struct line_resolver *r);

/*
 * Puts the line that begins at `line` into the sink; `*next` is where the next
 * one begins. The byte before `end` must be a newline.
 */
struct error *resolve_line(struct line_resolver *r, const char *line, const char *end,
			   const char **next);

#endif
