/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/testing.h"

#include "import/import.h"

#define S_NS UINT64_C(1000000000)

/* One guest's recording: one sample a second of each vCPU, in a leaf that `caller` called. */
struct guest {
	const char *name, *id;
	uint32_t vcpus, ticks;
	uint64_t start_unix_ns;
	const char *leaf_name; /* NULL: it has none */
	bool killed;	       /* the writer */
	bool waits;	       /* a thread of its name has a sample each second, too */
	uint64_t exits;	       /* caused by the leaf, of its last vCPU */
};

#define LEAF   0x1000
#define CALLER 0x2000

static struct memory_file record(const struct guest *guest)
{
	static const char source[] = "a.c";
	const struct source_frame place = {NULL, source, 7};
	const struct frame frames[] = {{LEAF, FRAME_PC, TRUST_GUESS},
				       {CALLER, FRAME_RETURN, TRUST_SURE}};
	const struct recording_info info = {.guest_name = (char *)guest->name,
					    .guest_id = (char *)guest->id,
					    .vcpus = guest->vcpus,
					    .rate_hz = 1,
					    .start_unix_ns = guest->start_unix_ns};
	const struct recording_end end = {.elapsed_ns = guest->ticks * S_NS, .missed = 2};
	struct memory_file file = memory_file_new();
	struct recording_writer *writer;
	struct tick_entry entry[9];
	const struct recorded_thread thread = {.name = guest->name,
					       .process = guest->name,
					       .container = guest->name};
	struct stacks *stacks;
	uint32_t stack;
	bool whole;

	assert_success(stacks_new(&stacks));
	assert_success(stacks_intern(stacks, frames, 2, &stack, &whole));
	assert_success(recording_create(file.path, &info, stacks, &writer));
	for (uint32_t i = 0; i < guest->vcpus; i++)
		entry[i] = (struct tick_entry){.vcpu = i, .stack = stack, .end = UNWIND_OUTERMOST};
	if (guest->waits)
		assert_success(recording_thread(writer, &thread));
	entry[guest->vcpus] = (struct tick_entry){.vcpu = NO_VCPU,
						  .stack = stack,
						  .state = WAIT_SLEEPING,
						  .thread = 1,
						  .weight_ns = 3};
	for (uint32_t i = 0; i < guest->ticks; i++)
		assert_success(recording_tick(writer, &(struct tick){.time_ns = i * S_NS,
								     .weight_ns = S_NS,
								     .paused_ns = 5,
								     .n = guest->vcpus,
								     .waits = guest->waits,
								     .entries = entry}));
	if (guest->exits)
		assert_success(
			recording_exits(writer, &(struct recorded_exits){guest->vcpus - 1, stack,
									 guest->exits}));
	assert_success(recording_name(writer, CALLER, FRAME_RETURN, "main", 0x10));
	if (guest->leaf_name) {
		assert_success(recording_name(writer, LEAF, FRAME_PC, guest->leaf_name, 4));
		assert_success(recording_locations(writer, LEAF, FRAME_PC, &place, 1));
	}
	assert_success(recording_close(writer, guest->killed ? NULL : &end));
	stacks_free(stacks);
	return file;
}

static const struct profile_filter everything = {.vcpu = -1};

static struct profile *merge_selected(const struct guest *one, const struct guest *other,
				      const struct profile_filter *filter)
{
	struct memory_file in[2] = {record(one), record(other)}, out = memory_file_new();
	char *paths[] = {in[0].path, in[1].path};
	struct profile *profile;

	assert_success(merge_recordings(paths, 2, out.path));
	assert_success(profile_load(out.path, filter, &profile));
	close(in[0].fd);
	close(in[1].fd);
	close(out.fd);
	return profile;
}

static struct profile *merge(const struct guest *one, const struct guest *other)
{
	return merge_selected(one, other, &everything);
}

static const char *name_of(const struct profile *profile, const struct stack_node *node)
{
	const struct profile_name *name =
		profile_name(profile, node->addr, (enum frame_kind)node->kind);

	return name ? name->name : NULL;
}

