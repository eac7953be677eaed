/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/testing.h"

#include "base/preopen.h"
#include "import/import.h"

#define S_NS  UINT64_C(1000000000)
#define LEAF  0x1000
#define START (1700000000 * S_NS)

/* The name of a leaf in whose samples the thread is once more, as one that does not run. */
#define WITH_WAITS "f with waits"

/* The name of a leaf whose samples are SELDOM_S seconds apart, as the rate was lowered. */
#define SELDOM	 "f seldom"
#define SELDOM_S 10

/* A minute of one guest: a sample a second, in a leaf without a caller. */
struct minute {
	const char *id;	       /* of the guest */
	uint64_t start, slide; /* seconds after START; of its image */
	uint32_t ticks;
	const char *name; /* of the leaf; NULL: its writer was killed before it told any */
};

/* The name of a leaf in whose samples the thread is in another container each minute. */
#define MOVED "moved"

static const char *container_of(const struct minute *minute)
{
	if (!minute->name || strcmp(minute->name, MOVED))
		return NULL;
	return minute->start / 60 % 2 ? "/b" : "/a";
}

static struct memory_file record(const struct minute *minute)
{
	const uint64_t period = minute->name && !strcmp(minute->name, SELDOM) ? SELDOM_S : 1;
	const struct frame frame = {LEAF, FRAME_PC, TRUST_SURE};
	struct recorded_image image = {.path = (char *)"/app", .slide = minute->slide};
	const struct recording_info info = {.guest_name = (char *)"web",
					    .guest_id = (char *)minute->id,
					    .vcpus = 1,
					    .rate_hz = 1 / (double)period,
					    .wanted_rate_hz = period > 1,
					    .max_cpu = period > 1 ? 0.01 : 0,
					    .images = {&image, 1},
					    .start_unix_ns = START + minute->start * S_NS};
	const struct recording_end end = {.elapsed_ns = minute->ticks * period * S_NS,
					  .missed = 2,
					  .waiting = 3,
					  .unproven = 1};
	const struct recorded_thread thread = {.pid = 7,
					       .tid = 7,
					       .name = minute->id,
					       .process = "p",
					       .container = container_of(minute)};
	const bool waits = minute->name && !strcmp(minute->name, WITH_WAITS);
	struct memory_file file = memory_file_new();
	struct tick_entry entries[2] = {{.end = UNWIND_OUTERMOST, .thread = 1}};
	struct recording_writer *writer;
	struct stacks *stacks;
	bool whole;

	assert_success(stacks_new(&stacks));
	assert_success(stacks_intern(stacks, &frame, 1, &entries[0].stack, &whole));
	entries[1] = entries[0];
	entries[1].vcpu = NO_VCPU;
	entries[1].state = WAIT_SLEEPING;
	entries[1].weight_ns = S_NS;
	assert_success(recording_create(file.path, &info, stacks, &writer));
	assert_success(recording_thread(writer, &thread));
	for (uint32_t i = 0; i < minute->ticks; i++)
		assert_success(recording_tick(writer, &(struct tick){.time_ns = i * period * S_NS,
								     .weight_ns = period * S_NS,
								     .n = 1,
								     .waits = waits,
								     .entries = entries}));
	if (minute->name)
		assert_success(recording_name(writer, LEAF, FRAME_PC, minute->name, 4));
	assert_success(recording_close(writer, minute->name ? &end : NULL));
	stacks_free(stacks);
	return file;
}

static const struct profile_filter everything = {.vcpu = -1};

/* The profile of a list of these minutes, from and to seconds after START (0: no bound). */
static struct profile *load(const struct minute *minutes, size_t n, uint64_t from, uint64_t to)
{
	struct memory_file files[8], list = memory_file_new();
	char *paths[8];
	const struct segments set = {.paths = paths,
				     .n = n,
				     .from_unix_ns = from ? START + from * S_NS : 0,
				     .to_unix_ns = to ? START + to * S_NS : 0};
	struct profile *profile;
	FILE *out = fopen(list.path, "w");

	for (size_t i = 0; i < n; i++) {
		files[i] = record(&minutes[i]);
		paths[i] = files[i].path;
		assert_success(preopen_input(paths[i]));
	}
	assert_success(source_list(&set, out));
	fclose(out);
	assert_success(profile_load(list.path, &everything, &profile));
	preopen_close();
	for (size_t i = 0; i < n; i++)
		close(files[i].fd);
	close(list.fd);
	return profile;
}

