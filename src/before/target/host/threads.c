/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/threads.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "target/host/proc.h"
#include "target/host/thread_time.h"

#define OPTIONS (PTRACE_O_TRACEEXEC)

/* How long a thread is waited for when it is let go for good. */
#define FAREWELL_NS 500000000u

struct error *threads_new(struct threads *threads, pid_t pid, uint32_t n)
{
	sigset_t child, before;

	*threads = (struct threads){.pid = pid, .n = n};
	threads->at = calloc(n, sizeof(*threads->at));
	if (!threads->at)
		return error_no_memory();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
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
	return &threads->at[slot];
}

/* The first that is free; n: none is. */
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

struct error *threads_seize_as(struct threads *threads, uint32_t slot, pid_t tid)
{
	const long options = OPTIONS | (threads->follow ? PTRACE_O_TRACECLONE : 0);

	/* Such a one may let itself be seized, and looks like the thread that it was made by. */
	if (is_worker(threads->pid, tid))
		return error_new(ERR_GUEST, "thread %d is one of the kernel's own", (int)tid);
	if (!ptrace(PTRACE_SEIZE, tid, NULL, options)) {
		add(threads, slot, tid);
		return NULL;
	}
	/* One that was waited for in vain before is still ours. */
	if (errno == ESRCH || proc_status(tid, "TracerPid", 0) == getpid())
		return error_new(ERR_GUEST, "there is no thread %d", (int)tid);
	return threads_cannot_trace(threads->pid);
}

/*
 * A thread that was just made stops by itself before its first instruction.
 * One for which there is no room, or that is a process of its own (vfork and
 * the like), is let go.
 */
static void take_newcomer(struct threads *threads, pid_t tid)
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
		take_newcomer(threads, (pid_t)message);
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

/* What a thread had to tell. */
static void take(struct threads *threads, struct thread *thread, int status)
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
		/* A signal on its way to the thread. */
		ptrace(PTRACE_CONT, thread->tid, NULL, (long)WSTOPSIG(status));
}

/* True if it had something to tell. */
static bool ask(struct threads *threads, struct thread *thread)
{
	int status;
	pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

	if (got == thread->tid) {
		take(threads, thread, status);
		return true;
	}
	if (got < 0 && errno == ECHILD)
		thread_unwatch(thread);
	return false;
}

void threads_tend(struct threads *threads)
{
	for (uint32_t i = 0; i < threads->n; i++)
		while (threads->at[i].tid && !threads->at[i].stopped &&
		       ask(threads, &threads->at[i]))
			;
}

/* Sleeps until SIGCHLD comes, or until then; false if something else came first. */
static bool sleep_until(uint64_t until_ns)
{
	uint64_t now = clock_now_ns(), left = until_ns > now ? until_ns - now : 0;
	const struct timespec most = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	return sigtimedwait(&child, NULL, &most) > 0 || errno == EAGAIN;
}

void threads_wait(struct threads *threads, uint64_t until_ns)
{
	do
		threads_tend(threads);
	while (!threads->ended && clock_now_ns() < until_ns && sleep_until(until_ns));
}

bool thread_stop(struct threads *threads, struct thread *thread, uint64_t patience_ns)
{
	const uint64_t until_ns = clock_now_ns() + patience_ns;

	if (!thread->tid || thread->halted || thread->dead)
		return false;
	if (!thread->asked && ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL)) {
		thread->dead = errno == ESRCH;
		return false;
	}
	thread->asked = true;
	thread->wanted = true;
	while (thread->tid && thread->asked) {
		if (ask(threads, thread))
			continue;
		if (clock_now_ns() >= until_ns)
			break;
		sleep_until(until_ns);
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

bool threads_are_halted(const struct threads *threads)
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

enum target_life threads_life(struct threads *threads)
{
	bool any = false;

	threads_tend(threads);
	for (uint32_t i = 0; i < threads->n; i++)
		any |= threads->at[i].tid != 0;
	if (threads->ended && !threads->executed && WIFEXITED(threads->status))
		return LIFE_SHUT_DOWN;
	if (threads->ended && !threads->executed && WIFSIGNALED(threads->status) &&
	    is_crash(WTERMSIG(threads->status)))
		return LIFE_CRASHED;
	if (threads->ended || !any)
		return LIFE_GONE;
	return threads_are_halted(threads) ? LIFE_PAUSED : LIFE_RUNS;
}

/* Who does not stop now is let go by the kernel when we end. */
void threads_release(struct threads *threads, struct thread *thread)
{
	if (thread->stopped || thread_stop(threads, thread, FAREWELL_NS) || thread->halted)
		ptrace(PTRACE_DETACH, thread->tid, NULL, NULL);
	if (thread->tid)
		thread_unwatch(thread);
}

bool process_is_halted(pid_t pid)
{
	char text[256];
	const char *end;

	if (proc_read(pid, "stat", text, sizeof(text)) < 0)
		return false;
	end = strrchr(text, ')');
	return end && !strncmp(end, ") T", 3);
}

void threads_free(struct threads *threads)
{
	sigset_t child;

	for (uint32_t i = 0; threads->at && i < threads->n; i++)
		if (threads->at[i].tid)
			threads_release(threads, &threads->at[i]);
	free(threads->at);
	threads->at = NULL;
	if (threads->pid && !threads->was_blocked) {
		sigemptyset(&child);
		sigaddset(&child, SIGCHLD);
		sigprocmask(SIG_UNBLOCK, &child, NULL);
	}
}