/* "web;main;spin 6\n", a line for each leaf, in the order of their ids. */
static char *folded(const struct profile *profile)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	for (uint32_t id = 1; id < stacks_count(profile->stacks); id++) {
		const struct stack_node *path[3];
		uint32_t at = id;

		if (!profile_cell(&profile->cells, id)->samples)
			continue;
		for (int i = 2; i >= 0; i--) {
			path[i] = stacks_node(profile->stacks, at);
			at = path[i]->parent;
		}
		assert_int_equal(at, STACK_ROOT);
		for (int i = 0; i < 3; i++) {
			const char *name = name_of(profile, path[i]);

			if (name)
				fprintf(out, "%s;", name);
			else
				fprintf(out, "%" PRIx64 ";", path[i]->addr);
		}
		fprintf(out, " %" PRIu64 "\n", profile_cell(&profile->cells, id)->samples);
	}
	fclose(out);
	return text;
}

static void check_folded(const struct guest *one, const struct guest *other, const char *expected)
{
	struct profile *profile = merge(one, other);
	char *text = folded(profile);

	assert_string_equal(text, expected);
	free(text);
	profile_free(profile);
}

static const struct guest web = {"web", "1", 2, 3, 100 * S_NS, "spin", false, false, 0};
static const struct guest mail = {"mail", "2", 1, 3, 101 * S_NS, "sort", false, false, 0};

static void one_address_is_another_function_in_each_guest(void **state)
{
	check_folded(&web, &mail, "web;main;spin; 6\nmail;main;sort; 3\n");
}

static void an_address_without_a_name_stays(void **state)
{
	const struct guest bare = {"mail", "2", 1, 3, 0, NULL, false, false, 0};

	check_folded(&bare, &web, "mail;main;1000; 3\nweb;main;spin; 6\n");
}

static void guests_of_one_name_are_told_apart(void **state)
{
	const struct guest other = {"web", "9", 1, 3, 0, "sort", false, false, 0};

	check_folded(&web, &other, "web-1;main;spin; 6\nweb-9;main;sort; 3\n");
}

static void times_are_those_of_the_wall_clock(void **state)
{
	struct profile *profile = merge(&mail, &web);

	/* web: 0, 1, 2 s; mail, which began a second later: 1, 2, 3 s */
	assert_int_equal(profile->last_ns, 3 * S_NS);
	assert_int_equal(profile->info.start_unix_ns, 100 * S_NS);
	assert_int_equal(profile->end.elapsed_ns, 4 * S_NS);
	assert_int_equal(profile->ticks, 6);
	profile_free(profile);
}

static void vcpus_are_numbered_through_and_figures_added(void **state)
{
	struct profile *profile = merge(&web, &mail);

	assert_int_equal(profile->info.vcpus, 3);
	assert_string_equal(profile->info.guest_name, "web, mail");
	assert_true(profile->info.rate_hz == 2);
	assert_int_equal(profile->end.missed, 4);
	assert_int_equal(profile->paused_ns, 30);
	assert_int_equal(profile->selected.samples, 9);
	assert_true(profile->seen[2]);
	profile_free(profile);
}

static void check_exits(int32_t vcpu, uint64_t of_web, uint64_t of_mail)
{
	const struct profile_filter filter = {.vcpu = vcpu, .exits = true};
	struct guest left[] = {web, mail};
	struct profile *profile;

	left[0].exits = 40;
	left[1].exits = 2;
	profile = merge_selected(&left[0], &left[1], &filter);
	assert_int_equal(profile->selected.weight_ns, of_web + of_mail);
	for (uint32_t id = 1; id < stacks_count(profile->stacks); id++) {
		const char *name = name_of(profile, stacks_node(profile->stacks, id));
		const uint64_t expected = !strcmp(name, "spin")	  ? of_web
					  : !strcmp(name, "sort") ? of_mail
								  : 0;

		assert_int_equal(profile_cell(&profile->cells, id)->weight_ns, expected);
	}
	profile_free(profile);
}

static void exits_are_kept_by_vcpu_and_guest(void **state)
{
	check_exits(-1, 40, 2);
	check_exits(1, 40, 0);
	check_exits(2, 0, 2);
}

