/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/quality.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void check(struct quality quality, const char *expected)
{
	char *text;

	assert_null(quality_warning(&quality, &text));
	if (expected)
		assert_string_equal(text, expected);
	else
		assert_null(text);
	free(text);
}

static void a_good_profile_needs_no_words(void **state)
{
	check((struct quality){0}, NULL);
	check((struct quality){.stacks = 1000}, NULL);
	check((struct quality){1000, .truncated = 50, .nameless_leaf = 200, .nameless = 200}, NULL);
}

static void what_is_wrong_with_a_profile_is_said(void **state)
{
	check((struct quality){1000, .truncated = 60},
	      "6 % of the stacks are cut short: callers are missing");
	check((struct quality){1000, .nameless_leaf = 210, .nameless = 300},
	      "21 % of the samples are in code without a name");
	check((struct quality){1000, .nameless_leaf = 10, .nameless = 300},
	      "30 % of the stacks have callers without a name");
	check((struct quality){1000, .no_room = 1},
	      "0.1 % of the stacks lack the functions that were at work: there were more different "
	      "stacks than memory for them (--max-memory)");
	check((struct quality){10, .truncated = 10, .nameless_leaf = 10, .nameless = 10},
	      "100 % of the stacks are cut short: callers are missing; "
	      "100 % of the samples are in code without a name");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_profile_needs_no_words),
		cmocka_unit_test(what_is_wrong_with_a_profile_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
