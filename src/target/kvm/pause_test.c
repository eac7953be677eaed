/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/kvm/kvm.h"

#include <linux/kvm.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Frames of a guest whose memory and KVM page are this process's own: four tables, and two that are a stack in turn. */
enum { FIRST_TABLE, LAST_TABLE = 3, FRAME_A, FRAME_B, FRAMES };

/* Intel SDM vol. 3, 4.5. */
#define PRESENT 3u

#define PAGE_AT 0x7000u /* virtual, of the stack's page */
#define WANT	64u

struct guest {
	struct kvm_target kvm;
	struct kvm_thread thread;
	struct sample *sample;
	uint64_t (*frame)[FRAME_SIZE / 8];
	struct kvm_run *run;
};

static void map_stack(struct guest *g, uint64_t frame)
{
	g->frame[LAST_TABLE][PAGE_AT >> FRAME_SHIFT] = frame << FRAME_SHIFT | PRESENT;
}

static int setup(void **state)
{
	struct guest *g = calloc(1, sizeof(*g));
	struct kvm_sync_regs *regs;

	g->frame = aligned_alloc(FRAME_SIZE, FRAMES * FRAME_SIZE);
	g->run = aligned_alloc(FRAME_SIZE, 2 * FRAME_SIZE);
	memset(g->frame, 0, FRAMES * FRAME_SIZE);
	memset(g->run, 0, 2 * FRAME_SIZE);
	for (uint64_t table = FIRST_TABLE; table < LAST_TABLE; table++)
		g->frame[table][0] = (table + 1) << FRAME_SHIFT | PRESENT;
	map_stack(g, FRAME_A);
	g->frame[FRAME_A][FRAME_SIZE / 16] = 'a';
	g->frame[FRAME_B][FRAME_SIZE / 16] = 'b';
	g->run->kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
	regs = &g->run->s.regs;
	regs->regs.rsp = PAGE_AT + FRAME_SIZE / 2;
	regs->sregs.cr0 = 1ull << 31 | 1;
	regs->sregs.cr4 = 1u << 5;
	regs->sregs.efer = 1u << 10 | 1u << 8;
	regs->sregs.cs.l = 1;
	g->thread.run = (uint64_t)(uintptr_t)g->run;
	g->kvm.vcpus = (struct kvm_vcpus){.n = 1, .at = &g->thread};
	assert_null(host_memory_open(getpid(), false, &g->kvm.memory));
	assert_null(guest_ram_new(g->kvm.memory, &g->kvm.ram));
	assert_true(ram_map_add(guest_ram_map(g->kvm.ram), 0, FRAMES * FRAME_SIZE,
				(uint64_t)(uintptr_t)g->frame));
	g->kvm.base.memory = guest_ram_memory(g->kvm.ram);
	assert_null(kvm_pages_seen_new(1, &g->kvm.seen));
	assert_null(sample_new(1, FRAME_SIZE, &g->sample));
	g->sample->vcpu[0].request.want = WANT;
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct guest *g = *state;

	sample_free(g->sample);
	free(g->kvm.seen);
	guest_ram_free(g->kvm.ram);
	close(g->kvm.memory);
	free(g->run);
	free(g->frame);
	free(g);
	return 0;
}

static void read_in_pause(struct guest *g)
{
	assert_true(kvm_read_in_pause(&g->kvm, 0, &g->sample->vcpu[0], 0));
}

static bool prove(struct guest *g)
{
	return kvm_prove(&g->kvm, 0, &g->sample->vcpu[0]);
}

/* The word at the stack pointer. */
static char top(const struct guest *g)
{
	const struct window *stack = &g->sample->vcpu[0].stack;

	assert_int_equal(stack->len, WANT);
	assert_int_equal(stack->below, RED_ZONE_MAX);
	return (char)*stack->bytes;
}

static void test_first_pause_reads_tables(void **state)
{
	struct guest *g = *state;

	read_in_pause(g);
	assert_false(g->kvm.walk_later);
	map_stack(g, FRAME_B);
	assert_true(prove(g));
	assert_int_equal(top(g), 'a');
}

static void test_later_pauses_read_the_stack_alone(void **state)
{
	struct guest *g = *state;

	read_in_pause(g);
	assert_true(prove(g));
	read_in_pause(g);
	assert_true(g->kvm.walk_later);
	/* The guest runs on. */
	g->frame[FRAME_A][FRAME_SIZE / 16] = 'x';
	assert_true(prove(g));
	assert_int_equal(top(g), 'a');
}

static void test_stack_that_moved_is_read_again(void **state)
{
	struct guest *g = *state;

	read_in_pause(g);
	assert_true(prove(g));
	map_stack(g, FRAME_B);
	read_in_pause(g);
	assert_false(prove(g));
	read_in_pause(g);
	assert_false(g->kvm.walk_later);
	assert_true(prove(g));
	assert_int_equal(top(g), 'b');
}

static void test_page_that_came_is_read_again(void **state)
{
	struct guest *g = *state;

	g->frame[LAST_TABLE][PAGE_AT >> FRAME_SHIFT] = 0;
	read_in_pause(g);
	assert_true(prove(g));
	assert_int_equal(g->sample->vcpu[0].stack.len, 0);
	read_in_pause(g);
	assert_true(g->kvm.walk_later);
	map_stack(g, FRAME_A);
	assert_false(prove(g));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(first_pause_reads_tables),
		TEST(later_pauses_read_the_stack_alone),
		TEST(stack_that_moved_is_read_again),
		TEST(page_that_came_is_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
