/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * A process that outlives us, however we end, and lets a guest run again that
 * we stopped. It learns of our death by a robust lock that we hold
 * (pthread_mutexattr_setrobust(3)): the kernel gives that up first of all, and
 * only then frees our memory, which takes 0.1 s for a gigabyte, and closes our
 * files. How far we were it learns from a page of memory that both share.
 *
 * The moments between the stores below and the calls that stop the guest or
 * let it go cannot be told apart from outside. When we die in one of them, the
 * guard undoes our pause if the guest is paused at all. If its administrator
 * has paused it in the very same moment, that pause is undone instead of ours:
 * the guest then is paused by nobody. Targets leave a guest alone that its
 * administrator has paused, so this takes a pause and a death within the time
 * of one sample.
 *
 * A profiler that is stopped while it holds the guest is no dead one. The
 * terminal's stop (SIGTSTP, Ctrl-Z) is blocked as long as there is a guard, and
 * taken between samples (guard_let_stop). After a SIGSTOP, the guard lets the
 * profiler go on, and sends it a SIGTSTP.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/preopen.h"

enum guard_phase {
	GUARD_RUNNING, /* the guest is not stopped by us */
	GUARD_MAYBE,   /* being stopped or resumed: only the hypervisor knows which */
	GUARD_STOPPED,
};

/* Operations of the guard; run in its own process, whose only right is to use what is open. */
struct guard_ops {
	/*
	 * The phases from this one on mean that the guest may stand still: a
	 * stopped profiler must not stay in them. GUARD_RUNNING: none does.
	 */
	enum guard_phase holds;
	/*
	 * Adds the descriptors that it needs of those that we have, standard
	 * error among them if undo() can fail; NULL: none. All others are closed.
	 */
	void (*keeps)(void *ctx, struct descriptors *keep);
	/* Does all that undo() needs, allocations included. False: cannot guard. NULL: nothing. */
	bool (*prepare)(void *ctx);
	/*
	 * Unpauses the guest, if it is paused; phase is never GUARD_RUNNING. An
	 * error says why it still is paused and what frees it: undo() is tried
	 * again later, until there is none; standard error is told once.
	 */
	struct error *(*undo)(void *ctx, enum guard_phase phase);
};

struct guard;

/*
 * Starts the guard; it is ready when this returns. `ctx` is copied by the
 * fork: later changes do not reach the guard. The thread that calls this is
 * the one whose death counts, and has to make the calls below, too.
 */
struct error *guard_start(const struct guard_ops *ops, void *ctx, struct guard **out);

/* Ends it: the guest must be running. */
void guard_stop(struct guard *guard);

/* Ends one whose guest the other, which was started after it, guards now. */
void guard_replace(struct guard *first, struct guard *second);

/* Hands a guest over that cannot be let go, and does not wait: the guard outlives us until it can be. */
void guard_leave(struct guard *guard);

/*
 * Takes a SIGTSTP of the terminal or the guard that has come since. Call it now
 * and then, while no guest is held. An ignored SIGTSTP has no effect.
 */
void guard_let_stop(void);

/*
 * Starts a new guard if somebody has killed this one; false if that cannot be.
 * Call it now and then; needs no rights.
 */
bool guard_check(struct guard *guard);

/* One store, for the sampling path. */
struct guard_page {
	_Atomic int phase;
	pthread_mutex_t life; /* the guard's own */
};
struct guard_page *guard_page(struct guard *guard);

static inline void guard_set(struct guard_page *page, enum guard_phase phase)
{
	atomic_store_explicit(&page->phase, phase, memory_order_release);
}
