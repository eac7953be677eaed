/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "recording/testing.h"

static const struct profile_filter everything = {.states = 0, .vcpu = -1};

static const struct frame leaf[] = {{100, FRAME_PC, 0}, {200, FRAME_RETURN, 0}};
static const struct frame other[] = {{300, FRAME_PC, 1}, {200, FRAME_RETURN, 0}};

struct recorded {
	struct memory_file file;
	struct stacks *stacks;
	struct recording_writer *writer;
	uint32_t a, b; /* the two stacks */
};

static void record_with(struct recorded *out, const struct recording_info *info)
{
	bool whole;

	out->file = memory_file_new();
	assert_success(stacks_new(&out->stacks));
	assert_success(recording_create(out->file.path, info, out->stacks, &out->writer));
	assert_success(stacks_intern(out->stacks, leaf, 2, &out->a, &whole));
	assert_success(stacks_intern(out->stacks, other, 2, &out->b, &whole));
}

static void record(struct recorded *out)
{
	record_with(out, &(struct recording_info){.guest_name = (char *)"web", .vcpus = 3});
}

static void tick(struct recorded *out, uint64_t time_ns, uint64_t weight_ns,
		 const struct tick_entry *entries, uint32_t n)
{
	struct tick one = {.time_ns = time_ns,
			   .weight_ns = weight_ns,
			   .paused_ns = time_ns / 10,
			   .n = n,
			   .entries = entries};

	assert_success(recording_tick(out->writer, &one));
}

/* Three ticks: 1 + 2 + 3 entries, weights 5, 7, 11. */
static void record_three(struct recorded *out, bool whole)
{
	struct recording_end end = {.elapsed_ns = 400, .missed = 2, .reason = (char *)"time"};

	record(out);
	tick(out, 100, 5,
	     (struct tick_entry[]){{0, out->a, VCPU_RUNNING, UNWIND_OUTERMOST, 70000, 0, 0}}, 1);
	tick(out, 200, 7,
	     (struct tick_entry[]){{0, out->a, VCPU_RUNNING, UNWIND_OUTERMOST, 50000, 0, 0},
				   {1, out->b, VCPU_RUNNABLE, UNWIND_BYTES, 0, 0, 0}},
	     2);
	tick(out, 300, 11,
	     (struct tick_entry[]){{0, out->b, VCPU_RUNNING, UNWIND_BROKEN, 2000, 0, 0},
				   {1, out->b, VCPU_RUNNING, UNWIND_OUTERMOST, 1000, 0, 0},
				   {2, STACK_ROOT, VCPU_BLOCKED, UNWIND_NO_STACK, 0, 0, 0}},
	     3);
	assert_success(recording_close(out->writer, whole ? &end : NULL));
}

static void discard(struct recorded *recorded)
{
	stacks_free(recorded->stacks);
	close(recorded->file.fd);
}

static void assert_cell(const struct profile_cell *cell, uint64_t samples, uint64_t weight_ns)
{
	assert_int_equal(cell->samples, samples);
	assert_int_equal(cell->weight_ns, weight_ns);
}

/* The cell of the stack whose leaf has this address. */
static const struct profile_cell *cell_of(const struct profile *profile, uint64_t addr)
{
	for (uint32_t id = 1; id < stacks_count(profile->stacks); id++)
		if (stacks_node(profile->stacks, id)->addr == addr)
			return profile_cell(&profile->cells, id);
	fail_msg("no node %" PRIu64, addr);
	return NULL;
}

static void test_weights_can_be_the_cpu_time_that_was_used(void **state)
{
	const struct profile_filter by_cpu = {.vcpu = -1, .weight = WEIGHT_BY_CPU};
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	tick(&recorded, 100, 60000,
	     (struct tick_entry[]){{0, recorded.a, VCPU_RUNNING, UNWIND_OUTERMOST, 70000, 0, 0}},
	     1);
	tick(&recorded, 200, 80000,
	     (struct tick_entry[]){{0, recorded.a, VCPU_RUNNING, UNWIND_OUTERMOST, 50000, 0, 0},
				   {1, recorded.b, VCPU_RUNNABLE, UNWIND_BYTES, 0, 0, 0}},
	     2);
	assert_success(recording_close(recorded.writer, NULL));
	assert_success(profile_load(recorded.file.path, &by_cpu, &profile));
	assert_cell(cell_of(profile, 100), 2, 70000 + 50000);
	assert_cell(cell_of(profile, 300), 1, 0);
	assert_cell(&profile->selected, 3, 120000);
	assert_cell(&profile->states[VCPU_RUNNING], 2, 60000 + 80000);
	assert_true(profile->by_cpu_time);
	profile_free(profile);
	discard(&recorded);
}

