/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SNAPSHOT_H
#define UNIPROF_CMD_SNAPSHOT_H

#include "cmd/session.h"

/*
 * Writes registers and memory of each sample to options->snapshot, until the
 * time is over, a signal comes or the guest ends; nothing is unwound.
 */
struct error *snapshot_record(struct target *target, const struct session_options *options,
			      struct sampler_result *result);

#endif
