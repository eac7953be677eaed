/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/time_buckets.h"
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

/* Each stack's node is its own number. */
static struct time_buckets read_buckets(const struct memory_file *file,
					const struct profile_filter *filter, size_t max_rows)
{
	struct profile *profile;
	struct time_buckets buckets = {0};
	struct node_map nodes;

	assert_success(profile_load(file->path, filter, &profile));
	nodes = (struct node_map){.n = stacks_count(profile->stacks)};
	nodes.node = calloc(nodes.n, sizeof(*nodes.node));
	assert_non_null(nodes.node);
	for (uint32_t i = 0; i < nodes.n; i++)
		nodes.node[i] = i;
	assert_success(time_buckets_read(file->path, profile, filter, &nodes, max_rows, &buckets));
	profile_free(profile);
	node_map_free(&nodes);
	return buckets;
}

static struct profile_cell sum(const struct time_buckets *buckets)
{
	struct profile_cell all = {0};

	for (size_t i = 0; i < buckets->n_rows; i++) {
		const struct time_bucket_row *row = &buckets->rows[i];

		assert_true(row->bucket < buckets->n);
		all.samples += row->samples;
		all.weight_ns += row->weight_ns;
	}
	return all;
}

static void samples_keep_their_time_vcpu_and_state(void **state)
{
	struct memory_file file = record(4096, 1);
	struct time_buckets buckets = read_buckets(&file, &everything, 1 << 20);
	const struct time_bucket_row *row = &buckets.rows[2 * 100];

	assert_in_range(buckets.n, 1000, TIME_BUCKETS_MAX);
	assert_int_equal(buckets.n_rows, 2 * buckets.n);
	assert_int_equal(row[0].bucket, 100);
	assert_int_equal(row[0].vcpu, 0);
	assert_int_equal(row[0].state, VCPU_RUNNING);
	assert_int_equal(row[0].node, 1);
	assert_in_range(row[0].samples, 3, 5);
	assert_int_equal(row[0].weight_ns, row[0].samples * 1000000);
	assert_true(row[0].squares == (double)row[0].samples * 1e12);
	assert_int_equal(row[1].vcpu, 1);
	assert_int_equal(row[1].state, VCPU_BLOCKED);
	assert_int_equal(row[1].node, 0);
	time_buckets_free(&buckets);
	close(file.fd);
}

static void long_recordings_get_longer_buckets_and_lose_nothing(void **state)
{
	struct memory_file file = record(20000, 500);

	for (size_t most = 1000000; most > 10; most /= 10) {
		struct time_buckets buckets = read_buckets(&file, &everything, most);
		struct profile_cell all = sum(&buckets);

		assert_int_equal(all.samples, 40000);
		assert_int_equal(all.weight_ns, 40000000000);
		/* One bucket has 501 different rows. */
		assert_true(buckets.n_rows <= (most < 2004 ? 2004 : most) + 501);
		time_buckets_free(&buckets);
	}
	close(file.fd);
}

static void time_buckets_of_many_rows_can_be_put_together(void **state)
{
	struct memory_file file = record(40000, 20000);
	struct time_buckets buckets = read_buckets(&file, &everything, 10000);

	assert_int_equal(sum(&buckets).samples, 80000);
	assert_true(buckets.n_rows > 10000);
	time_buckets_free(&buckets);
	close(file.fd);
}

/* One row of each vCPU. */
static struct error *reduce(void *ctx, struct time_bucket_row *rows, size_t *n)
{
	struct time_bucket_row sum[2] = {{.samples = 0}, {.samples = 0}};
	uint32_t *calls = ctx;
	size_t kept = 0;

	(*calls)++;
	for (size_t i = 0; i < *n; i++) {
		const uint64_t samples = sum[rows[i].vcpu].samples + rows[i].samples;
		const uint64_t weight_ns = sum[rows[i].vcpu].weight_ns + rows[i].weight_ns;

		assert_int_equal(rows[i].bucket, rows[0].bucket);
		sum[rows[i].vcpu] = rows[i];
		sum[rows[i].vcpu].samples = samples;
		sum[rows[i].vcpu].weight_ns = weight_ns;
	}
	for (size_t i = 0; i < 2; i++)
		if (sum[i].samples)
			rows[kept++] = sum[i];
	*n = kept;
	return NULL;
}