static void test_late_samples_do_not_outweigh_all_others(void **state)
{
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	for (uint64_t i = 1; i <= 4; i++)
		tick(&recorded, i * 10, i < 4 ? 10 : 1000,
		     (struct tick_entry[]){{0, i < 4 ? recorded.a : recorded.b, VCPU_RUNNING,
					    UNWIND_OUTERMOST, 0, 0, 0}},
		     1);
	assert_success(recording_close(recorded.writer, NULL));
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_cell(cell_of(profile, 100), 3, 30);
	assert_cell(cell_of(profile, 300), 1, 40);
	assert_int_equal(profile->not_sampled_ns, 1000 - 40);
	assert_float_equal(profile_not_sampled(profile), 960.0 / 1030, 1e-9);
	profile_free(profile);
	discard(&recorded);
}

/* Four samples at 10 and one at 40: the latter is half of the weight, by one draw. */
static void test_shares_of_heavy_samples_are_worth_fewer_draws(void **state)
{
	const struct profile_cell heavy = {1, 40, 1600}, all = {5, 80, 2000};
	const struct profile profile = {.selected = all,
					.tick_weights = 80,
					.tick_weights_squared = 2000};
	const struct profile_cell light = {1, 10, 100}, none = {0};

	assert_float_equal(profile_draws(&profile), 3.2, 1e-9);
	assert_float_equal(profile_share_draws(&profile, &heavy), 3.2, 1e-9);
	assert_float_equal(profile_share_draws(&profile, &light), 3.2, 1e-9);
	assert_float_equal(profile_share_draws(&profile, &none), 3.2, 1e-9);
	assert_float_equal(profile_share_draws(&(struct profile){.selected = {11, 140, 2600},
								 .tick_weights = 140,
								 .tick_weights_squared = 2600},
					       &heavy),
			   140.0 * 140 * (2.0 / 7) * (5.0 / 7) /
				   (1600 * (3.0 / 7) + 2600 * 4.0 / 49),
			   1e-9);
}

static void test_everything_is_summed_up(void **state)
{
	struct recorded recorded;
	struct profile *profile;

	record_three(&recorded, true);
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_false(profile->cut);
	assert_string_equal(profile->info.guest_name, "web");
	assert_int_equal(profile->info.vcpus, 3);
	assert_int_equal(profile_vcpus(profile), 3);
	assert_int_equal(profile->end.missed, 2);
	assert_string_equal(profile->end.reason, "time");
	assert_int_equal(profile->ticks, 3);
	assert_int_equal(stacks_count(profile->stacks), 4);
	assert_cell(cell_of(profile, 100), 2, 5 + 7);
	assert_cell(cell_of(profile, 300), 3, 7 + 11 + 11);
	assert_cell(cell_of(profile, 200), 0, 0);
	assert_cell(profile_cell(&profile->cells, STACK_ROOT), 1, 11);
	assert_cell(&profile->selected, 6, 5 + 7 + 7 + 33);
	assert_cell(&profile->states[VCPU_RUNNING], 4, 5 + 7 + 11 + 11);
	assert_cell(&profile->states[VCPU_RUNNABLE], 1, 7);
	assert_cell(&profile->states[VCPU_BLOCKED], 1, 11);
	assert_int_equal(profile->ends[UNWIND_OUTERMOST], 3);
	assert_int_equal(profile->ends[UNWIND_BYTES], 1);
	assert_int_equal(profile->ends[UNWIND_BROKEN], 1);
	assert_int_equal(profile->ends[UNWIND_NO_STACK], 1);
	assert_int_equal(profile->ends[UNWIND_LOOP], 0);
	assert_int_equal(profile->last_ns, 300);
	assert_int_equal(profile->paused_ns, 10 + 20 + 30);
	assert_int_equal(profile->pauses.n, 3);
	assert_int_equal(histogram_quantile(&profile->pauses, 0.5), 20);
	profile_free(profile);
	discard(&recorded);
}

