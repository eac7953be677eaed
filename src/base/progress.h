/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Progress of long work. The code that works reports how far it is, now and
 * then; a verb decides whether, when and how to show it (cmd/cmd.h).
 * A NULL sink ignores reports.
 */

#include <stdbool.h>
#include <stdint.h>

struct progress_sink {
	/* `all` 0: not known. `what` NULL: nothing to show, for now. */
	void (*at)(struct progress_sink *progress, const char *what, uint64_t done, uint64_t all);
	bool silent; /* results go where it would be shown */
};

/* Small things that are done before progress is reported again. */
#define PROGRESS_STEP 4096u

/* `what` is a string constant, such as "reading"; a new one is a new stage. */
static inline void progress_at(struct progress_sink *progress, const char *what, uint64_t done,
			       uint64_t all)
{
	if (progress && !progress->silent)
		progress->at(progress, what, done, all);
}

static inline void progress_end(struct progress_sink *progress)
{
	progress_at(progress, 0, 0, 0);
}
