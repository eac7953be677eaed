/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "target/host/proc.h"

static int open_of(pid_t pid, pid_t tid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", (int)tid, name);
	return proc_open(pid, path, O_RDONLY);
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
	out->known =
		sscanf(text, "%" SCNu64 " %*s %" SCNu64, &out->cpu_ns, &out->timeslices) == 2 &&
		out->timeslices;
}

char thread_letter(const struct thread *thread)
{
	char text[128];
	ssize_t len = thread->stat < 0 ? -1 : pread(thread->stat, text, sizeof(text) - 1, 0);

	if (len <= 0)
		return thread->stat >= 0 && errno == ESRCH ? 'X' : 'R';
	text[len] = '\0';
	return proc_letter(text) ?: 'R';
}

/* The last tells system calls from signals. */
#define OPTIONS (PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)
#define AT_CALL (SIGTRAP | 0x80)

/* Longest wait for a thread to stop before it is detached. */
#define FAREWELL_NS 500000000u
#define LET_GO_NS   5000000u /* while samples are taken */

/* Time for which another tracer may keep a thread that it is about to let go, and between attempts. */
#define OTHERS_NS 1000000000u
#define TURN_NS	  10000000u

/* SIGCHLD alone. */
static sigset_t child_signal(void)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	return child;
}

struct error *threads_new(struct threads *threads, pid_t pid, uint32_t n)
{
	const sigset_t child = child_signal();
	sigset_t before;

	*threads = (struct threads){.pid = pid, .n = n};
	TRY(ARRAY_NEW(&threads->at, n));
	sigprocmask(SIG_BLOCK, &child, &before);
	threads->was_blocked = sigismember(&before, SIGCHLD) == 1;
	return NULL;
}

static struct thread *add(struct threads *threads, uint32_t slot, pid_t tid)
{
	if (slot == threads->n) {
		threads->lost++;
		return NULL;
	}
	thread_watch(&threads->at[slot], threads->pid, tid);
	threads->at[slot].seized = true;
	return &threads->at[slot];
}

/* First free slot; n: there is none. */
static uint32_t free_slot(const struct threads *threads)
{
	uint32_t i = 0;

	while (i < threads->n && threads->at[i].tid)
		i++;
	return i;
}

/* sched.h of Linux: threads of the kernel's own that live in a process (io_uring, vhost, KVM). */
#define PF_IO_WORKER   0x10ul
#define PF_USER_WORKER 0x4000ul

