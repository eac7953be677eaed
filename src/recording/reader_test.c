/* SPDX-License-Identifier: BSD-3-Clause */

/* Recordings that are cut or damaged, or that are none. */

#include "recording/testing.h"

#define SECOND UINT64_C(1000000000)

/* A small recording with everything in it: three stretches and the end. */
static uint8_t *small_recording(size_t *len, bool whole)
{
	struct recording_info info = {.tool = (char *)"uniprof", .vcpus = 2, .rate_hz = 4};
	struct recording_end end = {.elapsed_ns = 3 * SECOND, .reason = (char *)"time"};
	struct memory_file file = memory_file_new();
	struct tick_entry entries[2] = {{.vcpu = 0}, {.vcpu = 1, .state = VCPU_BLOCKED}};
	struct tick tick = {.n = 2, .entries = entries, .paused_ns = 900};
	struct recording_writer *writer;
	struct stacks *stacks;
	uint8_t *data;

	assert_success(stacks_new(&stacks));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (unsigned i = 0; i < 12; i++) {
		struct frame chain[2] = {{0xffffffff81000000 + i / 2 * 0x123, FRAME_PC, 0},
					 {0xffffffff81234567 + i / 4, FRAME_RETURN, i & 1}};
		bool fits;

		assert_success(stacks_intern(stacks, chain, 2, &entries[0].stack, &fits));
		entries[1].end = i / 5;
		tick.time_ns += SECOND / 4;
		tick.weight_ns = i < 4 ? SECOND / 4 : i * 1000;
		tick.paused_ns += i * 100;
		assert_success(recording_tick(writer, &tick));
		if (i % 5 == 0)
			assert_success(recording_name(writer, chain[0].addr, 0, "function", i));
	}
	if (whole)
		assert_success(recording_close(writer, &end));
	else
		assert_success(recording_close(writer, NULL));
	data = memory_file_get(&file, len);
	close(file.fd);
	stacks_free(stacks);
	return data;
}

/* Returns where the record that begins at `at` ends; *type is its type. Small records only. */
static size_t next_record(const uint8_t *data, size_t at, unsigned *type)
{
	size_t len = data[at++];

	if (len >= 0x80)
		len = (len & 0x7f) | (size_t)data[at++] << 7;
	assert_true(len < 1u << 14);
	*type = data[at++];
	return at + len;
}

/* True if `text` is the beginning of `whole`, to the end of a line. */
static bool is_beginning(const char *text, const char *whole)
{
	size_t len = strlen(text);

	return strncmp(text, whole, len) == 0 && (len == 0 || text[len - 1] == '\n');
}

static void test_a_recording_cut_at_any_byte_gives_every_whole_tick(void **state)
{
	size_t len, at = RECORDING_HEAD_LEN, info_end = 0;
	uint8_t *data = small_recording(&len, true);
	struct memory_file file = memory_file_new();
	struct heard whole, heard;
	uint64_t ticks = 0;
	unsigned type;

	memory_file_set(&file, data, len);
	assert_success(hear(file.path, &whole));
	assert_int_equal(whole.ticks, 12);
	assert_false(whole.cut);
	for (size_t cut = 1; cut < len; cut++) {
		struct error *err;

		while (at < len) {
			size_t next = next_record(data, at, &type);

			if (next > cut)
				break;
			at = next;
			ticks += type >= RECORD_TICK && type <= RECORD_TICK_WEIGHT;
			info_end = type == RECORD_INFO ? next : info_end;
		}
		memory_file_set(&file, data, cut);
		err = hear(file.path, &heard);
		assert_true(heard.cut);
		assert_int_equal(heard.ticks, ticks);
		assert_true(is_beginning(heard.text, whole.text));
		if (info_end == 0)
			assert_fails(err, ERR_INPUT, "ends before its first sample");
		else
			assert_success(err);
		heard_free(&heard);
	}
	assert_int_equal(ticks, 12);
	heard_free(&whole);
	free(data);
	close(file.fd);
}

