/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/threads.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static struct error *refused(int number)
{
	if (number == EPERM || number == EACCES)
		return error_new(ERR_DENIED, "perf events are refused (they take root, or "
					     "CAP_PERFMON)");
	if (number == ESRCH)
		return error_new(ERR_GUEST, "there is no such thread");
	return error_errno(ERR_DENIED, number, "perf_event_open");
}

struct error *perf_ring_open(struct perf_event_attr *attr, pid_t tid, size_t size,
			     struct perf_ring *ring)
{
	/* Records that are only to be overwritten are not ours to mark as read. */
	const int rights = PROT_READ | (attr->write_backward ? 0 : PROT_WRITE);
	void *at;

	attr->size = sizeof(*attr);
	*ring = (struct perf_ring){.size = size};
	ring->fd = (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (ring->fd < 0)
		return refused(errno);
	at = mmap(NULL, page_size() + size, rights, MAP_SHARED, ring->fd, 0);
	if (at != MAP_FAILED) {
		ring->page = at;
		return NULL;
	}
	close(ring->fd);
	return refused(errno);
}

void perf_ring_close(struct perf_ring *ring)
{
	if (!ring->page)
		return;
	munmap(ring->page, page_size() + ring->size);
	close(ring->fd);
	ring->page = NULL;
}

uint64_t perf_ring_head(const struct perf_ring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

void perf_ring_copy(const struct perf_ring *ring, uint64_t at, void *to, size_t len)
{
	const uint8_t *records = (const uint8_t *)ring->page + page_size();
	const size_t begin = at & (ring->size - 1);
	const size_t first = len < ring->size - begin ? len : ring->size - begin;

	memcpy(to, records + begin, first);
	memcpy((uint8_t *)to + first, records, len - first);
}

bool perf_ring_copy_newest(const struct perf_ring *ring, uint64_t at, void *to, size_t len)
{
	if (0 - at < len)
		return false;
	perf_ring_copy(ring, at, to, len);
	return true;
}
