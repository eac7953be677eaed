/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A process with known answers: function_1, function_2 and function_3 take 1,
 * 3 and 6 parts of its time. What it is to do besides is said by words:
 *   threads  does so in two threads, and starts one more after a second
 *   signals  counts the signals SIGRTMIN that it gets
 *   exec     executes itself at a signal SIGUSR1
 *   end      ends at that signal;  crash: by an access that it must not make
 *   hide     lets nobody but root look at it
 *   naps     sleeps for a moment after each piece of work
 *   deep     works at the end of 3,000 calls
 * A line of numbers every tenth of a second tells how far it has come: pieces
 * of work, signals that came, seconds of CPU time.
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

/* Steps of the smallest piece. */
#define STEPS 2000

static volatile unsigned long steps;
static atomic_ulong pieces;
static volatile sig_atomic_t signals, told;

static NOINLINE void spin(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		steps++;
}

static NOINLINE void function_1(void)
{
	spin(STEPS);
	__asm__ volatile("");
}

static NOINLINE void function_2(void)
{
	spin(3 * STEPS);
	__asm__ volatile("");
}

static NOINLINE void function_3(void)
{
	spin(6 * STEPS);
	__asm__ volatile("");
}

static NOINLINE void work(void)
{
	function_1();
	function_2();
	function_3();
	atomic_fetch_add(&pieces, 1);
}

/* Some 96 KiB of stack. */
static NOINLINE void deep(unsigned calls)
{
	if (calls > 1)
		deep(calls - 1);
	else
		work();
	__asm__ volatile("");
}

static NOINLINE void nap(void)
{
	usleep(50);
	__asm__ volatile("");
}

static double now(clockid_t id)
{
	struct timespec at;

	clock_gettime(id, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void *work_on(void *arg)
{
	for (;;)
		work();
	return arg;
}

static void count_signal(int number)
{
	signals++;
}

static void be_told(int number)
{
	told = 1;
}

static int wants(char **words, const char *word)
{
	for (; *words; words++)
		if (!strcmp(*words, word))
			return 1;
	return 0;
}

/* Events that happen once, at a certain age or when it is told. */
static void live(char **words, double age)
{
	static volatile int *volatile nowhere;
	static int grown;
	pthread_t thread;

	if (told && wants(words, "exec"))
		execl("/proc/self/exe", words[0], (char *)NULL);
	if (age > 1 && !grown && wants(words, "threads"))
		grown = !pthread_create(&thread, NULL, work_on, NULL);
	if (told && wants(words, "end"))
		exit(0);
	if (told && wants(words, "crash"))
		*nowhere = 0;
}

int main(int argc, char **argv)
{
	double start = now(CLOCK_MONOTONIC), written = 0;
	pthread_t thread;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (wants(argv, "hide"))
		prctl(PR_SET_DUMPABLE, 0);
	signal(SIGUSR1, be_told);
	if (wants(argv, "signals"))
		signal(SIGRTMIN, count_signal);
	if (wants(argv, "threads"))
		pthread_create(&thread, NULL, work_on, NULL);
	for (;;) {
		double age = now(CLOCK_MONOTONIC) - start;

		if (wants(argv, "deep"))
			deep(3000);
		else
			work();
		if (wants(argv, "naps"))
			nap();
		live(argv, age);
		if (age - written < 0.1)
			continue;
		written = age;
		printf("%lu %d %.3f\n", (unsigned long)pieces, (int)signals,
		       now(CLOCK_PROCESS_CPUTIME_ID));
	}
}
