/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "target/inside/inside.h"
/* The library itself, as a guest has it. */
#include "uniprof_inside.c"

#define MS 1000000ull

#define BYTES 8192u
#define STACK 200u

/* A guest of one vCPU, and its reader. */
struct guest {
	struct uniprof_inside *ring;
	uint64_t stack[64];
	struct inside_memory memory;
	struct inside_ring found;
	struct inside_taken taken;
	uint64_t now_ns;
	/* Called after so many reads. */
	unsigned reads;
	void (*meanwhile)(struct guest *guest);
	uint8_t bytes[BYTES] __attribute__((aligned(UNIPROF_INSIDE_ALIGN)));
};

static size_t read_guest(void *ctx, uint64_t at, void *buf, size_t len)
{
	struct guest *guest = ctx;
	const uint64_t start = (uintptr_t)guest->bytes;

	if (at < start || at - start > BYTES || len > BYTES - (at - start))
		return 0;
	memcpy(buf, (const void *)(uintptr_t)at, len);
	if (guest->meanwhile && guest->reads && !--guest->reads)
		guest->meanwhile(guest);
	return len;
}

static bool find(struct guest *guest)
{
	return inside_ring_check(guest->bytes, (uintptr_t)guest->bytes, BYTES, &guest->found);
}

static int begin(void **state)
{
	struct guest *guest = aligned_alloc(UNIPROF_INSIDE_ALIGN, sizeof(*guest));

	assert_non_null(guest);
	memset(guest, 0, sizeof(*guest));
	guest->ring = uniprof_inside_init(guest->bytes, BYTES, 3, STACK);
	assert_non_null(guest->ring);
	for (size_t i = 0; i < 64; i++)
		guest->stack[i] = 1000 + i;
	guest->memory = (struct inside_memory){.ctx = guest, .read = read_guest};
	assert_true(find(guest));
	guest->now_ns = 1000 * MS;
	guest->found.since_ns = guest->now_ns;
	*state = guest;
	return 0;
}

static int end(void **state)
{
	free(*state);
	return 0;
}

/* `words` of stack lie above sp. */
static void tick(struct guest *guest, uint64_t pc, unsigned words)
{
	const struct uniprof_inside_regs regs = {.pc = pc,
						 .sp = (uintptr_t)(guest->stack + 64 - words),
						 .fp = 7,
						 .lr = 8,
						 .flags = 9,
						 .stack_end = (uintptr_t)(guest->stack + 64)};

	uniprof_inside_tick(guest->ring, &regs);
}

static void ticks(struct guest *guest, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		tick(guest, 100 + i, 4);
}

static void look(struct guest *guest, uint64_t later_ns)
{
	uint32_t lease;

	guest->now_ns += later_ns;
	inside_ring_poll(&guest->found, &guest->memory, guest->now_ns, &lease);
}

static bool take(struct guest *guest)
{
	return inside_ring_take(&guest->found, &guest->memory, &guest->taken);
}

static void test_nothing_is_sampled_before_it_is_switched_on(void **state)
{
	struct guest *guest = *state;

	ticks(guest, 10);
	assert_int_equal(guest->ring->ticks, 10);
	assert_int_equal(guest->ring->head, 0);
	look(guest, 100 * MS);
	assert_false(take(guest));
}

static void test_samples_come_out_as_they_were_taken(void **state)
{
	struct guest *guest = *state;
	struct inside_taken *taken = &guest->taken;

	uniprof_inside_switch(guest->ring, true);
	tick(guest, 0x1234, 5);
	look(guest, 10 * MS);
	assert_true(take(guest));
	assert_int_equal(taken->regs.pc, 0x1234);
	assert_int_equal(taken->regs.sp, (uintptr_t)(guest->stack + 59));
	assert_int_equal(taken->regs.fp, 7);
	assert_int_equal(taken->regs.flags, 9);
	assert_int_equal(taken->regs.word, sizeof(uintptr_t));
	assert_int_equal(taken->stack_bytes, 5 * 8);
	assert_memory_equal(taken->stack, guest->stack + 59, 5 * 8);
	assert_false(taken->cut);
	assert_int_equal(taken->state, VCPU_RUNNING);
	assert_int_equal(taken->weight_ns, 10 * MS);
	assert_int_equal(taken->lost, 0);
	assert_false(take(guest));
}

static void test_a_deep_stack_is_cut_and_says_so(void **state)
{
	struct guest *guest = *state;

	uniprof_inside_switch(guest->ring, true);
	tick(guest, 1, 64);
	look(guest, 10 * MS);
	assert_true(take(guest));
	assert_int_equal(guest->taken.stack_bytes, STACK);
	assert_true(guest->taken.cut);
}

static void test_a_stack_pointer_beyond_the_stack_copies_nothing(void **state)
{
	struct guest *guest = *state;
	const struct uniprof_inside_regs regs = {.pc = 1, .sp = UINTPTR_MAX, .stack_end = 4096};

	uniprof_inside_switch(guest->ring, true);
	uniprof_inside_tick(guest->ring, &regs);
	look(guest, 10 * MS);
	assert_true(take(guest));
	assert_int_equal(guest->taken.stack_bytes, 0);
}