/* "f 3; g 5": leaves and their samples, in the order of their ids. */
static void assert_samples(const struct profile *profile, const char *wanted)
{
	char text[256] = "";

	for (uint32_t i = 1; i < stacks_count(profile->stacks); i++) {
		const struct stack_node *node = stacks_node(profile->stacks, i);
		const struct profile_name *name = profile_name(profile, node->addr, node->kind);
		const size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len, "%s%s %" PRIu64, len ? "; " : "",
			 name ? name->name : "?", profile_cell(&profile->cells, i)->samples);
	}
	assert_string_equal(text, wanted);
}

static void test_segments_of_a_run_are_one_recording(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, "f"}, {"7", 60, 0, 60, "f"}};
	struct profile *profile = load(minutes, 2, 0, 0);

	assert_samples(profile, "f 120");
	assert_int_equal(profile->info.vcpus, 1);
	assert_int_equal(profile->info.start_unix_ns, START);
	assert_int_equal(profile->last_ns, 119 * S_NS);
	assert_int_equal(profile->end.missed, 4);
	assert_int_equal(profile->end.waiting, 6);
	assert_int_equal(profile->end.unproven, 2);
	assert_int_equal(profile->n_threads, 1);
	assert_false(profile->cut);
	profile_free(profile);
}

static void test_threads_that_do_not_run_come_through(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, WITH_WAITS}, {"7", 60, 0, 60, WITH_WAITS}};
	struct profile *profile = load(minutes, 2, 0, 0);

	assert_int_equal(profile->states[VCPU_RUNNING].samples, 120);
	assert_int_equal(profile->states[WAIT_SLEEPING].samples, 120);
	assert_int_equal(profile->states[WAIT_SLEEPING].weight_ns, 120 * S_NS);
	profile_free(profile);
}

static void test_a_thread_in_another_container_is_another(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, MOVED},
					 {"7", 60, 0, 60, MOVED},
					 {"7", 120, 0, 60, MOVED},
					 {"7", 180, 0, 60, "f"}};
	struct profile *profile = load(minutes, 4, 0, 0);

	assert_int_equal(profile->n_threads, 3);
	assert_string_equal(profile->threads[0].container, "/a");
	assert_string_equal(profile->threads[1].container, "/b");
	assert_null(profile->threads[2].container);
	profile_free(profile);
}

static void test_the_stretch_is_cut_by_sample_times(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, "f"}, {"7", 60, 0, 60, "f"}};
	struct profile *profile = load(minutes, 2, 50, 65);

	assert_samples(profile, "f 15");
	assert_int_equal(profile->info.start_unix_ns, START + 50 * S_NS);
	assert_int_equal(profile->last_ns, 14 * S_NS);
	profile_free(profile);
}

static void test_a_killed_writer_s_segment_has_the_names_of_its_run(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 10, NULL}, {"7", 60, 0, 60, "f"}};
	struct profile *profile = load(minutes, 2, 0, 0);

	assert_samples(profile, "f 70");
	profile_free(profile);
}

static void test_a_name_never_comes_from_another_run(void **state)
{
	const struct minute rebooted[] = {{"7", 0, 0, 10, "f"}, {"8", 60, 0, 20, "g"}};
	const struct minute moved[] = {{"7", 0, 0, 10, "f"}, {"7", 60, 4096, 20, "g"}};
	const struct minute nameless[] = {{"7", 0, 0, 10, NULL}, {"8", 60, 0, 20, "g"}};
	const struct minute back[] = {{"7", 0, 0, 10, "f"},
				      {"8", 60, 0, 20, "g"},
				      {"9", 120, 0, 30, "f"}};
	struct profile *profile = load(rebooted, 2, 0, 0);

	assert_samples(profile, "f 10; g 20");
	assert_int_equal(stacks_node(profile->stacks, 2)->addr, LEAF);
	assert_int_equal(profile->n_threads, 2);
	profile_free(profile);
	profile = load(moved, 2, 0, 0);
	assert_samples(profile, "f 10; g 20");
	profile_free(profile);
	profile = load(nameless, 2, 0, 0);
	assert_samples(profile, "0x1000 10; g 20");
	profile_free(profile);
	profile = load(back, 3, 0, 0);
	assert_samples(profile, "f 40; g 20");
	profile_free(profile);
}

