/* SPDX-License-Identifier: BSD-3-Clause */
#include "view/page/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recording/testing.h"

#define MS     UINT64_C(1000000)
#define STACKS 1000u
#define VCPU   3u

/* Ticks of one vCPU, a millisecond each, whose stacks take turns. */
static struct page_samples *take_ticks(uint64_t n, const struct profile_filter *filter)
{
	const struct recording_info info = {.vcpus = VCPU + 1, .rate_hz = 1000};
	struct page_samples *samples;

	assert_success(page_samples_new(filter, &samples));
	for (uint64_t i = 0; i < n; i++) {
		const struct tick_entry entry = {.vcpu = VCPU,
						 .state = VCPU_BLOCKED,
						 .stack = (uint32_t)(1 + i % STACKS),
						 .thread = (uint32_t)(i % 2)};
		const struct tick tick = {.time_ns = (i + 1) * MS,
					  .weight_ns = MS,
					  .n = 1,
					  .entries = &entry};

		assert_success(samples->listener.tick(samples->listener.ctx, &info, &tick));
	}
	return samples;
}

struct sums {
	uint64_t samples, weight_ns, rows, last_bucket;
	double squares;
};

/* Reads rows as page_profile.js does. */
static struct sums sum_rows(const struct page_rows *rows)
{
	struct cursor in = {rows->written.data, rows->written.data + rows->written.len};
	struct sums sums = {0};

	for (uint64_t g = 0; g < rows->groups; g++) {
		uint64_t head[3] = {0}, n = 0, row[3] = {0};
		double squares;

		for (int i = 0; i < 3; i++)
			assert_true(get_varint(&in, &head[i]));
		sums.last_bucket += head[0];
		assert_int_equal(head[1], VCPU);
		assert_int_equal(head[2], VCPU_BLOCKED);
		memcpy(&squares, in.at, sizeof(squares));
		in.at += sizeof(squares);
		sums.squares += squares;
		assert_true(get_varint(&in, &n));
		for (uint64_t i = 0; i < n; i++) {
			for (int k = 0; k < 3; k++)
				assert_true(get_varint(&in, &row[k]));
			sums.samples += row[1];
			sums.weight_ns += row[2];
		}
		sums.rows += n;
	}
	assert_ptr_equal(in.at, in.end);
	return sums;
}

static struct page_rows rows_of(const struct page_samples *samples, uint64_t n, uint64_t most)
{
	const struct profile profile = {.last_ns = n * MS, .ticks = n};
	uint32_t node[STACKS + 1];
	const struct page_places places = {node, STACKS + 1, samples->pairs};
	struct page_rows rows;

	for (uint32_t i = 0; i <= STACKS; i++)
		node[i] = i;
	assert_success(page_samples_rows(samples, &profile, &places, most, &rows));
	return rows;
}

static void check_rows(uint64_t n, uint64_t most, const struct profile_filter *filter)
{
	struct page_samples *samples = take_ticks(n, filter);
	struct page_rows rows = rows_of(samples, n, most);
	const struct sums sums = sum_rows(&rows);

	assert_int_equal(sums.samples, n);
	assert_int_equal(sums.weight_ns, n * MS);
	assert_true(fabs(sums.squares / ((double)n * MS * MS) - 1) < 1e-9);
	assert_true(sums.rows <= most);
	assert_true(sums.last_bucket <= n * MS / rows.bucket_ns);
	assert_true(samples->weighted);
	bytes_free(&rows.written);
	page_samples_free(samples);
}

static void test_no_sample_is_lost_where_buckets_become_longer(void **state)
{
	const struct profile_filter all = {.vcpu = -1};

	check_rows(20000, UINT64_MAX, &all);
	check_rows(20000, 5000, &all);
	check_rows(20000, STACKS, &all);
}

static void test_no_sample_is_lost_where_they_are_joined_for_memory(void **state)
{
	const struct profile_filter all = {.vcpu = -1};

	check_rows(4000000, 1000000, &all);
}

static void test_samples_of_a_stack_are_told_apart_by_their_threads(void **state)
{
	const struct profile_filter divided = {.vcpu = -1, .divide = true};
	struct page_samples *samples = take_ticks(3 * STACKS, &divided);

	/* A stack's number is odd where its thread's is even. */
	assert_int_equal(samples->n_pairs, STACKS);
	for (uint32_t i = 0; i < samples->n_pairs; i++)
		assert_int_equal(samples->pairs[i].thread, 1 - samples->pairs[i].stack % 2);
	page_samples_free(samples);
	check_rows(20000, 5000, &divided);
}

static void test_only_what_the_filter_lets_pass_is_taken(void **state)
{
	const struct profile_filter stretch = {.vcpu = -1, .from_ns = 5 * MS, .to_ns = 8 * MS};
	const struct profile_filter other = {.vcpu = 1};
	struct page_samples *samples = take_ticks(100, &stretch);
	struct page_sample_reader reader = page_samples_start(samples);

	for (uint64_t at = 5; at < 8; at++) {
		assert_true(page_samples_next(&reader));
		assert_int_equal(reader.sample.time_ns, at * MS);
		assert_int_equal(reader.sample.key, at);
	}
	assert_false(page_samples_next(&reader));
	page_samples_free(samples);
	samples = take_ticks(100, &other);
	reader = page_samples_start(samples);
	assert_false(page_samples_next(&reader));
	page_samples_free(samples);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_sample_is_lost_where_buckets_become_longer),
		cmocka_unit_test(test_no_sample_is_lost_where_they_are_joined_for_memory),
		cmocka_unit_test(test_samples_of_a_stack_are_told_apart_by_their_threads),
		cmocka_unit_test(test_only_what_the_filter_lets_pass_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
