/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/socket.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"

void socket_bound(int fd, unsigned ms)
{
	const struct timeval bound = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
}

uint64_t socket_deadline(uint64_t conversation_ns, unsigned ms)
{
	const uint64_t own_ns = clock_now_ns() + ms * UINT64_C(1000000);

	return conversation_ns && conversation_ns < own_ns ? conversation_ns : own_ns;
}

bool socket_wait(int fd, uint64_t until_ns)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint64_t now;
	int n;

	do {
		now = clock_now_ns();
		n = poll(&ready, 1, now < until_ns ? (int)((until_ns - now) / 1000000) + 1 : 0);
	} while (n < 0 && errno == EINTR && now < until_ns);
	return n == 1;
}

static ssize_t read_until(int fd, char *text, size_t room, uint64_t until_ns)
{
	ssize_t got = -1;

	errno = EINTR;
	while (got < 0 && (errno == EINTR || errno == EAGAIN) && clock_now_ns() < until_ns)
		got = read(fd, text, room);
	return got;
}

bool socket_wait_for(int fd, const char *text, uint64_t until_ns, bool *open)
{
	const size_t len = strlen(text);
	char got[4096];
	size_t kept = 0;
	ssize_t more;

	assert(len && len < sizeof(got));
	while ((more = read_until(fd, got + kept, sizeof(got) - kept, until_ns)) > 0) {
		kept += (size_t)more;
		if (memmem(got, kept, text, len))
			return true;
		/* The end may be the text's beginning. */
		if (kept >= len) {
			memmove(got, got + kept - (len - 1), len - 1);
			kept = len - 1;
		}
	}
	*open = more < 0 && (errno == EINTR || errno == EAGAIN);
	return false;
}