static bool is_worker(pid_t pid, pid_t tid)
{
	char name[32], text[256];
	unsigned long flags;
	const char *end;

	snprintf(name, sizeof(name), "task/%d/stat", (int)tid);
	if (proc_read(pid, name, text, sizeof(text)) < 0)
		return false;
	end = strrchr(text, ')');
	return end && sscanf(end, ") %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 &&
	       (flags & (PF_IO_WORKER | PF_USER_WORKER));
}

struct error *threads_seize(struct threads *threads, pid_t tid)
{
	return threads_seize_as(threads, free_slot(threads), tid);
}

/* Seizes a thread, if need be when another tracer has let it go. Returns 0 or what is wrong (errno). */
static int seize(const struct threads *threads, pid_t tid)
{
	const long options = OPTIONS | (threads->follow ? PTRACE_O_TRACECLONE : 0);
	const uint64_t until_ns = clock_now_ns() + OTHERS_NS;
	const struct timespec turn = {.tv_nsec = TURN_NS};

	while (ptrace(PTRACE_SEIZE, tid, NULL, options)) {
		const int wrong = errno;
		const long tracer = proc_status(tid, "TracerPid", 0);

		if (wrong != EPERM || !tracer || tracer == getpid() || clock_now_ns() > until_ns ||
		    nanosleep(&turn, NULL))
			return wrong;
	}
	return 0;
}

struct error *threads_seize_as(struct threads *threads, uint32_t slot, pid_t tid)
{
	int wrong;

	/* The kernel lets us seize its own workers, which look like the thread that made them. */
	if (is_worker(threads->pid, tid))
		return error_new(ERR_GUEST, "thread %d is one of the kernel's own", (int)tid);
	/* A tracer that is stopped holds threads, at their next signal at the latest. */
	signal(SIGTSTP, SIG_IGN);
	wrong = seize(threads, tid);
	if (!wrong) {
		add(threads, slot, tid);
		return NULL;
	}
	/* A thread that did not stop in time before is still ours. */
	if (wrong == ESRCH || proc_status(tid, "TracerPid", 0) == getpid())
		return error_new(ERR_GUEST, "there is no thread %d", (int)tid);
	return proc_cannot_trace(threads->pid);
}

/*
 * A thread that was just made stops by itself before its first instruction.
 * One for which there is no room, or that is a process of its own (vfork and
 * the like), is let go.
 */
static void seize_cloned(struct threads *threads, pid_t tid)
{
	const bool ours = proc_group(tid) == threads->pid;
	struct thread *thread;
	int status;

	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		return;
	thread = ours ? add(threads, free_slot(threads), tid) : NULL;
	ptrace(thread ? PTRACE_CONT : PTRACE_DETACH, tid, NULL, NULL);
}

static void on_event(struct threads *threads, struct thread *thread, int event, int signal)
{
	unsigned long message = 0;

	switch (event) {
	case PTRACE_EVENT_CLONE:
		ptrace(PTRACE_GETEVENTMSG, thread->tid, NULL, &message);
		seize_cloned(threads, (pid_t)message);
		break;
	case PTRACE_EVENT_EXEC:
		threads->ended = true;
		threads->executed = true;
		break;
	case PTRACE_EVENT_STOP:
		thread->halted = signal != SIGTRAP;
		thread->asked = false;
		if (thread->halted) {
			ptrace(PTRACE_LISTEN, thread->tid, NULL, NULL);
			return;
		}
		thread->stopped = thread->wanted;
		if (thread->stopped)
			return;
		break;
	default:
		break;
	}
	ptrace(PTRACE_CONT, thread->tid, NULL, NULL);
}

/* Handles one event of a thread. */
static void on_status(struct threads *threads, struct thread *thread, int status)
{
	if (!WIFSTOPPED(status)) {
		if (thread->tid == threads->pid) {
			threads->ended = true;
			threads->status = status;
		}
		thread_unwatch(thread);
		return;
	}
	if (status >> 16)
		on_event(threads, thread, status >> 16, WSTOPSIG(status));
	else
		/* A signal on its way to the thread, or a call that nobody waits for any more. */
		ptrace(PTRACE_CONT, thread->tid, NULL,
		       (long)(WSTOPSIG(status) == AT_CALL ? 0 : WSTOPSIG(status)));
}

/* Handles one event of a thread; true if there was one. */
static bool tend(struct threads *threads, struct thread *thread)
{
	int status;
	pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

	if (got == thread->tid) {
		on_status(threads, thread, status);
		return true;
	}
	if (got < 0 && errno == ECHILD)
		thread_unwatch(thread);
	return false;
}

void threads_tend(struct threads *threads)
{
	threads->heard = false;
	for (uint32_t i = 0; i < threads->n; i++)
		while (threads->at[i].seized && !threads->at[i].stopped &&
		       tend(threads, &threads->at[i]))
			;
}

/* Sleeps until SIGCHLD comes; false: until then, or something else came first. */
static bool sleep_until(struct threads *threads, uint64_t until_ns)
{
	uint64_t now = clock_now_ns(), left = until_ns > now ? until_ns - now : 0;
	const struct timespec most = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
	const sigset_t child = child_signal();

	if (sigtimedwait(&child, NULL, &most) < 0)
		return false;
	threads->heard = true;
	return true;
}

void threads_wait(struct threads *threads, uint64_t until_ns)
{
	bool early;

	do {
		early = clock_now_ns() < until_ns;
		/* Whoever is late does not sleep, and hears nothing. */
		if (threads->heard || !early)
			threads_tend(threads);
	} while (!threads->ended && early && sleep_until(threads, until_ns));
}

bool thread_stop(struct threads *threads, struct thread *thread, uint64_t patience_ns)
{
	const uint64_t until_ns = clock_now_ns() + patience_ns;
	/* A thread that is asked now has not stopped yet: it has to leave its CPU first. */
	bool in_vain = !thread->asked;

	if (!thread->seized || thread->halted || thread->dead)
		return false;
	if (!thread->asked && ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL)) {
		thread->dead = errno == ESRCH;
		return false;
	}
	thread->asked = true;
	thread->wanted = true;
	while (thread->tid && thread->asked) {
		if (in_vain && clock_now_ns() >= until_ns)
			break;
		if (in_vain)
			sleep_until(threads, until_ns);
		in_vain = !tend(threads, thread);
	}
	thread->wanted = false;
	return thread->stopped;
}

