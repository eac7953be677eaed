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

#include "base/error.h"

#define GDB_PACKET_MAX 16384u

struct gdb {
	int fd;
	uint8_t in[GDB_PACKET_MAX]; /* what came and was not taken yet */
	size_t got, taken;
	char packet[GDB_PACKET_MAX + 1]; /* the last answer, without its frame */
	size_t len;
};

/*
 * Connects to a stub's socket. The stub stops the guest, unless that is `halted`
 * already: it is stopped when this returns, and after errors may be.
 */
struct error *gdb_open(const char *path, bool halted, struct gdb **out);
void gdb_close(struct gdb *gdb);

/* Sends a packet and waits for the answer, which is in gdb->packet. False: none came in time. */
bool gdb_ask(struct gdb *gdb, const char *text);

/* Lets all vCPUs run; there is no answer to this. */
bool gdb_continue(struct gdb *gdb);

enum gdb_stopped {
	GDB_STOPPED,   /* by us */
	GDB_HALTED,    /* by somebody else, before: the stub has said so without being asked */
	GDB_NO_ANSWER, /* within `wait_ms` */
};

/* Stops all vCPUs. */
enum gdb_stopped gdb_stop(struct gdb *gdb, int wait_ms);

/* Decodes hexadecimal digits of the last answer, from byte `at` on; false if it is shorter. */
bool gdb_bytes(const struct gdb *gdb, size_t at, void *bytes, size_t len);

/* An annex of "features" (target.xml); the caller frees it. NULL: the stub does not have it. */
char *gdb_features(struct gdb *gdb, const char *annex);

#endif
