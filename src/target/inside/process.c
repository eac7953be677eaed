/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of a process, which is the guest or runs it, for the sampler inside. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/owned.h"
#include "target/host/memory.h"
#include "target/host/proc.h"
#include "target/inside/inside.h"

/* Memory is searched in pieces of so many pages. */
#define PIECE_PAGES 256u

/* Bits of a page in /proc/PID/pagemap: it is in memory, or swapped out. */
#define PAGE_IS_THERE (3ull << 62)

struct process {
	pid_t pid;
	int fd;
	uint64_t first;	     /* the first ring, in the process */
	uint64_t start, end; /* of the guest's memory in the process */
	uint64_t offset;     /* from the guest's addresses to those in the process */
};

static size_t process_read(void *ctx, uint64_t at, void *buf, size_t len)
{
	return host_memory_read(((struct process *)ctx)->fd, at, buf, len);
}

static bool process_write(void *ctx, uint64_t at, const uint32_t words[2])
{
	const ssize_t size = 2 * sizeof(*words);

	return at <= INT64_MAX - (uint64_t)size &&
	       pwrite(((struct process *)ctx)->fd, words, (size_t)size, (off_t)at) == size;
}

/* Searches the writable memory. */
struct memory_search {
	struct process *process;
	const volatile sig_atomic_t *stop;
	int pagemap; /* -1: it cannot be read, and all memory is looked at */
	inside_found *found;
	void *to;
};

static void search_piece(struct memory_search *search, const struct proc_map *map, uint64_t at,
			 size_t pages)
{
	uint64_t there[PIECE_PAGES];
	const ssize_t bytes = (ssize_t)(pages * sizeof(*there));
	const bool known =
		search->pagemap >= 0 && pread(search->pagemap, there, (size_t)bytes,
					      (off_t)(at / FRAME_SIZE * sizeof(*there))) == bytes;
	uint8_t head[sizeof(struct uniprof_inside)];

	for (size_t i = 0; i < pages; i++) {
		const uint64_t va = at + i * FRAME_SIZE;

		/* Only what is there: reading would give the guest memory that it never had. */
		if ((!known || there[i] & PAGE_IS_THERE) &&
		    process_read(search->process, va, head, sizeof(head)) == sizeof(head))
			search->found(search->to, head, va, map->end - va);
	}
}

static bool search_map(void *ctx, const struct proc_map *map)
{
	struct memory_search *search = ctx;

	if (!map->readable || !map->writable)
		return true;
	for (uint64_t at = map->start; at < map->end && !*search->stop;) {
		const uint64_t left = (map->end - at) / FRAME_SIZE;
		const size_t pages = left < PIECE_PAGES ? (size_t)left : PIECE_PAGES;

		search_piece(search, map, at, pages);
		at += pages * FRAME_SIZE;
	}
	return !*search->stop;
}

static struct error *process_search(void *ctx, const volatile sig_atomic_t *stop,
				    inside_found *found, void *to, bool *whole)
{
	struct process *process = ctx;
	CLOSED int pagemap = proc_open(process->pid, "pagemap", O_RDONLY);
	struct memory_search search = {process, stop, pagemap, found, to};

	return proc_maps(process->pid, search_map, &search);
}

static bool note_map(void *ctx, const struct proc_map *map)
{
	struct process *process = ctx;

	if (process->first < map->start || process->first >= map->end)
		return true;
	process->start = map->start;
	process->end = map->end;
	return false;
}

/* The mapping that holds the first ring has the guest's code, too. */
static struct error *process_locate(void *ctx, const struct inside_ring *first)
{
	struct process *process = ctx;

	process->first = first->at;
	process->offset = first->at - first->address;
	return proc_maps(process->pid, note_map, process);
}

/* The guest's memory lies in one piece where the ring does; of a process, all of it is there. */
static size_t process_code(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct process *process = ctx;
	const uint64_t at = va + process->offset;

	if (process->offset && (at < process->start || at >= process->end))
		return 0;
	if (process->offset && len > process->end - at)
		len = process->end - at;
	return process_read(ctx, at, buf, len);
}

static void process_keeps(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, ((struct process *)ctx)->fd);
}

static void process_describe(void *ctx, struct target_info *info)
{
	const struct process *process = ctx;

	monitor_name(process->pid, info->name, sizeof(info->name));
	monitor_image(process->pid, info->image, sizeof(info->image));
	if (!*info->image && !process->offset)
		proc_link(process->pid, "exe", -1, info->image, sizeof(info->image));
	snprintf(info->id, sizeof(info->id), "%d", (int)process->pid);
}

static void process_close(void *ctx)
{
	struct process *process = ctx;

	if (process->fd >= 0)
		close(process->fd);
	free(process);
}

struct error *inside_process(pid_t pid, struct inside_memory *out)
{
	struct process *process;

	TRY(ARRAY_NEW(&process, 1));
	process->pid = pid;
	process->fd = -1;
	*out = (struct inside_memory){
		.ctx = process,
		.read = process_read,
		.write = process_write,
		.search = process_search,
		.locate = process_locate,
		.code = process_code,
		.keeps = process_keeps,
		.describe = process_describe,
		.close = process_close,
	};
	return host_memory_open(pid, true, &process->fd);
}
