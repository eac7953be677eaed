/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_QEMU_GDB_H
#define UNIPROF_TARGET_QEMU_GDB_H

/*
 * The client's side of GDB's remote protocol (GDB manual, appendix E), as far
 * as QEMU's stub needs it: stop all vCPUs, read registers, let them go.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

#define GDB_PACKET_MAX 16384u
#define GDB_BATCH_MAX  65536u

struct gdb {
	int fd;
	struct sockaddr_storage address;
	socklen_t address_size;
	uint8_t in[GDB_PACKET_MAX]; /* what came and was not taken yet */
	size_t got, taken;
	char packet[GDB_PACKET_MAX + 1]; /* the last answer, without its frame */
	size_t len;
	char batch[GDB_BATCH_MAX]; /* requests that are sent in one piece */
	size_t batch_len;
	unsigned ahead; /* answers that have been acknowledged before they came */
	bool gone;	/* nobody is at the other end */
};

/*
 * Connects to a stub's socket. The stub stops the guest, unless that is `halted`
 * already: it is stopped when this returns, and after errors may be.
 */
struct error *gdb_open(const char *path, bool halted, struct gdb **out);
void gdb_close(struct gdb *gdb);

/*
 * The same in two steps, for a stub that is there already, at "unix:PATH" or
 * "tcp:PORT" on this host: the first leaves the guest alone, so that a guard can
 * be given gdb_fd() before the second. *halted: the guest did not run before.
 */
struct error *gdb_prepare(const char *address, struct gdb **out);
struct error *gdb_connect(struct gdb *gdb, bool *halted);

int gdb_fd(const struct gdb *gdb);
bool gdb_is_gone(const struct gdb *gdb);

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

/* Has the stub said, without being asked now, that the guest has stopped? */
bool gdb_was_stopped(struct gdb *gdb);

enum gdb_stopped {
	GDB_STOPPED,   /* by us */
	GDB_HALTED,    /* by somebody else, before: the stub has said so without being asked */
	GDB_NO_ANSWER, /* within `wait_ms` */
};

/*
 * Requests that go out in one piece, with the acknowledgements of their answers
 * before those have come, so that they cost one wait and not one each. Begin,
 * add, then stop or send; then take one answer after the other.
 */
void gdb_batch_begin(struct gdb *gdb);
void gdb_batch_add(struct gdb *gdb, const char *text);
bool gdb_batch_send(struct gdb *gdb);
bool gdb_batch_next(struct gdb *gdb);

/* Stops all vCPUs, and sends the batch with that. */
enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms);

/* Decodes hexadecimal digits of the last answer, from byte `at` on; false if it is shorter. */
bool gdb_bytes(const struct gdb *gdb, size_t at, void *bytes, size_t len);

/* An annex of "features" (target.xml); the caller frees it. NULL: the stub does not have it. */
char *gdb_features(struct gdb *gdb, const char *annex);

#endif
