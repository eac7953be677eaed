/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/privilege.h"

/* Not our own name: who kills all that is called uniprof does not mean to kill this. */
#define GUARD_NAME "unpause-guard"

struct guard {
	const struct guard_ops *ops;
	void *ctx;
	struct guard_page *page;
	pid_t pid;
};

/* What else we hold would be kept open: whoever reads our output waits for its end. */
static void close_inherited(const struct guard *guard, int ready)
{
	struct descriptors keep = {0};

	if (guard->ops->keeps)
		guard->ops->keeps(guard->ctx, &keep);
	descriptors_add(&keep, ready);
	descriptors_close_others(&keep);
}

/* Takes rights: a guard that replaces another one has what it inherited. */
static void protect_from_the_oom_killer(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "-1000", 5) < 0)
		errno = 0; /* as well as can be */
	close(fd);
}

/*
 * It does next to nothing, but that at once, however busy this host is. Without
 * the rights for it, it is as fast as the host lets it be.
 */
static void come_before_others(void)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	(void)sched_setscheduler(0, SCHED_FIFO, &lowest);
}

/* The guard's whole life. `ready` is closed when it is, with a byte written if it can guard. */
static void __attribute__((noreturn)) live(struct guard *guard, int ready)
{
	const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
	struct privilege rights;
	enum guard_phase phase;
	char byte = 0;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	setsid();
	prctl(PR_SET_NAME, GUARD_NAME);
	close_inherited(guard, ready);
	protect_from_the_oom_killer();
	come_before_others();
	mlockall(MCL_CURRENT);
	privilege_drop(SECCOMP_GUARD, &rights);
	if (!guard->ops->prepare(guard->ctx) || write(ready, &byte, 1) != 1)
		_exit(1);
	close(ready);
	/* Ours when the profiler has given it up (0) or died (EOWNERDEAD). */
	(void)pthread_mutex_lock(&guard->page->life);
	phase = (enum guard_phase)atomic_load(&guard->page->phase);
	if (phase != GUARD_RUNNING)
		guard->ops->undo(guard->ctx, phase);
	_exit(0);
}

static struct error *start(struct guard *guard)
{
	int ready[2];
	ssize_t got;
	char byte;

	if (pipe2(ready, O_CLOEXEC))
		return error_errno(ERR_FAILED, errno, "cannot start the guard");
	guard->pid = fork();
	if (guard->pid == 0)
		live(guard, ready[1]);
	close(ready[1]);
	do
		got = guard->pid > 0 ? read(ready[0], &byte, 1) : 0;
	while (got < 0 && errno == EINTR);
	close(ready[0]);
	if (got == 1)
		return NULL;
	if (guard->pid > 0)
		waitpid(guard->pid, NULL, 0);
	guard->pid = 0;
	return error_new(ERR_FAILED, "cannot start the process that would let the guest run again "
				     "if uniprof were killed");
}

/* Makes the lock, and takes it until we end. */
static struct error *hold_life(pthread_mutex_t *life)
{
	pthread_mutexattr_t kind;
	int rc = pthread_mutexattr_init(&kind);

	if (rc)
		return error_errno(ERR_FAILED, rc, "cannot make the guard's lock");
	rc = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
	if (!rc)
		rc = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	if (!rc)
		rc = pthread_mutex_init(life, &kind);
	pthread_mutexattr_destroy(&kind);
	if (!rc)
		rc = pthread_mutex_lock(life);
	return rc ? error_errno(ERR_FAILED, rc, "cannot make the guard's lock") : NULL;
}

struct error *guard_start(const struct guard_ops *ops, void *ctx, struct guard **out)
{
	struct guard *guard = calloc(1, sizeof(*guard));
	struct error *err;

	if (!guard)
		return error_no_memory();
	guard->ops = ops;
	guard->ctx = ctx;
	guard->page = mmap(NULL, sizeof(*guard->page), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guard->page == MAP_FAILED) {
		free(guard);
		return error_no_memory();
	}
	err = hold_life(&guard->page->life);
	if (!err)
		err = start(guard);
	if (err) {
		guard_stop(guard);
		return err;
	}
	*out = guard;
	return NULL;
}

void guard_stop(struct guard *guard)
{
	if (!guard)
		return;
	pthread_mutex_unlock(&guard->page->life);
	if (guard->pid > 0)
		while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
			;
	munmap(guard->page, sizeof(*guard->page));
	free(guard);
}

struct error *guard_check(struct guard *guard)
{
	if (guard->pid > 0) {
		if (waitpid(guard->pid, NULL, WNOHANG) != guard->pid)
			return NULL;
		guard->pid = 0;
	}
	return start(guard);
}

struct guard_page *guard_page(struct guard *guard)
{
	return guard->page;
}