static void test_what_cannot_be_read_is_left_out_and_told(void **state)
{
	struct memory_file whole = record(&(struct minute){"7", 0, 0, 60, "f"}),
			   damaged = record(&(struct minute){"7", 60, 0, 60, "f"}),
			   empty = memory_file_new(), joined = memory_file_new();
	char *paths[] = {whole.path, damaged.path, empty.path, (char *)"/nowhere"};
	const struct segments set = {.paths = paths, .n = 4};
	struct profile *profile;
	size_t len, taken;
	uint8_t *bytes = memory_file_get(&damaged, &len);

	bytes[len / 2] ^= 0xff;
	memory_file_set(&damaged, bytes, len);
	free(bytes);
	assert_success(segments_join(&set, joined.path, &taken));
	assert_int_equal(taken, 4);
	assert_success(profile_load(joined.path, &everything, &profile));
	assert_true(profile->selected.samples >= 60);
	assert_non_null(strstr(profile->end.reason, "3 of 4 segments"));
	profile_free(profile);
	close(whole.fd);
	close(damaged.fd);
	close(empty.fd);
	close(joined.fd);
}

static void test_times_of_a_lower_rate_keep_their_weight(void **state)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, "f"},
					 {"7", 60, 0, 6, SELDOM},
					 {"7", 120, 0, 60, "f"}};
	struct profile *profile = load(minutes, 3, 0, 0);

	assert_samples(profile, "f 126");
	assert_int_equal(profile->selected.weight_ns, 180 * S_NS);
	assert_true(profile_not_sampled(profile) == 0);
	assert_true(profile->info.rate_hz == 0.1 && profile->info.wanted_rate_hz == 1);
	assert_true(profile->info.max_cpu == 0.01);
	profile_free(profile);
}

/* Joins two minutes and a third that does not go with them. */
static void join_but(const struct minute *third)
{
	const struct minute minutes[] = {{"7", 0, 0, 60, "f"}, {"7", 60, 0, 60, "f"}, *third};
	struct memory_file files[3], joined = memory_file_new();
	struct segments set = {.n = 3};
	struct profile *profile;
	char *paths[3];
	size_t taken;

	for (int i = 0; i < 3; i++) {
		files[i] = record(&minutes[i]);
		paths[i] = files[i].path;
	}
	set.paths = paths;
	assert_success(segments_join(&set, joined.path, &taken));
	assert_int_equal(taken, 2);
	assert_success(profile_load(joined.path, &everything, &profile));
	assert_samples(profile, "f 120");
	assert_int_equal(stacks_node(profile->stacks, 1)->addr, LEAF);
	assert_int_equal(profile->info.images.n, 1);
	profile_free(profile);
	for (int i = 0; i < 3; i++)
		close(files[i].fd);
	close(joined.fd);
}

static void test_a_join_ends_where_another_run_or_rate_begins(void **state)
{
	join_but(&(struct minute){"8", 120, 0, 60, "g"});
	join_but(&(struct minute){"7", 120, 0, 6, SELDOM});
}

static void test_a_list_from_elsewhere_leads_to_no_file(void **state)
{
	struct memory_file file = record(&(struct minute){"7", 0, 0, 60, "f"}),
			   list = memory_file_new();
	char *path = file.path;
	const struct segments set = {.paths = &path, .n = 1};
	struct profile *profile;
	FILE *out = fopen(list.path, "w");

	assert_success(source_list(&set, out));
	fclose(out);
	assert_fails(profile_load(list.path, &everything, &profile), ERR_INPUT, "no recording");
	close(file.fd);
	close(list.fd);
}

static void test_a_time_without_samples_is_an_error(void **state)
{
	struct memory_file file = record(&(struct minute){"7", 0, 0, 60, "f"}),
			   joined = memory_file_new();
	char *path = file.path;
	const struct segments set = {.paths = &path, .n = 1, .from_unix_ns = START + 100 * S_NS};
	size_t taken;

	assert_fails(segments_join(&set, joined.path, &taken), ERR_INPUT, "nothing was recorded");
	close(file.fd);
	close(joined.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments_of_a_run_are_one_recording),
		cmocka_unit_test(test_threads_that_do_not_run_come_through),
		cmocka_unit_test(test_a_thread_in_another_container_is_another),
		cmocka_unit_test(test_the_stretch_is_cut_by_sample_times),
		cmocka_unit_test(test_a_killed_writer_s_segment_has_the_names_of_its_run),
		cmocka_unit_test(test_a_name_never_comes_from_another_run),
		cmocka_unit_test(test_what_cannot_be_read_is_left_out_and_told),
		cmocka_unit_test(test_times_of_a_lower_rate_keep_their_weight),
		cmocka_unit_test(test_a_join_ends_where_another_run_or_rate_begins),
		cmocka_unit_test(test_a_list_from_elsewhere_leads_to_no_file),
		cmocka_unit_test(test_a_time_without_samples_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
