/* SPDX-License-Identifier: BSD-3-Clause */
#include "profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void check(struct quality quality, const char *expected)
{
	char *text;

	assert_null(quality_warning(&quality, QUALITY_SENTENCES, &text));
	if (expected)
		assert_string_equal(text, expected);
	else
		assert_null(text);
	free(text);
}

static void a_good_profile_needs_no_words(void **state)
{
	check((struct quality){0}, NULL);
	check((struct quality){.stacks = 1000, .ticks = 1000, .draws = 250, .stopped = 0.05}, NULL);
	check((struct quality){.stacks = 1000,
			       .truncated = 50,
			       .broken = 50,
			       .nameless_leaf = 200,
			       .nameless = 200},
	      NULL);
	check((struct quality){.stacks = 1000, .far_leaf = 10, .far_name = "interpret"}, NULL);
}

static void what_is_wrong_with_a_profile_is_said(void **state)
{
	check((struct quality){.stacks = 1000, .truncated = 60},
	      "6 % of the stacks are cut short: callers are missing");
	check((struct quality){.stacks = 1000, .broken = 70},
	      "7 % of the stacks end where no caller was found: callers may be missing");
	check((struct quality){.stacks = 1000, .nameless_leaf = 210, .nameless = 300},
	      "21 % of the samples are in code without a name");
	check((struct quality){.stacks = 1000, .nameless_leaf = 10, .nameless = 300},
	      "30 % of the stacks have callers without a name");
	check((struct quality){.stacks = 1000, .no_room = 1},
	      "0.1 % of the stacks lack the functions that were at work: there were more different "
	      "stacks than memory for them (--max-memory)");
	check((struct quality){.stacks = 1000, .far_leaf = 980, .far_name = "_start"},
	      "98 % of the samples are more than 64 KiB behind the symbol that names them "
	      "(_start): other symbols are missing");
	check((struct quality){.stacks = 10, .truncated = 10, .nameless_leaf = 10, .nameless = 10},
	      "100 % of the stacks are cut short: callers are missing; "
	      "100 % of the samples are in code without a name");
}

static void doubt_about_all_shares_comes_first(void **state)
{
	check((struct quality){.stacks = 1000, .ticks = 1000, .draws = 249, .truncated = 60},
	      "1000 samples are worth 249 draws only, as few of them stand for most of the time: "
	      "sample for longer (-T), or give uniprof a CPU that is not busy; "
	      "6 % of the stacks are cut short: callers are missing");
	check((struct quality){.stacks = 1000, .ticks = 1000, .draws = 900, .stopped = 0.125},
	      "the guest was stopped for 12 % of the time, and behaved as if it was slower: "
	      "--max-overhead 5 samples less often");
	check((struct quality){.stacks = 3,
			       .ticks = 3,
			       .draws = 3,
			       .stopped = 0.064,
			       .max_overhead = 0.05},
	      "the guest was stopped for 6 % of the time, though the bound is 5 %: single "
	      "stops are long on this host");
}

static void shares_that_a_shared_cpu_bends_are_told(void **state)
{
	check((struct quality){.stacks = 1000,
			       .ticks = 1000,
			       .draws = 900,
			       .scheduler = "credit2",
			       .at_yields = 0.05},
	      NULL);
	check((struct quality){.stacks = 1000,
			       .ticks = 1000,
			       .draws = 900,
			       .scheduler = "credit2",
			       .at_yields = 0.5},
	      "50 % of the samples had to wait until the guest yielded the CPU that it shares with "
	      "uniprof, and what yields has too large a share: give domain 0 a CPU of its own, or "
	      "run `xl sched-credit2 -s -p Pool-0 -r 0`");
}

static void no_more_than_three_things_are_said(void **state)
{
	check((struct quality){.stacks = 100,
			       .truncated = 10,
			       .broken = 10,
			       .nameless_leaf = 30,
			       .far_leaf = 50,
			       .far_name = "f"},
	      "10 % of the stacks are cut short: callers are missing; "
	      "10 % of the stacks end where no caller was found: callers may be missing; "
	      "30 % of the samples are in code without a name");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_profile_needs_no_words),
		cmocka_unit_test(what_is_wrong_with_a_profile_is_said),
		cmocka_unit_test(doubt_about_all_shares_comes_first),
		cmocka_unit_test(shares_that_a_shared_cpu_bends_are_told),
		cmocka_unit_test(no_more_than_three_things_are_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
