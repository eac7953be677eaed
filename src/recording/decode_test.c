/* SPDX-License-Identifier: BSD-3-Clause */

/* Impossible records under correct checksums. */

#include "recording/testing.h"

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
	{"CPU time of nobody", RECORD_TICK, BYTES(1, 1, 7), "CPU time of no vCPU"},
	{"state 3", RECORD_TICK, BYTES(1, 1, 13, 0), "unknown state"},
	{"end 8", RECORD_TICK, BYTES(1, 1, 0x81, 1, 0), "unknown state"},
	{"end 2^57", RECORD_TICK,
	 BYTES(1, 1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0), "unknown state"},
	{"stack 2", RECORD_TICK, BYTES(1, 1, 1, 2), "stack is not known"},
	{"stack 2^32", RECORD_TICK, BYTES(1, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x10),
	 "stack is not known"},
	{"entry without stack", RECORD_TICK, BYTES(1, 1, 1), "cut off"},
	{"time over the end", RECORD_TICK,
	 BYTES(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1), "out of range"},
	{"name with NUL", RECORD_NAME, BYTES(1, 1, 0, 'a', 0, 'b'), "cannot be one"},
	{"name of kind 4", RECORD_NAME, BYTES(1, 4, 0, 'a'), "cannot be one"},
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
	{"text with NUL", RECORD_TEXT, BYTES('a', 0), "text that cannot be one"},
	{"places of kind 4", RECORD_LOCATIONS, BYTES(1, 4, 0, 0, 0), "places that cannot be"},
	{"places with text 1", RECORD_LOCATIONS, BYTES(1, 1, 1, 0, 0), "places that cannot be"},
	{"places with text 2^63", RECORD_LOCATIONS,
	 BYTES(1, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0),
	 "places that cannot be"},
	{"places without line", RECORD_LOCATIONS, BYTES(1, 1, 0, 0), "places that cannot be"},
	{"line 2^32", RECORD_LOCATIONS, BYTES(1, 1, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x10),
	 "places that cannot be"},
	{"thread without start", RECORD_THREAD, BYTES(0, 1, 1), "thread that cannot be"},
	{"thread of kind 4", RECORD_THREAD, BYTES(4, 1, 1, 0, 1, 'a'), "thread that cannot be"},
	{"pid of 33 bits", RECORD_THREAD, BYTES(0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 0, 1, 'a'),
	 "thread that cannot be"},
	{"tid of 33 bits", RECORD_THREAD, BYTES(0, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 1, 'a'),
	 "thread that cannot be"},
	{"thread's name over the end", RECORD_THREAD, BYTES(0, 1, 1, 0, 2, 'a'),
	 "thread that cannot be"},
	{"thread's name of 2^63 bytes", RECORD_THREAD,
	 BYTES(0, 1, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 'a'),
	 "thread that cannot be"},
	{"thread's name with NUL", RECORD_THREAD, BYTES(0, 1, 1, 0, 2, 'a', 0),
	 "thread that cannot be"},
	{"process's name with NUL", RECORD_THREAD, BYTES(0, 1, 1, 0, 1, 'a', 0),
	 "thread that cannot be"},
	{"container with NUL", RECORD_CONTAINER, BYTES('/', 'a', 0), "container that cannot be"},
	{"thread 1, which there is not", RECORD_RUNNING, BYTES(0, 1), "thread is not known"},
	{"thread 2^32", RECORD_RUNNING, BYTES(0, 0x80, 0x80, 0x80, 0x80, 0x10),
	 "thread is not known"},
	{"thread of a third vCPU", RECORD_RUNNING, BYTES(2, 0), "does not have"},
	{"vCPU without thread", RECORD_RUNNING, BYTES(1), "thread is cut off"},
	{"a type behind the last", RECORD_TYPES, BYTES(1), "no record can begin"},
	{"waiting thread 0", RECORD_WAITING, BYTES(0, 1, 0, 9), "is not known"},
	{"waiting thread 1, which there is not", RECORD_WAITING, BYTES(1, 1, 0, 9), "is not known"},
	{"waiting thread without weight", RECORD_WAITING, BYTES(1, 1, 0), "is cut off"},
	{"exits without a count", RECORD_EXITS, BYTES(0, 1), "exits are cut off"},
	{"exits of a third vCPU", RECORD_EXITS, BYTES(2, 1, 9), "does not have"},
	{"exits at no place", RECORD_EXITS, BYTES(0, 0, 9), "place that is not known"},
	{"exits at a node that there is not", RECORD_EXITS, BYTES(0, 2, 9),
	 "place that is not known"},
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
	assert_fails(hear_info_text("{\"vcpus\":-4294967295}"), ERR_INPUT, "description");
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
	/* The beginning of something, or zeros, may be an accident. */
	for (size_t zeros = 1; zeros <= 2; zeros++) {
		struct bytes more = {0};

		assert_success(bytes_reserve(&more, bytes.len + 2));
		put_bytes(&more, bytes.data, bytes.len);
		put_bytes(&more, (const uint8_t[2]){0}, zeros);
		assert_success(hear_bytes(&more, &heard));
		assert_true(heard.cut);
		heard_free(&heard);
		bytes_free(&more);
	}
	put_record(&bytes, RECORD_TICK, BYTES(1, 1));
	assert_fails(hear_bytes(&bytes, &heard), ERR_INPUT, "something follows the end");
	heard_free(&heard);
	bytes_free(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_impossible_records_are_refused_with_their_place),
		cmocka_unit_test(test_descriptions_are_checked),
		cmocka_unit_test(test_nothing_may_follow_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
