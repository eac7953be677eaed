/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_WAY_H
#define UNIPROF_TARGET_QEMU_WAY_H

/*
 * How a guest of QEMU's is stopped, asked for registers, and let go: one
 * `struct qemu_way` each. Memory is read from QEMU's process by all of them.
 * What the files of the qemu target share; nobody else includes this.
 */

#include "target/guard.h"
#include "target/host/guest_ram.h"
#include "target/host/thread_time.h"
#include "target/gdb/layout.h"
#include "target/qemu/machine.h"
#include "target/qemu/shared.h"
#include "target/qemu/stub.h"
#include "target/target.h"

/* A guest that does not stop in this time is stopped already, by somebody else. */
#define QEMU_STOP_MS 2000

/* Where a QEMU can be reached. */
struct qemu_place {
	pid_t pid;	/* 0: only the socket is known */
	char qmp[4096]; /* path of its QMP socket; "": it has none */
	char gdb[256];	/* the gdb stub that it was started with: "unix:PATH", "tcp:PORT", or "" */
};

#define VCPU_NAME_MAX 24

struct qemu_vcpu {
	char name[VCPU_NAME_MAX]; /* the stub's: "p01.01" */
	struct thread thread;	  /* only looked at */
	bool runnable;
	struct thread_time time;
};

struct qemu {
	struct target base;
	const struct qemu_way *way;
	pid_t pid;
	struct qmp *qmp; /* NULL: there is none */
	struct gdb *gdb; /* NULL: there is none */
	struct gdb_layout layout;
	struct qemu_vcpu *vcpu;
	struct shared *shared; /* NULL: there is no such thing */
	struct stub_undo undo;
	struct guard *guard;
	int memory;
	struct guest_ram *ram;
	bool halted;	     /* by its owner, as far as is known */
	unsigned lives;	     /* how often it was asked whether the guest lives */
	uint32_t vcpus_told; /* by QMP, the last time */
	bool found_halted;   /* ... and has been since it was opened */
	bool migrates;	     /* as has been told */
	unsigned ram_wait;   /* how often not to look where memory is, though some was missed */
	unsigned ram_waits;  /* ... until it is looked for again */
	bool late;	     /* it was told to stop, and has not done so in time */
};

struct qemu_way {
	const char *name; /* as in target_ops */
	const char *text; /* "gdb stub" */
	/* What it costs and what would be cheaper, a sentence; NULL: nothing is. */
	const char *advice;
	enum guard_phase rest; /* of the guard while the guest runs */
	/*
	 * Connects, and fills in qemu->pid and `machine`, and what else is the
	 * way's own. The guest runs on, unless its owner has stopped it.
	 */
	struct error *(*open)(struct qemu *qemu, const struct qemu_place *place,
			      struct qemu_machine *machine);
	/* When the vCPUs are known, and where memory is; finds out the instruction set. */
	struct error *(*start)(struct qemu *qemu);
	/* Where QEMU's human monitor can be talked to. */
	struct qemu_console (*console)(struct qemu *qemu);
	/*
	 * Stops the guest, and asks for registers of these vCPUs. GDB_HALTED: it
	 * had been stopped by somebody else; GDB_NO_ANSWER: it may stop yet.
	 */
	enum gdb_stopped (*stop)(struct qemu *qemu, const struct sample *sample);
	/* Lets a guest go on that has stopped so late; false: it has not stopped yet. */
	bool (*go_after_all)(struct qemu *qemu);
	/* Asks, of a guest that stands still anyway. */
	bool (*ask)(struct qemu *qemu, const struct sample *sample);
	/* Registers of one that was asked for; in the order of the vCPUs. */
	bool (*take)(struct qemu *qemu, uint32_t vcpu, struct regs *out);
	bool (*go)(struct qemu *qemu);
	/* Has QEMU heard it? Until then, the guard must see to it. */
	bool (*gone)(struct qemu *qemu);
	enum target_life (*life)(struct qemu *qemu);
};

/* By QMP, with a gdb stub that is started for us; with the stub that QEMU was started with; by QMP alone. */
extern const struct qemu_way qemu_by_stub, qemu_by_own_stub, qemu_by_qmp;

/* The vCPUs by the names that the stub has for them; and what the two ways with a stub share. */
struct error *qemu_stub_prepare(struct qemu *qemu);
bool qemu_stub_go_after_all(struct qemu *qemu);
enum gdb_stopped qemu_stub_stop(struct qemu *qemu, const struct sample *sample);
bool qemu_stub_ask(struct qemu *qemu, const struct sample *sample);
bool qemu_stub_take(struct qemu *qemu, uint32_t vcpu, struct regs *out);
bool qemu_stub_go(struct qemu *qemu);
bool qemu_stub_gone(struct qemu *qemu);

/* What the two ways with QMP share. */
struct error *qemu_qmp_open(struct qemu *qemu, const struct qemu_place *place,
			    struct qemu_machine *machine);
struct qemu_console qemu_qmp_console(struct qemu *qemu);
enum target_life qemu_qmp_life(struct qemu *qemu);

#endif
