/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/preopen.h"

/*
 * Closes all descriptors but those opened meanwhile: in a child, not in the
 * process that reports.
 */
static int keep_the_new_ones(void)
{
	struct descriptors before, now;
	int pair[2];

	descriptors_collect(&before);
	if (pipe(pair))
		return 1;
	descriptors_collect(&now);
	descriptors_subtract(&now, &before);
	descriptors_close_others(&now);
	if (fcntl(pair[0], F_GETFD) < 0 || fcntl(pair[1], F_GETFD) < 0)
		return 2;
	return fcntl(0, F_GETFD) >= 0 || fcntl(1, F_GETFD) >= 0 ? 3 : 0;
}

static void what_was_opened_between_two_looks_is_told(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(keep_the_new_ones());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void what_is_no_descriptor_is_not_added(void **state)
{
	struct descriptors set = {0};

	descriptors_add(&set, -1);
	descriptors_add(&set, DESCRIPTORS_MAX);
	for (size_t i = 0; i < sizeof(set.bits) / sizeof(*set.bits); i++)
		assert_int_equal(set.bits[i], 0);
	descriptors_add(&set, DESCRIPTORS_MAX - 1);
	assert_true(set.bits[DESCRIPTORS_MAX / 64 - 1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_opened_between_two_looks_is_told),
		cmocka_unit_test(what_is_no_descriptor_is_not_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
