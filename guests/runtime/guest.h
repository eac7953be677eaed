/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface for guest programs. A program is one C file with a `main`; the runtime boots it as
 * a PV or a PVH domU of Xen on x86, as a domU of Xen on Arm, or (the images for PVH, Arm and
 * RISC-V) directly under QEMU, and powers off when main returns. There are no interrupts but those
 * of start_timer, no threads and no allocation: main owns the boot vCPU.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "processor.h"

/*
 * A function that must be seen in a profile under its own name: never inlined, cloned or merged.
 * Clang neither knows noclone nor clones.
 */
#ifdef __clang__
#define VISIBLE __attribute__((noinline))
#else
#define VISIBLE __attribute__((noinline, noclone))
#endif

/*
 * Formats one or more lines and sends them to the console. Knows %s, %lu, %llu, %0Nlu and %%. A
 * console that cannot keep up makes the guest yield a few times and then lose whole lines (never
 * parts of one), so that a function's cost does not depend on the reader of the console; after
 * console_wait(true) the guest waits instead, for as long as it takes.
 */
void print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void console_wait(bool wait);

/* The command line's `name=number`, or otherwise when it is missing or not a number. */
unsigned long option_number(const char *name, unsigned long otherwise);
/* True if the command line holds the word `word`, for instance "crash" or "order=phases". */
bool option_given(const char *word);

/* Work: the same number of instructions a round, a leaf, about a million rounds in some ms. */
uint64_t spin(uint64_t rounds);

/*
 * The CPU time of the boot vCPU in nanoseconds, as Xen counts it: without the time in which the
 * guest is paused, or others have its CPU. Directly under QEMU, ticks.
 */
uint64_t cpu_time(void);

/* Nanoseconds since some moment before the guest's start. For the boot vCPU, as sleeping is. */
uint64_t clock_ns(void);
/* Blocks the vCPU until clock_ns() reaches the deadline; directly under QEMU it spins. */
void sleep_until(uint64_t deadline_ns);

enum ending { ENDING_POWEROFF, ENDING_CRASH };
void shut_down(enum ending ending) __attribute__((noreturn));

/*
 * Runs entry(vcpu) on another vCPU, on a stack of its own; entry must not return. False when the
 * guest has no such vCPU, or MAX_VCPUS are in use. vCPU 0 runs main.
 */
#define MAX_VCPUS 32
bool start_vcpu(unsigned int vcpu, void (*entry)(unsigned int vcpu));

/*
 * Calls function on the stack that ends below top (16-byte aligned) and comes back to this one.
 * The frame-pointer chain and the CFI lead from that stack to the caller's.
 */
void call_on_stack(void (*function)(void), void *top);

/*
 * Interrupts the boot vCPU again and again, at least 1 ms apart, to call tick with interrupts off.
 * The frame is on the interrupted stack or, in a PVH guest, on the one that ends below stack_top
 * (16-byte aligned; NULL: the interrupted one). Not for programs that sleep, nor on 32 bits.
 */
void start_timer(uint64_t period_ns, void (*tick)(void), void *stack_top);
void stop_timer(void);

/* x86 only: the code that the timer has interrupted; to be asked in tick. */
struct interrupted {
	uint64_t pc, sp, fp, flags;
};
struct interrupted timer_interrupted(void);

/* The stack that main runs on. */
#define BOOT_STACK_BYTES 0x100000
extern uint8_t boot_stack[BOOT_STACK_BYTES];

/*
 * Counts of the guest itself: calls of a function and the ticks that passed in them, taken by the
 * caller around each call. Programs keep their rows in an array named `truth`, so that a tool can
 * read them from the guest's memory by that symbol while it runs.
 */
struct truth {
	char name[24];
	uint64_t calls;
	uint64_t ticks;
};

/* One `truth NAME calls N ticks N share N.NNNN` line a row; the first row's ticks are the whole. */
void print_truth(const struct truth *rows, size_t count);

#define TIMED_BY(clock, row, call)                      \
	do {                                            \
		uint64_t timed_from = (clock)();        \
		call;                                   \
		(row)->ticks += (clock)() - timed_from; \
		(row)->calls++;                         \
	} while (0)

/* On the boot vCPU, without the time for which others took the CPU. */
#define TIMED(row, call) TIMED_BY(cpu_time, row, call)

int main(void);
