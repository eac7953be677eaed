/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "target/target.h"

static void test_no_news_replaces_another_and_none_is_told_twice(void **state)
{
	static const char reset[] = "the guest was reset", memory[] = "its memory has changed";
	struct target target = {0};

	(void)state;
	target_tell(&target, reset);
	target_tell(&target, memory);
	target_tell(&target, reset);
	assert_int_equal(target.news.n, 2);
	assert_ptr_equal(target.news.text[0], reset);
	assert_ptr_equal(target.news.text[1], memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_news_replaces_another_and_none_is_told_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
