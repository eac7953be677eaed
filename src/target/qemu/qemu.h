/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * Inside of the target "qemu": what a machine is and where it is reached
 * (machine.c), and transports: means to stop a guest, to ask for registers and
 * to resume it, one `struct qemu_transport` each. All of them read memory from
 * QEMU's process.
 */

#include <jansson.h>

#include "arch/x86/x86.h"
#include "target/gdb/client.h"
#include "target/guard.h"
#include "target/host/memory.h"
#include "target/host/threads.h"
#include "target/target.h"

/* QEMU's machine protocol (docs/interop/qmp-spec.txt in QEMU): commands and their answers. */

/* Read-only for callers, but for deadline_ns. */
struct qmp {
	int fd;
	pid_t pid;  /* of the process at the other end */
	char *line; /* `room` bytes, of which `len` have come */
	size_t len, room;
	/*
	 * No exchange lasts beyond this (CLOCK_MONOTONIC), whatever the other end
	 * sends; 0: each has its own bound only.
	 */
	uint64_t deadline_ns;
	/* As far as events have come: */
	enum target_life end; /* LIFE_RUNS: it has not; LIFE_GONE: nobody is at the other end */
	unsigned stops;	      /* of the guest, by anyone, while it ran */
	unsigned resumes;
	bool reset;
	bool migrates; /* a migration is under way, or through */
	/*
	 * It is through. QEMU says so for ever: also where the guest came to, and
	 * where it was let go on. Only if it is seen to run after that may it be
	 * forgotten.
	 */
	bool migrated;
};

/*
 * Connects to a socket and says hello, until `until_ns` (deadline_ns). ERR_DENIED
 * with a sentence, also when somebody else uses it.
 */
struct error *qmp_open(const char *path, uint64_t until_ns, struct qmp **out);
void qmp_close(struct qmp *qmp);

/*
 * Executes a command and waits for its answer, QMP_WAIT_MS at most; events that
 * come before it are remembered (qmp_ended). *answer, if not NULL, is what it
 * returned: the caller drops it (json_decref). Takes `arguments`, which may be
 * NULL.
 */
#define QMP_WAIT_MS 2000
struct error *qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **answer);

/* A command of the human monitor, of one vCPU or of none; the caller frees the answer. */
#define QMP_NO_VCPU (-1)
struct error *qmp_human(struct qmp *qmp, int vcpu, const char *line, char **said);

/* True if the guest has been reset since the last call. */
bool qmp_was_reset(struct qmp *qmp);

/*
 * Asks for events of migrations. If a guest is resumed that QEMU has just
 * stopped for the last step of a migration, QEMU aborts; and a guest that is
 * stopped then stays stopped at its destination.
 */
void qmp_watch_migration(struct qmp *qmp);

/* Forgets one that is through. */
void qmp_forget_migration(struct qmp *qmp);

/* Reads pending events; returns how the guest has ended, by those; LIFE_RUNS: it has not. */
enum target_life qmp_ended(struct qmp *qmp);

/* Addresses at which a QEMU can be reached. */
struct qemu_address {
	pid_t pid;	/* 0: only the socket is known */
	char qmp[4096]; /* path of its QMP socket; "": it has none */
	char gdb[256]; /* the gdb stub that it was started with: "unix:PATH", "127.0.0.1:PORT", or "" */
	uint64_t until_ns; /* all that is asked to open the guest must be answered by then */
};

#define QEMU_VCPUS_MAX 512

struct qemu_machine {
	uint32_t vcpus;
	pid_t tid[QEMU_VCPUS_MAX]; /* by vCPU */
	bool x86, kvm;
	bool running;
};

struct qemu;

struct error *qemu_machine_ask(struct qmp *qmp, struct qemu_machine *machine);

/* Number of vCPUs now; 0: unknown. */
uint32_t qemu_machine_count(struct qmp *qmp);

/*
 * Reads a running machine through its human monitor alone, which does not tell
 * the instruction set.
 */
