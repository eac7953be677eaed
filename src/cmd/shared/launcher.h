/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A process between us and a command that we start: the subreaper of all that
 * the command starts (prctl(2), PR_SET_CHILD_SUBREAPER), so that daemons stay
 * its descendants. It keeps the rights that we give up, and ends when we do,
 * in whatever way; the command's processes then go on without it.
 */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/owned.h"
#include "target/target.h"

struct launcher;

enum launch_state {
	LAUNCH_RUNS,  /* the command has not ended */
	LAUNCH_ENDED, /* ... it has, and processes that it started run on */
	LAUNCH_EMPTY, /* ... and so have all of these */
};

/*
 * Starts `command`, whose first word must outlive the launcher. `directory` is removed with all sockets in it when the
 * launcher ends; NULL: there is none. It is removed after errors as well.
 */
struct error *launcher_start(char *const *command, const char *directory, struct launcher **out);

/* Lets the launcher end, and waits for that. */
void launcher_free(struct launcher *launcher);

/* ERR_FAILED with a sentence if the command failed, or could not be executed. */
struct error *launcher_state(struct launcher *launcher, enum launch_state *state);

/* True if the process is the command, or a descendant of it. */
bool launcher_owns(const struct launcher *launcher, pid_t pid);

/*
 * Command lines that start guests: options that they lack, and the name that
 * they give the guest.
 */

struct launch_command {
	char **argv;	 /* as executed; its words are borrowed, but for those that were added */
	char *socket;	 /* "-qmp"'s value, where one was added; else NULL */
	char *directory; /* ... and the private directory that its socket is in */
};

/*
 * Copies a command line. One of QEMU without a QMP socket gets such a socket,
 * in a new directory, which the caller removes after the command.
 */
struct error *launch_command_new(char *const *argv, struct launch_command *out);
void launch_command_free(struct launch_command *command);

/*
 * The name of the guest that `xl create` makes by this command line: from its
 * words or the file that they name, relative to `directory`. Returns its
 * length, 0 if it is another command, or the name cannot be told.
 */
size_t launch_xl_name(const char *const *words, size_t n, const char *directory, char *name,
		      size_t size);

/* The name of the guest that a process makes, or watches, as `xl create`; else 0. */
size_t launch_xl_name_of(pid_t pid, char *name, size_t size);

/*
 * Starts a command, and opens the guest that it starts: a process among the
 * command's descendants, or the domain that an `xl create` among them names.
 * No other guest is ever opened, whenever it came up (guest_launch.c).
 */

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
OWNED_POINTER(guest_launch)
