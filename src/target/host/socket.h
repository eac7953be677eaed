/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UNIPROF_TARGET_HOST_SOCKET_H
#define UNIPROF_TARGET_HOST_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

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
