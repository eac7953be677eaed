/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
	out->known =
		sscanf(text, "%" SCNu64 " %*s %" SCNu64, &out->cpu_ns, &out->timeslices) == 2 &&
		out->timeslices;
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

/* The last tells system calls from signals. */
#define OPTIONS (PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)
#define AT_CALL (SIGTRAP | 0x80)

/* Longest wait for a thread to stop before it is detached. */
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

struct error *threads_seize_as(struct threads *threads, uint32_t slot, pid_t tid)
{
	const long options = OPTIONS | (threads->follow ? PTRACE_O_TRACECLONE : 0);

	/* The kernel lets us seize its own workers, which look like the thread that made them. */
	if (is_worker(threads->pid, tid))
		return error_new(ERR_GUEST, "thread %d is one of the kernel's own", (int)tid);
	/* A tracer that is stopped holds threads, at their next signal at the latest. */
	signal(SIGTSTP, SIG_IGN);
	if (!ptrace(PTRACE_SEIZE, tid, NULL, options)) {
		add(threads, slot, tid);
		return NULL;
	}
	/* A thread that did not stop in time before is still ours. */
	if (errno == ESRCH || proc_status(tid, "TracerPid", 0) == getpid())
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

/* Handles pending events of all threads; cheap if there are none. */
static void tend_all(struct threads *threads)
{
	for (uint32_t i = 0; i < threads->n; i++)
		while (threads->at[i].tid && !threads->at[i].stopped &&
		       tend(threads, &threads->at[i]))
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
		tend_all(threads);
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
		if (tend(threads, thread))
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
		sleep_until(until_ns);
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

enum target_life threads_life(struct threads *threads)
{
	bool any = false;

	tend_all(threads);
	for (uint32_t i = 0; i < threads->n; i++)
		any |= threads->at[i].tid != 0;
	if (threads->ended && !threads->executed && WIFEXITED(threads->status))
		return LIFE_SHUT_DOWN;
	if (threads->ended && !threads->executed && WIFSIGNALED(threads->status) &&
	    is_crash(WTERMSIG(threads->status)))
		return LIFE_CRASHED;
	if (threads->ended || !any)
		return LIFE_GONE;
	return are_halted(threads) ? LIFE_PAUSED : LIFE_RUNS;
}

/* A thread that does not stop in time is released by the kernel when we end. */
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

/*
 * A thread that we stopped in a system call goes back into it, which puts it
 * on a CPU once and for so long at most.
 */
#define BACK_TO_SLEEP_NS 50000u

/* Time for which a sleeper's state is believed: it may have been woken meanwhile. */
#define SLEEPER_NS NS_PER_S

struct stops_seen {
	pid_t tid;
	struct thread_time time;
	uint64_t read_ns;
	bool stopped; /* stopped for this sample */
	bool on_cpu;  /* not stopped, and was on a CPU: it runs on */
};

struct error *stops_new(struct stops *stops)
{
	stops->seen = calloc(stops->threads.n, sizeof(*stops->seen));
	return stops->seen ? NULL : error_no_memory();
}

void stops_free(struct stops *stops)
{
	threads_free(&stops->threads);
	free(stops->seen);
}

/* True if the last reading of the thread is still valid. */
static bool still_holds(const struct stops_seen *seen, const struct thread_time *time,
			bool runnable, uint64_t now_ns)
{
	if (!time->known || !seen->time.known || seen->on_cpu)
		return false;
	if (time->timeslices == seen->time.timeslices && time->cpu_ns == seen->time.cpu_ns)
		return true;
	return seen->stopped && !runnable && time->timeslices == seen->time.timeslices + 1 &&
	       time->cpu_ns - seen->time.cpu_ns < BACK_TO_SLEEP_NS &&
	       now_ns - seen->read_ns < SLEEPER_NS;
}

/* Uninterruptible sleep (proc(5)). */
#define UNINTERRUPTIBLE 'D'

/*
 * A thread that does not stop at once waits for a CPU: its code does not run
 * now. A sleeping thread first has to be put on a CPU to be stopped.
 */
#define RUNNABLE_NS 1000000u
#define ASLEEP_NS   5000000u
/* A thread that was never read: nothing else is known of it. */
#define FIRST_NS 50000000u

/* Keeps the last reading of a thread that could not be stopped. */
static void could_not_stop(const struct thread *thread, struct vcpu_sample *vcpu, bool runnable)
{
	/* A thread that was never read is off-line. */
	vcpu->online = thread->tid && !thread->dead && vcpu->account.held;
	vcpu->same = vcpu->online;
	vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
	vcpu->ran_ns = 0;
}

static void keep_account(struct vcpu_sample *vcpu, struct stops_seen *seen,
			 const struct thread_time *time, bool runnable, int64_t usual_ns)
{
	const struct vcpu_load load = {.cpu_ns = time->cpu_ns,
				       .running =
					       seen->on_cpu ||
					       (runnable && (!vcpu->account.held || !time->known)),
				       .blocked = !runnable};

	vcpu->ran_ns = vcpu->account.held ? time->cpu_ns - vcpu->account.cpu_ns : 0;
	vcpu->state = vcpu_state_of(&load, vcpu, usual_ns);
	vcpu->account.cpu_ns = time->cpu_ns;
	vcpu->account.held = true;
	seen->time = *time;
}

static void read_stopped(struct stops *stops, uint32_t i, struct sample *sample, bool runnable,
			 int64_t usual_ns)
{
	struct thread *thread = &stops->threads.at[i];
	struct vcpu_sample *vcpu = &sample->vcpu[i];
	const uint64_t began = clock_now_ns();
	const uint64_t until =
		sample->request.max_pause_ns ? began + sample->request.max_pause_ns / 4 * 3 : 0;
	struct thread_time time;
	bool got;

	if (!thread_stop(&stops->threads, thread,
			 !vcpu->account.held ? FIRST_NS
			 : runnable	     ? RUNNABLE_NS
					     : ASLEEP_NS)) {
		could_not_stop(thread, vcpu, runnable);
		return;
	}
	got = stops->read(stops->ctx, i, vcpu, until);
	thread_time(thread, &time);
	thread_go(&stops->threads, thread);
	stops->seen[i].read_ns = clock_now_ns();
	stops->seen[i].stopped = true;
	stops->seen[i].on_cpu = false;
	sample->paused_ns += stops->seen[i].read_ns - began;
	if (got)
		keep_account(vcpu, &stops->seen[i], &time, runnable, usual_ns);
	else
		could_not_stop(thread, vcpu, runnable);
}

/*
 * The scheduler counts the time of a thread that is on a CPU every few
 * milliseconds only; of one that has not left it since, we know better.
 */
static void correct_time(const struct stops_seen *seen, const struct vcpu_sample *vcpu,
			 uint64_t now_ns, struct thread_time *time)
{
	uint64_t least = vcpu->account.held ? vcpu->account.cpu_ns : 0;

	if (vcpu->account.held && seen->on_cpu && seen->time.timeslices == time->timeslices)
		least += now_ns - seen->read_ns;
	if (time->cpu_ns < least)
		time->cpu_ns = least;
}

static bool sample_nostop(struct stops *stops, uint32_t i, struct vcpu_sample *vcpu,
			  const struct thread_time *before, bool runnable, int64_t usual_ns)
{
	struct stops_seen *seen = &stops->seen[i];
	struct thread_time time = *before;
	uint64_t now_ns;
	bool on_cpu;

	if (!stops->read_nostop || !stops->read_nostop(stops->ctx, i, vcpu, &time, &on_cpu))
		return false;
	now_ns = clock_now_ns();
	correct_time(seen, vcpu, now_ns, &time);
	seen->read_ns = now_ns;
	seen->stopped = false;
	seen->on_cpu = on_cpu;
	keep_account(vcpu, seen, &time, runnable, usual_ns);
	/* It has been halted since it was asked whether it may run. */
	if (vcpu->host && vcpu->host->place == HOST_HALTED)
		vcpu->state = VCPU_BLOCKED;
	return true;
}

static void sample_one(struct stops *stops, uint32_t i, struct sample *sample, int64_t usual_ns)
{
	const struct thread *thread = &stops->threads.at[i];
	struct vcpu_sample *vcpu = &sample->vcpu[i];
	struct stops_seen *seen = &stops->seen[i];
	struct thread_time time;
	bool runnable;
	char letter;

	if (thread->tid != seen->tid)
		vcpu->account.held = false;
	seen->tid = thread->tid;
	vcpu->online = thread->tid && !thread->dead;
	vcpu->given_up = false;
	vcpu->hurried = false;
	vcpu->same = false;
	if (!vcpu->online)
		return;
	thread_time(thread, &time);
	letter = thread_letter(thread);
	runnable = letter == 'R';
	if (vcpu->account.held && !vcpu->request.again &&
	    still_holds(seen, &time, runnable, sample->time_ns)) {
		vcpu->same = true;
		vcpu->state = runnable ? VCPU_RUNNABLE : VCPU_BLOCKED;
		vcpu->ran_ns = 0;
	} else if (sample_nostop(stops, i, vcpu, &time, runnable, usual_ns)) {
		return;
	} else if (letter == UNINTERRUPTIBLE || stops->never) {
		could_not_stop(thread, vcpu, stops->never && runnable);
	} else {
		read_stopped(stops, i, sample, runnable, usual_ns);
	}
}

struct error *stops_sample(struct stops *stops, struct sample *sample)
{
	struct threads *threads = &stops->threads;
	int64_t usual_ns;

	tend_all(threads);
	sample->retakes = 0;
	sample->paused_ns = 0;
	sample->stolen_ns = 0;
	sample->time_ns = clock_now_ns();
	usual_ns = vcpu_state_time(sample);
	for (uint32_t i = 0; i < threads->n && i < sample->vcpus && !threads->ended; i++)
		sample_one(stops, i, sample, usual_ns);
	if (threads->ended)
		return error_new(ERR_ENDED, "process %d %s", (int)threads->pid,
				 threads->executed ? "has become another program" : "has ended");
	return NULL;
}
