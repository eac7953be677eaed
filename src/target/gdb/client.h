/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * The client's side of GDB's remote protocol (GDB manual, appendix E), for
 * QEMU's stub and others: stop all vCPUs, read registers and memory, let them
 * go. Every exchange has a deadline. At the end, what registers a stub has.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "arch/arch.h"
#include "base/error.h"
#include "target/guard.h"

#define GDB_PACKET_MAX 16384u
#define GDB_BATCH_MAX  65536u

/* A thread's name, as the stub gives it, "p01.01", with its NUL. */
#define GDB_THREAD_MAX 24

struct gdb {
	int fd;
	const char *stub; /* for messages: "QEMU's gdb stub" */
	struct sockaddr_storage address;
	socklen_t address_size;
	uint8_t in[GDB_PACKET_MAX]; /* received, not taken yet */
	size_t got, taken;
	char packet[GDB_PACKET_MAX + 1]; /* the last answer, without its frame */
	size_t len;
	char batch[GDB_BATCH_MAX]; /* requests that are sent in one piece */
	size_t batch_len;
	unsigned acknowledged; /* answers that were acknowledged before they came */
	bool owner_stopped;    /* the stub has reported the stop, and nobody has acknowledged it */
	/*
	 * No exchange lasts beyond this (CLOCK_MONOTONIC), whatever the other end
	 * sends; 0: each has its own bound only.
	 */
	uint64_t deadline_ns;
	bool gone; /* nobody is at the other end, or the guest has ended */
	/* Called once a stop has been sent, before its answer is waited for; NULL: nothing is. */
	void (*on_stop_sent)(void *ctx);
	void *on_stop_sent_ctx;
	bool plain_continue; /* by "c", because the stub has no vCont */
};

/*
 * Connects to the socket of QEMU's stub. That stops the guest, unless that is `halted`
 * already: it is stopped when this returns, and after errors may be. `until_ns`
 * is the deadline.
 */
struct error *gdb_open(const char *path, bool halted, uint64_t until_ns, struct gdb **out);
void gdb_close(struct gdb *gdb);

/*
 * Opens in two steps a stub that exists already, at "unix:PATH" or "HOST:PORT".
 * gdb_prepare leaves the guest alone, so that a guard can be given gdb->fd
 * before the second step. `stub` is its name in messages.
 */
struct error *gdb_prepare(const char *address, const char *stub, struct gdb **out);

/* Second step for QEMU's own stub. *halted: the guest did not run before. */
struct error *gdb_connect(struct gdb *gdb, bool *halted);

/*
 * Second step for any stub. Afterwards the guest is stopped, gdb->packet tells
 * what the stub supports, and threads have names without their process.
 */
struct error *gdb_greet(struct gdb *gdb);

/* A command of QEMU's human monitor; the caller frees what it said. */
struct error *gdb_human(struct gdb *gdb, const char *line, char **said);

/* Sends a packet and waits for the answer, which is in gdb->packet. False: none came in time. */
bool gdb_ask(struct gdb *gdb, const char *text);

/* Lets all vCPUs run; there is no answer to this but that it was heard. */
bool gdb_continue(struct gdb *gdb);

/*
 * Waits until the stub has heard that: it has then obeyed. What it has not heard
 * is lost when the stub is ended.
 */
bool gdb_heard(struct gdb *gdb);

/*
 * True if the stub has said, without being asked now, that the guest has stopped, once or several
 * times. Reads all that has come: the guest may have been let go since.
 */
bool gdb_was_stopped(struct gdb *gdb);

enum gdb_stopped {
	GDB_STOPPED,   /* by us */
	GDB_HALTED,    /* somebody else stopped it before: the stub has reported that unasked */
	GDB_NO_ANSWER, /* within `wait_ms` */
};

/*
 * Requests that go out in one piece, with the acknowledgements of their answers
 * before those have come, so that they cost one wait and not one each. Begin,
 * add, then stop or send; then take one answer after the other.
 */
void gdb_batch_begin(struct gdb *gdb);
void gdb_batch_add(struct gdb *gdb, const char *text);
void gdb_batch_select(struct gdb *gdb, const char *thread); /* for what is added next */
bool gdb_batch_send(struct gdb *gdb);
bool gdb_batch_next(struct gdb *gdb);

