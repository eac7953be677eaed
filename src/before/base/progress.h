/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_BASE_PROGRESS_H
#define UNIPROF_BASE_PROGRESS_H

/*
 * How long work lets those know who wait for it. Whoever works says how far it
 * is, now and then; whether, when and how that is shown is up to a verb
 * (cmd/meter.h). NULL: nobody wants to know.
 */

#include <stdbool.h>
#include <stdint.h>

struct progress_sink {
	/* `all` 0: not known. `what` NULL: it is over, for now. */
	void (*at)(struct progress_sink *progress, const char *what, uint64_t done, uint64_t all);
	bool silent; /* results go where it would be shown */
};

/* So many small things are done before it is worth to say so. */
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

#endif
