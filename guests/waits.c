/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads in a list as Mini-OS keeps them, with its names, of which `waiter` does nothing but wait:
 * 20 ms for a lock that `holder` has, 30 ms for an event that `maker` makes, 50 ms for the time to
 * pass, again and again. `worker` works a millisecond and sleeps for three. Without work, the vCPU
 * sleeps on the stack of the thread that ran last. Ends after `seconds` (option, 60). Expected shares
 * of the waiter's waits: lock_for 0.2, event_for 0.3, sleep_for 0.5; it tells each as `waited`.
 */
#include "guest.h"

#define MS	    1000000ull
#define STACK_BYTES 65536
#define LOCK_MS	    20
#define EVENT_MS    30
#define SLEEP_MS    50
#define TELL_AFTER  5

enum { LOCK, EVENT, SLEEP, ROWS };

struct truth truth[ROWS] = {{"lock_for", 0, 0}, {"event_for", 0, 0}, {"sleep_for", 0, 0}};

#define RUNNABLE_FLAG 1u

struct thread {
	const char *name;
	char *stack;
	/* In this order: the switch in assembly knows it. */
	unsigned long sp, ip;
	struct {
		struct thread *tqe_next, **tqe_prev;
	} thread_list;
	uint32_t flags;
	int64_t wakeup_time; /* 0: something else wakes it */
};

struct thread_list {
	struct thread *tqh_first, **tqh_last;
};

/* In assembly: saves where a thread goes on, goes on with another; begins a thread. */
void __arch_switch_threads(unsigned long *from, unsigned long *to);
void thread_starter(void);

#define THREADS 4

static struct thread_list thread_list = {0, &thread_list.tqh_first};
static struct thread threads[THREADS], boot, *current;
static char stacks[THREADS][STACK_BYTES] __attribute__((aligned(STACK_BYTES)));
static uint64_t end;

static void append(struct thread *thread)
{
	thread->thread_list.tqe_next = 0;
	thread->thread_list.tqe_prev = thread_list.tqh_last;
	*thread_list.tqh_last = thread;
	thread_list.tqh_last = &thread->thread_list.tqe_next;
}

static void take_out(struct thread *thread)
{
	if (thread->thread_list.tqe_next)
		thread->thread_list.tqe_next->thread_list.tqe_prev = thread->thread_list.tqe_prev;
	else
		thread_list.tqh_last = thread->thread_list.tqe_prev;
	*thread->thread_list.tqe_prev = thread->thread_list.tqe_next;
}

static void wake(struct thread *thread)
{
	thread->wakeup_time = 0;
	thread->flags |= RUNNABLE_FLAG;
}

/* The first thread that can run; without one, *until is when the next wakes up. */
static struct thread *choose(uint64_t *until)
{
	const uint64_t now = clock_ns();

	*until = now + 1000 * MS;
	for (struct thread *at = thread_list.tqh_first; at; at = at->thread_list.tqe_next) {
		if (at->wakeup_time && (uint64_t)at->wakeup_time <= now)
			wake(at);
		else if (at->wakeup_time && (uint64_t)at->wakeup_time < *until)
			*until = (uint64_t)at->wakeup_time;
		if (at->flags & RUNNABLE_FLAG)
			return at;
	}
	return 0;
}

VISIBLE void schedule(void)
{
	struct thread *from = current, *to;
	uint64_t until;

	while (!(to = choose(&until)))
		sleep_until(until);
	take_out(to);
	append(to);
	current = to;
	if (to != from)
		__arch_switch_threads(&from->sp, &to->sp);
}

VISIBLE void msleep(uint64_t ms)
{
	current->wakeup_time = (int64_t)(clock_ns() + ms * MS);
	current->flags &= ~RUNNABLE_FLAG;
	schedule();
}

struct semaphore {
	unsigned long count;
	struct thread *waits;
};

static struct semaphore lock = {1, 0}, event, to_hold, held, to_make;

VISIBLE void down(struct semaphore *semaphore)
{
	while (!semaphore->count) {
		semaphore->waits = current;
		current->flags &= ~RUNNABLE_FLAG;
		schedule();
	}
	semaphore->count--;
}

VISIBLE void up(struct semaphore *semaphore)
{
	semaphore->count++;
	if (semaphore->waits)
		wake(semaphore->waits);
	semaphore->waits = 0;
}

VISIBLE void lock_for(void)
{
	down(&lock);
	up(&lock);
}

VISIBLE void event_for(void)
{
	down(&event);
}

VISIBLE void sleep_for(void)
{
	msleep(SLEEP_MS);
}

VISIBLE void waiter(void *unused)
{
	(void)unused;
	for (unsigned long n = 1;; n++) {
		up(&to_hold);
		down(&held);
		TIMED_BY(clock_ns, &truth[LOCK], lock_for());
		up(&to_make);
		TIMED_BY(clock_ns, &truth[EVENT], event_for());
		TIMED_BY(clock_ns, &truth[SLEEP], sleep_for());
		if (n % TELL_AFTER == 0)
			print("waited %llu %llu %llu\n", (unsigned long long)truth[LOCK].ticks,
			      (unsigned long long)truth[EVENT].ticks,
			      (unsigned long long)truth[SLEEP].ticks);
		if (clock_ns() >= end)
			__arch_switch_threads(&current->sp, &boot.sp);
	}
}

VISIBLE void holder(void *unused)
{
	(void)unused;
	for (;;) {
		down(&to_hold);
		down(&lock);
		up(&held);
		msleep(LOCK_MS);
		up(&lock);
	}
}

VISIBLE void maker(void *unused)
{
	(void)unused;
	for (;;) {
		down(&to_make);
		msleep(EVENT_MS);
		up(&event);
	}
}

VISIBLE void worker(void *unused)
{
	(void)unused;
	for (;;) {
		const uint64_t until = clock_ns() + MS;

		do
			spin(1000);
		while (clock_ns() < until);
		msleep(3);
	}
}

/* A new stack has its thread's address first; last, thread_starter's argument and function, and a free word. */
static void create_thread(unsigned int n, const char *name, void (*function)(void *))
{
	unsigned long *top = (unsigned long *)(stacks[n] + STACK_BYTES) - 3;

	*(struct thread **)stacks[n] = &threads[n];
	top[0] = 0;
	top[1] = (unsigned long)function;
	threads[n] = (struct thread){.name = name,
				     .stack = stacks[n],
				     .sp = (unsigned long)top,
				     .ip = (unsigned long)thread_starter,
				     .flags = RUNNABLE_FLAG};
	append(&threads[n]);
}

int main(void)
{
	end = clock_ns() + option_number("seconds", 60) * 1000 * MS;
	create_thread(0, "waiter", waiter);
	create_thread(1, "holder", holder);
	create_thread(2, "maker", maker);
	create_thread(3, "worker", worker);
	print("waits\n");
	current = &boot;
	schedule();
	print_truth(truth, ROWS);
	return 0;
}
