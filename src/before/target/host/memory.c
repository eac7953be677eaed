/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "arch/arch.h"
#include "base/clock.h"

struct error *host_memory_open(pid_t pid, bool write, int *fd)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	*fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (*fd >= 0)
		return NULL;
	if (errno == ENOENT)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	return threads_cannot_trace(pid);
}

size_t host_memory_read(int fd, uint64_t va, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len && va + done <= INT64_MAX) {
		ssize_t got = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(va + done));

		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

bool host_memory_window(int fd, uint64_t va, uint32_t want, uint8_t *buffer, uint64_t until_ns,
			struct window *out)
{
	/* In one piece, or page by page with an eye on the clock. */
	const uint32_t piece = until_ns ? FRAME_SIZE : want;

	*out = (struct window){.va = va, .bytes = buffer, .cut = true};
	while (out->len < want) {
		uint32_t part = want - out->len < piece ? want - out->len : piece;
		size_t got = host_memory_read(fd, va + out->len, buffer + out->len, part);

		out->len += (uint32_t)got;
		if (got < part) {
			out->cut = false;
			return true;
		}
		if (until_ns && out->len < want && clock_now_ns() >= until_ns)
			return false;
	}
	return true;
}
