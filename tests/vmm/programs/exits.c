/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Guests of tests/vmm/programs/monitor.c in kernel mode, each of which does one thing for ever (WORK):
 * write_ports writes to a port, touch_memory writes to pages that the host has to find first, compute
 * leaves the guest for nothing. Each does a little of its own between.
 */

#ifdef __clang__
#define NOINLINE __attribute__((noinline, used))
#else
#define NOINLINE __attribute__((noinline, noclone, used))
#endif

#define TIMES	   100
#define BETWEEN	   2000
#define PAGE	   4096ul
#define FRESH	   (32ul << 20)
#define FRESH_SIZE (16ul << 20)
#define WORK_PORT  0x10
#define FRESH_PORT 0x11

/* Shared with the monitor: a page of its own behind the page tables. */
static volatile unsigned long *const done = (unsigned long *)0x9000;

static NOINLINE void spin(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		done[8]++;
}

static inline void out(unsigned short port)
{
	__asm__ volatile("outb %0, %1" : : "a"((unsigned char)0), "Nd"(port));
}

static NOINLINE void write_ports(void)
{
	for (int i = 0; i < TIMES; i++) {
		out(WORK_PORT);
		spin(BETWEEN);
	}
}

static NOINLINE void touch_memory(void)
{
	for (unsigned long at = FRESH; at < FRESH + FRESH_SIZE; at += PAGE) {
		*(volatile unsigned long *)at = at;
		spin(BETWEEN / 4);
	}
	out(FRESH_PORT);
}

static NOINLINE void compute(void)
{
	spin(TIMES * BETWEEN);
}

void start(void);

/* The monitor sets the stack up, with a frame record that has no caller. */
void start(void)
{
	for (;;) {
		WORK();
		done[0]++;
	}
}
