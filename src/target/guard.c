/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/owned.h"
#include "base/privilege.h"
#include "target/host/proc.h"

/* The guard has a name of its own: `killall uniprof` must not end it. */
#define GUARD_NAME "unpause-guard"

/* Wait for the guard to end, and between two looks whether it has. */
#define STOP_NS	    (NS_PER_S / 2)
#define STOP_NAP_NS 1000000ull

/* Waits between attempts to let the guest go. */
#define FIRST_NAP_NS   1000000ull
#define LONGEST_NAP_NS NS_PER_S

/* Seconds in which the guard finds out that the profiler is stopped. */
#define WATCH_S 1

struct guard {
	const struct guard_ops *ops;
	void *ctx;
	struct guard_page *page;
	pid_t pid;
	bool unblocks; /* SIGTSTP, at its end */
	/* For the guard alone: */
	pid_t profiler;
	int stat; /* of the profiler (proc(5)); -1: it may be stopped at any time */
};

/* Closes inherited descriptors: a reader of our output waits until the last copy is closed. */
static void close_inherited(const struct guard *guard, int ready)
{
	struct descriptors keep = {0};

	if (guard->ops->keeps)
		guard->ops->keeps(guard->ctx, &keep);
	descriptors_add(&keep, ready);
	descriptors_add(&keep, guard->stat);
	descriptors_close_others(&keep);
}

/* Needs rights, which a replacement guard lacks: it inherits the setting. */
static void protect_from_the_oom_killer(void)
{
	CLOSED int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "-1000", 5) < 0)
		errno = 0; /* as well as can be */
}

/*
 * Gives the guard a priority that lets it run at once on a busy host; without
 * the rights for that, it runs when the host lets it.
 */
static void come_before_others(void)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	(void)sched_setscheduler(0, SCHED_FIFO, &lowest);
}

/*
 * Prints the error; true once that is done. A guard that waited for a reader of
 * its messages would not help the guest, and one that kept the pipe open would
 * hold its reader up.
 */
static bool tell(const struct error *why)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[512];
	int len;

	if (poll(&out, 1, 0) != 1)
		return false;
	len = snprintf(line, sizeof(line), "uniprof: %s\n", why->text);
	if (len >= (int)sizeof(line))
		len = sizeof(line) - 1;
	if (write(STDERR_FILENO, line, (size_t)len) != len)
		errno = 0; /* no reader */
	close(STDERR_FILENO);
	return true;
}

static void undo(struct guard *guard, enum guard_phase phase)
{
	uint64_t nap_ns = FIRST_NAP_NS;
	bool told = false;
	struct error *why;

	while ((why = guard->ops->undo(guard->ctx, phase))) {
		told = told || tell(why);
		error_free(why);
		clock_sleep_until(clock_now_ns() + nap_ns);
		nap_ns = nap_ns < LONGEST_NAP_NS / 2 ? nap_ns * 2 : LONGEST_NAP_NS;
	}
}

/* True if a process is stopped (proc(5)); `stat` is open: there are no rights to open it later. */
static bool is_stopped(int stat)
{
	char text[512];
	const ssize_t len = pread(stat, text, sizeof(text) - 1, 0);

	if (len <= 0)
		return false;
	text[len] = '\0';
	return proc_letter(text) == 'T';
}

/*
 * Lets a profiler go on that is stopped while it holds the guest; it stops by
 * itself once it does no more (guard_let_stop), unless somebody lets it go on.
 * One that kept its rights (--no-sandbox) takes no signals of a guard that has
 * none.
 */
static void move_on(const struct guard *guard)
{
	const bool holds = atomic_load(&guard->page->phase) >= (int)guard->ops->holds;

	if (holds && is_stopped(guard->stat) && !kill(guard->profiler, SIGCONT))
		kill(guard->profiler, SIGTSTP);
}