/* A tick of one vCPU at a time in microseconds. */
static void tick_at(struct recorded *out, uint64_t time_us, uint64_t paused_ns, uint64_t ran_ns)
{
	const struct tick_entry entry = {0, out->a, VCPU_RUNNING, UNWIND_OUTERMOST, ran_ns, 0, 0};
	const struct tick one = {.time_ns = 1000 * time_us,
				 .weight_ns = 1,
				 .paused_ns = paused_ns,
				 .n = 1,
				 .entries = &entry};

	assert_success(recording_tick(out->writer, &one));
}

static void test_a_sample_within_the_rate_limit_came_when_the_guest_yielded(void **state)
{
	const struct recording_info limited = {.scheduler = (char *)"credit2",
					       .rate_limit_us = 1000,
					       .vcpus = 1},
				    free_to_run = {.vcpus = 1};

	for (int limit = 0; limit < 2; limit++) {
		struct recorded recorded;
		struct profile *profile;

		record_with(&recorded, limit ? &limited : &free_to_run);
		tick_at(&recorded, 5000, 0, 9000);
		tick_at(&recorded, 5999, 0, 9000);
		tick_at(&recorded, 6999, 0, 9000);
		tick_at(&recorded, 7000, 900, 9000);
		tick_at(&recorded, 7001, 0, 0);
		assert_success(recording_close(recorded.writer, NULL));
		assert_success(profile_load(recorded.file.path, &everything, &profile));
		assert_int_equal(profile->ran, 4);
		assert_int_equal(profile->at_yields, limit ? 1 : 0);
		profile_free(profile);
		discard(&recorded);
	}
}

static void test_a_tick_is_one_draw_whatever_number_of_vcpus_it_saw(void **state)
{
	const struct profile_filter first = {.vcpu = 0}, none = {.states = 1u << VCPU_BLOCKED, 1};
	struct recorded recorded;
	struct profile *profile;

	record_three(&recorded, true);
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	/* Weights 5, 14 and 33. */
	assert_float_equal(profile_draws(profile), 52.0 * 52 / (25 + 196 + 1089), 1e-9);
	profile_free(profile);
	assert_success(profile_load(recorded.file.path, &first, &profile));
	assert_float_equal(profile_draws(profile), 23.0 * 23 / (25 + 49 + 121), 1e-9);
	profile_free(profile);
	assert_success(profile_load(recorded.file.path, &none, &profile));
	assert_float_equal(profile_draws(profile), 0, 0);
	profile_free(profile);
	discard(&recorded);
}

static void test_a_stretch_of_time_is_as_if_nothing_else_had_been_recorded(void **state)
{
	const struct profile_filter middle = {.vcpu = -1, .from_ns = 200, .to_ns = 300};
	struct recorded recorded;
	struct profile *profile;

	record_three(&recorded, true);
	assert_success(profile_load(recorded.file.path, &middle, &profile));
	assert_int_equal(profile->ticks, 1);
	assert_cell(&profile->selected, 2, 7 + 7);
	assert_cell(&profile->states[VCPU_BLOCKED], 0, 0);
	assert_int_equal(profile->paused_ns, 20);
	assert_int_equal(profile_elapsed_ns(profile), 100);
	profile_free(profile);
	discard(&recorded);
}

static void test_vcpus_are_chosen_by_a_list(void **state)
{
	bool vcpus[RECORDING_MAX_VCPUS] = {[1] = true, [2] = true};
	const struct profile_filter some = {.vcpu = -1, .vcpus = vcpus};
	struct recorded recorded;
	struct profile *profile;

	record_three(&recorded, true);
	assert_success(profile_load(recorded.file.path, &some, &profile));
	assert_cell(&profile->selected, 3, 7 + 11 + 11);
	profile_free(profile);
	discard(&recorded);
}

