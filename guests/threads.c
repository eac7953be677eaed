/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 64 threads that hand the vCPU on, 1,000 times a second. Thread n runs serve_1, serve_2, serve_3 or
 * serve_4 by turns of n, each a millisecond at a time; serve_N calls work_N, these call descend to
 * different depths, and that spins. What starts half of the threads (threads-switch.S) takes its
 * arguments off the new stack, so that its frame ends above where it began; the others begin in C code
 * that never returns, on a stack that is full of garbage, as those of lk. Ends after `seconds`
 * (option, 60). Expected shares: a quarter each.
 */
#include "guest.h"

#define THREADS	    64
#define SLICE_NS    1000000
#define SPINS	    1000
#define STACK_WORDS 512
#define KINDS	    4
/*
 * Layout of a stack that switch_threads switches to: six registers (four of 32
 * bits), the return address, two words for thread_starter (argument, function),
 * and a free word. For begin_thread all above the return address is garbage.
 */
#define REGISTERS (sizeof(long) == 8 ? 6 : 4)
#define NEW_WORDS (REGISTERS + 4)

enum { WORK, SERVE_1, ROWS = SERVE_1 + KINDS };

struct truth truth[ROWS] = {{"descend", 0, 0},
			    {"serve_1", 0, 0},
			    {"serve_2", 0, 0},
			    {"serve_3", 0, 0},
			    {"serve_4", 0, 0}};

/* In assembly: saves a stack pointer, goes on with another; begins a thread. */
void switch_threads(unsigned long **from, unsigned long *to);
void thread_starter(void);

#define GARBAGE 0x98765

static struct thread {
	unsigned long *sp;
	void (*function)(void *);
	void *argument;
} threads[THREADS + 1];
static unsigned long stacks[THREADS][STACK_WORDS] __attribute__((aligned(4096)));
static unsigned int current = THREADS; /* main */
static uint64_t end;

VISIBLE void schedule(void)
{
	unsigned int from = current;

	current = clock_ns() < end ? (from + 1) % THREADS : THREADS;
	switch_threads(&threads[from].sp, threads[current].sp);
}

VISIBLE uint64_t descend(unsigned int depth)
{
	return depth ? descend(depth - 1) + depth : spin(SPINS);
}

/* The first row counts the work of all, beside the others', so that it is seen how much is done in a second. */
#define SERVE(number)                                                     \
	VISIBLE void work_##number(uint64_t until)                        \
	{                                                                 \
		do {                                                      \
			descend(number);                                  \
			truth[WORK].calls++;                              \
		} while (clock_ns() < until);                             \
	}                                                                 \
	VISIBLE void serve_##number(void *row)                            \
	{                                                                 \
		for (;;) {                                                \
			uint64_t until = clock_ns() + SLICE_NS;           \
                                                                          \
			TIMED((struct truth *)row, work_##number(until)); \
			schedule();                                       \
		}                                                         \
	}

SERVE(1)
SERVE(2)
SERVE(3)
SERVE(4)

/* switch_threads returns to it for the first time. */
VISIBLE __attribute__((noreturn)) void begin_thread(void)
{
	const struct thread *thread = &threads[current];

	thread->function(thread->argument);
	for (;;)
		;
}

static void create_thread(unsigned int n, void (*function)(void *), void *argument)
{
	unsigned long *sp = stacks[n] + STACK_WORDS - NEW_WORDS;

	for (unsigned int i = 0; i < STACK_WORDS; i++)
		stacks[n][i] = GARBAGE;
	if (n & KINDS) {
		sp[REGISTERS] = (unsigned long)begin_thread;
	} else {
		sp[REGISTERS] = (unsigned long)thread_starter;
		sp[REGISTERS + 1] = (unsigned long)argument;
		sp[REGISTERS + 2] = (unsigned long)function;
	}
	threads[n] = (struct thread){sp, function, argument};
}

int main(void)
{
	static void (*const kinds[KINDS])(void *) = {serve_1, serve_2, serve_3, serve_4};

	uint64_t from = cpu_time();

	end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	for (unsigned int n = 0; n < THREADS; n++)
		create_thread(n, kinds[n % KINDS], &truth[SERVE_1 + n % KINDS]);
	print("threads: %lu\n", (unsigned long)THREADS);
	schedule();
	truth[WORK].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
