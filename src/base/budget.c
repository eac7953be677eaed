/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/budget.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/clock.h"

bool budget_over(const struct budget *budget)
{
	return budget && (budget->exhausted || budget->cancelled);
}

bool budget_spend(struct budget *budget, uint64_t steps)
{
	if (!budget)
		return true;
	if (budget_over(budget))
		return false;
	if (steps > budget->left) {
		budget->exhausted = true;
		return false;
	}
	budget->left -= steps;
	budget->unchecked += steps;
	if (budget->check && budget->unchecked >= BUDGET_CHECK) {
		budget->unchecked = 0;
		budget->cancelled = !budget->check(budget->ctx);
	}
	return !budget->cancelled;
}

/* AddressSanitizer must be told that a coroutine's stack is one. */

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)

#include <sanitizer/common_interface_defs.h>

#define sanitizer_leave(kept, stack, size) __sanitizer_start_switch_fiber(kept, stack, size)
#define sanitizer_arrive(kept, stack, size) \
	__sanitizer_finish_switch_fiber(kept, (const void **)(stack), size)

#else

static inline void sanitizer_leave(void **kept, const void *stack, size_t size)
{
	(void)kept, (void)stack, (void)size;
}

static inline void sanitizer_arrive(void *kept, void **stack, size_t *size)
{
	(void)kept, (void)stack, (void)size;
}

#endif

/*
 * A coroutine: a function with a stack of its own, which can be left in its midst
 * and resumed later.
 */

#define STACK_SIZE (512u << 10)
#define GUARD_SIZE (64u << 10) /* a multiple of any page size */

struct side {
	ucontext_t context;
	void *stack; /* lowest address; the caller's: only known to the sanitizer */
	size_t size;
	void *kept; /* the sanitizer's */
};

struct coroutine {
	void (*run)(void *ctx);
	void *ctx;
	uint8_t *memory; /* guard and stack */
	struct side own, caller;
	bool running, begun, ended;
};

/*
 * Saves one side and continues the other. swapcontext would do, but
 * AddressSanitizer warns of it on standard error.
 */
static void change_sides(struct side *from, struct side *to)
{
	volatile bool back = false;

	getcontext(&from->context);
	if (back)
		return;
	back = true;
	setcontext(&to->context);
	abort();
}

/* makecontext passes ints: the pointer comes in two halves. */
static void begin(unsigned high, unsigned low)
{
	struct coroutine *coroutine = (void *)(uintptr_t)((uint64_t)high << 32 | low);

	sanitizer_arrive(NULL, &coroutine->caller.stack, &coroutine->caller.size);
	coroutine->run(coroutine->ctx);
	coroutine->ended = true;
	sanitizer_leave(NULL, coroutine->caller.stack, coroutine->caller.size);
	setcontext(&coroutine->caller.context);
	abort();
}

static struct error *coroutine_new(void (*run)(void *ctx), void *ctx, struct coroutine **out)
{
	struct coroutine *coroutine = calloc(1, sizeof(*coroutine));
	const uint64_t self = (uintptr_t)coroutine;

	if (!coroutine)
		return error_no_memory();
	coroutine->run = run;
	coroutine->ctx = ctx;
	coroutine->memory = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (coroutine->memory == MAP_FAILED) {
		free(coroutine);
		return error_no_memory();
	}
	mprotect(coroutine->memory, GUARD_SIZE, PROT_NONE);
	getcontext(&coroutine->own.context);
	coroutine->own.stack = coroutine->memory + GUARD_SIZE;
	coroutine->own.size = STACK_SIZE;
	coroutine->own.context.uc_stack.ss_sp = coroutine->own.stack;
	coroutine->own.context.uc_stack.ss_size = STACK_SIZE;
	makecontext(&coroutine->own.context, (void (*)(void))begin, 2, (unsigned)(self >> 32),
		    (unsigned)self);
	*out = coroutine;
	return NULL;
}

/* The function must have returned, or never been resumed. NULL is allowed. */
static void coroutine_free(struct coroutine *coroutine)
{
	if (!coroutine)
		return;
	assert(!coroutine->begun || coroutine->ended);
	munmap(coroutine->memory, GUARD_SIZE + STACK_SIZE);
	free(coroutine);
}

/* Runs the function until it yields or returns; false: it has returned. */
static bool coroutine_resume(struct coroutine *coroutine)
{
	assert(!coroutine->ended && !coroutine->running);
	coroutine->begun = true;
	coroutine->running = true;
	sanitizer_leave(&coroutine->caller.kept, coroutine->own.stack, coroutine->own.size);
	change_sides(&coroutine->caller, &coroutine->own);
	sanitizer_arrive(coroutine->caller.kept, NULL, NULL);
	coroutine->running = false;
	return !coroutine->ended;
}

/* Called by the function: returns to coroutine_resume, and from here when it is resumed. */
static void coroutine_yield(struct coroutine *coroutine)
{
	assert(coroutine->running);
	sanitizer_leave(&coroutine->own.kept, coroutine->caller.stack, coroutine->caller.size);
	change_sides(&coroutine->own, &coroutine->caller);
	sanitizer_arrive(coroutine->own.kept, &coroutine->caller.stack, &coroutine->caller.size);
}

struct background {
	struct error *(*search)(void *ctx, struct budget *budget);
	void *ctx;
	struct coroutine *coroutine;
	struct budget budget;
	struct error *err;
	uint64_t until_ns;
	bool begun, ended, cancelled;
};

static bool may_continue(void *ctx)
{
	struct background *background = ctx;

	if (!background->cancelled && clock_now_ns() >= background->until_ns)
		coroutine_yield(background->coroutine);
	return !background->cancelled;
}

static void run_search(void *ctx)
{
	struct background *background = ctx;

	background->err = background->search(background->ctx, &background->budget);
}

struct error *background_new(struct error *(*search)(void *ctx, struct budget *budget), void *ctx,
			     uint64_t steps, struct background **out)
{
	struct background *background = calloc(1, sizeof(*background));
	struct error *err;

	if (!background)
		return error_no_memory();
	background->search = search;
	background->ctx = ctx;
	background->budget =
		(struct budget){.left = steps, .check = may_continue, .ctx = background};
	err = coroutine_new(run_search, background, &background->coroutine);
	if (err) {
		free(background);
		return err;
	}
	*out = background;
	return NULL;
}

void background_free(struct background *background)
{
	if (!background)
		return;
	background->cancelled = true;
	if (background->begun && !background->ended) {
		coroutine_resume(background->coroutine);
		error_free(background->err);
	}
	coroutine_free(background->coroutine);
	free(background);
}

bool background_run(struct background *background, uint64_t until_ns, struct error **err)
{
	*err = NULL;
	background->until_ns = until_ns;
	background->begun = true;
	background->ended = !coroutine_resume(background->coroutine);
	if (background->ended)
		*err = background->err;
	return !background->ended;
}

bool background_exhausted(const struct background *background)
{
	return background->budget.exhausted;
}
