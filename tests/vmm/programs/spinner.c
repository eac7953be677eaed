/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A guest of tests/vmm/programs/monitor.c: function_1, function_2 and
 * function_3 take 1, 3 and 6 parts of each vCPU's time, in user mode, without
 * ever leaving the guest. What it has done stands in `done`, for the monitor.
 */

#ifdef __clang__
#define NOINLINE __attribute__((noinline, used))
#else
#define NOINLINE __attribute__((noinline, noclone, used))
#endif
#define STEPS 2000

/* Shared with the monitor: a page of its own behind the page tables. */
static volatile unsigned long *const done = (unsigned long *)0x9000;

/* ... and where a vCPU finds a stack that it is to move to; 0: it need not. */
static volatile unsigned long *const stacks = (unsigned long *)0x9100;

static NOINLINE void spin(unsigned long n, unsigned vcpu)
{
	for (unsigned long i = 0; i < n; i++)
		done[8 + vcpu]++;
}

static NOINLINE void function_1(unsigned vcpu)
{
	spin(STEPS, vcpu);
	__asm__ volatile("");
}

static NOINLINE void function_2(unsigned vcpu)
{
	spin(3 * STEPS, vcpu);
	__asm__ volatile("");
}

static NOINLINE void function_3(unsigned vcpu)
{
	spin(6 * STEPS, vcpu);
	__asm__ volatile("");
}

static NOINLINE void work(unsigned vcpu)
{
	function_1(vcpu);
	function_2(vcpu);
	function_3(vcpu);
	done[vcpu]++;
}

void start(unsigned vcpu);

/* Begins anew on another stack, as the monitor does it: called by nobody. */
#ifdef __aarch64__
static inline void move_to(unsigned long stack, unsigned vcpu)
{
	__asm__ volatile(
		"mov sp, %0\n\tmov w0, %w1\n\tmov x29, xzr\n\tmov x30, xzr\n\tb start" ::"r"(stack),
		"r"(vcpu)
		: "x0");
}
#else
static inline void move_to(unsigned long stack, unsigned vcpu)
{
	__asm__ volatile("movq %0, %%rsp\n\txorl %%ebp, %%ebp\n\tjmp start" ::"r"(stack - 24),
			 "D"(vcpu));
}
#endif

/* The monitor sets the stack up, with a frame record that has no caller. */
void start(unsigned vcpu)
{
	for (;;) {
		const unsigned long stack = stacks[vcpu];

		work(vcpu);
		if (!stack)
			continue;
		stacks[vcpu] = 0;
		move_to(stack, vcpu);
	}
}
