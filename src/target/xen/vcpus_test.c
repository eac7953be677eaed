/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "target/xen/xen.h"

#define N 4

struct fixture {
	struct xen_vcpus vcpus;
	struct sample *sample;
};

/* Four vCPUs on line, all read once when they had used 100 ns each. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_null(xen_vcpus_new(&f->vcpus, N));
	assert_null(sample_new(N, 4096, &f->sample));
	for (uint32_t i = 0; i < N; i++) {
		f->vcpus.seen[i].online = true;
		f->vcpus.online.id[i] = i;
		f->vcpus.now[i] = (struct xen_vcpu){.online = true, .cpu_ns = 100};
	}
	f->vcpus.online.n = N;
	f->sample->time_ns = 1000;
	xen_vcpus_expect(&f->vcpus, f->sample, false);
	assert_int_equal(f->vcpus.early.n, 0);
	xen_vcpus_note(&f->vcpus, f->sample);
	assert_int_equal(f->vcpus.read.n, N);
	assert_int_equal(f->vcpus.late.n, N);
	xen_vcpus_done(&f->vcpus, f->sample);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	xen_vcpus_free(&f->vcpus);
	sample_free(f->sample);
	free(f);
	return 0;
}

static void next(struct fixture *f, uint64_t since_ns)
{
	f->sample->time_ns += since_ns;
	xen_vcpus_expect(&f->vcpus, f->sample, false);
	xen_vcpus_note(&f->vcpus, f->sample);
}

static void test_only_what_has_run_is_read(void **state)
{
	struct fixture *f = *state;

	f->vcpus.now[1].cpu_ns = 700;
	next(f, 1000);
	assert_int_equal(f->vcpus.read.n, 1);
	assert_int_equal(f->vcpus.read.id[0], 1);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(f->sample->vcpu[i].same, i != 1);
	xen_vcpus_done(&f->vcpus, f->sample);
	assert_int_equal(f->sample->vcpu[1].ran_ns, 600);
	assert_int_equal(f->sample->vcpu[2].ran_ns, 0);
}

static void test_the_context_of_one_that_ran_comes_with_the_next_states(void **state)
{
	struct fixture *f = *state;

	next(f, 1000);
	xen_vcpus_done(&f->vcpus, f->sample);
	f->vcpus.now[1].cpu_ns = 700;
	next(f, 1000);
	assert_int_equal(f->vcpus.late.n, 1);
	xen_vcpus_done(&f->vcpus, f->sample);
	f->vcpus.now[1].cpu_ns = 800;
	next(f, 1000);
	assert_int_equal(f->vcpus.early.n, 1);
	assert_int_equal(f->vcpus.late.n, 0);
}

static void test_contexts_come_with_the_pause_when_there_will_be_one(void **state)
{
	struct fixture *f = *state;

	f->vcpus.now[1] = (struct xen_vcpu){.online = true, .running = true, .cpu_ns = 700};
	next(f, 1000);
	assert_true(f->vcpus.running);
	xen_vcpus_done(&f->vcpus, f->sample);
	xen_vcpus_expect(&f->vcpus, f->sample, f->vcpus.running);
	assert_int_equal(f->vcpus.early.n, 0);
	/* It was expected to run on, and does not: without a pause, its context is still missing. */
	f->vcpus.now[1] = (struct xen_vcpu){.online = true, .cpu_ns = 800};
	xen_vcpus_note(&f->vcpus, f->sample);
	assert_false(f->vcpus.running);
	assert_int_equal(f->vcpus.read.n, 1);
	assert_int_equal(f->vcpus.late.n, 1);
}

static void test_one_that_is_asked_for_again_is_read_though_it_has_not_run(void **state)
{
	struct fixture *f = *state;

	f->sample->vcpu[2].request.again = true;
	next(f, 1000);
	assert_int_equal(f->vcpus.read.n, 1);
	assert_int_equal(f->vcpus.read.id[0], 2);
}

static void test_another_sample_object_does_not_inherit_what_was_read(void **state)
{
	struct fixture *f = *state;
	struct sample *mine = f->sample;

	assert_null(sample_new(N, 4096, &f->sample));
	next(f, 1000);
	assert_int_equal(f->vcpus.read.n, N);
	sample_free(f->sample);
	f->sample = mine;
}