static void test_a_lease_that_nobody_renews_ends_by_itself(void **state)
{
	struct guest *guest = *state;

	guest->ring->lease = 5;
	ticks(guest, 100);
	assert_int_equal(guest->ring->head, 5);
	assert_int_equal(guest->ring->lease, 0);
}

static void test_a_lease_that_is_far_too_long_is_none(void **state)
{
	struct guest *guest = *state;

	guest->ring->lease = UINT32_MAX;
	ticks(guest, 100);
	assert_int_equal(guest->ring->head, 0);
}

static void test_every_third_tick_is_sampled_where_so_asked(void **state)
{
	struct guest *guest = *state;

	guest->ring->every = 3;
	uniprof_inside_switch(guest->ring, true);
	ticks(guest, 30);
	assert_int_equal(guest->ring->head, 10);
}

static void test_weights_add_up_to_the_time_that_passed(void **state)
{
	struct guest *guest = *state;
	uint64_t weight_ns = 0, last_ns = guest->now_ns;
	const uint64_t began_ns = guest->now_ns;

	uniprof_inside_switch(guest->ring, true);
	for (unsigned round = 1; round < 6; round++) {
		ticks(guest, round == 3 ? 0 : round);
		look(guest, round * 20 * MS);
		while (take(guest)) {
			assert_true(guest->taken.time_ns >= last_ns);
			last_ns = guest->taken.time_ns;
			weight_ns += guest->taken.weight_ns;
		}
	}
	assert_int_equal(weight_ns / MS, (guest->now_ns - began_ns) / MS);
}

static void test_time_in_which_the_guest_stood_still_is_nobodys(void **state)
{
	struct guest *guest = *state;

	uniprof_inside_switch(guest->ring, true);
	guest->found.usual_ns = 10 * MS;
	ticks(guest, 2);
	look(guest, 3600 * NS_PER_S);
	assert_true(take(guest));
	assert_int_equal(guest->taken.weight_ns, 10 * MS);
	assert_true(guest->found.stood_still);
}

static void test_overwritten_samples_are_lost_and_counted(void **state)
{
	struct guest *guest = *state;
	const uint32_t slots = guest->found.slots;
	uint64_t lost = 0;
	unsigned got = 0;

	uniprof_inside_switch(guest->ring, true);
	ticks(guest, 3 * slots + 1);
	look(guest, 1000 * MS);
	while (take(guest)) {
		lost += guest->taken.lost;
		got++;
	}
	assert_int_equal(got, slots);
	assert_int_equal(lost, 2 * slots + 1);
	assert_int_equal(guest->taken.regs.pc, 100 + 3 * slots);
}

static void test_numbers_that_wrap_around_lose_nothing(void **state)
{
	struct guest *guest = *state;

	guest->ring->head = guest->ring->ticks = UINT32_MAX - 1;
	assert_true(find(guest));
	guest->found.since_ns = guest->now_ns;
	uniprof_inside_switch(guest->ring, true);
	ticks(guest, 4);
	look(guest, 100 * MS);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(take(guest));
		assert_int_equal(guest->taken.regs.pc, 100 + i);
	}
	assert_int_equal(guest->taken.lost, 0);
}

static void lap(struct guest *guest)
{
	ticks(guest, guest->found.slots);
}

static void test_a_sample_that_is_overwritten_while_it_is_read_is_lost(void **state)
{
	struct guest *guest = *state;

	uniprof_inside_switch(guest->ring, true);
	tick(guest, 1, 4);
	look(guest, 10 * MS);
	/* The lap comes after the slot's head was read, and before its stack is. */
	guest->reads = 1;
	guest->meanwhile = lap;
	assert_false(take(guest));
	look(guest, 100 * MS);
	assert_true(take(guest));
	assert_int_equal(guest->taken.lost, 1);
}

static void test_a_sample_that_is_being_written_is_not_taken(void **state)
{
	struct guest *guest = *state;
	struct uniprof_inside_slot *slot = (void *)(guest->bytes + guest->found.first);

	uniprof_inside_switch(guest->ring, true);
	tick(guest, 1, 4);
	look(guest, 10 * MS);
	slot->sequence = 1;
	assert_false(take(guest));
}

/* Sets four bytes of the header, with the right checksum. */
static bool accepts(struct guest *guest, size_t at, uint32_t value)
{
	struct uniprof_inside good = *guest->ring;
	bool accepted;

	memcpy(guest->bytes + at, &value, sizeof(value));
	guest->ring->checksum = uniprof_inside_checksum(guest->ring);
	accepted = find(guest);
	*guest->ring = good;
	return accepted;
}

#define AT(field) offsetof(struct uniprof_inside, field)

