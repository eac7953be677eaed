/* SPDX-License-Identifier: BSD-3-Clause */

/* A guest's memory is this process's own. */

#include "target/host/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arch.h"

#define GFN 0x1234ull
#define GPA (GFN << FRAME_SHIFT)

static _Alignas(FRAME_SIZE) uint8_t memory[2 * FRAME_SIZE];
static struct guest_ram *ram;
static int fd;

static int set_up(void **state)
{
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
	assert_null(host_memory_open(getpid(), false, &fd));
	assert_null(guest_ram_new(fd, &ram));
	assert_true(
		ram_map_add(guest_ram_map(ram), GPA, sizeof(memory), (uint64_t)(uintptr_t)memory));
	return 0;
}

static int tear_down(void **state)
{
	guest_ram_free(ram);
	close(fd);
	return 0;
}

static void a_part_is_what_the_frame_has_there(void **state)
{
	for (size_t at = 0; at < FRAME_SIZE; at += 41)
		for (size_t len = 1; len <= FRAME_SIZE - at; len = 3 * len + 1) {
			guest_ram_forget(ram);
			assert_memory_equal(guest_ram_part(ram, GPA + at, len), memory + at, len);
		}
	assert_memory_equal(guest_ram_part(ram, GPA + FRAME_SIZE - 8, 8), memory + FRAME_SIZE - 8,
			    8);
	assert_memory_equal(guest_ram_part(ram, GPA + FRAME_SIZE, 8), memory + FRAME_SIZE, 8);
	assert_false(guest_ram_missed(ram));
}

static void a_part_that_was_read_stays_until_it_is_forgotten(void **state)
{
	const uint8_t before = memory[100];

	assert_memory_equal(guest_ram_part(ram, GPA + 100, 1), &before, 1);
	memory[100]++;
	assert_memory_equal(guest_ram_part(ram, GPA + 100, 1), &before, 1);
	guest_ram_forget(ram);
	assert_memory_equal(guest_ram_part(ram, GPA + 100, 1), memory + 100, 1);
}

static void a_frame_is_whole_after_parts_of_it(void **state)
{
	(void)guest_ram_part(ram, GPA + 8, 8);
	(void)guest_ram_part(ram, GPA + 2048, 200);
	assert_memory_equal(guest_ram_frame(ram, GFN), memory, FRAME_SIZE);
}

static void what_is_nowhere_is_missed(void **state)
{
	assert_null(guest_ram_part(ram, GPA + sizeof(memory), 8));
	assert_true(guest_ram_missed(ram));
	assert_false(guest_ram_missed(ram));
	/* The guest has memory there, and its monitor none. */
	assert_true(ram_map_add(guest_ram_map(ram), 0, FRAME_SIZE, 1ull << 46));
	assert_null(guest_ram_part(ram, 8, 8));
	assert_true(guest_ram_missed(ram));
}

/* Without paging, so that addresses are physical: a pointer in the first frame, the thread behind it. */
#define POINTER (GPA + 0x10)

static struct thread_copy copy_thread(struct thread_request request, uint64_t thread)
{
	const struct regs regs = {.word = 8};
	struct thread_copy out = {.there = true};

	request.address = POINTER;
	memcpy(memory + 0x10, &thread, sizeof(thread));
	guest_ram_copy_thread(ram, &arch_x86_64, &regs, &request, &out);
	return out;
}

static void assert_thread(const struct thread_request *request, uint64_t thread)
{
	const struct thread_copy out = copy_thread(*request, thread);

	assert_true(out.there);
	assert_int_equal(out.own, POINTER);
	assert_int_equal(out.at, thread);
	for (size_t i = 0; i < THREAD_PIECES; i++)
		assert_memory_equal(out.piece[i], memory + (thread - GPA) + request->at[i],
				    THREAD_PIECE);
}

static void a_thread_is_copied_wherever_its_pieces_are(void **state)
{
	static const struct thread_request requests[] = {{.at = {0x20, 0x128, 0x200}},
							 {.at = {0x200, 0x20, 0x7f0}},
							 {.at = {0x20, 0x7f8, 0x30}},
							 {.at = {0, 0, 0}}};

	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		for (uint64_t at = 0x40; at < FRAME_SIZE; at += 0x18)
			assert_thread(&requests[i], GPA + at);
}

static void a_thread_that_is_nowhere_is_not_there(void **state)
{
	const struct thread_request request = {.at = {0x20, 0x128, 0x200}};

	assert_false(copy_thread(request, GPA + sizeof(memory) - 0x200).there);
	assert_false(copy_thread(request, 0).there);
	assert_false(copy_thread(request, UINT64_MAX - 7).there);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_part_is_what_the_frame_has_there),
		TEST(a_part_that_was_read_stays_until_it_is_forgotten),
		TEST(a_frame_is_whole_after_parts_of_it),
		TEST(what_is_nowhere_is_missed),
		TEST(a_thread_is_copied_wherever_its_pieces_are),
		TEST(a_thread_that_is_nowhere_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