struct error *qemu_machine_read(struct qemu *qemu, struct qemu_machine *machine);

/* True if it has a gdb stub already. */
bool qemu_machine_has_stub(struct qmp *qmp);

/* *running: the guest runs. `status` is QEMU's word for its state: "running", "paused", ... */
#define QEMU_STATUS_MAX 32
struct error *qemu_machine_status(struct qmp *qmp, bool *running, char *status);

/* Maps the guest's memory in the process. ERR_GUEST if none of it is there. */
struct error *qemu_machine_ram(struct qemu *qemu, struct ram_map *map);

/*
 * Private to machine.c and its test: parses the ranges of memory in the output
 * of "info mtree -f", of the address space "memory"; any text does no harm.
 * Returns how many there are, of which `max` are filled in (hva: 0).
 */
size_t qemu_mtree_ranges(const char *text, struct ram_slot *slots, size_t max);

/*
 * Number of vCPUs of a process that is a QEMU without KVM, by its command line
 * (-smp); 0: it is none.
 */
uint32_t qemu_vcpus(pid_t pid);

/* 1 if a process is a QEMU, with KVM or without; else 0. */
uint32_t qemu_is(pid_t pid);

/* True for a QEMU that was told to use KVM, and has no vCPU yet: it is being started. */
bool qemu_waits_for_kvm(pid_t pid);

/* Fills in the sockets that a QEMU was started with. */
void qemu_find_sockets(pid_t pid, struct qemu_address *address);

/*
 * Bounds for a sample until all registers are there, for resuming the guest,
 * and for checking that it lives. A guest that does not stop in this time has
 * been stopped by somebody else.
 */
#define QEMU_SAMPLE_MS 1000
#define QEMU_GO_MS     500
#define QEMU_LIFE_MS   500

/* A QEMU that has not told all about its guest in this time hangs. */
#define QEMU_OPEN_MS 2500

/* Context of the guard: the connection, which it takes over when we are dead. */
struct qemu_qmp_undo {
	int qmp;
	bool started; /* the stub is ours, and to be ended */
};

/*
 * Its phases: GUARD_MAYBE, the stub is there and the guest runs; GUARD_STOPPED,
 * the guest is stopped by us, or about to be. undo() ends the stub in both, if it
 * was started by us, and lets the guest run in the latter. It runs when the guard is stopped, too.
 */
extern const struct guard_ops qemu_qmp_guard;

struct qemu_vcpu {
	char name[GDB_THREAD_MAX]; /* the stub's */
	struct thread thread;	   /* not traced */
	bool runnable;
	struct thread_time time;
};

struct qemu {
	struct target base;
	const struct qemu_transport *transport;
	pid_t pid;
	struct qmp *qmp; /* NULL: there is none */
	struct gdb *gdb; /* NULL: there is none */
	struct gdb_layout layout;
	struct qemu_vcpu *vcpu;
	struct qemu_pages *pages; /* NULL: there are none */
	struct qemu_hold *hold;	  /* NULL: vCPUs are not held */
	struct gdb_detach detach; /* by its own stub */
	struct qemu_qmp_undo undo;
	struct guard *guard;
	int memory;
	struct guest_ram *ram;
	bool halted;	     /* its owner has stopped it, as far as is known */
	unsigned lives;	     /* questions so far whether the guest lives */
	uint32_t vcpus_told; /* vCPUs that QMP last told of */
	bool found_halted;   /* halted, without a break, since it was opened */
	bool moved_stopped;  /* the guest was migrated while we had stopped it */
	bool migrates;	     /* the user has been told of a migration under way */
	unsigned ram_wait;   /* searches for memory that are left out, though some was missed */
	unsigned ram_waits;  /* how many of these are still to be left out */
	char advice[320];    /* as in `base`, where the vCPUs cannot be held */
	bool late;	     /* it was told to stop, and has not done so in time */
};

