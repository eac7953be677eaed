/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/confined_testing.h"
#include "base/privilege.h"

/* A line of /proc/self/status. */
static bool status_says(const char *line)
{
	FILE *file = fopen("/proc/self/status", "re");
	char got[256];
	bool found = false;

	while (file && !found && fgets(got, sizeof(got), file))
		found = !strncmp(got, line, strlen(line));
	if (file)
		fclose(file);
	return found;
}

static int drop_and_look(const void *arg)
{
	const enum seccomp_role *role = arg;
	struct privilege got;
	char lacks[256];
	bool root = geteuid() == 0;

	privilege_drop(*role, &got);
	privilege_lacks(&got, lacks, sizeof(lacks));
	if (*lacks) {
		fprintf(stderr, "%s\n", lacks);
		return got.filter_error && !got.user_error && !got.caps_error ? 77 : 1;
	}
	if (root && !status_says("Uid:\t65534\t65534\t65534\t65534"))
		return 2;
	if (root &&
	    (!status_says("Gid:\t65534\t65534\t65534\t65534") || !status_says("Groups:\t \n")))
		return 3;
	if (!status_says("CapPrm:\t0000000000000000") ||
	    !status_says("CapEff:\t0000000000000000") ||
	    !status_says("CapInh:\t0000000000000000") || !status_says("CapAmb:\t0000000000000000"))
		return 4;
	if (root && !status_says("CapBnd:\t0000000000000000"))
		return 5;
	if (!status_says("NoNewPrivs:\t1"))
		return 6;
	if (seccomp_enter(*role) != -ENOTSUP && !status_says("Seccomp:\t2"))
		return 7;
	if (privilege_is_special())
		return 8;
	return root && open("/etc/shadow", O_RDONLY) >= 0 ? 9 : 0;
}

static void nothing_of_root_is_left(void **state)
{
	const enum seccomp_role roles[] = {SECCOMP_SAMPLER, SECCOMP_READER};

	for (size_t i = 0; i < 2; i++) {
		int result = in_a_child(drop_and_look, &roles[i]);

		if (result == 77) {
			print_message("# SKIP no filter on system calls can be set here\n");
			return;
		}
		assert_int_equal(result, 0);
	}
}

static int be_sampler(const void *arg)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
	const struct sched_param none = {0};
	struct privilege got;

	privilege_drop(SECCOMP_SAMPLER, &got);
	if (!privilege_lock_memory())
		return 1;
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest))
		return 2;
	return sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none) ? 3 : 0;
}

static int set_limit(const void *arg)
{
	const struct rlimit one = {1, 1};

	return setrlimit(RLIMIT_RTPRIO, &one) != 0;
}

static void a_sampler_still_gets_its_priority(void **state)
{
	if (in_a_child(set_limit, NULL)) {
		print_message("# SKIP we may not raise limits here (CAP_SYS_RESOURCE)\n");
		return;
	}
	assert_int_equal(in_a_child(be_sampler, NULL), 0);
}

static int drop_twice(const void *arg)
{
	struct privilege got;
	char lacks[256];

	privilege_drop(SECCOMP_SAMPLER, &got);
	privilege_drop(SECCOMP_GUARD, &got);
	privilege_lacks(&got, lacks, sizeof(lacks));
	return got.user_error || got.caps_error ? 1 : 0;
}

static void dropping_more_of_what_is_left_is_no_failure(void **state)
{
	assert_int_equal(in_a_child(drop_twice, NULL), 0);
}

static void what_is_missing_is_told(void **state)
{
	const struct privilege whole = {.uid = 65534};
	const struct privilege broken = {.user_error = EINVAL, .filter_error = ENOSYS};
	const struct privilege kept = {.kept = true};
	char text[256];

	privilege_lacks(&whole, text, sizeof(text));
	assert_string_equal(text, "");
	privilege_describe(&whole, text, sizeof(text));
	assert_string_equal(text, "goes on as user 65534, without capabilities, system calls are "
				  "filtered");
	privilege_lacks(&broken, text, sizeof(text));
	assert_non_null(strstr(text, "root's rights could not be given up: Invalid argument; "));
	assert_non_null(strstr(text, "system calls could not be filtered: "));
	privilege_lacks(&kept, text, sizeof(text));
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_of_root_is_left),
		cmocka_unit_test(a_sampler_still_gets_its_priority),
		cmocka_unit_test(dropping_more_of_what_is_left_is_no_failure),
		cmocka_unit_test(what_is_missing_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