/* Waits until the profiler has given its lock up (0) or died (EOWNERDEAD). */
static void wait_for_the_end(const struct guard *guard)
{
	struct timespec until;
	int rc;

	do {
		if (guard->stat >= 0)
			move_on(guard);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += WATCH_S;
		rc = pthread_mutex_clocklock(&guard->page->life, CLOCK_MONOTONIC, &until);
	} while (rc == ETIMEDOUT);
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
	guard->profiler = getppid();
	guard->stat = guard->ops->holds == GUARD_RUNNING
			      ? -1
			      : proc_open(guard->profiler, "stat", O_RDONLY);
	close_inherited(guard, ready);
	protect_from_the_oom_killer();
	come_before_others();
	privilege_lock_memory();
	privilege_drop(SECCOMP_GUARD, &rights);
	if ((guard->ops->prepare && !guard->ops->prepare(guard->ctx)) ||
	    write(ready, &byte, 1) != 1)
		_exit(1);
	close(ready);
	wait_for_the_end(guard);
	phase = (enum guard_phase)atomic_load(&guard->page->phase);
	if (phase != GUARD_RUNNING)
		undo(guard, phase);
	_exit(0);
}

/* `status`: see wait(2). */
static struct error *ended_early(int status)
{
	const char *what = "cannot start the process that would let the guest run again if uniprof "
			   "were killed";

	if (WIFSIGNALED(status))
		return error_new(ERR_FAILED, "%s: it was ended by signal %d", what,
				 WTERMSIG(status));
	return error_new(ERR_FAILED, "%s: it lacks what it needs", what);
}

static struct error *start(struct guard *guard)
{
	int ready[2], status = 0;
	ssize_t got;
	char byte;

	if (pipe2(ready, O_CLOEXEC))
		return error_errno(ERR_FAILED, errno, "cannot start the guard");
	guard->pid = fork();
	if (guard->pid == 0)
		live(guard, ready[1]);
	close(ready[1]);
	if (guard->pid < 0) {
		guard->pid = 0;
		close(ready[0]);
		return error_errno(ERR_FAILED, errno, "cannot start the guard");
	}
	do
		got = read(ready[0], &byte, 1);
	while (got < 0 && errno == EINTR);
	close(ready[0]);
	if (got == 1)
		return NULL;
	waitpid(guard->pid, &status, 0);
	guard->pid = 0;
	return ended_early(status);
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

/* SIGTSTP alone. */
static sigset_t stop_signal(void)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	return stop;
}

void guard_let_stop(void)
{
	const sigset_t stops = stop_signal();
	const struct timespec now = {0};
	struct sigaction action;

	if (sigtimedwait(&stops, NULL, &now) == SIGTSTP && !sigaction(SIGTSTP, NULL, &action) &&
	    action.sa_handler != SIG_IGN)
		raise(SIGSTOP);
}

static void free_guard(struct guard *guard)
{
	const sigset_t stops = stop_signal();

	if (guard->page != MAP_FAILED)
		munmap(guard->page, sizeof(*guard->page));
	if (guard->unblocks)
		sigprocmask(SIG_UNBLOCK, &stops, NULL);
	free(guard);
}

struct error *guard_start(const struct guard_ops *ops, void *ctx, struct guard **out)
{
	struct guard *guard;
	const sigset_t stops = stop_signal();
	struct error *err;
	sigset_t before;

	TRY(ARRAY_NEW(&guard, 1));
	sigprocmask(SIG_BLOCK, &stops, &before);
	guard->unblocks = !sigismember(&before, SIGTSTP);
	guard->ops = ops;
	guard->ctx = ctx;
	guard->page = mmap(NULL, sizeof(*guard->page), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guard->page == MAP_FAILED) {
		free_guard(guard);
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
	const uint64_t until_ns = clock_now_ns() + STOP_NS;

	if (!guard)
		return;
	pthread_mutex_unlock(&guard->page->life);
	/* A guard that waits for a hanging hypervisor continues without us. */
	while (guard->pid > 0 && waitpid(guard->pid, NULL, WNOHANG) == 0 &&
	       clock_now_ns() < until_ns)
		clock_sleep_until(clock_now_ns() + STOP_NAP_NS);
	free_guard(guard);
}

void guard_replace(struct guard *first, struct guard *second)
{
	second->unblocks |= first->unblocks;
	first->unblocks = false;
	guard_stop(first);
}

void guard_leave(struct guard *guard)
{
	/* One that somebody has killed would not help. */
	(void)guard_check(guard);
	pthread_mutex_unlock(&guard->page->life);
	free_guard(guard);
}

bool guard_check(struct guard *guard)
{
	struct error *err;
	bool lives;

	if (guard->pid > 0 && waitpid(guard->pid, NULL, WNOHANG) != guard->pid)
		return true;
	guard->pid = 0;
	err = start(guard);
	lives = !err;
	error_free(err);
	return lives;
}

struct guard_page *guard_page(struct guard *guard)
{
	return guard->page;
}