void thread_go(struct threads *threads, struct thread *thread)
{
	if (thread->stopped)
		ptrace(PTRACE_CONT, thread->tid, NULL, NULL);
	thread->stopped = false;
}

bool thread_to_call(struct threads *threads, struct thread *thread, uint64_t patience_ns)
{
	const uint64_t until_ns = clock_now_ns() + patience_ns;
	int status;

	if (ptrace(PTRACE_SYSCALL, thread->tid, NULL, NULL))
		return false;
	thread->stopped = false;
	while (waitpid(thread->tid, &status, __WALL | WNOHANG) != thread->tid) {
		if (clock_now_ns() >= until_ns)
			return false;
		sleep_until(threads, until_ns);
	}
	thread->stopped = WIFSTOPPED(status) && status >> 8 == AT_CALL;
	if (!thread->stopped)
		on_status(threads, thread, status);
	return thread->stopped;
}

void threads_go(struct threads *threads, uint64_t until_ns)
{
	for (uint32_t i = 0; i < threads->n; i++) {
		const uint64_t now_ns = clock_now_ns();
		struct thread *thread = &threads->at[i];

		if (thread->asked && now_ns < until_ns)
			(void)thread_stop(threads, thread, until_ns - now_ns);
		thread_go(threads, thread);
	}
}

/* True if somebody has halted all threads that are left. */
static bool are_halted(const struct threads *threads)
{
	bool any = false;

	for (uint32_t i = 0; i < threads->n; i++) {
		if (threads->at[i].tid && !threads->at[i].dead && !threads->at[i].halted)
			return false;
		any |= threads->at[i].halted;
	}
	return any;
}

static bool is_crash(int signal)
{
	return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
	       signal == SIGABRT || signal == SIGTRAP || signal == SIGSYS;
}

/* Reads from /proc whether a thread that is not traced any more is halted or has ended. */
static void read_state(struct thread *thread)
{
	const char letter = thread_letter(thread);

	thread->halted = letter == 'T';
	if (letter == 'X' || letter == 'Z')
		thread_unwatch(thread);
}

enum target_life threads_life(struct threads *threads)
{
	bool any = false;

	threads_tend(threads);
	for (uint32_t i = 0; i < threads->n; i++) {
		if (threads->at[i].tid && !threads->at[i].seized)
			read_state(&threads->at[i]);
		any |= threads->at[i].tid != 0;
	}
	if (threads->ended && !threads->executed && WIFEXITED(threads->status))
		return LIFE_SHUT_DOWN;
	if (threads->ended && !threads->executed && WIFSIGNALED(threads->status) &&
	    is_crash(WTERMSIG(threads->status)))
		return LIFE_CRASHED;
	if (threads->ended || !any)
		return LIFE_GONE;
	return are_halted(threads) ? LIFE_PAUSED : LIFE_RUNS;
}

static bool detach(struct threads *threads, struct thread *thread, uint64_t patience_ns)
{
	if (thread->seized &&
	    (thread->stopped || thread_stop(threads, thread, patience_ns) || thread->halted)) {
		ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
		thread->stopped = thread->seized = false;
	}
	return !thread->seized;
}

bool threads_let_go(struct threads *threads)
{
	bool all = true;

	for (uint32_t i = 0; i < threads->n; i++)
		all &= detach(threads, &threads->at[i], LET_GO_NS);
	return all;
}

/* A thread that does not stop in time is released by the kernel when we end. */
void threads_release(struct threads *threads, struct thread *thread)
{
	(void)detach(threads, thread, FAREWELL_NS);
	if (thread->tid)
		thread_unwatch(thread);
}

bool process_is_halted(pid_t pid)
{
	char text[256];

	return proc_read(pid, "stat", text, sizeof(text)) >= 0 && proc_letter(text) == 'T';
}

void threads_free(struct threads *threads)
{
	const sigset_t child = child_signal();

	for (uint32_t i = 0; threads->at && i < threads->n; i++)
		if (threads->at[i].tid)
			threads_release(threads, &threads->at[i]);
	free(threads->at);
	threads->at = NULL;
	if (threads->pid && !threads->was_blocked)
		sigprocmask(SIG_UNBLOCK, &child, NULL);
}

/* Events of a thread. */

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static struct error *perf_refused(int number)
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
		return perf_refused(errno);
	at = mmap(NULL, page_size() + size, rights, MAP_SHARED, ring->fd, 0);
	if (at != MAP_FAILED) {
		ring->page = at;
		return NULL;
	}
	close(ring->fd);
	return perf_refused(errno);
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
