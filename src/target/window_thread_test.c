/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that are told by an address, or by the stack that a CPU has, whatever its registers for its own data hold. */
#include "target/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FRAMES 4

/* Guest memory without paging: in frame 1 is a pointer to frame 3. */
static uint8_t memory[FRAMES][FRAME_SIZE];

#define POINTER (1 * FRAME_SIZE)
#define THREAD	(3 * FRAME_SIZE)

static const void *frame(void *ctx, uint64_t gfn)
{
	return gfn < FRAMES ? memory[gfn] : NULL;
}

static struct thread_copy copy(const struct thread_request *request, uint64_t sp)
{
	static const struct physmem physmem = {.frame = frame};
	const struct regs regs = {.sp = sp, .word = 8, .own = {UINT64_MAX - 7, UINT64_MAX - 7}};
	struct window window = {0};
	struct window_copy how = {.arch = &arch_x86_64,
				  .regs = &regs,
				  .mem = &physmem,
				  .out = &window};
	struct thread_copy thread = {.there = true};
	const uint64_t at = THREAD;

	memcpy(memory[1], &at, sizeof(at));
	memset(memory[3] + request->at[0], 3, THREAD_PIECE);
	(void)window_copy_thread(&how, request, &thread);
	return thread;
}

static void assert_copied(const struct thread_copy *thread)
{
	uint8_t expected[THREAD_PIECE];

	memset(expected, 3, sizeof(expected));
	assert_true(thread->there);
	assert_int_equal(thread->own, POINTER);
	assert_int_equal(thread->at, THREAD);
	assert_memory_equal(thread->piece[0], expected, sizeof(expected));
}

static void a_thread_is_found_by_an_address(void **state)
{
	struct thread_request request = {.address = POINTER, .at = {0x40, 0x40, 0x40}};
	struct thread_copy thread = copy(&request, 0);

	assert_copied(&thread);
	request.address = FRAMES * FRAME_SIZE;
	thread = copy(&request, 0);
	assert_false(thread.there);
}

static void a_thread_is_found_by_where_its_stack_begins(void **state)
{
	const struct thread_request request = {.stack_size = FRAME_SIZE, .at = {0x40, 0x40, 0x40}};
	struct thread_copy thread = copy(&request, POINTER + 0xff8);

	assert_copied(&thread);
	thread = copy(&request, POINTER);
	assert_copied(&thread);
	thread = copy(&request, FRAMES * FRAME_SIZE + 8);
	assert_false(thread.there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_is_found_by_an_address),
		cmocka_unit_test(a_thread_is_found_by_where_its_stack_begins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
