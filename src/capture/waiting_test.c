/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples of threads that do not run, of a made-up kernel whose tasks are all asleep. */
#include "threads/linux_testing.h"

#include "base/clock.h"
#include "capture/capture.h"

#define BUDGET 4u
/* Threads of the made-up kernel, all of them asleep. */
#define THREADS 11u
static const uint32_t tids[THREADS] = {1, 2, 3, 4, 5, 20, 21, 6, 7, 8, 9};

#define STACK_OF(i) (START + 0x20000 + 0x100 * (uint64_t)(i))
#define SP_OF(i)    (STACK_OF(i) + 0x3e00)

struct fixture {
	struct target target;
	struct kernel *kernel;
	struct guest_threads threads;
	struct stacks *stacks;
	struct capture *capture;
	struct waits *waits;
	struct tick tick;
	uint64_t start_ns;
	uint64_t weight[64]; /* by thread */
};

static struct fixture *now; /* the target's functions are handed nothing else */

static size_t read_memory(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			  size_t len)
{
	return read_kernel(now->kernel, va, buf, len);
}

static struct error *take(struct target *target, struct sample *sample)
{
	sample->time_ns = clock_now_ns();
	sample->vcpu[0].online = true;
	sample->vcpu[0].regs = (struct regs){.pc = 0xffffffff81000000, .word = 8, .isa = ISA_X86};
	return NULL;
}

static const struct target_ops ops = {.scheme = "fake", .sample = take, .read = read_memory};

static void fall_asleep(struct kernel *kernel, unsigned i)
{
	put_word(kernel, TASK(i) + layout.at[TASK_STACK], STACK_OF(i));
	put_word(kernel, TASK(i) + layout.saved.sp, SP_OF(i));
	put_word(kernel, SP_OF(i) + layout.saved.fp, 0);
	put_word(kernel, SP_OF(i) + layout.saved.pc, 0xffffffff81000100 + i);
}

static int set_up(void **state)
{
	const struct sampler_options options = {.waits = BUDGET, .rate_hz = 0.1};
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	now = f;
	assert_int_equal(make((void **)&f->kernel), 0);
	for (unsigned i = 0; i < THREADS; i++)
		fall_asleep(f->kernel, tids[i]);
	f->target = (struct target){.ops = &ops};
	f->target.info.arch = &arch_x86_64;
	f->target.info.vcpus = 1;
	f->threads = (struct guest_threads){&threads_linux, (void *)&layout};
	assert_null(stacks_new(&f->stacks));
	assert_null(capture_new(&f->target, f->stacks, &options, &f->capture));
	f->start_ns = clock_now_ns();
	assert_null(waits_new(&f->target, f->capture, &options, &f->waits));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	waits_free(f->waits);
	capture_free(f->capture);
	stacks_free(f->stacks);
	drop((void **)&f->kernel);
	free(f);
	return 0;
}

static uint32_t tid_of(const struct fixture *f, const struct tick_entry *entry)
{
	return thread_numbers_get(capture_threads(f->capture), entry->thread)->tid;
}

/* Takes a tick; returns its samples of threads. */
static const struct tick_entry *take_tick(struct fixture *f)
{
	assert_null(capture_tick(f->capture, 0, &f->tick));
	assert_null(waits_tick(f->waits, &f->threads, &f->tick));
	assert_int_equal(f->tick.n, 1);
	assert_true(f->tick.waits <= BUDGET);
	for (uint32_t i = 1; i <= f->tick.waits; i++) {
		const struct tick_entry *entry = &f->tick.entries[i];

		assert_int_equal(entry->vcpu, NO_VCPU);
		assert_in_range(entry->state, WAIT_QUEUED, SAMPLE_STATES - 1);
		f->weight[tid_of(f, entry)] += entry->weight_ns;
	}
	return f->tick.entries + 1;
}

static void all_threads_have_their_turn(void **state)
{
	struct fixture *f = *state;

	for (unsigned turn = 0; turn < 3; turn++) {
		unsigned seen = 0;

		for (unsigned ticks = 0; ticks < 3; ticks++) {
			const struct tick_entry *entries = take_tick(f);

			for (uint32_t i = 0; i < f->tick.waits; i++)
				assert_int_equal(tid_of(f, &entries[i]), tids[seen++]);
		}
		assert_int_equal(seen, THREADS);
	}
	assert_int_equal(waits_count(f->waits).samples, 3 * THREADS);
	assert_int_equal(waits_count(f->waits).lost, 0);
}

