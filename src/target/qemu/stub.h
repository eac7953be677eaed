/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_STUB_H
#define UNIPROF_TARGET_QEMU_STUB_H

/* QEMU's gdb stub, started by us in a QEMU that runs, and ended whatever becomes of us. */

#include "target/guard.h"
#include "target/gdb/client.h"
#include "target/qemu/qmp.h"

/* What the guard needs: the connection, which it takes over when we are dead. */
struct stub_undo {
	int qmp;
	bool started; /* the stub is ours, and to be ended */
	int gdb;      /* of own_stub_guard, which has no QMP */
};

/*
 * Its phases: GUARD_MAYBE, the stub is there and the guest runs; GUARD_STOPPED,
 * the guest is stopped by us, or about to be. undo() ends the stub in both, if it
 * was started by us, and lets the guest run in the latter. It runs when the guard is stopped, too.
 */
extern const struct guard_ops stub_guard;

/*
 * Lets a guest go through the stub that stopped it, which stays. GUARD_RUNNING:
 * it runs. There is nothing that could be asked before: a stub that hears
 * anything stops the guest.
 */
extern const struct guard_ops own_stub_guard;

/*
 * Starts the stub and connects to it. The guest is stopped then; unless it was
 * `halted` before, the guard's phase must be GUARD_STOPPED.
 */
struct error *stub_start(struct qmp *qmp, bool halted, struct gdb **out);

#endif
