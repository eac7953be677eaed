/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_MONITOR_H
#define UNIPROF_TARGET_HOST_MONITOR_H

/* Virtual machine monitors among the processes of this host, and talking to them by sockets. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "target/target.h"

/* Number of vCPUs that a process runs for a guest of this kind; 0: it is no such monitor. */
typedef uint32_t monitor_vcpus(pid_t pid);

/* The guest's name as the command line gives it (-name), or its kernel's file, or the program's name. */
void monitor_name(pid_t pid, char *name, size_t size);

/* The last of the files on the command line that is an ELF file, as an absolute path; "": none. */
void monitor_image(pid_t pid, char *path, size_t size);

/* Finds a process by id, or by the guest's name. ERR_GUEST with a sentence if there is none. */
struct error *monitor_find(const char *name, const char *scheme, monitor_vcpus *vcpus, pid_t *pid);

/* A kind of guests that are processes, or whose monitors are. */
struct monitor_kind {
	const char *scheme;
	monitor_vcpus *vcpus;
	void (*name)(pid_t pid, char *name, size_t size);
	/* Sets `way` and `missing`, and whatever else is not as of all kinds. */
	void (*way)(pid_t pid, struct target_listing *entry);
};

/* `list` of target_ops. */
struct error *monitor_list(const struct monitor_kind *kind,
			   void (*each)(void *ctx, const struct target_listing *entry), void *ctx);

/*
 * Bounds each connect(2), write and read of a socket, with EAGAIN after so many
 * milliseconds. To be called before connect(2): a listener with a full backlog
 * would hold us for ever. The bound is the socket's, and so the guard's as well.
 */
void socket_bound(int fd, unsigned ms);

/* True once something can be read, or the other end has hung up; signals do not end the wait. */
bool socket_wait(int fd, uint64_t until_ns);

/*
 * Reads a bounded socket until one of some short texts has come, the last of
 * which is NULL; what was read is lost. Returns which one, by its first byte;
 * NULL: none has by then, or *open is false: the other end has hung up.
 */
const char *socket_wait_for(int fd, const char *const *texts, uint64_t until_ns, bool *open);

/* Deadline of an exchange that may take `ms`, within that of its conversation; 0: that has none. */
uint64_t socket_deadline(uint64_t conversation_ns, unsigned ms);

#endif