static void test_one_that_ran_while_it_was_read_is_torn(void **state)
{
	struct fixture *f = *state;

	f->vcpus.now[1].cpu_ns = 700;
	next(f, 1000);
	assert_true(xen_vcpus_still(&f->vcpus));
	f->vcpus.now[1].cpu_ns = 701;
	assert_false(xen_vcpus_still(&f->vcpus));
	f->vcpus.now[1].cpu_ns = 700;
	f->vcpus.now[1].running = true;
	assert_false(xen_vcpus_still(&f->vcpus));
	f->vcpus.now[1].running = false;
	f->vcpus.now[0].cpu_ns = 999; /* not read: whatever it does */
	assert_true(xen_vcpus_still(&f->vcpus));
}

static void test_as_many_looks_count_as_running_as_cpu_time_was_used(void **state)
{
	struct fixture *f = *state;
	unsigned running[N] = {0};

	/* None of them is ever on a CPU when sampled; they use 0, 25, 50 and 100 %. */
	for (unsigned tick = 0; tick < 1000; tick++) {
		f->vcpus.now[1].cpu_ns += 250;
		f->vcpus.now[2].cpu_ns += 500;
		f->vcpus.now[3].cpu_ns += 1000;
		next(f, 1000);
		for (uint32_t i = 0; i < N; i++)
			running[i] += f->sample->vcpu[i].state == VCPU_RUNNING;
		xen_vcpus_done(&f->vcpus, f->sample);
	}
	assert_int_equal(running[0], 0);
	assert_in_range(running[1], 248, 252);
	assert_in_range(running[2], 498, 502);
	assert_in_range(running[3], 998, 1000);
}

static void test_looks_at_uneven_times_count_as_running_as_well(void **state)
{
	struct fixture *f = *state;
	unsigned running[N] = {0}, seed = 1;

	/* As above, but sampled after anything up to twice the usual time. */
	for (unsigned tick = 0; tick < 10000; tick++) {
		unsigned since;

		seed = seed * 1103515245 + 12345;
		since = 20 + (seed >> 16) % 1960;
		f->vcpus.now[1].cpu_ns += since / 4;
		f->vcpus.now[2].cpu_ns += since / 2;
		f->vcpus.now[3].cpu_ns += since * 9 / 10;
		next(f, since);
		for (uint32_t i = 0; i < N; i++)
			running[i] += f->sample->vcpu[i].state == VCPU_RUNNING;
		xen_vcpus_done(&f->vcpus, f->sample);
	}
	assert_int_equal(running[0], 0);
	/* Within two standard deviations of the error that uneven times cause by themselves. */
	assert_in_range(running[1], 2400, 2600);
	assert_in_range(running[2], 4850, 5150);
	assert_in_range(running[3], 8850, 9150);
}

static void test_one_that_goes_off_line_is_not_asked_any_more(void **state)
{
	struct fixture *f = *state;

	f->vcpus.now[0].online = false;
	next(f, 1000);
	assert_false(f->sample->vcpu[0].online);
	xen_vcpus_done(&f->vcpus, f->sample);
	assert_int_equal(f->vcpus.online.n, N - 1);
	assert_int_equal(f->vcpus.online.id[0], 1);
}

static void test_a_limited_number_is_read_in_turns(void **state)
{
	struct fixture *f = *state;
	unsigned read[N] = {0};

	for (unsigned tick = 0; tick < 40; tick++) {
		for (uint32_t i = 0; i < N; i++)
			f->vcpus.now[i].cpu_ns += 10;
		f->sample->time_ns += 1000;
		xen_vcpus_expect(&f->vcpus, f->sample, false);
		xen_vcpus_note(&f->vcpus, f->sample);
		xen_vcpus_limit(&f->vcpus, f->sample, 3);
		assert_int_equal(f->vcpus.read.n, 3);
		for (uint32_t i = 0; i < N; i++)
			read[i] += !f->sample->vcpu[i].given_up;
		xen_vcpus_done(&f->vcpus, f->sample);
	}
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(read[i], 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_what_has_run_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_the_context_of_one_that_ran_comes_with_the_next_states, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_contexts_come_with_the_pause_when_there_will_be_one, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_one_that_is_asked_for_again_is_read_though_it_has_not_run, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_another_sample_object_does_not_inherit_what_was_read, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(test_one_that_ran_while_it_was_read_is_torn, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			test_as_many_looks_count_as_running_as_cpu_time_was_used, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(test_looks_at_uneven_times_count_as_running_as_well,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_that_goes_off_line_is_not_asked_any_more,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_limited_number_is_read_in_turns, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