static void rows_of_a_bucket_can_be_made_fewer_before_the_next_one_begins(void **state)
{
	struct memory_file file = record(40000, 20000);

	for (size_t most = 100000; most > 100; most /= 10) {
		uint32_t calls = 0;
		const struct time_bucket_reducer reducer = {.ctx = &calls, .reduce = reduce};
		struct time_buckets buckets = {.bucket_ns = 40000000, .reducer = &reducer};
		const struct node_map nodes = {.n = 20001};
		struct profile *profile;

		assert_success(profile_load(file.path, &everything, &profile));
		assert_success(
			time_buckets_read(file.path, profile, &everything, &nodes, most, &buckets));
		assert_true(calls > 0);
		assert_int_equal(sum(&buckets).samples, 80000);
		assert_int_equal(sum(&buckets).weight_ns, 80000000000);
		assert_true(buckets.n_rows <= most);
		if (most > 2000)
			assert_int_equal(buckets.n_rows, 2000);
		profile_free(profile);
		time_buckets_free(&buckets);
	}
	close(file.fd);
}

static void only_what_is_selected_is_there(void **state)
{
	const struct profile_filter running = {.states = 1u << VCPU_RUNNING, .vcpu = -1};
	const struct profile_filter second = {.vcpu = 1};
	const struct profile_filter by_cpu = {.vcpu = 0, .weight = WEIGHT_BY_CPU};
	struct memory_file file = record(1000, 3);
	struct time_buckets buckets = read_buckets(&file, &running, 1 << 20);

	assert_int_equal(sum(&buckets).samples, 1000);
	time_buckets_free(&buckets);
	buckets = read_buckets(&file, &second, 1 << 20);
	assert_int_equal(buckets.rows[0].vcpu, 1);
	assert_int_equal(sum(&buckets).samples, 1000);
	time_buckets_free(&buckets);
	buckets = read_buckets(&file, &by_cpu, 1 << 20);
	assert_int_equal(sum(&buckets).weight_ns, 500000000);
	time_buckets_free(&buckets);
	close(file.fd);
}

static void an_empty_recording_has_no_rows(void **state)
{
	struct memory_file file = record(0, 1);
	struct time_buckets buckets = read_buckets(&file, &everything, 1 << 20);

	assert_int_equal(buckets.n_rows, 0);
	assert_int_equal(buckets.n, 1);
	time_buckets_free(&buckets);
	close(file.fd);
}

static struct heat read_heat(const struct memory_file *file, uint64_t from_ns, uint64_t to_ns,
			     uint32_t max_columns)
{
	struct profile_filter filter = {.states = 1u << VCPU_RUNNING, .vcpu = -1};
	const struct heat_options how = {.max_columns = max_columns};
	struct profile_listener listener = {.sample = heat_log_sample};
	struct profile *profile;
	struct heat_log *log;
	struct heat heat;

	assert_success(heat_log_new(20, false, &log));
	listener.ctx = log;
	filter.listener = &listener;
	filter.from_ns = from_ns;
	filter.to_ns = to_ns;
	assert_success(profile_load(file->path, &filter, &profile));
	assert_success(heat_build(log, profile, &how, &heat));
	heat_log_free(log);
	profile_free(profile);
	return heat;
}

static uint64_t samples_of(const struct heat *heat)
{
	uint64_t samples = 0;

	for (size_t i = 0; i < (size_t)heat->columns * heat->rows; i++)
		samples += heat->cells[i].samples;
	return samples;
}

static void a_heat_map_has_a_column_for_each_second(void **state)
{
	struct memory_file file = record(2500, 1);
	struct heat heat = read_heat(&file, 0, 0, 80);

	assert_int_equal(heat.columns, 3);
	assert_int_equal(heat.column_s, 1);
	assert_int_equal(samples_of(&heat), 2500);
	assert_int_equal(heat.cells[20 + 19].samples, 50);
	assert_int_equal(heat.cells[40 + 9].samples, 50);
	assert_int_equal(heat.cells[40 + 10].samples, 0);
	heat_free(&heat);
	close(file.fd);
}

static void a_heat_map_of_many_seconds_merges_columns(void **state)
{
	struct memory_file file = record(25000, 1);
	struct heat heat = read_heat(&file, 0, 0, 10);

	assert_int_equal(heat.column_s, 3);
	assert_int_equal(heat.columns, 9);
	assert_int_equal(samples_of(&heat), 25000);
	assert_int_equal(heat_hottest(&heat)->samples, 150);
	heat_free(&heat);
	close(file.fd);
}