static void test_a_flipped_bit_is_noticed(void **state)
{
	struct memory_file file = memory_file_new();
	size_t len, noticed = 0, cut = 0;
	uint8_t *data = small_recording(&len, true);
	struct heard whole, heard;

	memory_file_set(&file, data, len);
	assert_success(hear(file.path, &whole));
	for (size_t bit = 0; bit < len * 8; bit++) {
		struct error *err;

		data[bit / 8] ^= 1u << bit % 8;
		memory_file_set(&file, data, len);
		err = hear(file.path, &heard);
		data[bit / 8] ^= 1u << bit % 8;
		/* Nothing false is delivered; an incomplete delivery is reported. */
		assert_true(is_beginning(heard.text, whole.text));
		assert_true(err || heard.cut);
		if (err)
			noticed++;
		else
			cut++;
		if (err)
			assert_int_equal(err->kind, ERR_INPUT);
		error_free(err);
		heard_free(&heard);
	}
	/* All but lengths that now reach over the end of the file. */
	assert_true(cut * 50 < noticed);
	heard_free(&whole);
	free(data);
	close(file.fd);
}

static void test_a_flipped_bit_behind_the_last_check_does_no_harm(void **state)
{
	struct memory_file file = memory_file_new();
	size_t len;
	uint8_t *data = small_recording(&len, false);

	/* Without the check of the last stretch, nothing in it is known to be right. */
	len -= CHECK_RECORD;
	for (size_t bit = 0; bit < len * 8; bit++) {
		struct heard heard;

		data[bit / 8] ^= 1u << bit % 8;
		memory_file_set(&file, data, len);
		error_free(hear(file.path, &heard));
		data[bit / 8] ^= 1u << bit % 8;
		assert_true(heard.cut);
		heard_free(&heard);
	}
	free(data);
	close(file.fd);
}

static void test_random_damage_under_right_checksums_does_no_harm(void **state)
{
	size_t len, good = 0;
	uint8_t *data = small_recording(&len, false);
	uint32_t seed = 1;

	for (int round = 0; round < 5000; round++) {
		struct bytes bytes = {0};
		struct heard heard;
		struct error *err;
		unsigned type;

		assert_success(bytes_reserve(&bytes, len + 64));
		begin(&bytes, 2);
		for (size_t at = RECORDING_HEAD_LEN; at < len;) {
			size_t next = next_record(data, at, &type);

			if (type != RECORD_INFO && type != RECORD_CHECK)
				put_bytes(&bytes, data + at, next - at);
			at = next;
		}
		for (int i = 0; i < 1 + round % 3; i++) {
			seed = seed * 1664525 + 1013904223;
			bytes.data[RECORDING_HEAD_LEN + seed % (bytes.len - RECORDING_HEAD_LEN)] ^=
				1u << (seed >> 29);
		}
		put_check(&bytes, 0);
		err = hear_bytes(&bytes, &heard);
		good += !err;
		error_free(err);
		heard_free(&heard);
		bytes_free(&bytes);
	}
	/* Both happen: numbers that can be, and numbers that cannot. */
	assert_in_range(good, 250, 4750);
	free(data);
}

static void test_files_without_their_start_are_refused(void **state)
{
	struct bytes bytes = {0};
	struct heard heard;

	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "is empty");
	heard_free(&heard);
	assert_success(bytes_reserve(&bytes, 100));
	put_bytes(&bytes, "uniprof", 7);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "is no recording");
	heard_free(&heard);
	put_bytes(&bytes, "a;b;c 1\nd;e;f 2\n", 16);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "is no recording");
	heard_free(&heard);
	bytes.len = 0;
	assert_success(encode_head(&bytes));
	put_record(&bytes, RECORD_TICK, BYTES(1, 1));
	put_check(&bytes, 0);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "not at the start");
	heard_free(&heard);
	bytes_free(&bytes);
}

static void test_other_versions(void **state)
{
	struct bytes bytes = {0};
	struct heard heard;

	begin(&bytes, 1);
	bytes.data[RECORDING_MAGIC_LEN]++;
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "has format 2");
	heard_free(&heard);
	/* A later minor version may have records that we pass over. */
	bytes.data[RECORDING_MAGIC_LEN]--;
	bytes.data[RECORDING_MAGIC_LEN + 1]++;
	put_record(&bytes, RECORD_TYPES, BYTES(1, 2, 3));
	put_record(&bytes, 255, BYTES(0));
	put_record(&bytes, RECORD_TICK, BYTES(7, 4));
	put_check(&bytes, 0);
	assert_success(hear_bytes(&bytes, &heard));
	assert_non_null(strstr(heard.text, "tick 7 0 2\n"));
	heard_free(&heard);
	bytes_free(&bytes);
}