static void test_filters_leave_the_totals_alone(void **state)
{
	struct profile_filter first = {.vcpu = 0}, steal = {.states = 1u << VCPU_RUNNABLE, -1};
	struct profile_filter on_cpu = PROFILE_ON_CPU, none = {.states = 1u << VCPU_BLOCKED, 1};
	struct recorded recorded;
	struct profile *profile;

	on_cpu.weight = WEIGHT_BY_TIME;
	record_three(&recorded, true);
	assert_success(profile_load(recorded.file.path, &on_cpu, &profile));
	assert_cell(&profile->selected, 4, 5 + 7 + 11 + 11);
	assert_cell(cell_of(profile, 300), 2, 22);
	assert_cell(&profile->states[VCPU_BLOCKED], 1, 11);
	assert_int_equal(profile->ends[UNWIND_NO_STACK], 0);
	profile_free(profile);

	assert_success(profile_load(recorded.file.path, &first, &profile));
	assert_cell(&profile->selected, 3, 5 + 7 + 11);
	assert_cell(cell_of(profile, 300), 1, 11);
	assert_cell(&profile->states[VCPU_RUNNING], 4, 5 + 7 + 11 + 11);
	assert_int_equal(profile->ticks, 3);
	assert_int_equal(profile->vcpu_states_ns[0][VCPU_RUNNING], 5 + 7 + 11);
	assert_int_equal(profile->vcpu_states_ns[1][VCPU_RUNNABLE], 7);
	assert_int_equal(profile->vcpu_states_ns[2][VCPU_BLOCKED], 11);
	profile_free(profile);

	assert_success(profile_load(recorded.file.path, &steal, &profile));
	assert_cell(&profile->selected, 1, 7);
	assert_int_equal(profile->ends[UNWIND_BYTES], 1);
	profile_free(profile);

	assert_success(profile_load(recorded.file.path, &none, &profile));
	assert_cell(&profile->selected, 0, 0);
	profile_free(profile);
	discard(&recorded);
}

static void test_a_cut_recording_counts_up_to_there(void **state)
{
	struct recorded recorded;
	struct profile *profile;
	size_t len;

	record_three(&recorded, false);
	free(memory_file_get(&recorded.file, &len));
	/* The check goes, and a byte of the last tick. */
	assert_int_equal(ftruncate(recorded.file.fd, (off_t)len - CHECK_RECORD - 1), 0);
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_true(profile->cut);
	assert_int_equal(profile->ticks, 2);
	assert_cell(&profile->selected, 3, 5 + 7 + 7);
	assert_null(profile->end.reason);
	profile_free(profile);
	discard(&recorded);
}

static void test_a_recording_without_ticks_is_empty_but_good(void **state)
{
	struct recording_end end = {.reason = (char *)"interrupted"};
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	assert_success(recording_close(recorded.writer, &end));
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_false(profile->cut);
	assert_int_equal(profile->ticks, 0);
	assert_int_equal(stacks_count(profile->stacks), 1);
	assert_cell(profile_cell(&profile->cells, STACK_ROOT), 0, 0);
	assert_null(profile_name(profile, 100, FRAME_PC));
	profile_free(profile);
	discard(&recorded);
}

static void test_names_are_found_by_address_and_kind(void **state)
{
	const struct profile_name *name;
	struct recorded recorded;
	struct profile *profile;
	char text[32];

	record(&recorded);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t addr = i * 37 % 1000;

		snprintf(text, sizeof(text), "f%" PRIu64, addr);
		assert_success(recording_name(recorded.writer, addr << 40, addr & 1, text, addr));
	}
	assert_success(recording_close(recorded.writer, NULL));
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_int_equal(profile->n_names, 1000);
	for (uint64_t addr = 0; addr < 1000; addr++) {
		snprintf(text, sizeof(text), "f%" PRIu64, addr);
		name = profile_name(profile, addr << 40, addr & 1);
		assert_non_null(name);
		assert_string_equal(name->name, text);
		assert_int_equal(name->offset, addr);
		assert_null(profile_name(profile, addr << 40, !(addr & 1)));
		assert_null(profile_name(profile, (addr << 40) + 1, addr & 1));
	}
	profile_free(profile);
	discard(&recorded);
}

