/* SPDX-License-Identifier: BSD-3-Clause */

/* Cut, damaged and hostile recordings. */

#include "profile/recording_testing.h"

#include <sys/stat.h>
#include <zlib.h>

#include "profile/recording_encode.h"

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

/* Where the record that begins at `at` ends; *type is its type. Small records only. */
static size_t next_record(const uint8_t *data, size_t at, unsigned *type)
{
	size_t len = data[at++];

	if (len >= 0x80)
		len = (len & 0x7f) | (size_t)data[at++] << 7;
	assert_true(len < 1u << 14);
	*type = data[at++];
	return at + len;
}

/* Whether `text` is the beginning of `whole`, to the end of a line. */
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
		/* What is delivered is true; if it is not all, that is told. */
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

/* Head, info of a guest with `vcpus` and a check; what follows is to be put behind. */
static void begin(struct bytes *out, uint32_t vcpus)
{
	char json[32];
	struct bytes text = {.data = (uint8_t *)json};

	text.len = (size_t)snprintf(json, sizeof(json), "{\"vcpus\":%u}", vcpus);
	assert_success(encode_head(out));
	assert_success(encode_json(&text, RECORD_INFO, out));
}

static void put_record(struct bytes *out, unsigned type, const void *payload, size_t len)
{
	assert_success(bytes_reserve(out, len + RECORD_HEAD_MAX));
	put_varint(out, len);
	out->data[out->len++] = (uint8_t)type;
	put_bytes(out, payload, len);
}

/* Closes the stretch that began at `start`. */
static void put_check(struct bytes *out, size_t start)
{
	struct bytes stretch = {0};

	assert_success(bytes_reserve(&stretch, out->len - start));
	put_bytes(&stretch, out->data + start, out->len - start);
	assert_success(encode_check(&stretch));
	assert_success(bytes_reserve(out, CHECK_RECORD));
	put_bytes(out, stretch.data + stretch.len - CHECK_RECORD, CHECK_RECORD);
	bytes_free(&stretch);
}

static struct error *hear_bytes(const struct bytes *bytes, struct heard *heard)
{
	struct memory_file file = memory_file_new();
	struct error *err;

	memory_file_set(&file, bytes->data, bytes->len);
	err = hear(file.path, heard);
	close(file.fd);
	return err;
}