/* Stops all vCPUs, and sends the batch with that. */
enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms);

/* Decodes hexadecimal digits of the last answer, from byte `at` on; false if it is shorter. */
bool gdb_bytes(const struct gdb *gdb, size_t at, void *bytes, size_t len);

/* An annex of "features" (target.xml); the caller frees it. NULL: the stub does not have it. */
char *gdb_features(struct gdb *gdb, const char *annex);

struct gdb_detach {
	int fd;		    /* the connection to the stub */
	const char *packet; /* what detaches, framed: "$D#44"; constant */
	/*
	 * The stub may drop what comes before it has stopped the guest, as that of
	 * a program does, so that the packet is sent again while there is no answer.
	 * QEMU drops nothing: each further byte would stop a guest that it has just
	 * let go, and a second packet crashes it.
	 */
	bool repeats;
};

/*
 * Lets a guest go through the stub that stopped it, which stays. GUARD_RUNNING:
 * it runs. Nothing can be asked before: anything that a stub hears may stop the
 * guest. Its ctx is a struct gdb_detach.
 */
extern const struct guard_ops gdb_detach_guard;

/*
 * Layout of the stub's registers, as its target.xml describes it: those in its answer to "g", with
 * their offsets, and those that have to be asked for one by one. A further instruction set is a
 * `struct gdb_machine` in layout.c.
 */

#define GDB_REGISTERS_MAX 48

/* One instruction set, in the words of the stub. */
struct gdb_machine {
	const char *name; /* <architecture> */
	const struct arch *arch;
	/* Names of the registers, the most important first, up to NULL; "a|b": one of these. */
	const char *const *registers;
	unsigned needed;  /* of these so many must be there */
	uint64_t system;  /* bit n: stubs of programs, and of some monitors, lack registers[n] */
	uint64_t threads; /* bit n: registers[n] is of use where a guest's threads are wanted */
	uint64_t trap;	  /* bit n: registers[n] tells what was interrupted; see may_handle */
	/*
	 * Converts values in the order of `registers`; 0 for those that are missing. `plain`: those
	 * of `system` are not all there. False: these cannot be right.
	 */
	bool (*take)(const uint64_t *value, bool plain, struct regs *to);
	/* Are those of `trap` wanted: may the vCPU be in a handler's first instructions? Then adds them. */
	bool (*may_handle)(const struct regs *regs);
	void (*take_trap)(const uint64_t *value, struct regs *to);
};

struct gdb_register {
	uint16_t at;	 /* byte in the answer to "g" */
	uint16_t size;	 /* bytes; 0: there is no such register */
	uint16_t number; /* for asking for it alone */
};

struct gdb_layout {
	const struct gdb_machine *machine; /* NULL: not known */
	struct gdb_register at[GDB_REGISTERS_MAX];
	bool plain;	 /* no system registers: how addresses are translated is not known */
	size_t together; /* bytes in the answer to "g" */
	bool threads;	 /* those that are of use for threads are asked for, too */
	size_t next_byte, next_number; /* of the register that is described next */
};

/* Adds the registers that an XML text describes. Any text does no harm. */
void gdb_layout_add(struct gdb_layout *layout, const char *xml);

/*
 * Asks the stub for all of it. ERR_GUEST if its instruction set is none of those
 * above; what may be missing of system registers is up to the caller.
 */
struct error *gdb_layout_ask(struct gdb *gdb, struct gdb_layout *layout);

/* Adds to a batch what asks for the registers. */
void gdb_layout_request(const struct gdb_layout *layout, struct gdb *gdb);

/* Takes the answers to that; false if they are too short, or cannot be right. */
bool gdb_layout_take(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs);

/* Are the registers of gdb_machine.trap wanted, and there? Then these two ask for them, and add them. */
bool gdb_layout_wants_trap(const struct gdb_layout *layout, const struct regs *regs);
void gdb_layout_request_trap(const struct gdb_layout *layout, struct gdb *gdb);
bool gdb_layout_take_trap(const struct gdb_layout *layout, struct gdb *gdb, struct regs *regs);
