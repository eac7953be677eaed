/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/thread_time.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_of(pid_t pid, pid_t tid, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void thread_watch(struct thread *thread, pid_t pid, pid_t tid)
{
	*thread = (struct thread){.tid = tid,
				  .schedstat = open_of(pid, tid, "schedstat"),
				  .stat = open_of(pid, tid, "stat")};
}

void thread_unwatch(struct thread *thread)
{
	if (thread->tid && thread->schedstat >= 0)
		close(thread->schedstat);
	if (thread->tid && thread->stat >= 0)
		close(thread->stat);
	*thread = (struct thread){0};
}

/* Documentation/scheduler/sched-stats.rst: time on a CPU, time waiting for one, times put on one. */
void thread_time(const struct thread *thread, struct thread_time *out)
{
	char text[96];
	ssize_t len =
		thread->schedstat < 0 ? -1 : pread(thread->schedstat, text, sizeof(text) - 1, 0);

	*out = (struct thread_time){0};
	if (len <= 0)
		return;
	text[len] = '\0';
	out->known = sscanf(text, "%" SCNu64 " %*s %" SCNu64, &out->cpu_ns, &out->slices) == 2 &&
		     out->slices;
}

/* proc(5): "pid (comm) state"; the name may hold anything. */
char thread_letter(const struct thread *thread)
{
	char text[128];
	const char *end;
	ssize_t len = thread->stat < 0 ? -1 : pread(thread->stat, text, sizeof(text) - 1, 0);

	if (len <= 0)
		return 'R';
	text[len] = '\0';
	end = strrchr(text, ')');
	return end && end + 2 < text + len ? end[2] : 'R';
}