static void test_random_damage_under_right_checksums_does_no_harm(void **state)
{
	size_t len, good = 0;
	uint8_t *data = small_recording(&len, false);
	uint32_t seed = 1;

	for (int round = 0; round < 20000; round++) {
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
	assert_in_range(good, 1000, 19000);
	free(data);
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define TEXT(text) (const uint8_t *)(text), sizeof(text) - 1

struct hostile {
	const char *what;
	unsigned type;
	const uint8_t *payload;
	size_t len;
	const char *said;
};

/* Behind an info with two vCPUs and node 1. */
static const struct hostile hostile[] = {
	{"caller is itself", RECORD_NODES, BYTES(0x20, 2), "caller is not known"},
	{"caller before the root", RECORD_NODES, BYTES(0xf0, 0x7f, 2), "caller is not known"},
	{"kind 2", RECORD_NODES, BYTES(2, 2), "unknown kind"},
	{"trust 2", RECORD_NODES, BYTES(8, 2), "unknown kind"},
	{"node without address", RECORD_NODES, BYTES(0), "cut off"},
	{"address of 65 bits", RECORD_NODES,
	 BYTES(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2), "cut off"},
	{"number that never ends", RECORD_NODES,
	 BYTES(0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0), "cut off"},
	{"tick without pause", RECORD_TICK, BYTES(1), "cut off"},
	{"tick without weight", RECORD_TICK_WEIGHT, BYTES(1, 1), "cut off"},
	{"third vCPU", RECORD_TICK, BYTES(1, 1, 1, 1, 1, 1, 1, 1), "does not have"},
	{"third vCPU repeated", RECORD_TICK, BYTES(1, 1, 12), "does not have"},
	{"third vCPU after a skip", RECORD_TICK, BYTES(1, 1, 10, 1, 1), "does not have"},
	{"skip over all", RECORD_TICK,
	 BYTES(1, 1, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "does not have"},
	{"repeat of all", RECORD_TICK,
	 BYTES(1, 1, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "does not have"},
	{"operation 3", RECORD_TICK, BYTES(1, 1, 3), "cannot be read"},
	{"state 3", RECORD_TICK, BYTES(1, 1, 13, 0), "unknown state"},
	{"end 6", RECORD_TICK, BYTES(1, 1, 0x61, 0), "unknown state"},
	{"end 2^57", RECORD_TICK,
	 BYTES(1, 1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0), "unknown state"},
	{"stack 2", RECORD_TICK, BYTES(1, 1, 1, 2), "stack is not known"},
	{"stack 2^32", RECORD_TICK, BYTES(1, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x10),
	 "stack is not known"},
	{"entry without stack", RECORD_TICK, BYTES(1, 1, 1), "cut off"},
	{"time over the end", RECORD_TICK,
	 BYTES(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1), "out of range"},
	{"name with NUL", RECORD_NAME, BYTES(1, 1, 0, 'a', 0, 'b'), "cannot be one"},
	{"name of kind 2", RECORD_NAME, BYTES(1, 2, 0, 'a'), "cannot be one"},
	{"name without offset", RECORD_NAME, BYTES(1, 1), "cut off"},
	{"second info", RECORD_INFO, TEXT("{}"), "not at the start"},
	{"end that is no JSON", RECORD_END, TEXT("{"), "end cannot be read"},
	{"end that is no object", RECORD_END, TEXT("[]"), "end cannot be read"},
	{"end with NUL", RECORD_END, TEXT("{\"reason\":\"a\\u0000b\"}"), "end cannot be read"},
	{"end with a number as string", RECORD_END, TEXT("{\"missed\":\"1\"}"), "cannot be read"},
	{"end with a string as number", RECORD_END, TEXT("{\"reason\":1}"), "cannot be read"},
	{"end with a negative number", RECORD_END, TEXT("{\"missed\":-1}"), "cannot be read"},
	{"end with two reasons", RECORD_END, TEXT("{\"missed\":1,\"missed\":2}"), "cannot be read"},
	{"end of reason and noise", RECORD_END, TEXT("{\"reason\":\"x\",\"failed\":[]}"),
	 "cannot be read"},
	{"type 0", 0, BYTES(1), "no record can begin"},
	{"type 9", RECORD_TYPES, BYTES(1), "no record can begin"},
	{"short check", RECORD_CHECK, BYTES(1, 2, 3), "no record can begin"},
};

static void test_impossible_records_are_refused_with_their_place(void **state)
{
	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		struct bytes bytes = {0};
		struct heard heard;
		struct error *err;
		char place[32];

		begin(&bytes, 2);
		put_record(&bytes, RECORD_NODES, BYTES(0, 2));
		put_record(&bytes, RECORD_TICK, BYTES(1, 1));
		snprintf(place, sizeof(place), "at byte %zu: ", bytes.len);
		put_record(&bytes, hostile[i].type, hostile[i].payload, hostile[i].len);
		put_check(&bytes, 0);
		err = hear_bytes(&bytes, &heard);
		if (!err)
			fail_msg("%s: taken", hostile[i].what);
		if (err->kind != ERR_INPUT || !strstr(err->text, hostile[i].said) ||
		    !strstr(err->text, place))
			fail_msg("%s: %s, but %s", hostile[i].what, err->text, place);
		error_free(err);
		heard_free(&heard);
		bytes_free(&bytes);
	}
}

static struct error *hear_info_text(const char *json)
{
	struct bytes bytes = {0}, text = {.data = (uint8_t *)json, .len = strlen(json)};
	struct heard heard;
	struct error *err;

	assert_success(encode_head(&bytes));
	assert_success(encode_json(&text, RECORD_INFO, &bytes));
	put_check(&bytes, 0);
	err = hear_bytes(&bytes, &heard);
	heard_free(&heard);
	bytes_free(&bytes);
	return err;
}

static void test_descriptions_are_checked(void **state)
{
	char *deep = malloc(RECORD_MAX);

	assert_success(hear_info_text("{}"));
	assert_success(
		hear_info_text("{\"vcpus\":4096,\"later\":{\"fields\":[1]},\"jitter\":true}"));
	assert_fails(hear_info_text(""), ERR_INPUT, "description cannot be read");
	assert_fails(hear_info_text("{\"vcpus\":4097}"), ERR_INPUT, "too many vCPUs");
	assert_fails(hear_info_text("{\"vcpus\":4294967297}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{\"vcpus\":1.5}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{\"rate_hz\":-1}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{\"rate_hz\":1e999}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{\"jitter\":1}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{\"tool\":\"\xff\"}"), ERR_INPUT, "description");
	assert_fails(hear_info_text("{} {}"), ERR_INPUT, "description");
	assert_non_null(deep);
	memset(deep, '[', RECORD_MAX - 1);
	deep[RECORD_MAX - 1] = 0;
	assert_fails(hear_info_text(deep), ERR_INPUT, "description");
	free(deep);
}

static void test_nothing_may_follow_the_end(void **state)
{
	struct bytes bytes = {0};
	struct heard heard;

	begin(&bytes, 1);
	put_record(&bytes, RECORD_END, TEXT("{}"));
	put_check(&bytes, 0);
	assert_success(hear_bytes(&bytes, &heard));
	assert_false(heard.cut);
	heard_free(&heard);
	put_record(&bytes, RECORD_TICK, BYTES(1, 1));
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "something follows the end");
	heard_free(&heard);
	bytes_free(&bytes);
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
		cmocka_unit_test(test_impossible_records_are_refused_with_their_place),
		cmocka_unit_test(test_descriptions_are_checked),
		cmocka_unit_test(test_nothing_may_follow_the_end),
		cmocka_unit_test(test_files_without_their_start_are_refused),
		cmocka_unit_test(test_other_versions),
		cmocka_unit_test(test_lengths_are_bounded),
		cmocka_unit_test(test_zeros_at_the_end_are_a_cut),
		cmocka_unit_test(test_a_visitor_can_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
