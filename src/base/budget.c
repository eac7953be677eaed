/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/budget.h"

#include <assert.h>
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
 * A search is a coroutine: it has a stack of its own, and can be left in its midst and resumed
 * later.
 */

#define STACK_SIZE (512u << 10)
#define GUARD_SIZE (64u << 10) /* a multiple of any page size */

struct side {
	ucontext_t context;
	void *stack; /* lowest address; the caller's: only known to the sanitizer */
	size_t size;
	void *kept; /* the sanitizer's */
};

struct background {
	struct error *(*search)(void *ctx, struct budget *budget);
	void *ctx;
	struct budget budget;
	struct error *err;
	uint64_t until_ns;
	uint8_t *memory; /* guard and stack */
	struct side own, caller;
	bool running, begun, ended, cancelled;
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
	struct background *background = (void *)(uintptr_t)((uint64_t)high << 32 | low);
	struct side *caller = &background->caller;

	sanitizer_arrive(NULL, &caller->stack, &caller->size);
	background->err = background->search(background->ctx, &background->budget);
	background->ended = true;
	sanitizer_leave(NULL, caller->stack, caller->size);
	setcontext(&caller->context);
	abort();
}

/* Runs the search until it pauses or returns. */
static void resume(struct background *background)
{
	struct side *own = &background->own, *caller = &background->caller;

	assert(!background->ended && !background->running);
	background->begun = true;
	background->running = true;
	sanitizer_leave(&caller->kept, own->stack, own->size);
	change_sides(caller, own);
	sanitizer_arrive(caller->kept, NULL, NULL);
	background->running = false;
}

/* budget.check, called by the search: returns to resume, and from here when it is resumed. */
static bool may_continue(void *ctx)
{
	struct background *background = ctx;
	struct side *own = &background->own, *caller = &background->caller;

	assert(background->running);
	if (!background->cancelled && clock_now_ns() >= background->until_ns) {
		sanitizer_leave(&own->kept, caller->stack, caller->size);
		change_sides(own, caller);
		sanitizer_arrive(own->kept, &caller->stack, &caller->size);
	}
	return !background->cancelled;
}

struct error *background_new(struct error *(*search)(void *ctx, struct budget *budget), void *ctx,
			     uint64_t steps, struct background **out)
{
	struct background *background = calloc(1, sizeof(*background));
	const uint64_t self = (uintptr_t)background;
	struct side *own;

	if (!background)
		return error_no_memory();
	background->search = search;
	background->ctx = ctx;
	background->budget =
		(struct budget){.left = steps, .check = may_continue, .ctx = background};
	background->memory = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (background->memory == MAP_FAILED) {
		free(background);
		return error_no_memory();
	}
	mprotect(background->memory, GUARD_SIZE, PROT_NONE);
	own = &background->own;
	getcontext(&own->context);
	own->stack = background->memory + GUARD_SIZE;
	own->size = STACK_SIZE;
	own->context.uc_stack.ss_sp = own->stack;
	own->context.uc_stack.ss_size = STACK_SIZE;
	makecontext(&own->context, (void (*)(void))begin, 2, (unsigned)(self >> 32),
		    (unsigned)self);
	*out = background;
	return NULL;
}

void background_free(struct background *background)
{
	if (!background)
		return;
	background->cancelled = true;
	if (background->begun && !background->ended) {
		resume(background);
		error_free(background->err);
	}
	/* A search that was left in its midst would keep what it holds. */
	assert(!background->begun || background->ended);
	munmap(background->memory, GUARD_SIZE + STACK_SIZE);
	free(background);
}

bool background_run(struct background *background, uint64_t until_ns, struct error **err)
{
	background->until_ns = until_ns;
	resume(background);
	*err = background->ended ? background->err : NULL;
	return !background->ended;
}

bool background_exhausted(const struct background *background)
{
	return background->budget.exhausted;
}
