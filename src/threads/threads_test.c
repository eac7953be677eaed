/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VCPUS	 2u
#define OWN(cpu) (0x1000ull * ((cpu) + 1))

/* A system whose threads are in their copies as they are. */
static struct {
	unsigned searches; /* for a CPU's own data */
	unsigned read;	   /* details */
	bool ended;	   /* there is no thread to be read */
} asked;

static bool decode(const struct thread_copy *copy, struct guest_thread *out)
{
	*out = (struct guest_thread){0};
	memcpy(&out->pid, copy->piece[0], 4);
	memcpy(&out->tid, copy->piece[0] + 4, 4);
	memcpy(&out->start_ns, copy->piece[1], 8);
	memcpy(out->name, copy->piece[2], THREAD_PIECE);
	memcpy(&out->group, copy->piece[3], 8);
	return out->tid < 1u << 22;
}

static bool is_cpu(const void *state, const struct guest_memory *memory, uint64_t at)
{
	asked.searches++;
	return at == OWN(0) || at == OWN(1);
}

static bool details(const void *state, const struct guest_memory *memory,
		    const struct guest_thread *thread, struct thread_details *out)
{
	asked.read++;
	if (asked.ended)
		return false;
	strcpy(out->process, "leader");
	out->kernel = true;
	out->stack = 0x10000;
	out->stack_size = 0x4000;
	return true;
}

static bool container(const void *state, const struct guest_memory *memory,
		      const struct guest_thread *thread, char path[GUEST_PATH_MAX + 1])
{
	sprintf(path, "/%u", (unsigned)thread->group);
	return thread->group && !asked.ended;
}

static const struct threads_system fake = {.decode = decode,
					   .is_cpu = is_cpu,
					   .details = details,
					   .container = container};
static const struct guest_threads threads = {.system = &fake};
static const struct guest_memory memory;
static struct thread_numbers *numbers;

/* Of the threads that are found next. */
static uint64_t group;

static int set_up(void **state)
{
	memset(&asked, 0, sizeof(asked));
	group = 0;
	return thread_numbers_new(VCPUS, &numbers) ? -1 : 0;
}

static int tear_down(void **state)
{
	thread_numbers_free(numbers);
	return 0;
}

static uint32_t find_by(uint64_t own, uint32_t pid, uint32_t tid, uint64_t start_ns,
			const char *name)
{
	struct thread_copy copy = {.there = true, .own = own};
	uint32_t number;

	memcpy(copy.piece[3], &group, 8);
	memcpy(copy.piece[0], &pid, 4);
	memcpy(copy.piece[0] + 4, &tid, 4);
	memcpy(copy.piece[1], &start_ns, 8);
	strncpy((char *)copy.piece[2], name, THREAD_PIECE - 1);
	assert_null(thread_numbers_find(numbers, &threads, &memory, 0, &copy, &number));
	return number;
}

static uint32_t find(uint32_t pid, uint32_t tid, uint64_t start_ns, const char *name)
{
	return find_by(OWN(0), pid, tid, start_ns, name);
}

static bool complete(const void *state, const struct guest_memory *read,
		     struct guest_thread *thread)
{
	strcpy(thread->name, "read");
	return !asked.ended;
}

static void what_a_copy_does_not_tell_is_read(void **state)
{
	static const struct threads_system system = {.decode = decode,
						     .complete = complete,
						     .details = details};
	static const struct guest_threads others = {.system = &system};
	const struct thread_copy copy = {.there = true, .own = 0x123456};
	uint32_t number;

	assert_null(thread_numbers_find(numbers, &others, &memory, 0, &copy, &number));
	assert_int_equal(number, 1);
	assert_string_equal(thread_numbers_get(numbers, number)->name, "read");
	asked.ended = true;
	assert_null(thread_numbers_find(numbers, &others, &memory, 0, &copy, &number));
	assert_int_equal(number, 0);
}

static void threads_are_numbered_as_they_come(void **state)
{
	const struct recorded_thread *thread;

	assert_int_equal(thread_numbers_count(numbers), 0);
	assert_int_equal(find(7, 7, 1, "a"), 1);
	assert_int_equal(find(7, 8, 2, "b"), 2);
	assert_int_equal(find(7, 7, 1, "a"), 1);
	/* Another thread with the same numbers, and one that has changed its name. */
	assert_int_equal(find(7, 7, 9, "a"), 3);
	assert_int_equal(find(7, 7, 1, "new"), 4);
	assert_int_equal(find(7, 8, 2, "b"), 2);
	assert_int_equal(thread_numbers_count(numbers), 4);
	thread = thread_numbers_get(numbers, 2);
	assert_int_equal(thread->pid, 7);
	assert_int_equal(thread->tid, 8);
	assert_true(thread->start_ns == 2);
	assert_string_equal(thread->name, "b");
}

static void a_process_is_called_as_its_first_thread_was_in_the_copy(void **state)
{
	assert_int_equal(find(7, 7, 1, "sh"), 1);
	assert_string_equal(thread_numbers_get(numbers, 1)->process, "sh");
	assert_int_equal(find(7, 8, 2, "b"), 2);
	assert_int_equal(find(7, 8, 2, "b"), 2);
	assert_int_equal(asked.read, 2);
	assert_string_equal(thread_numbers_get(numbers, 2)->process, "leader");
	asked.ended = true;
	assert_int_equal(find(7, 9, 3, "c"), 3);
	assert_string_equal(thread_numbers_get(numbers, 3)->process, "c");
}