static void test_recordings_of_former_versions_are_read(void **state)
{
	for (uint8_t minor = 0; minor < RECORDING_MINOR; minor++) {
		struct bytes bytes = {0};
		struct heard heard;

		begin(&bytes, 1);
		bytes.data[RECORDING_MAGIC_LEN + 1] = minor;
		put_record(&bytes, RECORD_TICK, BYTES(7, 4, 4));
		put_check(&bytes, 0);
		assert_success(hear_bytes(&bytes, &heard));
		assert_non_null(strstr(heard.text, "tick 7 0 2\n 0 0 0\n"));
		heard_free(&heard);
		bytes_free(&bytes);
	}
}

static void test_lengths_are_bounded(void **state)
{
	uint8_t *payload = calloc(1, RECORD_MAX + 1);
	struct bytes bytes = {0};
	struct heard heard;

	assert_non_null(payload);
	begin(&bytes, 1);
	bytes.data[RECORDING_MAGIC_LEN + 1]++;
	put_record(&bytes, 255, payload, RECORD_MAX);
	put_check(&bytes, 0);
	assert_success(hear_bytes(&bytes, &heard));
	heard_free(&heard);
	for (int i = 0; i < 4; i++)
		put_record(&bytes, 255, payload, RECORD_MAX);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "no checksum follows");
	heard_free(&heard);
	bytes.len = 0;
	begin(&bytes, 1);
	put_record(&bytes, RECORD_NAME, payload, RECORD_MAX + 1);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "no record can begin");
	heard_free(&heard);
	bytes.len = 0;
	begin(&bytes, 1);
	memset(payload + 3, 'x', NAME_MAX_LEN + 1);
	put_record(&bytes, RECORD_NAME, payload, NAME_MAX_LEN + 4);
	put_check(&bytes, 0);
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "a name that cannot be one");
	heard_free(&heard);
	bytes_free(&bytes);
	free(payload);
}

static void test_zeros_at_the_end_are_a_cut(void **state)
{
	size_t len;
	uint8_t *data = small_recording(&len, false), *more = calloc(1, len + 200000);
	struct bytes bytes = {.data = more, .len = len + 200000};
	struct heard whole, heard;

	assert_non_null(more);
	memcpy(more, data, len);
	bytes.len = len;
	assert_success(hear_bytes(&bytes, &whole));
	for (size_t zeros = 1; zeros <= 200000; zeros = zeros * 3 + 1) {
		bytes.len = len + zeros;
		assert_success(hear_bytes(&bytes, &heard));
		assert_true(heard.cut);
		assert_string_equal(heard.text, whole.text);
		heard_free(&heard);
	}
	more[bytes.len - 1] = 1;
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "no record can begin");
	heard_free(&heard);
	heard_free(&whole);
	free(data);
	free(more);
}

static struct error *stop(void *ctx, const struct tick *tick)
{
	return --*(int *)ctx ? NULL : error_new(ERR_ENDED, "enough");
}

static void test_a_visitor_can_stop(void **state)
{
	struct memory_file file = memory_file_new();
	int left = 3;
	struct recording_visitor visitor = {.ctx = &left, .tick = stop};
	struct stacks *stacks;
	size_t len;
	uint8_t *data = small_recording(&len, true);
	bool cut;

	memory_file_set(&file, data, len);
	assert_success(stacks_new(&stacks));
	assert_fails(recording_read(file.path, stacks, &visitor, &cut), ERR_ENDED, "enough");
	assert_int_equal(left, 0);
	visitor = (struct recording_visitor){0};
	assert_success(recording_read(file.path, stacks, &visitor, &cut));
	assert_false(cut);
	stacks_free(stacks);
	free(data);
	close(file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_recording_cut_at_any_byte_gives_every_whole_tick),
		cmocka_unit_test(test_a_flipped_bit_is_noticed),
		cmocka_unit_test(test_a_flipped_bit_behind_the_last_check_does_no_harm),
		cmocka_unit_test(test_random_damage_under_right_checksums_does_no_harm),
		cmocka_unit_test(test_files_without_their_start_are_refused),
		cmocka_unit_test(test_other_versions),
		cmocka_unit_test(test_recordings_of_former_versions_are_read),
		cmocka_unit_test(test_lengths_are_bounded),
		cmocka_unit_test(test_zeros_at_the_end_are_a_cut),
		cmocka_unit_test(test_a_visitor_can_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
