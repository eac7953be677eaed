/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_PROFILE_RECORDING_READER_H
#define UNIPROF_PROFILE_RECORDING_READER_H

/* Private to src/profile. */

#include "base/bytes.h"
#include "recording/recording.h"
#include "recording/file.h"

/* Like recording_read, of a file that is open and whose beginning is in `begun`, which is taken over. */
struct error *recording_read_file(struct recording_file *file, struct bytes *begun,
				  struct stacks *stacks, const struct recording_visitor *visitor,
				  bool *cut);

#endif
