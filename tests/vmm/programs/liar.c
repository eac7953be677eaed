/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Says that it is CPython 3.11, and lies: its threads, frames and functions are
 * pointers from anywhere to anywhere, and change all the time. It does nothing
 * but work within the function that is said to be the interpreter's loop.
 */

#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS 4096u

const uint64_t Py_Version = 0x030b02f0;
uint64_t _PyRuntime[64], PyCode_Type[8], PyUnicode_Type[8], PyBytes_Type[8];

static uint64_t heap[WORDS], seed = 1;

static uint64_t draw(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return seed >> 33;
}

/* Pointers, types, lengths that are right and wrong; the thread's number, where a thread's state has it. */
static uint64_t lie(uint64_t *stack)
{
	switch (draw() % 8) {
	case 0:
		return draw() % 64;
	case 1:
		return (uintptr_t)(stack + draw() % 64);
	case 2:
		return (uintptr_t)PyCode_Type;
	case 3:
		return draw() % 2 ? (uintptr_t)PyUnicode_Type : (uintptr_t)PyBytes_Type;
	case 4:
		return UINT64_MAX - draw() % 256;
	case 5:
		return (uint64_t)syscall(SYS_gettid);
	default:
		return (uintptr_t)(heap + draw() % (WORDS - 64));
	}
}

int _PyEval_EvalFrameDefault(unsigned depth);
__attribute__((noinline)) int _PyEval_EvalFrameDefault(unsigned depth)
{
	volatile uint64_t stack[64];
	volatile uint64_t rounds = 0;

	if (depth)
		return _PyEval_EvalFrameDefault(depth - 1) + 1;
	while (++rounds) {
		for (unsigned i = 0; i < 512; i++)
			heap[draw() % WORDS] = lie((uint64_t *)stack);
		for (unsigned i = 0; i < 64; i++)
			stack[i] = lie((uint64_t *)stack);
		_PyRuntime[5] = (uintptr_t)(heap + draw() % (WORDS - 64));
		for (unsigned i = 0; i < WORDS; i += 61)
			heap[i] = (uint64_t)getpid();
		if (rounds % 1024 == 0)
			printf("%llu\n", (unsigned long long)rounds);
	}
	return 0;
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	return _PyEval_EvalFrameDefault(5);
}