static void test_of_two_names_the_nearer_one_counts(void **state)
{
	const struct profile_name *name;
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	assert_success(recording_name(recorded.writer, 5, FRAME_PC, "far", 4));
	assert_success(recording_name(recorded.writer, 5, FRAME_PC, "near_b", 1));
	assert_success(recording_name(recorded.writer, 5, FRAME_PC, "near_a", 1));
	assert_success(recording_name(recorded.writer, 5, FRAME_PC, "near_a", 1));
	assert_success(recording_close(recorded.writer, NULL));
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_int_equal(profile->n_names, 1);
	name = profile_name(profile, 5, FRAME_PC);
	assert_non_null(name);
	assert_string_equal(name->name, "near_a");
	profile_free(profile);
	discard(&recorded);
}

static void test_sums_stop_at_the_top(void **state)
{
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	for (int i = 0; i < 3; i++)
		tick(&recorded, UINT64_MAX, UINT64_MAX / 2, (struct tick_entry[]){{0}}, 1);
	assert_success(recording_close(recorded.writer, NULL));
	assert_success(profile_load(recorded.file.path, &everything, &profile));
	assert_cell(&profile->selected, 3, UINT64_MAX);
	assert_cell(&profile->states[VCPU_RUNNING], 3, UINT64_MAX);
	profile_free(profile);
	discard(&recorded);
}

static void test_errors_are_passed_on(void **state)
{
	struct profile *profile;

	assert_fails(profile_load("/proc/none", &everything, &profile), ERR_INPUT, "/proc/none");
	assert_fails(profile_load("/dev/null", &everything, &profile), ERR_INPUT, "is empty");
	profile_free(NULL);
}

static size_t resident_kib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (size_t)usage.ru_maxrss;
}

/* Ten times the ticks, the same stacks: the memory may differ by one stretch at most. */
static void test_memory_does_not_grow_with_ticks(void **state)
{
	size_t resident[2];

	for (int round = 0; round < 2; round++) {
		struct recorded recorded;
		struct profile *profile;
		uint64_t ticks = round ? 1000000 : 100000;

		record(&recorded);
		for (uint64_t i = 0; i < ticks; i++) {
			struct tick_entry entry = {.stack = i & 1 ? recorded.a : recorded.b};

			tick(&recorded, i * 1000000, 1000000, &entry, 1);
		}
		assert_success(recording_close(recorded.writer, NULL));
		assert_success(profile_load(recorded.file.path, &everything, &profile));
		assert_int_equal(profile->selected.samples, ticks);
		assert_int_equal(profile->selected.weight_ns, ticks * 1000000);
		profile_free(profile);
		discard(&recorded);
		resident[round] = resident_kib();
	}
	assert_true(resident[1] < resident[0] + 4096);
}

static struct breakdown *breakdown;

static int set_up(void **state)
{
	return breakdown_new(&breakdown) ? -1 : 0;
}

static int tear_down(void **state)
{
	breakdown_free(breakdown);
	return 0;
}

static void add(uint32_t stack, uint32_t vcpu, uint8_t state, uint64_t weight_ns)
{
	const struct tick_entry entry = {.stack = stack, .vcpu = vcpu, .state = state};

	assert_null(breakdown_add(breakdown, &entry, 1, weight_ns));
}

static void test_stack_vcpu_and_state_are_told_apart_and_what_is_equal_is_summed(void **state)
{
	add(1, 0, VCPU_RUNNING, 10);
	add(1, 1, VCPU_RUNNING, 10);
	add(1, 0, VCPU_BLOCKED, 10);
	add(2, 0, VCPU_RUNNING, 10);
	add(1, 0, VCPU_RUNNING, 5);
	assert_int_equal(breakdown_count(breakdown), 4);
	assert_int_equal(breakdown_at(breakdown, 0)->cell.samples, 2);
	assert_int_equal(breakdown_at(breakdown, 0)->cell.weight_ns, 15);
}

static void test_it_grows_and_forgets_nothing(void **state)
{
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 10000; i++)
			add(i, i % RECORDING_MAX_VCPUS, VCPU_RUNNING, i);
	assert_int_equal(breakdown_count(breakdown), 10000);
	for (size_t i = 0; i < 10000; i++) {
		assert_int_equal(breakdown_at(breakdown, i)->cell.samples, 2);
		assert_int_equal(breakdown_at(breakdown, i)->cell.weight_ns,
				 2 * breakdown_at(breakdown, i)->stack);
	}
}

