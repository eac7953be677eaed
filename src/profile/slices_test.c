/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/slices.h"
#include "recording/testing.h"

static const struct profile_filter everything = {.states = 0, .vcpu = -1};

/* A tick each millisecond: vCPU 0 runs `stacks` stacks in turns, vCPU 1 is idle. */
static struct memory_file record(uint64_t ticks, uint64_t n_stacks)
{
	struct recording_info info = {.vcpus = 2};
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct recording_end end = {.elapsed_ns = ticks * 1000000};
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (uint64_t i = 0; i < ticks; i++) {
		struct frame frame = {.addr = 0x1000 + i % n_stacks};
		struct tick_entry entries[2] = {{.ran_ns = 500000},
						{.vcpu = 1, .state = VCPU_BLOCKED}};
		struct tick tick = {.time_ns = i * 1000000,
				    .weight_ns = 1000000,
				    .n = 2,
				    .entries = entries};
		bool whole;

		assert_success(stacks_intern(stacks, &frame, 1, &entries[0].stack, &whole));
		assert_success(recording_tick(writer, &tick));
	}
	assert_success(recording_close(writer, &end));
	stacks_free(stacks);
	return file;
}

/* Each stack has a place of its own, its number. */
static struct slices read_slices(const struct memory_file *file,
				 const struct profile_filter *filter, size_t max_rows)
{
	struct profile *profile;
	struct slices slices;
	uint32_t *places;

	assert_success(profile_load(file->path, filter, &profile));
	places = calloc(stacks_count(profile->stacks), sizeof(*places));
	assert_non_null(places);
	for (uint32_t i = 0; i < stacks_count(profile->stacks); i++)
		places[i] = i;
	assert_success(slices_read(file->path, profile, filter, places, max_rows, &slices));
	profile_free(profile);
	free(places);
	return slices;
}

static struct profile_cell sum(const struct slices *slices)
{
	struct profile_cell all = {0};

	for (size_t i = 0; i < slices->n_rows; i++) {
		const struct slice_row *row = &slices->rows[i];

		assert_true(row->slice < slices->n);
		all.samples += row->samples;
		all.weight_ns += row->weight_ns;
	}
	return all;
}

static void samples_keep_their_time_vcpu_and_state(void **state)
{
	struct memory_file file = record(4096, 1);
	struct slices slices = read_slices(&file, &everything, 1 << 20);
	const struct slice_row *row = &slices.rows[2 * 100];

	assert_in_range(slices.n, 1000, SLICES_MAX);
	assert_int_equal(slices.n_rows, 2 * slices.n);
	assert_int_equal(row[0].slice, 100);
	assert_int_equal(row[0].vcpu, 0);
	assert_int_equal(row[0].state, VCPU_RUNNING);
	assert_int_equal(row[0].place, 1);
	assert_in_range(row[0].samples, 3, 5);
	assert_int_equal(row[0].weight_ns, row[0].samples * 1000000);
	assert_true(row[0].squares == (double)row[0].samples * 1e12);
	assert_int_equal(row[1].vcpu, 1);
	assert_int_equal(row[1].state, VCPU_BLOCKED);
	assert_int_equal(row[1].place, 0);
	slices_free(&slices);
	close(file.fd);
}

static void long_recordings_get_longer_slices_and_lose_nothing(void **state)
{
	struct memory_file file = record(20000, 500);

	for (size_t most = 1000000; most > 10; most /= 10) {
		struct slices slices = read_slices(&file, &everything, most);
		struct profile_cell all = sum(&slices);

		assert_int_equal(all.samples, 40000);
		assert_int_equal(all.weight_ns, 40000000000);
		/* One slice has 501 different rows. */
		assert_true(slices.n_rows <= (most < 2004 ? 2004 : most) + 501);
		slices_free(&slices);
	}
	close(file.fd);
}

static void slices_of_many_rows_can_be_put_together(void **state)
{
	struct memory_file file = record(40000, 20000);
	struct slices slices = read_slices(&file, &everything, 10000);

	assert_int_equal(sum(&slices).samples, 80000);
	assert_true(slices.n_rows > 10000);
	slices_free(&slices);
	close(file.fd);
}

static void only_what_is_selected_is_there(void **state)
{
	const struct profile_filter running = {.states = 1u << VCPU_RUNNING, .vcpu = -1};
	const struct profile_filter second = {.vcpu = 1};
	const struct profile_filter by_cpu = {.vcpu = 0, .by_cpu = true};
	struct memory_file file = record(1000, 3);
	struct slices slices = read_slices(&file, &running, 1 << 20);

	assert_int_equal(sum(&slices).samples, 1000);
	slices_free(&slices);
	slices = read_slices(&file, &second, 1 << 20);
	assert_int_equal(slices.rows[0].vcpu, 1);
	assert_int_equal(sum(&slices).samples, 1000);
	slices_free(&slices);
	slices = read_slices(&file, &by_cpu, 1 << 20);
	assert_int_equal(sum(&slices).weight_ns, 500000000);
	slices_free(&slices);
	close(file.fd);
}

static void an_empty_recording_has_no_rows(void **state)
{
	struct memory_file file = record(0, 1);
	struct slices slices = read_slices(&file, &everything, 1 << 20);

	assert_int_equal(slices.n_rows, 0);
	assert_int_equal(slices.n, 1);
	slices_free(&slices);
	close(file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_keep_their_time_vcpu_and_state),
		cmocka_unit_test(long_recordings_get_longer_slices_and_lose_nothing),
		cmocka_unit_test(slices_of_many_rows_can_be_put_together),
		cmocka_unit_test(only_what_is_selected_is_there),
		cmocka_unit_test(an_empty_recording_has_no_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
