/* SPDX-License-Identifier: BSD-3-Clause */
/* Exits in recordings, and as profiles of their own. */
#include "profile/profile.h"

#include "recording/testing.h"

static const struct frame sample[] = {{0x100, FRAME_PC, TRUST_SURE}};
static const struct frame port[] = {{0x200, FRAME_PC, TRUST_SURE}, {0x10, FRAME_PC, TRUST_SURE}};
static const struct frame halt[] = {{0x300, FRAME_PC, TRUST_SURE}, {0x20, FRAME_PC, TRUST_SURE}};

struct fixture {
	struct memory_file file;
	struct stacks *stacks;
	struct recording_writer *writer;
	uint32_t sample, port, halt;
};

static void begin_recording(struct fixture *f)
{
	const struct recording_info info = {.vcpus = 2};
	bool whole;

	f->file = memory_file_new();
	assert_success(stacks_new(&f->stacks));
	assert_success(recording_create(f->file.path, &info, f->stacks, &f->writer));
	assert_success(stacks_intern(f->stacks, sample, 1, &f->sample, &whole));
	assert_success(stacks_intern(f->stacks, port, 2, &f->port, &whole));
	assert_success(stacks_intern(f->stacks, halt, 2, &f->halt, &whole));
}

static void end_recording(struct fixture *f)
{
	stacks_free(f->stacks);
	close(f->file.fd);
}

/* A tick, and 40 + 2 exits of vCPU 0 and 8 of vCPU 1. */
static void record(struct fixture *f)
{
	const struct tick_entry entry = {.stack = f->sample};
	const struct tick tick = {.time_ns = 5, .weight_ns = 100, .n = 1, .entries = &entry};

	assert_success(recording_tick(f->writer, &tick));
	assert_success(recording_exits(f->writer, &(struct recorded_exits){0, f->port, 40}));
	assert_success(recording_exits(f->writer, &(struct recorded_exits){0, f->halt, 2}));
	assert_success(recording_exits(f->writer, &(struct recorded_exits){1, f->port, 8}));
	assert_success(recording_close(f->writer, NULL));
}

static uint64_t weight_at(const struct profile *profile, uint64_t addr)
{
	for (uint32_t id = 1; id < stacks_count(profile->stacks); id++)
		if (stacks_node(profile->stacks, id)->addr == addr)
			return profile_cell(&profile->cells, id)->weight_ns;
	return 0;
}

static void test_exits_count_instead_of_samples_where_they_are_asked_for(void **state)
{
	const struct profile_filter filter = {.vcpu = -1, .exits = true}, first = {.exits = true};
	struct profile *profile;
	struct fixture f;

	begin_recording(&f);
	record(&f);
	assert_success(profile_load(f.file.path, &filter, &profile));
	assert_int_equal(profile->selected.weight_ns, 50);
	assert_int_equal(weight_at(profile, 0x200), 48);
	assert_int_equal(weight_at(profile, 0x300), 2);
	assert_int_equal(weight_at(profile, 0x100), 0);
	assert_string_equal(profile->info.weight_unit, "exits");
	profile_free(profile);
	assert_success(profile_load(f.file.path, &first, &profile));
	assert_int_equal(weight_at(profile, 0x200), 40);
	profile_free(profile);
	end_recording(&f);
}

static void test_without_that_they_are_in_no_share(void **state)
{
	const struct profile_filter filter = {.vcpu = -1, .weight = WEIGHT_BY_TIME};
	struct profile *profile;
	struct fixture f;

	begin_recording(&f);
	record(&f);
	assert_success(profile_load(f.file.path, &filter, &profile));
	assert_int_equal(profile->selected.samples, 1);
	assert_int_equal(weight_at(profile, 0x200), 0);
	assert_int_equal(weight_at(profile, 0x100), 100);
	assert_null(profile->info.weight_unit);
	profile_free(profile);
	end_recording(&f);
}

static void test_exits_that_cannot_be_are_not_written(void **state)
{
	struct fixture f;

	begin_recording(&f);
	assert_fails(recording_exits(f.writer, &(struct recorded_exits){2, f.port, 1}), ERR_FAILED,
		     "there is not");
	assert_fails(recording_exits(f.writer, &(struct recorded_exits){0, STACK_ROOT, 1}),
		     ERR_FAILED, "there is not");
	assert_fails(recording_exits(f.writer, &(struct recorded_exits){0, 999, 1}), ERR_FAILED,
		     "there is not");
	recording_abandon(f.writer);
	end_recording(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exits_count_instead_of_samples_where_they_are_asked_for),
		cmocka_unit_test(test_without_that_they_are_in_no_share),
		cmocka_unit_test(test_exits_that_cannot_be_are_not_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
