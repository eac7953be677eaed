/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/privilege.h"
#include "target/guard.h"

/* Reports of a test's guards, in memory that all processes of the test share. */
struct seen {
	_Atomic int prepared, undone, phase;
	_Atomic int refusals; /* of undo(), before it lets the guest go */
	_Atomic int started;  /* by the profiler: its guard is ready */
	_Atomic int let_go;   /* by the profiler */
	_Atomic pid_t heir_pid;
	bool refuse, heir;
};

static bool prepare(void *ctx)
{
	struct seen *seen = ctx;

	seen->prepared++;
	return !seen->refuse;
}

static struct error *undo(void *ctx, enum guard_phase phase)
{
	struct seen *seen = ctx;

	seen->phase = phase;
	if (seen->refusals > 0) {
		seen->refusals--;
		return error_new(ERR_DENIED, "not yet");
	}
	seen->undone++;
	return NULL;
}

static void keep_stderr(void *ctx, struct descriptors *keep)
{
	descriptors_add(keep, STDERR_FILENO);
}

/* Calls as deep as those that unpause a guest. */
static bool prepare_deep_calls(void *ctx)
{
	volatile char deep[128 * 1024];

	for (size_t i = sizeof(deep); i > 0; i -= 1024)
		deep[i - 1] = 0;
	return prepare(ctx);
}

static const struct guard_ops deep = {.prepare = prepare_deep_calls, .undo = undo};
static const struct guard_ops ops = {.prepare = prepare, .undo = undo};
static const struct guard_ops talkative = {.keeps = keep_stderr, .prepare = prepare, .undo = undo};

static const struct guard_ops watchful = {.holds = GUARD_STOPPED, .prepare = prepare, .undo = undo};

