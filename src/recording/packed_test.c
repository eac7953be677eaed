/* SPDX-License-Identifier: BSD-3-Clause */

/* Recordings that are packed: they take little, and tell the same to the precision that is promised. */

#include <zlib.h>

#include "base/clock.h"
#include "recording/testing.h"

#define PERIOD_NS UINT64_C(52631579)
#define DAY_S	  86400
#define TICKS	  20000u
#define VCPUS	  2u

struct sums {
	uint64_t ticks, time_ns, paused_ns, weight_ns, ran_ns[VCPUS];
	uint64_t farthest_ns;	    /* between moments as written and as read */
	const uint64_t *written_ns; /* [TICKS]; NULL: these are as written */
};

static struct error *add(void *ctx, const struct tick *tick)
{
	struct sums *sums = ctx;

	if (sums->written_ns) {
		const uint64_t written_ns = sums->written_ns[sums->ticks];

		assert_true(tick->time_ns <= written_ns);
		if (written_ns - tick->time_ns > sums->farthest_ns)
			sums->farthest_ns = written_ns - tick->time_ns;
	}
	sums->ticks++;
	sums->time_ns = tick->time_ns;
	sums->paused_ns += tick->paused_ns;
	sums->weight_ns += tick->weight_ns;
	for (uint32_t i = 0; i < tick->n; i++)
		sums->ran_ns[tick->entries[i].vcpu] += tick->entries[i].ran_ns;
	return NULL;
}