static void test_sums_of_weights_stop_at_the_top(void **state)
{
	add(1, 0, VCPU_RUNNING, UINT64_MAX);
	add(1, 0, VCPU_RUNNING, 2);
	assert_true(breakdown_at(breakdown, 0)->cell.weight_ns == UINT64_MAX);
}

/* Samples of stack a with one of four threads each, of which the first is not known. */
static uint64_t samples_of(const struct recorded *recorded, const char *comm, const char *pid,
			   const char *tid)
{
	const struct profile_filter filter = {.vcpu = -1, .comm = comm, .pid = pid, .tid = tid};
	struct profile *profile;
	uint64_t samples;

	assert_success(profile_load(recorded->file.path, &filter, &profile));
	samples = profile->selected.samples;
	assert_int_equal(profile->n_threads, 3);
	assert_string_equal(profile->threads[1].name, "worker");
	profile_free(profile);
	return samples;
}

static void test_threads_are_chosen_by_name_and_number(void **state)
{
	static const struct recorded_thread threads[] = {
		{12, 12, 1, false, false, "nginx", "nginx", NULL},
		{12, 13, 2, false, false, "worker", "nginx", NULL},
		{1, 1, 3, false, false, "init", "init", NULL}};
	struct recorded recorded;

	record(&recorded);
	for (uint32_t i = 0; i < 3; i++)
		assert_success(recording_thread(recorded.writer, &threads[i]));
	for (uint32_t i = 0; i < 4; i++)
		tick(&recorded, 100 * (i + 1), 5,
		     (struct tick_entry[]){{.stack = recorded.a, .thread = i}}, 1);
	assert_success(recording_close(recorded.writer, NULL));
	assert_int_equal(samples_of(&recorded, NULL, NULL, NULL), 4);
	assert_int_equal(samples_of(&recorded, "nginx", NULL, NULL), 2);
	assert_int_equal(samples_of(&recorded, "worker,init", NULL, NULL), 2);
	assert_int_equal(samples_of(&recorded, "work", NULL, NULL), 0);
	assert_int_equal(samples_of(&recorded, NULL, "12", NULL), 2);
	assert_int_equal(samples_of(&recorded, NULL, "2,1", NULL), 1);
	assert_int_equal(samples_of(&recorded, NULL, NULL, "13,1"), 2);
	assert_int_equal(samples_of(&recorded, "nginx", "12", "13"), 1);
	discard(&recorded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_samples_do_not_outweigh_all_others),
		cmocka_unit_test(test_shares_of_heavy_samples_are_worth_fewer_draws),
		cmocka_unit_test(test_everything_is_summed_up),
		cmocka_unit_test(test_weights_can_be_the_cpu_time_that_was_used),
		cmocka_unit_test(test_a_sample_within_the_rate_limit_came_when_the_guest_yielded),
		cmocka_unit_test(test_a_tick_is_one_draw_whatever_number_of_vcpus_it_saw),
		cmocka_unit_test(test_a_stretch_of_time_is_as_if_nothing_else_had_been_recorded),
		cmocka_unit_test(test_vcpus_are_chosen_by_a_list),
		cmocka_unit_test(test_threads_are_chosen_by_name_and_number),
		cmocka_unit_test(test_filters_leave_the_totals_alone),
		cmocka_unit_test(test_a_cut_recording_counts_up_to_there),
		cmocka_unit_test(test_a_recording_without_ticks_is_empty_but_good),
		cmocka_unit_test(test_names_are_found_by_address_and_kind),
		cmocka_unit_test(test_of_two_names_the_nearer_one_counts),
		cmocka_unit_test(test_sums_stop_at_the_top),
		cmocka_unit_test(test_errors_are_passed_on),
		cmocka_unit_test(test_memory_does_not_grow_with_ticks),
		cmocka_unit_test_setup_teardown(
			test_stack_vcpu_and_state_are_told_apart_and_what_is_equal_is_summed,
			set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_it_grows_and_forgets_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_sums_of_weights_stop_at_the_top, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
