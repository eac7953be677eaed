/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/*
 * For fuzz targets only: the other end of a conversation, which says what an
 * input says. What is connected is one end of a socketpair. Nothing waits, and
 * time is virtual: in place of the system's, the functions below answer the
 * code that is fuzzed, so that a conversation without an end is a finding.
 *
 * An input is pieces with a 0 behind each. A piece is sent when we wait for
 * something; one that begins with 1 is a time in which nothing comes, 10 ms for
 * each further byte's unit. After the last piece, the other end hangs up.
 */

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/fuzz_testing.h"
#include "target/guard.h"

#define PEER_NS_PER_MS UINT64_C(1000000)

/* Time for each piece to come, and that each look at the clock takes. */
#define PEER_PIECE_NS PEER_NS_PER_MS
#define PEER_LOOK_NS  UINT64_C(1000)

static struct peer {
	struct fuzz_input says;
	int client, other; /* both ends of the connection; -1: there is none */
	bool hung_up;
	uint64_t now_ns;
	struct guard_page guard;
} peer = {.client = -1, .other = -1, .now_ns = 1000 * NS_PER_S};

static inline void peer_begin(struct fuzz_input says)
{
	peer.says = says;
	peer.hung_up = false;
	peer.client = -1;
}

static inline void peer_end(void)
{
	if (peer.other >= 0)
		close(peer.other);
	peer.other = -1;
	peer.client = -1;
}

/* Requests are not looked at. */
static inline void peer_drain(void)
{
	char bytes[4096];

	while (recv(peer.other, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static inline int peer_ready(struct pollfd *fds, nfds_t n, uint64_t ms)
{
	const struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * PEER_NS_PER_MS)};

	return (int)syscall(SYS_ppoll, fds, n, &time, NULL, 0);
}

/* Sends the next piece; false if it was time that passed, up to `ms` of it. */
static inline bool peer_speak(uint64_t ms)
{
	const uint8_t *from = peer.says.at;
	const uint8_t *end = fuzz_left(&peer.says) ? memchr(from, 0, fuzz_left(&peer.says)) : NULL;
	const size_t len = (size_t)((end ? end : peer.says.end) - from);
	uint64_t quiet = 0;

	if (!fuzz_left(&peer.says)) {
		shutdown(peer.other, SHUT_WR);
		peer.hung_up = true;
		return true;
	}
	peer.says.at += len + (end != NULL);
	peer.now_ns += PEER_PIECE_NS;
	if (!len || *from != 1)
		return len && send(peer.other, from, len, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	for (size_t i = 1; i < len; i++)
		quiet += from[i] * UINT64_C(10);
	peer.now_ns += (quiet < ms ? quiet : ms) * PEER_NS_PER_MS;
	return false;
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	const uint64_t began_ns = peer.now_ns, ms = timeout < 0 ? 60000 : (uint64_t)timeout;

	if (n != 1 || fds->fd != peer.client || peer.client < 0)
		return peer_ready(fds, n, ms);
	peer_drain();
	while (!peer_ready(fds, 1, 0)) {
		const uint64_t passed = (peer.now_ns - began_ns) / PEER_NS_PER_MS;

		if (passed >= ms)
			return 0;
		peer_speak(ms - passed);
	}
	return 1;
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
	int ends[2];

	(void)address, (void)size;
	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	need(dup2(ends[0], fd) == fd);
	close(ends[0]);
	peer_end();
	peer.client = fd;
	peer.other = ends[1];
	return 0;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	if (fd == peer.client && fd >= 0)
		peer_drain();
	return syscall(SYS_write, fd, bytes, len);
}

/* Every clock but the one of conversations is the system's: the fuzzer has its own deadlines. */
int clock_gettime(clockid_t id, struct timespec *now)
{
	if (id != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, now);
	peer.now_ns += PEER_LOOK_NS;
	now->tv_sec = (time_t)(peer.now_ns / NS_PER_S);
	now->tv_nsec = (long)(peer.now_ns % NS_PER_S);
	return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *when, struct timespec *left)
{
	const uint64_t when_ns = (uint64_t)when->tv_sec * NS_PER_S + (uint64_t)when->tv_nsec;

	(void)left;
	need(id == CLOCK_MONOTONIC && flags == TIMER_ABSTIME);
	if (when_ns > peer.now_ns)
		peer.now_ns = when_ns;
	return 0;
}

/* No process guards: it reads nothing but the end of a conversation. */

struct error *guard_start(const struct guard_ops *ops, void *ctx, struct guard **out)
{
	(void)ops, (void)ctx;
	*out = (struct guard *)&peer.guard;
	return NULL;
}

void guard_stop(struct guard *guard)
{
	(void)guard;
}

void guard_leave(struct guard *guard)
{
	(void)guard;
}

void guard_replace(struct guard *first, struct guard *second)
{
	guard_stop(first);
}

void guard_let_stop(void)
{
}

bool guard_check(struct guard *guard)
{
	(void)guard;
	return true;
}

struct guard_page *guard_page(struct guard *guard)
{
	return (struct guard_page *)guard;
}