static uint32_t below(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

/* A guest with one vCPU that works and one that sleeps, as the agent samples it: 19 times a second, at random moments. */
static uint8_t *write_ticks(uint32_t ticks, bool pack, struct sums *sums, uint64_t *written_ns,
			    size_t *len)
{
	struct recording_info info = {.vcpus = VCPUS, .rate_hz = 19};
	struct recording_end end = {.reason = (char *)"time"};
	struct memory_file file = memory_file_new();
	struct tick_entry entries[VCPUS] = {{.vcpu = 0}, {.vcpu = 1, .state = VCPU_BLOCKED}};
	struct tick tick = {.n = VCPUS, .entries = entries, .weight_ns = PERIOD_NS};
	struct recording_writer *writer;
	struct stacks *stacks;
	uint32_t seed = 1;
	uint8_t *data;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	if (pack)
		recording_pack(writer, PERIOD_NS);
	for (uint32_t i = 0; i < ticks; i++) {
		struct frame chain[2] = {{0x10000 + below(&seed, 12) * 16, FRAME_PC, 0},
					 {0xffff, FRAME_RETURN, 0}};
		bool fits;

		assert_success(stacks_intern(stacks, chain, 2, &entries[0].stack, &fits));
		tick.time_ns = i * PERIOD_NS + below(&seed, (uint32_t)PERIOD_NS);
		tick.paused_ns = 15000 + below(&seed, 8000);
		entries[0].ran_ns = 40000 * NS_PER_US + below(&seed, 10000000);
		assert_success(recording_tick(writer, &tick));
		written_ns[i] = tick.time_ns;
		add(sums, &tick);
	}
	assert_success(recording_close(writer, &end));
	data = memory_file_get(&file, len);
	close(file.fd);
	stacks_free(stacks);
	return data;
}

static void test_sums_stay_and_moments_are_told_to_a_part_of_a_period(void **state)
{
	uint64_t *written_ns = calloc(TICKS, sizeof(*written_ns));
	struct sums before = {0}, after = {.written_ns = written_ns};
	const struct recording_visitor visitor = {.ctx = &after, .tick = add};
	struct memory_file file = memory_file_new();
	struct stacks *stacks;
	uint8_t *data;
	size_t len;
	bool cut;

	assert_non_null(written_ns);
	data = write_ticks(TICKS, true, &before, written_ns, &len);
	memory_file_set(&file, data, len);
	assert_success(stacks_new(&stacks));
	assert_success(recording_read(file.path, stacks, &visitor, &cut));
	assert_false(cut);
	assert_int_equal(after.ticks, TICKS);
	assert_int_equal(after.weight_ns, before.weight_ns);
	assert_in_range(before.paused_ns - after.paused_ns, 0, NS_PER_US);
	for (uint32_t i = 0; i < VCPUS; i++)
		assert_in_range(before.ran_ns[i] - after.ran_ns[i], 0, 100 * NS_PER_US);
	assert_in_range(after.farthest_ns, 1, PERIOD_NS / 64);
	stacks_free(stacks);
	free(data);
	free(written_ns);
	close(file.fd);
}

static void test_ten_guests_take_less_than_100_mb_a_day(void **state)
{
	uint64_t *written_ns = calloc(TICKS, sizeof(*written_ns));
	struct sums sums = {0};
	size_t packed, plain;

	assert_non_null(written_ns);
	free(write_ticks(TICKS, true, &sums, written_ns, &packed));
	free(write_ticks(TICKS, false, &sums, written_ns, &plain));
	print_message("%.2f bytes a tick, %.2f before\n", (double)packed / TICKS,
		      (double)plain / TICKS);
	assert_in_range(packed * 10 * 19 * DAY_S / TICKS, 0, 100 * 1000 * 1000);
	free(written_ns);
}

static void test_a_flipped_bit_is_noticed(void **state)
{
	uint64_t written_ns[100];
	struct sums sums = {0};
	size_t len, wrong = 0;
	uint8_t *data = write_ticks(100, true, &sums, written_ns, &len);

	for (size_t bit = 0; bit < len * 8; bit++) {
		struct bytes bytes = {.data = data, .len = len};
		struct heard heard;
		struct error *err;

		data[bit / 8] ^= 1u << bit % 8;
		err = hear_bytes(&bytes, &heard);
		data[bit / 8] ^= 1u << bit % 8;
		wrong += !err && !heard.cut;
		error_free(err);
		heard_free(&heard);
	}
	assert_int_equal(wrong, 0);
	free(data);
}

/* A recording of one packed record, under a right checksum. */
static struct error *hear_packed(const struct bytes *records, uint64_t told, size_t cut,
				 struct heard *heard)
{
	struct bytes bytes = {0}, payload = {0};
	uLongf len = compressBound(records->len);
	struct error *err;

	assert_success(bytes_reserve(&payload, VARINT_MAX + len));
	put_varint(&payload, told);
	assert_int_equal(compress(payload.data + payload.len, &len, records->data, records->len),
			 Z_OK);
	begin(&bytes, 1);
	put_record(&bytes, RECORD_PACKED, payload.data, payload.len + len - cut);
	put_check(&bytes, 0);
	err = hear_bytes(&bytes, heard);
	bytes_free(&bytes);
	bytes_free(&payload);
	return err;
}

static void test_what_is_packed_wrongly_is_refused(void **state)
{
	static const char no_record[] = "no record can be packed", no_pack[] = "cannot be unpacked";
	struct bytes records = {0};
	struct heard heard;

	put_record(&records, RECORD_TICK, BYTES(7, 4));
	assert_success(hear_packed(&records, records.len, 0, &heard));
	assert_non_null(strstr(heard.text, "tick 7 0 2\n"));
	heard_free(&heard);
	for (int more = -1; more <= 1; more += 2) {
		assert_fails(hear_packed(&records, records.len + (uint64_t)more, 0, &heard),
			     ERR_INPUT, no_pack);
		heard_free(&heard);
	}
	assert_fails(hear_packed(&records, UINT64_MAX, 0, &heard), ERR_INPUT, "length cannot be");
	heard_free(&heard);
	assert_fails(hear_packed(&records, records.len, 3, &heard), ERR_INPUT, no_pack);
	heard_free(&heard);
	/* Nothing is packed twice; a part of a record is none; the info comes first. */
	put_record(&records, RECORD_PACKED, BYTES(1, 1));
	assert_fails(hear_packed(&records, records.len, 0, &heard), ERR_INPUT, no_record);
	heard_free(&heard);
	records.len -= 3;
	assert_fails(hear_packed(&records, records.len, 0, &heard), ERR_INPUT, no_record);
	heard_free(&heard);
	records.len = 0;
	put_check(&records, 0);
	assert_fails(hear_packed(&records, records.len, 0, &heard), ERR_INPUT, no_record);
	heard_free(&heard);
	records.len = 0;
	put_record(&records, RECORD_INFO, TEXT("{\"vcpus\":1}"));
	assert_fails(hear_packed(&records, records.len, 0, &heard), ERR_INPUT, "not at the start");
	heard_free(&heard);
	bytes_free(&records);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums_stay_and_moments_are_told_to_a_part_of_a_period),
		cmocka_unit_test(test_ten_guests_take_less_than_100_mb_a_day),
		cmocka_unit_test(test_a_flipped_bit_is_noticed),
		cmocka_unit_test(test_what_is_packed_wrongly_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
