/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/frame_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_frame_is_what_was_stored_last(void **state)
{
	uint8_t bytes[FRAME_SIZE] = {1, 2, 3};
	struct frame_store *store;
	bool changed = false;

	assert_null(frame_store_new(&store));
	assert_null(frame_store_get(store, 7));
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_true(changed);
	assert_memory_equal(frame_store_get(store, 7), bytes, FRAME_SIZE);
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_false(changed);
	bytes[4095] = 9;
	assert_null(frame_store_put(store, 7, bytes, &changed));
	assert_true(changed);
	assert_memory_equal(frame_store_get(store, 7), bytes, FRAME_SIZE);
	assert_null(frame_store_get(store, 8));
	frame_store_free(store);
}

static void many_frames_are_kept_apart(void **state)
{
	uint8_t bytes[FRAME_SIZE] = {0};
	struct frame_store *store;
	bool changed;

	assert_null(frame_store_new(&store));
	for (uint64_t i = 0; i < 1000; i++) {
		memcpy(bytes, &i, sizeof(i));
		assert_null(frame_store_put(store, i << (i % 50), bytes, &changed));
	}
	for (uint64_t i = 999; i > 950; i--) {
		uint64_t found;

		memcpy(&found, frame_store_get(store, i << (i % 50)), sizeof(found));
		assert_int_equal(found, i);
	}
	frame_store_free(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_what_was_stored_last),
		cmocka_unit_test(many_frames_are_kept_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
