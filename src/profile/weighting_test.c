/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/weighting.h"

#include "recording/testing.h"

#define MS UINT64_C(1000000)

/* Quantiles of histograms are up to 6.25 % too large. */
#define ALMOST(value) ((value) + (value) / 16)

static const struct recording_info info = {.rate_hz = 1000, .vcpus = 2};

/* Weighs one running sample of vCPU 0. */
static struct weight weigh(struct weighting *weighting, uint64_t stretch_ns, uint64_t ran_ns)
{
	const struct tick_entry entry = {.state = VCPU_RUNNING, .ran_ns = ran_ns};
	const struct tick tick = {.weight_ns = stretch_ns, .n = 1, .entries = &entry};

	weighting_tick(weighting, &tick);
	return weighting_entry(weighting, &tick, &entry);
}

static void start(struct weighting *weighting, enum weight_by by)
{
	weighting_start(weighting, by, 1u << VCPU_RUNNING, &info);
	for (int i = 0; i < 10; i++)
		weigh(weighting, MS, 0);
}

static void no_sample_stands_for_more_than_some_usual_stretches(void **state)
{
	struct weighting weighting;
	struct weight late;

	start(&weighting, WEIGHT_BY_TIME);
	late = weigh(&weighting, 1000 * MS, 0);
	assert_in_range(late.sampled_ns, WEIGHTING_STRETCHES * MS,
			ALMOST(WEIGHTING_STRETCHES * MS));
	assert_int_equal(late.not_sampled_ns, 1000 * MS - late.sampled_ns);
	start(&weighting, WEIGHT_BY_CPU);
	late = weigh(&weighting, MS, 7 * MS);
	assert_in_range(late.sampled_ns, WEIGHTING_STRETCHES * MS,
			ALMOST(WEIGHTING_STRETCHES * MS));
	assert_int_equal(late.not_sampled_ns, 7 * MS - late.sampled_ns);
}

static void latency_is_shared_by_the_vcpus_that_run_at_once(void **state)
{
	const struct tick_entry entries[] = {{.vcpu = 0, .state = VCPU_RUNNING, .ran_ns = MS},
					     {.vcpu = 1, .state = VCPU_RUNNING, .ran_ns = MS / 2},
					     {.vcpu = 2, .state = VCPU_BLOCKED}};
	const struct tick both = {.weight_ns = MS, .n = 3, .entries = entries};
	const struct tick alone = {.weight_ns = MS, .n = 1, .entries = entries};
	struct weighting weighting;

	weighting_start(&weighting, WEIGHT_BY_LATENCY, 1u << VCPU_RUNNING, &info);
	weighting_tick(&weighting, &both);
	assert_int_equal(weighting_entry(&weighting, &both, &entries[0]).sampled_ns, MS / 2);
	assert_int_equal(weighting_entry(&weighting, &both, &entries[1]).sampled_ns, MS / 4);
	assert_int_equal(weighting_entry(&weighting, &both, &entries[2]).sampled_ns, 0);
	weighting_tick(&weighting, &alone);
	assert_int_equal(weighting_entry(&weighting, &alone, &entries[0]).sampled_ns, MS);
}

static void stretches_that_are_always_long_are_the_usual_ones(void **state)
{
	struct weighting weighting;
	struct weight weight = {0};

	weighting_start(&weighting, WEIGHT_BY_TIME, 1u << VCPU_RUNNING, &info);
	for (int i = 0; i < 10; i++)
		weight = weigh(&weighting, 30 * MS, 0);
	assert_int_equal(weight.sampled_ns, 30 * MS);
	assert_int_equal(weight.not_sampled_ns, 0);
}

static void the_best_weight_is_cpu_time_where_it_is_known(void **state)
{
	struct weighting weighting;

	start(&weighting, WEIGHT_BY_BEST);
	assert_int_equal(weigh(&weighting, MS, 0).sampled_ns, MS);
	assert_int_equal(weigh(&weighting, MS, 300000).sampled_ns, 300000);
	assert_int_equal(weigh(&weighting, MS, 0).sampled_ns, 0);
}

static void waiting_vcpus_are_weighed_by_time(void **state)
{
	struct weighting weighting;

	weighting_start(&weighting, WEIGHT_BY_BEST, 0, &info);
	assert_int_equal(weigh(&weighting, MS, 300000).sampled_ns, MS);
}

static void samples_all_weigh_the_same(void **state)
{
	struct weighting weighting;
	struct weight late;

	start(&weighting, WEIGHT_BY_SAMPLES);
	late = weigh(&weighting, 9 * MS, 5 * MS);
	assert_int_equal(late.sampled_ns, MS);
	assert_int_equal(late.not_sampled_ns, 8 * MS);
}