struct qemu_transport {
	const char *text; /* "gdb stub" */
	/* Cost of this transport, and a cheaper one, a sentence; NULL: none is cheaper. */
	const char *advice;
	/*
	 * Advice for a QEMU with a QMP socket, which another transport would use;
	 * NULL: no other words.
	 */
	const char *advice_with_qmp;
	enum guard_phase running; /* of the guard while the guest runs */
	/*
	 * Connects, and fills in qemu->pid and `machine`, and what else is the
	 * transport's own. The guest runs on, unless its owner has stopped it.
	 */
	struct error *(*open)(struct qemu *qemu, const struct qemu_address *address,
			      struct qemu_machine *machine);
	/* When the vCPUs are known, and where memory is; finds out the instruction set. */
	struct error *(*start)(struct qemu *qemu);
	/*
	 * Stops the guest, and asks for registers of these vCPUs. GDB_HALTED: it
	 * had been stopped by somebody else; GDB_NO_ANSWER: it may stop yet.
	 */
	enum gdb_stopped (*stop)(struct qemu *qemu, const struct sample *sample);
	/* Lets a guest go on that has stopped so late; false: it has not stopped yet. */
	bool (*go_after_all)(struct qemu *qemu);
	/* Asks, of a guest that stands still anyway; NULL: there is nothing to ask before take(). */
	bool (*ask)(struct qemu *qemu, const struct sample *sample);
	/* Registers of one that was asked for; in the order of the vCPUs. */
	bool (*take)(struct qemu *qemu, uint32_t vcpu, struct regs *out);
	/*
	 * Adds what interrupts have interrupted, where a handler may be at work; after all of take().
	 * NULL: take() has done so.
	 */
	bool (*take_traps)(struct qemu *qemu, struct sample *sample);
	bool (*go)(struct qemu *qemu);
	/* True once QEMU has heard go(): until then, the guard may have to repeat it. NULL: go() waits. */
	bool (*gone)(struct qemu *qemu);
	enum target_life (*life)(struct qemu *qemu);
};

/* Through QMP and a gdb stub started for us; through QEMU's own stub; through QMP alone. */
extern const struct qemu_transport qemu_transport_stub, qemu_transport_own_stub, qemu_transport_qmp;

/*
 * Shared by the two transports with QMP. ERR_GUEST if the socket is another
 * process's: it may be, until a QEMU has started.
 */
struct error *qemu_qmp_connect(const struct qemu_address *address, struct qmp **qmp);
struct error *qemu_qmp_open(struct qemu *qemu, const struct qemu_address *address,
			    struct qemu_machine *machine);
enum target_life qemu_qmp_life(struct qemu *qemu);

/* True for the states of a guest that goes on elsewhere: it must not be resumed here. */
bool qemu_qmp_has_moved(const char *status);

/*
 * Holding vCPUs of a QEMU without KVM while it hears of a stop (hold.c says why). All but
 * qemu_hold_until_told() accept NULL: nothing is held then.
 */
void qemu_hold_free(struct qemu_hold *hold);

/*
 * Traces the threads of vCPUs; the caller frees *out. ERR_DENIED or ERR_GUEST, with a sentence that
 * says why that cannot be.
 */
struct error *qemu_hold_new(pid_t pid, const struct qemu_machine *machine, struct qemu_hold **out);

/* Holds all vCPUs that run, before QEMU is told to stop the guest. */
void qemu_hold_begin(struct qemu_hold *hold);

/* Lets them go on once QEMU has told them to stop, or answers on `fd`. */
void qemu_hold_until_told(struct qemu_hold *hold, int fd);

/* Lets those go on that are held; to be called after each begin. */
void qemu_hold_end(struct qemu_hold *hold);

/* Sleeps until then, or until a signal comes; lets threads go on that were stopped late. */
void qemu_hold_wait(struct qemu_hold *hold, uint64_t until_ns);

/* Frees what a transport with a stub knows of KVM's run pages; accepts NULL. */
void qemu_pages_free(struct qemu_pages *pages);

/* Parses the human monitor's "info registers" of an x86 vCPU; false if some are missing. */
bool qemu_registers_text(const char *text, struct x86_regs *out);