static void a_thread_s_own_stack_is_known_if_it_was_read(void **state)
{
	assert_int_equal(find(7, 7, 1, "a"), 1);
	assert_true(thread_numbers_get(numbers, 1)->kernel);
	assert_true(thread_numbers_on_stack(numbers, 1, 0x10000));
	assert_true(thread_numbers_on_stack(numbers, 1, 0x13ff8));
	assert_false(thread_numbers_on_stack(numbers, 1, 0x14000));
	assert_false(thread_numbers_on_stack(numbers, 1, 0xfff8));
	asked.ended = true;
	assert_int_equal(find(8, 8, 2, "b"), 2);
	assert_false(thread_numbers_get(numbers, 2)->kernel);
	assert_false(thread_numbers_on_stack(numbers, 2, 0x10000));
	assert_false(thread_numbers_on_stack(numbers, 2, 0));
}

static void a_thread_that_moves_to_another_container_is_another(void **state)
{
	assert_int_equal(find(7, 7, 1, "a"), 1);
	assert_null(thread_numbers_get(numbers, 1)->container);
	group = 1;
	assert_int_equal(find(7, 7, 1, "a"), 2);
	assert_string_equal(thread_numbers_get(numbers, 2)->container, "/1");
	group = 2;
	assert_int_equal(find(7, 7, 1, "a"), 3);
	assert_string_equal(thread_numbers_get(numbers, 3)->container, "/2");
	group = 1;
	assert_int_equal(find(7, 7, 1, "a"), 2);
	asked.ended = true;
	assert_int_equal(find(7, 8, 1, "b"), 4);
	assert_null(thread_numbers_get(numbers, 4)->container);
}

static void what_cannot_be_a_thread_has_no_number(void **state)
{
	assert_int_equal(find(7, 1u << 31, 1, "a"), 0);
	assert_int_equal(thread_numbers_count(numbers), 0);
}

static void a_register_that_a_program_has_set_is_not_believed(void **state)
{
	assert_int_equal(find_by(OWN(5), 7, 7, 1, "a"), 0);
	assert_int_equal(find_by(OWN(0), 7, 7, 1, "a"), 1);
	assert_int_equal(asked.searches, 2);
	/* The vCPU's CPU is known from now on: not even another one's data are believed. */
	assert_int_equal(find_by(OWN(1), 7, 7, 1, "a"), 0);
	assert_int_equal(find_by(OWN(0), 7, 7, 1, "a"), 1);
	assert_int_equal(asked.searches, 2);
}

static void searches_for_a_cpu_that_is_not_there_end(void **state)
{
	for (unsigned i = 0; i < 5000; i++)
		assert_int_equal(find_by(OWN(5), 7, 7, 1, "a"), 0);
	assert_true(asked.searches <= 1000);
}

/* The last has another id than its number; the system keeps them from 0x100 on, and their data behind. */
static const uint64_t cpu_tables[] = {0, 1, 0x100, OWN(0), OWN(1), OWN(2)};

static size_t read_tables(void *ctx, uint64_t va, void *buf, size_t len)
{
	if (va < 0x100 || va + len > 0x100 + sizeof(cpu_tables))
		return 0;
	memcpy(buf, (const uint8_t *)cpu_tables + (va - 0x100), len);
	return len;
}

static void a_cpu_s_own_data_are_found_by_its_id_in_the_machine(void **state)
{
	const struct guest_memory tables = {.read = read_tables};
	const struct thread_request known = {.ids = 0x100, .cpus = 0x118};
	const struct thread_request without = {.cpus = 0x118},
				    beyond = {.ids = 0x100, .cpus = 0x128};

	assert_int_equal(guest_cpu_own(&known, &tables, 0, 3), OWN(0));
	assert_int_equal(guest_cpu_own(&known, &tables, 0x100, 3), OWN(2));
	assert_int_equal(guest_cpu_own(&known, &tables, 2, 3), 0);
	/* No more are looked at than there are, and than can be read. */
	assert_int_equal(guest_cpu_own(&known, &tables, 0x100, 2), 0);
	assert_int_equal(guest_cpu_own(&known, &tables, 0x2000, UINT32_MAX), 0);
	assert_int_equal(guest_cpu_own(&without, &tables, 0, 3), 0);
	assert_int_equal(guest_cpu_own(&beyond, &tables, 0x100, 3), 0);
}

static void threads_that_are_known_are_known_when_there_are_too_many(void **state)
{
	for (uint32_t i = 0; i < RECORDED_THREADS_MAX; i++)
		assert_int_equal(find(i, i, i, i % 2 ? "odd" : "even"), i + 1);
	assert_int_equal(find(1, 1, 1, "another"), 0);
	assert_int_equal(find(1, 1, 1, "even"), 0);
	assert_int_equal(find(1, 2, 1, "odd"), 0);
	assert_int_equal(find(1, 1, 1, "odd"), 2);
	assert_int_equal(thread_numbers_count(numbers), RECORDED_THREADS_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_are_numbered_as_they_come),
		TEST(what_a_copy_does_not_tell_is_read),
		TEST(a_process_is_called_as_its_first_thread_was_in_the_copy),
		TEST(a_thread_s_own_stack_is_known_if_it_was_read),
		TEST(a_thread_that_moves_to_another_container_is_another),
		TEST(what_cannot_be_a_thread_has_no_number),
		TEST(a_register_that_a_program_has_set_is_not_believed),
		TEST(searches_for_a_cpu_that_is_not_there_end),
		TEST(a_cpu_s_own_data_are_found_by_its_id_in_the_machine),
		TEST(threads_that_are_known_are_known_when_there_are_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
