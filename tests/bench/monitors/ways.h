/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/* Ways to take one sample of a guest with one vCPU: ours, and those of scripts in the field. */

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct way {
	const char *name;
	/* `qmp` is the path of QEMU's socket, `pid` its process. */
	struct error *(*open)(const char *qmp, const char *pid, void **state);
	/* One sample; *stopped_ns: how long the guest stood still for it, as seen from outside. */
	struct error *(*take)(void *state, uint64_t *stopped_ns);
	void (*close)(void *state);
};

#define WAYS 5
extern const struct way ways[WAYS];