static void places_in_the_source_come_along(void **state)
{
	struct profile *profile = merge(&web, &mail);
	unsigned n = 0;

	for (uint32_t id = 1; id < stacks_count(profile->stacks); id++) {
		const struct stack_node *node = stacks_node(profile->stacks, id);
		const struct profile_name *name =
			profile_name(profile, node->addr, (enum frame_kind)node->kind);

		if (!profile_cell(&profile->cells, id)->samples)
			continue;
		n++;
		assert_non_null(name);
		assert_true(node->addr >= IMPORT_ADDR && node->trust == TRUST_GUESS);
		assert_int_equal(name->offset, 4);
		assert_int_equal(name->n_frames, 1);
		assert_string_equal(name->frames[0].file, "a.c");
	}
	assert_int_equal(n, 2);
	profile_free(profile);
}

static void what_is_cut_stays_cut(void **state)
{
	const struct guest killed = {"mail", "2", 1, 3, 0, "sort", true, false, 0};
	struct profile *profile = merge(&web, &killed);

	assert_true(profile->cut);
	assert_int_equal(profile->selected.samples, 9);
	profile_free(profile);
}

static void what_is_merged_merges_again(void **state)
{
	struct memory_file in[2] = {record(&web), record(&mail)}, out = memory_file_new();
	struct memory_file again = memory_file_new();
	char *paths[] = {in[0].path, in[1].path}, *both[] = {out.path, in[1].path};
	struct profile *profile;

	assert_success(merge_recordings(paths, 2, out.path));
	assert_success(merge_recordings(both, 2, again.path));
	assert_success(profile_load(again.path, &everything, &profile));
	assert_int_equal(profile->selected.samples, 12);
	assert_int_equal(profile->info.vcpus, 4);
	profile_free(profile);
	close(in[0].fd);
	close(in[1].fd);
	close(out.fd);
	close(again.fd);
}

static void what_is_no_recording_is_refused(void **state)
{
	struct memory_file in = record(&web), text = memory_file_new(), out = memory_file_new();
	char *paths[] = {in.path, text.path};

	memory_file_set(&text, "main;spin 3\n", 12);
	assert_fails(merge_recordings(paths, 2, out.path), ERR_INPUT, text.path);
	close(in.fd);
	close(text.fd);
	close(out.fd);
}

static void threads_that_wait_come_along(void **state)
{
	const struct guest one = {.name = "one", .vcpus = 2, .ticks = 3, .waits = true},
			   two = {.name = "two", .vcpus = 1, .ticks = 4, .waits = true};
	struct memory_file in[2] = {record(&one), record(&two)}, out = memory_file_new();
	const struct profile_filter by_name = {.states = STATES_OF_WAITS,
					       .vcpu = -1,
					       .comm = "two"};
	char *paths[] = {in[0].path, in[1].path};
	struct profile *profile;

	assert_success(merge_recordings(paths, 2, out.path));
	assert_success(profile_load(out.path, &by_name, &profile));
	assert_int_equal(profile->states[WAIT_SLEEPING].samples, 7);
	assert_int_equal(profile->states[VCPU_RUNNING].samples, 10);
	assert_int_equal(profile->selected.samples, 4);
	assert_int_equal(profile->selected.weight_ns, 12);
	assert_string_equal(profile->threads[0].container, "one");
	assert_string_equal(profile->threads[1].container, "two");
	profile_free(profile);
	close(in[0].fd);
	close(in[1].fd);
	close(out.fd);
}

static void too_many_vcpus_are_refused(void **state)
{
	struct memory_file in = record(&web), out = memory_file_new();
	char *paths[RECORDING_MAX_VCPUS / 2 + 1];

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		paths[i] = in.path;
	assert_fails(merge_recordings(paths, sizeof(paths) / sizeof(*paths), out.path), ERR_INPUT,
		     "more than 4096 vCPUs");
	close(in.fd);
	close(out.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_address_is_another_function_in_each_guest),
		cmocka_unit_test(an_address_without_a_name_stays),
		cmocka_unit_test(guests_of_one_name_are_told_apart),
		cmocka_unit_test(times_are_those_of_the_wall_clock),
		cmocka_unit_test(exits_are_kept_by_vcpu_and_guest),
		cmocka_unit_test(vcpus_are_numbered_through_and_figures_added),
		cmocka_unit_test(places_in_the_source_come_along),
		cmocka_unit_test(what_is_cut_stays_cut),
		cmocka_unit_test(what_is_merged_merges_again),
		cmocka_unit_test(what_is_no_recording_is_refused),
		cmocka_unit_test(threads_that_wait_come_along),
		cmocka_unit_test(too_many_vcpus_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