static void imported_weights_are_what_the_file_says(void **state)
{
	static struct recording_info imported = {.target = (char *)"folded"};
	struct weighting weighting;

	weighting_start(&weighting, WEIGHT_BY_BEST, 1u << VCPU_RUNNING, &imported);
	weigh(&weighting, 1, 1);
	assert_int_equal(weigh(&weighting, 5000, 5000).sampled_ns, 5000);
}

static void of_waits_as_much_was_not_sampled_as_of_the_stretches(void **state)
{
	const struct tick_entry wait = {.vcpu = NO_VCPU,
					.state = WAIT_SLEEPING,
					.thread = 1,
					.weight_ns = 900};
	const struct tick usual = {.weight_ns = 100}, late = {.weight_ns = 1400};
	struct weighting weighting;

	weighting_start(&weighting, WEIGHT_BY_BEST, STATES_OF_WAITS, &info);
	for (int i = 0; i < 6; i++)
		weighting_tick(&weighting, &usual);
	assert_int_equal(weighting_entry(&weighting, &usual, &wait).not_sampled_ns, 0);
	/* 400 of 1,400 count: 1,000 for which nobody looked, beside 1,000 for which one did. */
	weighting_tick(&weighting, &late);
	assert_int_equal(weighting_entry(&weighting, &late, &wait).sampled_ns, 900);
	assert_in_range(weighting_entry(&weighting, &late, &wait).not_sampled_ns, 850, 950);
}

/* Samples and weight that a filter selects of a recording. */
static struct profile_cell select_from(const struct memory_file *file, unsigned states,
				       int64_t vcpu)
{
	const struct profile_filter filter = {.states = states, .vcpu = vcpu};
	struct profile_cell selected;
	struct profile *profile;

	assert_success(profile_load(file->path, &filter, &profile));
	assert_int_equal(profile->states[WAIT_SLEEPING].samples, 2);
	assert_int_equal(profile->states[WAIT_SLEEPING].weight_ns, 7000);
	assert_int_equal(profile->states[VCPU_RUNNING].weight_ns, 20);
	selected = profile->selected;
	profile_free(profile);
	return selected;
}

static void threads_that_wait_count_as_the_time_that_they_waited(void **state)
{
	const struct recorded_thread thread = {7, 7, 123, false, false, "sh", "sh", NULL};
	struct tick_entry entries[3] = {
		{.vcpu = 0, .state = VCPU_RUNNING, .ran_ns = 3000},
		{.vcpu = NO_VCPU, .state = WAIT_SLEEPING, .thread = 1, .weight_ns = 5000},
		{.vcpu = NO_VCPU, .state = WAIT_DISK, .thread = 1, .weight_ns = 400}};
	struct tick one = {.weight_ns = 10, .n = 1, .waits = 2, .entries = entries};
	const struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	assert_success(recording_thread(writer, &thread));
	assert_success(recording_tick(writer, &one));
	one.time_ns = 10;
	one.waits = 1;
	entries[1].weight_ns = 2000;
	assert_success(recording_tick(writer, &one));
	assert_success(recording_close(writer, NULL));
	assert_int_equal(select_from(&file, 1u << VCPU_RUNNING, -1).samples, 2);
	assert_int_equal(select_from(&file, 0, -1).samples, 2);
	assert_int_equal(select_from(&file, 1u << WAIT_SLEEPING, -1).weight_ns, 7000);
	assert_int_equal(select_from(&file, STATES_OF_WAITS, -1).weight_ns, 7400);
	assert_int_equal(select_from(&file, STATES_OF_WAITS | 1u, -1).weight_ns, 7420);
	assert_int_equal(select_from(&file, STATES_OF_WAITS, 0).samples, 0);
	stacks_free(stacks);
	close(file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_sample_stands_for_more_than_some_usual_stretches),
		cmocka_unit_test(latency_is_shared_by_the_vcpus_that_run_at_once),
		cmocka_unit_test(stretches_that_are_always_long_are_the_usual_ones),
		cmocka_unit_test(the_best_weight_is_cpu_time_where_it_is_known),
		cmocka_unit_test(waiting_vcpus_are_weighed_by_time),
		cmocka_unit_test(samples_all_weigh_the_same),
		cmocka_unit_test(of_waits_as_much_was_not_sampled_as_of_the_stretches),
		cmocka_unit_test(threads_that_wait_count_as_the_time_that_they_waited),
		cmocka_unit_test(imported_weights_are_what_the_file_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
