/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_CMD_SHARED_GUEST_LAUNCH_H
#define UNIPROF_CMD_SHARED_GUEST_LAUNCH_H

/*
 * Starts a command, and opens the guest that it starts: a process among the
 * command's descendants, or the domain that an `xl create` among them names.
 * No other guest is ever opened, whenever it came up.
 */

#include "cmd/cmd.h"
#include "target/target.h"

struct guest_launch_options {
	const char *via;     /* the way to read the guest; NULL: the cheapest that works */
	uint64_t timeout_ns; /* for the guest to come up */
	bool quiet;
	const volatile sig_atomic_t *stop;
};

struct guest_launch;

/*
 * Waits until the guest can be read and is no longer held paused. Errors: the
 * command fails (its status is told), it ends and leaves no guest, the guest
 * cannot be profiled (why not), the time is over (the guests that came up and
 * may be meant are named), *stop was set. The command runs on after errors.
 */
struct error *guest_launch(char *const *command, const struct guest_launch_options *options,
			   struct guest_launch **launch, struct target **target);

/* Lets go of the command, which may run on; call when the guest was closed. */
void guest_launch_free(struct guest_launch *launch);

#endif
