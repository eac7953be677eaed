/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program for a Linux guest that keeps its kernel busy in many ways: system
 * calls, page faults, processes that start, end, wait and wake each other,
 * timer interrupts in all of that. Without a C library, so that every frame of
 * it is known: kernel stacks end in user_entry -> run_* -> ... -> call.
 */

typedef unsigned long word;

void user_entry(void);

#include "machine.h"

/* Constants that are equal on all machines. */
enum { O_RDWR_CREAT = 0102, PROT_RW = 3, MAP_OWN = 0x22, SIGCHLD = 17 };
#define HERE ((word)-100) /* AT_FDCWD */

#define PAGE 4096ul

static __attribute__((noinline)) long call(long number, word a, word b, word c, word d)
{
	return system_call(number, a, b, c, d);
}

static long fork(void)
{
	return call(SYS_CLONE, SIGCHLD, 0, 0, 0);
}

static __attribute__((noipa)) void touch_pages(volatile char *memory, word len)
{
	for (word at = 0; at < len; at += PAGE)
		memory[at] = 1;
}

static __attribute__((noinline)) void run_faults(void)
{
	for (;;) {
		word len = 64 * PAGE;
		long memory = call(SYS_MMAP, 0, len, PROT_RW, MAP_OWN);

		touch_pages((char *)memory, len);
		call(SYS_MUNMAP, (word)memory, len, 0, 0);
	}
}

static __attribute__((noinline)) void run_files(void)
{
	static char bytes[3 * PAGE];

	for (;;) {
		long fd = call(SYS_OPENAT, HERE, (word) "/work", O_RDWR_CREAT, 0600);

		call(SYS_WRITE, (word)fd, (word)bytes, sizeof(bytes), 0);
		call(SYS_NEWFSTATAT, HERE, (word) "/no/such/file", (word)bytes, 0);
		call(SYS_CLOSE, (word)fd, 0, 0, 0);
		call(SYS_UNLINKAT, HERE, (word) "/work", 0, 0);
	}
}

/* Two processes that hand each other a byte. */
static __attribute__((noinline)) void run_pipes(void)
{
	int to[2], from[2];
	char byte = 0;

	call(SYS_PIPE2, (word)to, 0, 0, 0);
	call(SYS_PIPE2, (word)from, 0, 0, 0);
	if (fork() == 0)
		for (;;) {
			call(SYS_READ, (word)to[0], (word)&byte, 1, 0);
			call(SYS_WRITE, (word)from[1], (word)&byte, 1, 0);
		}
	for (;;) {
		call(SYS_WRITE, (word)to[1], (word)&byte, 1, 0);
		call(SYS_READ, (word)from[0], (word)&byte, 1, 0);
	}
}

static __attribute__((noinline)) void run_forks(void)
{
	for (;;) {
		if (fork() == 0)
			call(SYS_EXIT, 0, 0, 0, 0);
		call(SYS_WAIT4, ~0ul, 0, 0, 0);
	}
}

static __attribute__((noipa)) void spin(volatile word n)
{
	while (n)
		n--;
}

static __attribute__((noinline)) void run_user(void)
{
	for (;;)
		spin(100000);
}

static __attribute__((noinline)) void run_sleeps(void)
{
	const word time[2] = {0, 3000000};

	for (;;) {
		call(SYS_NANOSLEEP, (word)time, 0, 0, 0);
		call(SYS_GETPID, 0, 0, 0, 0);
		call(SYS_YIELD, 0, 0, 0, 0);
	}
}

static __attribute__((noinline, noreturn)) void start_all(void)
{
	void (*const runs[])(void) = {run_faults, run_files, run_pipes,
				      run_forks,  run_user,  run_sleeps};

	for (word i = 0; i + 1 < sizeof(runs) / sizeof(*runs); i++)
		if (fork() == 0)
			runs[i]();
	for (;;)
		run_sleeps();
}

/* The kernel starts a program with an aligned stack and no return address. */
__attribute__((used, noreturn)) void user_entry(void)
{
	start_all();
}