static void test_rings_that_cannot_be_are_none(void **state)
{
	struct guest *guest = *state;
	static const struct {
		size_t at;
		uint32_t value;
	} wild[] = {
		{0, 0x12345678},
		{AT(version), 2},
		{AT(address), 5},
		{AT(first), 0},
		{AT(first), UINT32_MAX},
		{AT(slots), 0},
		{AT(slots), 3},
		{AT(slots), 1u << 31},
		{AT(slots), 64},
		{AT(slot_bytes), 0},
		{AT(slot_bytes), 257},
		{AT(slot_bytes), UINT32_MAX - 7},
		{AT(slot_bytes), 1 << 20},
		{AT(isa), ISAS},
		{AT(isa), 256},
		{AT(word), 0},
		{AT(word), 264},
	};

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++)
		assert_false(accepts(guest, wild[i].at, wild[i].value));
	guest->ring->checksum++;
	assert_false(find(guest));
	guest->ring->checksum--;
	assert_true(find(guest));
	assert_false(inside_ring_check(guest->bytes, (uintptr_t)guest->bytes, 4096, &guest->found));
}

/* Whatever it says: so many samples at most, and each within its bounds. */
static void drain(struct guest *guest, uint64_t later_ns)
{
	unsigned got = 0, asked = 0;

	look(guest, later_ns);
	while (guest->found.left && ++asked)
		if (take(guest) && ++got)
			assert_true(guest->taken.stack_bytes <= STACK &&
				    guest->taken.stack_bytes <= sizeof(guest->taken.stack));
	assert_true(got <= asked && asked <= guest->found.slots);
	assert_true(guest->found.since_ns <= guest->now_ns);
}

static void test_wild_numbers_do_no_harm(void **state)
{
	struct guest *guest = *state;
	uint64_t random = 88172645463325252ull;

	for (unsigned round = 0; round < 20000; round++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		memcpy(guest->bytes + UNIPROF_INSIDE_CONSTANT +
			       random % (BYTES - UNIPROF_INSIDE_CONSTANT - 8),
		       &random, 8);
		guest->ring->head = (uint32_t)(round % 3 ? random >> 32 : guest->found.next + 9);
		for (uint32_t n = 0; n < guest->found.slots; n++) {
			struct uniprof_inside_slot *slot =
				(void *)(guest->bytes + guest->found.first +
					 (size_t)n * guest->found.slot_bytes);

			slot->sequence = 2 * (guest->found.next + n) + 2;
			slot->stack_bytes = (uint32_t)(random >> (n % 40));
		}
		drain(guest, random % NS_PER_S);
	}
}

static void test_more_samples_than_any_timer_takes_are_not_taken(void **state)
{
	struct guest *guest = *state;

	uniprof_inside_switch(guest->ring, true);
	ticks(guest, guest->found.slots);
	look(guest, 100000);
	assert_int_equal(guest->found.left, 2);
}

static _Atomic bool over;

static void *scribble(void *ctx)
{
	struct guest *guest = ctx;
	uint32_t n = 0;

	while (!over) {
		volatile uint32_t *words = (volatile uint32_t *)guest->bytes;

		words[UNIPROF_INSIDE_CONSTANT / 4 + 1] = n += 7;
		for (size_t i = 32; i < BYTES / 4; i += 5)
			words[i] = n * (uint32_t)i;
	}
	return NULL;
}

static void test_a_ring_that_changes_under_the_reader_does_no_harm(void **state)
{
	struct guest *guest = *state;
	pthread_t thread;

	over = false;
	assert_int_equal(pthread_create(&thread, NULL, scribble, guest), 0);
	for (unsigned round = 0; round < 20000; round++)
		drain(guest, 10 * MS);
	over = true;
	pthread_join(thread, NULL);
}

static void test_memory_that_does_not_suffice_makes_no_ring(void **state)
{
	struct guest *guest = *state;

	assert_null(uniprof_inside_init(guest->bytes + 8, BYTES - 8, 0, 0));
	assert_null(uniprof_inside_init(guest->bytes, 256, 0, 0));
	assert_null(uniprof_inside_init(guest->bytes, BYTES, 0, UNIPROF_INSIDE_STACK_MAX + 1));
	assert_null(uniprof_inside_init(guest->bytes, BYTES, 0, UINT32_MAX));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing_is_sampled_before_it_is_switched_on),
		TEST(test_samples_come_out_as_they_were_taken),
		TEST(test_a_deep_stack_is_cut_and_says_so),
		TEST(test_a_stack_pointer_beyond_the_stack_copies_nothing),
		TEST(test_a_lease_that_nobody_renews_ends_by_itself),
		TEST(test_a_lease_that_is_far_too_long_is_none),
		TEST(test_every_third_tick_is_sampled_where_so_asked),
		TEST(test_weights_add_up_to_the_time_that_passed),
		TEST(test_time_in_which_the_guest_stood_still_is_nobodys),
		TEST(test_overwritten_samples_are_lost_and_counted),
		TEST(test_numbers_that_wrap_around_lose_nothing),
		TEST(test_a_sample_that_is_overwritten_while_it_is_read_is_lost),
		TEST(test_a_sample_that_is_being_written_is_not_taken),
		TEST(test_rings_that_cannot_be_are_none),
		TEST(test_wild_numbers_do_no_harm),
		TEST(test_more_samples_than_any_timer_takes_are_not_taken),
		TEST(test_a_ring_that_changes_under_the_reader_does_no_harm),
		TEST(test_memory_that_does_not_suffice_makes_no_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