static int share(void **state)
{
	*state = mmap(NULL, sizeof(struct seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	return *state == MAP_FAILED;
}

static int unshare_seen(void **state)
{
	return munmap(*state, sizeof(struct seen));
}

/* A process that has all that we have open, and outlives us, but not for ever. */
static pid_t leave_an_heir(void)
{
	pid_t heir = fork();

	if (heir == 0) {
		alarm(300);
		for (;;)
			pause();
	}
	return heir;
}

/* A profiler that stops a guest and is killed in this phase. */
static void die_in_phase(struct seen *seen, enum guard_phase phase)
{
	pid_t profiler = fork();

	assert_true(profiler >= 0);
	if (profiler == 0) {
		struct guard *guard;

		if (guard_start(&ops, seen, &guard))
			_exit(1);
		guard_set(guard_page(guard), phase);
		if (seen->heir)
			seen->heir_pid = leave_an_heir();
		seen->started = 1;
		for (;;)
			pause();
	}
	while (!seen->started)
		usleep(1000);
	assert_int_equal(kill(profiler, SIGKILL), 0);
	assert_int_equal(waitpid(profiler, NULL, 0), profiler);
}

static void wait_for_undo(struct seen *seen)
{
	uint64_t end = clock_now_ns() + 60 * NS_PER_S;

	while (!seen->undone && clock_now_ns() < end)
		usleep(1000);
}

static void a_death_while_the_guest_is_stopped_is_undone(void **state)
{
	struct seen *seen = *state;

	die_in_phase(seen, GUARD_STOPPED);
	wait_for_undo(seen);
	assert_int_equal(seen->undone, 1);
	assert_int_equal(seen->phase, GUARD_STOPPED);
}

static void a_death_between_call_and_store_is_told_apart(void **state)
{
	struct seen *seen = *state;

	die_in_phase(seen, GUARD_MAYBE);
	wait_for_undo(seen);
	assert_int_equal(seen->undone, 1);
	assert_int_equal(seen->phase, GUARD_MAYBE);
}

static void a_death_while_the_guest_runs_changes_nothing(void **state)
{
	struct seen *seen = *state;

	die_in_phase(seen, GUARD_RUNNING);
	usleep(200000);
	assert_int_equal(seen->undone, 0);
}

static void __attribute__((noreturn)) stop_within_a_pause(struct seen *seen)
{
	struct privilege rights;
	struct guard *guard;

	if (guard_start(&watchful, seen, &guard))
		_exit(1);
	privilege_drop(SECCOMP_SAMPLER, &rights);
	guard_set(guard_page(guard), GUARD_STOPPED);
	raise(SIGSTOP);
	guard_set(guard_page(guard), GUARD_RUNNING);
	seen->let_go++;
	for (;;) {
		guard_let_stop();
		clock_sleep_until(clock_now_ns() + NS_PER_S / 100);
	}
}

static void a_profiler_that_is_stopped_lets_the_guest_go_and_stays_stopped(void **state)
{
	struct seen *seen = *state;
	pid_t profiler = fork();
	int status;

	if (profiler == 0)
		stop_within_a_pause(seen);
	/* In the pause, and then once it is over. */
	for (int times = 0; times < 2; times++) {
		assert_int_equal(waitpid(profiler, &status, WUNTRACED), profiler);
		assert_true(WIFSTOPPED(status));
	}
	assert_int_equal(seen->let_go, 1);
	assert_int_equal(kill(profiler, SIGKILL), 0);
	assert_int_equal(waitpid(profiler, NULL, 0), profiler);
	assert_int_equal(seen->undone, 0);
}

/*
 * As long as a process of ours has them, our files stay open, and freeing our
 * memory takes its time: the guard must not wait for any of that.
 */
static void a_death_is_noticed_before_files_are_closed(void **state)
{
	struct seen *seen = *state;

	seen->heir = true;
	die_in_phase(seen, GUARD_STOPPED);
	wait_for_undo(seen);
	assert_true(seen->heir_pid > 0);
	assert_int_equal(kill(seen->heir_pid, SIGKILL), 0);
	assert_int_equal(seen->undone, 1);
}

static void what_is_refused_is_tried_until_it_is_done(void **state)
{
	struct seen *seen = *state;

	seen->refusals = 8;
	die_in_phase(seen, GUARD_STOPPED);
	wait_for_undo(seen);
	assert_int_equal(seen->refusals, 0);
	assert_int_equal(seen->undone, 1);
}

static void a_guest_that_is_left_to_the_guard_is_let_go(void **state)
{
	struct seen *seen = *state;
	struct guard *guard;

	seen->refusals = 8;
	assert_null(guard_start(&ops, seen, &guard));
	guard_set(guard_page(guard), GUARD_STOPPED);
	guard_leave(guard);
	wait_for_undo(seen);
	assert_int_equal(seen->undone, 1);
	assert_int_equal(waitpid(-1, NULL, 0) > 0, 1);
}

/* Standard error of the guards that are started from here on is a pipe; returns its other end. */
static int listen_to_guards(void)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	return ends[0];
}

/* The reader of the message sees its end while the guard still tries. */
static void what_is_refused_is_said_once(void **state)
{
	struct seen *seen = *state;
	const int own = dup(STDERR_FILENO), said = listen_to_guards();
	struct guard *guard;
	char text[256] = "";
	size_t len = 0;
	ssize_t got;

	seen->refusals = 1000000;
	assert_null(guard_start(&talkative, seen, &guard));
	dup2(own, STDERR_FILENO);
	close(own);
	guard_set(guard_page(guard), GUARD_STOPPED);
	guard_leave(guard);
	while ((got = read(said, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)got;
	close(said);
	assert_string_equal(text, "uniprof: not yet\n");
	assert_int_equal(seen->undone, 0);
	seen->refusals = 0;
	wait_for_undo(seen);
	assert_int_equal(waitpid(-1, NULL, 0) > 0, 1);
}

static void an_orderly_end_changes_nothing(void **state)
{
	struct seen *seen = *state;
	struct guard *guard;

	assert_null(guard_start(&ops, seen, &guard));
	guard_set(guard_page(guard), GUARD_STOPPED);
	guard_set(guard_page(guard), GUARD_RUNNING);
	guard_stop(guard);
	assert_int_equal(seen->prepared, 1);
	assert_int_equal(seen->undone, 0);
}

static void a_guard_that_cannot_guard_is_an_error(void **state)
{
	struct seen *seen = *state;
	struct guard *guard;
	struct error *err;

	seen->refuse = true;
	err = guard_start(&ops, seen, &guard);
	assert_non_null(err);
	error_free(err);
}

/* The limit counts in the guard, which has given up the rights with which it locked all of it. */
static void a_profiler_with_more_memory_than_may_be_locked_has_a_guard(void **state)
{
	const struct rlimit little = {1 << 20, 1 << 20};
	struct seen *seen = *state;
	pid_t profiler = fork();
	int status;

	if (profiler == 0) {
		struct guard *guard;
		void *much = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (much == MAP_FAILED || setrlimit(RLIMIT_MEMLOCK, &little))
			_exit(1);
		if (guard_start(&deep, seen, &guard))
			_exit(2);
		guard_stop(guard);
		_exit(0);
	}
	assert_int_equal(waitpid(profiler, &status, 0), profiler);
	assert_int_equal(status, 0);
	assert_int_equal(seen->prepared, 1);
}

static int count_children(void)
{
	int n = 0;

	while (waitpid(-1, NULL, WNOHANG) > 0)
		n++;
	return n;
}

static void a_killed_guard_is_replaced(void **state)
{
	struct seen *seen = *state;
	struct guard *guard;
	char command[64];

	assert_null(guard_start(&ops, seen, &guard));
	assert_true(guard_check(guard));
	assert_int_equal(seen->prepared, 1);
	snprintf(command, sizeof(command), "kill -KILL $(pgrep -P %d unpause-guard)", getpid());
	assert_int_equal(system(command), 0);
	for (int i = 0; i < 30000 && seen->prepared < 2; i++) {
		usleep(1000);
		assert_true(guard_check(guard));
	}
	assert_int_equal(seen->prepared, 2);
	guard_stop(guard);
	assert_int_equal(count_children(), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, share, unshare_seen)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_death_while_the_guest_is_stopped_is_undone),
		TEST(a_death_between_call_and_store_is_told_apart),
		TEST(a_death_while_the_guest_runs_changes_nothing),
		TEST(a_profiler_that_is_stopped_lets_the_guest_go_and_stays_stopped),
		TEST(a_death_is_noticed_before_files_are_closed),
		TEST(what_is_refused_is_tried_until_it_is_done),
		TEST(a_guest_that_is_left_to_the_guard_is_let_go),
		TEST(what_is_refused_is_said_once),
		TEST(an_orderly_end_changes_nothing),
		TEST(a_guard_that_cannot_guard_is_an_error),
		TEST(a_profiler_with_more_memory_than_may_be_locked_has_a_guard),
		TEST(a_killed_guard_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
