/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SESSION_NAMES_H
#define UNIPROF_CMD_SESSION_NAMES_H

#include "recording/recording.h"
#include "symbol/images/images.h"

/*
 * Puts the names of all addresses into the recording, each once, and where in
 * the source they are: for those who look at it and have not the images. If
 * something could not be found out, *trouble is a sentence that says so, else
 * NULL; the caller frees it. `progress` may be NULL.
 */
struct error *session_names(struct recording_writer *writer, const struct stacks *stacks,
			    const struct images *images, struct progress_sink *progress,
			    char **trouble);

#endif
