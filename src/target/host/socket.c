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

/* The text that comes first. */
static const char *first_of(const char *got, size_t len, const char *const *texts)
{
	const char *first = NULL, *found = NULL;

	for (; *texts; texts++) {
		const char *at = memmem(got, len, *texts, strlen(*texts));

		if (at && (!first || at < first)) {
			first = at;
			found = *texts;
		}
	}
	return found;
}

static size_t longest_of(const char *const *texts)
{
	size_t longest = 0;

	for (; *texts; texts++)
		longest = strlen(*texts) > longest ? strlen(*texts) : longest;
	return longest;
}

const char *socket_wait_for(int fd, const char *const *texts, uint64_t until_ns, bool *open)
{
	const size_t len = longest_of(texts);
	const char *found;
	char got[4096];
	size_t kept = 0;
	ssize_t more;

	assert(len && len < sizeof(got));
	while ((more = read_until(fd, got + kept, sizeof(got) - kept, until_ns)) > 0) {
		kept += (size_t)more;
		found = first_of(got, kept, texts);
		if (found)
			return found;
		/* The end may be a text's beginning. */
		if (kept >= len) {
			memmove(got, got + kept - (len - 1), len - 1);
			kept = len - 1;
		}
	}
	*open = more < 0 && (errno == EINTR || errno == EAGAIN);
	return NULL;
}
