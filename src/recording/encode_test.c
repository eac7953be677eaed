/* SPDX-License-Identifier: BSD-3-Clause */

/* Places in the source: from the writer through the file to a profile. */

#include "recording/testing.h"

static const struct profile_filter everything = {.vcpu = -1};

struct recorded {
	struct memory_file file;
	struct stacks *stacks;
	struct recording_writer *writer;
};

static void record(struct recorded *out)
{
	struct recording_info info = {.vcpus = 1};

	out->file = memory_file_new();
	assert_success(stacks_new(&out->stacks));
	assert_success(recording_create(out->file.path, &info, out->stacks, &out->writer));
}

static struct profile *load(struct recorded *out)
{
	struct profile *profile;

	assert_success(recording_close(out->writer, NULL));
	assert_success(profile_load(out->file.path, &everything, &profile));
	stacks_free(out->stacks);
	return profile;
}

static void test_places_come_with_their_names(void **state)
{
	static const char file[] = "a.c", inlined[] = "inlined";
	const struct source_frame two[] = {{inlined, file, 7}, {NULL, file, UINT32_MAX}};
	const struct source_frame one[] = {{NULL, NULL, 0}};
	const struct profile_name *name;
	struct recorded recorded;
	struct profile *profile;

	record(&recorded);
	assert_success(recording_locations(recorded.writer, 1000, FRAME_PC, two, 2));
	assert_success(recording_name(recorded.writer, 1000, FRAME_PC, "f", 4));
	assert_success(recording_name(recorded.writer, 1000, FRAME_RETURN, "g", 4));
	assert_success(recording_name(recorded.writer, 2000, FRAME_PC, "h", 4));
	assert_success(recording_locations(recorded.writer, 2000, FRAME_PC, one, 1));
	/* An address without a name: its place is dropped. */
	assert_success(recording_locations(recorded.writer, 3000, FRAME_PC, one, 1));
	profile = load(&recorded);
	name = profile_name(profile, 1000, FRAME_PC);
	assert_int_equal(name->n_frames, 2);
	assert_string_equal(name->frames[0].function, "inlined");
	assert_string_equal(name->frames[0].file, "a.c");
	assert_ptr_equal(name->frames[0].file, name->frames[1].file);
	assert_int_equal(name->frames[0].line, 7);
	assert_null(name->frames[1].function);
	assert_int_equal(name->frames[1].line, UINT32_MAX);
	assert_int_equal(profile_name(profile, 1000, FRAME_RETURN)->n_frames, 0);
	assert_int_equal(profile_name(profile, 2000, FRAME_PC)->n_frames, 1);
	assert_null(profile_name(profile, 3000, FRAME_PC));
	profile_free(profile);
	close(recorded.file.fd);
}

static void test_a_text_is_in_the_file_once(void **state)
{
	static const char name[] = "a_function_with_quite_a_long_name";
	const struct source_frame frames[] = {{name, name, 1}, {NULL, name, 2}};
	struct recorded recorded;
	struct profile *profile;
	size_t len;

	record(&recorded);
	for (uint64_t addr = 1; addr <= 100; addr++)
		assert_success(recording_locations(recorded.writer, addr, FRAME_PC, frames, 2));
	profile = load(&recorded);
	free(memory_file_get(&recorded.file, &len));
	assert_true(len < 100 * 12 + 200);
	profile_free(profile);
	close(recorded.file.fd);
}

static void test_what_cannot_be_is_refused(void **state)
{
	struct source_frame frames[SOURCE_DEPTH + 1] = {{NULL, NULL, 0}};
	struct recorded recorded;

	record(&recorded);
	assert_success(recording_locations(recorded.writer, 1, FRAME_PC, frames, SOURCE_DEPTH));
	assert_fails(recording_locations(recorded.writer, 1, FRAME_PC, frames, SOURCE_DEPTH + 1),
		     ERR_FAILED, "cannot be");
	assert_fails(recording_locations(recorded.writer, 1, FRAME_PC, frames, 0), ERR_FAILED,
		     "cannot be");
	assert_fails(recording_locations(recorded.writer, 1, FRAME_KINDS, frames, 1), ERR_FAILED,
		     "cannot be");
	profile_free(load(&recorded));
	close(recorded.file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places_come_with_their_names),
		cmocka_unit_test(test_a_text_is_in_the_file_once),
		cmocka_unit_test(test_what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
