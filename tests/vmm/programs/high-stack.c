/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A process whose stack ends with its mapping, a few words above its stack
 * pointer: what asks for more at once than is there gets nothing from some stubs.
 * begin calls outer, which calls inner.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK 65536
#define PAGE  4096

static __attribute__((noinline)) void inner(void)
{
	for (volatile unsigned long i = 0; i < 1000000; i++)
		;
}

static __attribute__((noinline)) void outer(void)
{
	for (;;)
		inner();
}

static void begin(void)
{
	outer();
}

int main(void)
{
	static ucontext_t here, there;
	char *stack = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (stack == MAP_FAILED || munmap(stack + STACK, PAGE) || getcontext(&there))
		return EXIT_FAILURE;
	there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
	makecontext(&there, begin, 0);
	swapcontext(&here, &there);
}
