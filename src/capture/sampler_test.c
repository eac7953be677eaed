/* SPDX-License-Identifier: BSD-3-Clause */
#include "capture/sampler.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "recording/stacks.h"

#define MS 1000000ull

/* A guest whose samples fail for a time; its state says that it runs. */
struct fake {
	struct target base;
	uint64_t fails_until_ns;
	unsigned taken, lives, failed;
	bool once; /* only the first one fails; after the next one, the recording is to end */
	volatile sig_atomic_t stop;
	unsigned lives_then;
	enum error_kind kind;
};

static struct error *take(struct target *target, struct sample *sample)
{
	struct fake *fake = (struct fake *)target;

	sample->time_ns = clock_now_ns();
	sample->paused_ns = 0;
	sample->retakes = 0;
	sample->vcpu[0].online = false;
	if (fake->once ? !fake->failed : sample->time_ns < fake->fails_until_ns) {
		fake->failed++;
		return error_new(fake->kind, "the guest has been stopped by its owner");
	}
	fake->lives_then = fake->lives;
	fake->stop = fake->once;
	fake->taken++;
	return NULL;
}

static enum target_life life(struct target *target)
{
	((struct fake *)target)->lives++;
	return LIFE_RUNS;
}

static const struct target_ops fake_ops = {.scheme = "fake", .sample = take, .life = life};

static struct error *run(struct fake *fake, unsigned fails_ms, unsigned ms,
			 struct sampler_result *result)
{
	const struct sampler_options options = {.rate_hz = 1000,
						.duration_ns = ms * MS,
						.stop = &fake->stop};
	const struct sampler_sink sink = {0};
	struct stacks *stacks;
	struct error *err;

	fake->base = (struct target){.ops = &fake_ops};
	fake->base.info.arch = &arch_x86_64;
	fake->base.info.vcpus = 1;
	fake->fails_until_ns = clock_now_ns() + fails_ms * MS;
	assert_null(stacks_new(&stacks));
	err = sampler_run(&fake->base, stacks, &options, &sink, result);
	stacks_free(stacks);
	return err;
}

static void samples_that_fail_for_half_a_second_do_not_end_a_recording(void **state)
{
	struct fake fake = {.kind = ERR_FAILED};
	struct sampler_result result;

	assert_null(run(&fake, 500, 700, &result));
	assert_int_equal(result.outcome, SAMPLED_TIME);
	assert_true(result.failed > 0);
	assert_true(fake.taken > 0);
}

static void samples_that_go_on_failing_do(void **state)
{
	struct fake fake = {.kind = ERR_FAILED};
	struct sampler_result result;
	struct error *err = run(&fake, 60000, 30000, &result);

	assert_non_null(err);
	error_free(err);
	assert_true(result.failed > 0);
	assert_true(result.elapsed_ns < 30000 * MS);
	assert_int_equal(fake.taken, 0);
}

static void a_guest_is_asked_for_its_state_as_soon_as_a_sample_fails(void **state)
{
	struct fake fake = {.kind = ERR_FAILED, .once = true};
	struct sampler_result result;

	/* It is asked once before the first sample, and then not for some milliseconds. */
	assert_null(run(&fake, 0, 60000, &result));
	assert_int_equal(result.failed, 1);
	assert_true(fake.lives_then > 1);
}

static void an_error_of_another_kind_ends_it_at_once(void **state)
{
	struct fake fake = {.kind = ERR_DENIED};
	struct sampler_result result;
	struct error *err = run(&fake, 60000, 30000, &result);

	assert_non_null(err);
	error_free(err);
	assert_int_equal(result.failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_that_fail_for_half_a_second_do_not_end_a_recording),
		cmocka_unit_test(samples_that_go_on_failing_do),
		cmocka_unit_test(a_guest_is_asked_for_its_state_as_soon_as_a_sample_fails),
		cmocka_unit_test(an_error_of_another_kind_ends_it_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