static void what_a_thread_has_in_all_is_the_time_that_went_by(void **state)
{
	struct fixture *f = *state;
	uint64_t first_ns, elapsed_ns, met_ns = 0, turn_ns = 0;

	/* Time before the first tick is no thread's. */
	first_ns = clock_now_ns();
	take_tick(f);
	f->start_ns = clock_now_ns();
	first_ns = f->start_ns - first_ns;
	for (unsigned ticks = 1; ticks < 30; ticks++) {
		if (ticks == 3)
			met_ns = clock_now_ns() - f->start_ns;
		if (ticks == 27)
			turn_ns = clock_now_ns() - f->start_ns;
		clock_sleep_until(clock_now_ns() + (ticks % 7) * 100000);
		take_tick(f);
	}
	elapsed_ns = clock_now_ns() - f->start_ns;
	turn_ns -= met_ns;
	/* The first tick has taken some time since its own. */
	for (unsigned i = 0; i < THREADS; i++)
		assert_in_range(f->weight[tids[i]], turn_ns, elapsed_ns + first_ns);
}

static void no_look_stands_for_a_first_turn_that_took_long(void **state)
{
	struct fixture *f = *state;
	uint64_t first_ns;

	for (unsigned ticks = 0; ticks < 3; ticks++) {
		clock_sleep_until(clock_now_ns() + 10000000);
		take_tick(f);
	}
	first_ns = f->weight[tids[0]];
	assert_in_range(f->weight[tids[THREADS - 1]], 10000000,
			clock_now_ns() - f->start_ns - 20000000);
	/* From then on, each has the time that goes by. */
	for (unsigned ticks = 0; ticks < 3; ticks++)
		take_tick(f);
	assert_true(f->weight[tids[0]] - first_ns >= 20000000);
}

static void what_nobody_saw_is_left_out(void **state)
{
	const struct sampler_options options = {.waits = BUDGET, .rate_hz = 100};
	struct fixture *f = *state;
	uint64_t before_ns;

	waits_free(f->waits);
	assert_null(waits_new(&f->target, f->capture, &options, &f->waits));
	for (unsigned ticks = 0; ticks < 6; ticks++)
		take_tick(f);
	before_ns = clock_now_ns() - f->start_ns;
	/* A gap of 100 periods counts as four. */
	clock_sleep_until(clock_now_ns() + NS_PER_S);
	for (unsigned ticks = 0; ticks < 3; ticks++)
		take_tick(f);
	for (unsigned i = 0; i < THREADS; i++)
		assert_in_range(f->weight[tids[i]], NS_PER_S / 25, NS_PER_S / 2 + before_ns);
}

static void a_thread_that_is_met_first_has_the_time_of_one_turn(void **state)
{
	struct fixture *f = *state;
	uint64_t before_ns;

	for (unsigned ticks = 0; ticks < 6; ticks++) {
		clock_sleep_until(clock_now_ns() + 1000000);
		take_tick(f);
	}
	before_ns = clock_now_ns();
	put_task(f->kernel, 30, 30);
	fall_asleep(f->kernel, 30);
	for (unsigned ticks = 0; ticks < 3; ticks++)
		take_tick(f);
	/* Not that since the beginning. */
	assert_in_range(f->weight[30], 1, before_ns - f->start_ns);
	assert_true(f->weight[30] < f->weight[9]);
}

static void a_thread_that_runs_has_no_sample_and_nothing_made_up_for(void **state)
{
	struct fixture *f = *state;
	uint64_t then_ns;

	put(f->kernel, 2, TASK_ON_CPU, 1);
	for (unsigned ticks = 0; ticks < 6; ticks++)
		take_tick(f);
	assert_true(f->weight[1] > 0);
	assert_int_equal(f->weight[2], 0);
	then_ns = clock_now_ns();
	clock_sleep_until(then_ns + 1000000);
	put(f->kernel, 2, TASK_ON_CPU, 0);
	take_tick(f);
	assert_in_range(f->weight[2], 1000000, clock_now_ns() - f->start_ns);
	assert_true(f->weight[2] < f->weight[1]);
	assert_int_equal(waits_count(f->waits).unproven, 0);
}