static void a_heat_map_begins_and_ends_with_its_stretch(void **state)
{
	struct memory_file file = record(10000, 1);
	struct heat heat = read_heat(&file, 2500000000, 5000000000, 80);

	assert_int_equal(heat.first_s, 2);
	assert_int_equal(heat.columns, 3);
	assert_int_equal(samples_of(&heat), 2500);
	heat_free(&heat);
	heat = read_heat(&file, 500000000000, 0, 80);
	assert_int_equal(heat.columns, 1);
	assert_int_equal(samples_of(&heat), 0);
	heat_free(&heat);
	close(file.fd);
}

static void a_heat_map_of_some_stacks_leaves_the_others_out(void **state)
{
	struct memory_file file = record(2000, 4);
	const struct profile_filter running = {.states = 1u << VCPU_RUNNING, .vcpu = -1};
	const bool passes[] = {false, false, true, false, true};
	const struct heat_options how = {.passes = passes, .n_passes = 5, .max_columns = 80};
	struct profile_listener listener = {.sample = heat_log_sample};
	struct profile_filter filter = running;
	struct profile *profile;
	struct heat_log *log;
	struct heat heat;

	assert_success(heat_log_new(20, true, &log));
	listener.ctx = log;
	filter.listener = &listener;
	assert_success(profile_load(file.path, &filter, &profile));
	assert_success(heat_build(log, profile, &how, &heat));
	assert_int_equal(samples_of(&heat), 1000);
	assert_in_range(heat.cells[25].samples, 24, 26);
	heat_free(&heat);
	heat_log_free(log);
	profile_free(profile);
	close(file.fd);
}

/* Ticks of a hostile file: each weighs as much as a number can hold. */
static struct memory_file record_heavy(void)
{
	struct recording_info info = {.vcpus = 1};
	struct memory_file file = memory_file_new();
	struct recording_end end = {.elapsed_ns = 4000000000};
	struct recording_writer *writer;
	struct stacks *stacks;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (uint64_t i = 0; i < 4096; i++) {
		struct tick_entry entry = {.state = VCPU_RUNNING};
		const struct tick tick = {.time_ns = i * 1000000,
					  .weight_ns = UINT64_MAX - 1,
					  .n = 1,
					  .entries = &entry};

		assert_success(recording_tick(writer, &tick));
	}
	assert_success(recording_close(writer, &end));
	stacks_free(stacks);
	return file;
}

/* A weight that wrapped would be small, and its cell the coldest one. */
static void weights_that_do_not_fit_stay_at_the_most(void **state)
{
	struct memory_file file = record_heavy();
	const struct profile_filter by_time = {.vcpu = -1, .weight = WEIGHT_BY_TIME};
	struct profile_listener listener = {.sample = heat_log_sample};
	const struct tick tick = {.time_ns = 5, .more = 1};
	const struct tick_entry entry = {0};
	struct profile profile = {.last_ns = 5};
	struct time_buckets buckets = read_buckets(&file, &by_time, 16);
	struct heat_log *log;
	struct heat heat;

	assert_int_equal(sum(&buckets).samples, 4096);
	assert_true(buckets.n_rows <= 16);
	for (size_t i = 0; i < buckets.n_rows; i++)
		assert_true(buckets.rows[i].weight_ns == UINT64_MAX);
	time_buckets_free(&buckets);
	close(file.fd);
	assert_success(heat_log_new(20, false, &log));
	listener.ctx = log;
	for (int i = 0; i < 3; i++)
		assert_success(listener.sample(listener.ctx, &tick, &entry, UINT64_MAX / 2 + 2));
	assert_success(heat_build(log, &profile, &(struct heat_options){.max_columns = 1}, &heat));
	assert_int_equal(heat.cells[0].samples, 6);
	assert_true(heat.cells[0].weight_ns == UINT64_MAX);
	heat_free(&heat);
	heat_log_free(log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_keep_their_time_vcpu_and_state),
		cmocka_unit_test(long_recordings_get_longer_buckets_and_lose_nothing),
		cmocka_unit_test(time_buckets_of_many_rows_can_be_put_together),
		cmocka_unit_test(rows_of_a_bucket_can_be_made_fewer_before_the_next_one_begins),
		cmocka_unit_test(only_what_is_selected_is_there),
		cmocka_unit_test(an_empty_recording_has_no_rows),
		cmocka_unit_test(a_heat_map_has_a_column_for_each_second),
		cmocka_unit_test(a_heat_map_of_many_seconds_merges_columns),
		cmocka_unit_test(a_heat_map_begins_and_ends_with_its_stretch),
		cmocka_unit_test(a_heat_map_of_some_stacks_leaves_the_others_out),
		cmocka_unit_test(weights_that_do_not_fit_stay_at_the_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