static void states_are_told(void **state)
{
	static const uint32_t given[] = {0, 1, 2, 4};
	static const uint8_t told[] = {WAIT_QUEUED, WAIT_SLEEPING, WAIT_DISK, WAIT_STOPPED};
	struct fixture *f = *state;
	const struct tick_entry *entries;

	for (unsigned i = 0; i < 4; i++)
		put(f->kernel, i + 1, TASK_STATE, given[i]);
	entries = take_tick(f);
	assert_int_equal(f->tick.waits, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(entries[i].state, told[i]);
	/* One that has ended waits for nothing. */
	put(f->kernel, 5, TASK_EXIT_STATE, 0x20);
	entries = take_tick(f);
	assert_int_equal(f->tick.waits, 3);
	assert_int_equal(tid_of(f, entries), 20);
}

static unsigned stack_reads;

/* Counts what is read of the stack of thread 1. */
static void count_stack_reads(struct kernel *kernel, uint64_t va)
{
	stack_reads += va >= SP_OF(1) && va < SP_OF(2);
}

static void a_stack_is_read_again_when_its_thread_has_run(void **state)
{
	struct fixture *f = *state;
	uint32_t before, after;

	f->kernel->runs = count_stack_reads;
	stack_reads = 0;
	before = take_tick(f)->stack;
	assert_true(stack_reads > 0);
	for (unsigned ticks = 0; ticks < 2; ticks++)
		take_tick(f);
	stack_reads = 0;
	assert_int_equal(take_tick(f)->stack, before);
	assert_int_equal(stack_reads, 0);
	for (unsigned ticks = 0; ticks < 2; ticks++)
		take_tick(f);
	put_word(f->kernel, SP_OF(1) + layout.saved.pc, 0xffffffff81000200);
	put_word(f->kernel, TASK(1) + layout.at[TASK_SWITCHES], 1);
	after = take_tick(f)->stack;
	assert_true(stack_reads > 0);
	assert_int_not_equal(after, before);
	assert_int_equal(stacks_node(f->stacks, after)->addr, 0xffffffff81000200);
}

/* Thread 1 has run again each time that its stack is read. */
static void run_meanwhile(struct kernel *kernel, uint64_t va)
{
	if (va >= SP_OF(1) && va < SP_OF(2))
		put_word(kernel, TASK(1) + layout.at[TASK_SWITCHES], ++kernel->changes);
}

static void a_thread_that_does_not_stand_still_is_counted_and_left_out(void **state)
{
	struct fixture *f = *state;
	const struct tick_entry *entries;

	f->kernel->runs = run_meanwhile;
	entries = take_tick(f);
	assert_int_equal(f->tick.waits, BUDGET - 1);
	assert_int_equal(tid_of(f, entries), 2);
	assert_int_equal(waits_count(f->waits).unproven, 1);
	f->kernel->runs = NULL;
	for (unsigned ticks = 0; ticks < 3; ticks++)
		entries = take_tick(f);
	assert_int_equal(tid_of(f, entries), 1);
}

/* The made-up vCPU is always there. */
static bool idles(const void *state, uint64_t va)
{
	return va == 0xffffffff81000000;
}

/* Takes a tick in which the vCPU has the stack of the thread that was met first. */
static void take_tick_on_its_stack(struct fixture *f)
{
	struct tick_entry host;

	assert_null(capture_tick(f->capture, 0, &f->tick));
	host = f->tick.entries[0];
	host.thread = 1;
	f->tick.entries = &host;
	assert_null(waits_tick(f->waits, &f->threads, &f->tick));
}

static void a_thread_on_whose_stack_an_idle_vcpu_waits_has_that_stack(void **state)
{
	struct fixture *f = *state;
	struct threads_system system = threads_linux;

	system.idles = idles;
	f->kernel->runs = run_meanwhile;
	take_tick_on_its_stack(f);
	assert_int_equal(f->tick.waits, BUDGET - 1);
	(void)take_tick(f);
	(void)take_tick(f);
	f->threads.system = &system;
	take_tick_on_its_stack(f);
	assert_int_equal(f->tick.waits, BUDGET);
	assert_int_equal(f->tick.entries[1].thread, 1);
	assert_int_equal(f->tick.entries[1].stack, f->tick.entries[0].stack);
	assert_int_equal(f->tick.entries[1].state, WAIT_SLEEPING);
	assert_int_equal(waits_count(f->waits).unproven, 1);
}

/* Each read of a task takes a while. */
static void take_time(struct kernel *kernel, uint64_t va)
{
	const uint64_t since_ns = clock_cpu_ns();

	while (clock_cpu_ns() - since_ns < 20000)
		continue;
}

/* Looks for a while, from the first on; true if they took no more CPU time than they may. */
static bool looks_are_cheap(struct fixture *f, const struct sampler_options *options)
{
	uint64_t cpu_ns = clock_cpu_ns(), look_ns, samples = 0;

	/* The cost of those that are all new is the most that a look takes. */
	take_tick(f);
	look_ns = (clock_cpu_ns() - cpu_ns) / BUDGET;
	waits_free(f->waits);
	assert_null(waits_new(&f->target, f->capture, options, &f->waits));
	f->start_ns = clock_now_ns();
	cpu_ns = clock_cpu_ns();
	for (unsigned ticks = 0; ticks < 100; ticks++) {
		clock_sleep_until(clock_now_ns() + 2000000);
		take_tick(f);
		samples += f->tick.waits;
	}
	cpu_ns = clock_cpu_ns() - cpu_ns;
	assert_true(samples > THREADS);
	/* A tenth, one look that took longer, and as much as the ticks themselves take. */
	return cpu_ns <= (clock_now_ns() - f->start_ns) / 8 + 2 * look_ns;
}

/* Other work of this machine can only make them dearer: once in five times is enough. */
static void looks_take_no_more_than_their_share_of_a_cpu(void **state)
{
	const struct sampler_options options = {.waits = BUDGET,
						.rate_hz = 1000,
						.waits_cost = 0.1};
	struct fixture *f = *state;
	bool cheap = false;

	f->kernel->runs = take_time;
	for (unsigned i = 0; i < 5 && !cheap; i++)
		cheap = looks_are_cheap(f, &options);
	assert_true(cheap);
	for (unsigned i = 0; i < THREADS; i++)
		assert_true(f->weight[tids[i]] > 0);
}

static void turns_go_on_behind_threads_that_have_ended(void **state)
{
	struct fixture *f = *state;

	take_tick(f);
	/* The last two that had a sample are gone. */
	put_word(f->kernel, TASK(2) + layout.at[TASK_TASKS], TASK(5) + layout.at[TASK_TASKS]);
	put_word(f->kernel, TASK(5) + layout.at[TASK_TASKS] + 8, TASK(2) + layout.at[TASK_TASKS]);
	put_word(f->kernel, TASK(3) + layout.at[TASK_START], 1);
	put_word(f->kernel, TASK(4) + layout.at[TASK_START], 1);
	assert_int_equal(tid_of(f, take_tick(f)), 5);
	assert_int_equal(waits_count(f->waits).lost, 0);
}

static void lists_that_lie_cost_no_more(void **state)
{
	const uint64_t wild[] = {0, 8, TASK(3) + 1, START + SIZE, UINT64_MAX - 7, GLOBALS, TASK(3)};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		put_word(f->kernel, TASK(3) + layout.at[TASK_TASKS], wild[i]);
		for (unsigned ticks = 0; ticks < 20; ticks++) {
			f->kernel->reads = 0;
			take_tick(f);
			assert_true(f->kernel->reads < 100 * BUDGET);
		}
	}
	assert_true(waits_count(f->waits).lost > 0);
	/* Those before it have their turns all the same. */
	assert_true(f->weight[1] > 0 && f->weight[3] > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_threads_have_their_turn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_a_thread_has_in_all_is_the_time_that_went_by,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_look_stands_for_a_first_turn_that_took_long,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_nobody_saw_is_left_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_thread_that_is_met_first_has_the_time_of_one_turn,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_thread_that_runs_has_no_sample_and_nothing_made_up_for, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(states_are_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_stack_is_read_again_when_its_thread_has_run,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_thread_that_does_not_stand_still_is_counted_and_left_out, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			a_thread_on_whose_stack_an_idle_vcpu_waits_has_that_stack, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(looks_take_no_more_than_their_share_of_a_cpu,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(turns_go_on_behind_threads_that_have_ended, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(lists_that_lie_cost_no_more, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
