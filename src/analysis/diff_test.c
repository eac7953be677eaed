/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/diff.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/export_fixture.h"
#include "recording/stacks.h"
#include "view/diff.h"

/* A profile with its symbolizer, tree and flat table. */
struct one {
	struct export_fixture fixture;
	struct profile *profile;
	struct symbolizer *symbolizer;
	struct tree *tree;
	struct flat *flat;
};

/* So many samples in each of the functions 'a', 'b', ... below main. */
static void make(struct one *one, const char *guest, const unsigned *samples)
{
	const struct recording_info info = {.guest_name = (char *)guest, .vcpus = 1};
	struct export_fixture *f = &one->fixture;

	fixture_begin(f, &info);
	must(recording_name(f->writer, 0x1001, FRAME_RETURN, "main", 1));
	for (uint64_t i = 0; i < 4; i++) {
		char name[2] = {(char)('a' + i)};

		must(recording_name(f->writer, i + 1, FRAME_PC, name, 0));
		for (unsigned n = 0; n < samples[i]; n++)
			SAMPLE(f, 0, VCPU_RUNNING, i + 1, 0x1001);
	}
	must(recording_close(f->writer, NULL));
	must(profile_load(f->path, &PROFILE_ON_CPU, &one->profile));
	must(symbolizer_new(NULL, one->profile, &one->symbolizer));
	must(tree_build(one->profile, one->symbolizer, NULL, &one->tree));
	must(flat_new(one->tree, &one->flat));
}

static void drop(struct one *one)
{
	flat_free(one->flat);
	tree_free(one->tree);
	symbolizer_free(one->symbolizer);
	profile_free(one->profile);
	fixture_end(&one->fixture);
}

struct pair {
	struct one one[2];
	struct diff_side sides[2];
	struct diff *diff;
};

static void compare(struct pair *pair, const unsigned *before, const unsigned *after,
		    enum diff_order order)
{
	make(&pair->one[0], "old", before);
	make(&pair->one[1], "new\x1b", after);
	for (int i = 0; i < 2; i++)
		pair->sides[i] = (struct diff_side){.flat = pair->one[i].flat,
						    .profile = pair->one[i].profile};
	must(diff_new(&pair->sides[0], &pair->sides[1], order, &pair->diff));
}

static void done(struct pair *pair)
{
	diff_free(pair->diff);
	drop(&pair->one[0]);
	drop(&pair->one[1]);
}

static const struct diff_row *row(const struct diff *diff, const char *name)
{
	for (size_t i = 0; i < diff->n; i++)
		if (!strcmp(diff->rows[i].name, name))
			return &diff->rows[i];
	return NULL;
}

static void recordings_of_different_length_are_compared_by_shares(void **state)
{
	struct pair pair;

	compare(&pair, (unsigned[]){100, 300, 0, 0}, (unsigned[]){500, 1500, 0, 0}, DIFF_BY_SELF);
	assert_int_equal(pair.diff->n, 3);
	assert_int_equal(pair.diff->significant, 0);
	assert_float_equal(row(pair.diff, "a")->self_change.before, 0.25, 1e-9);
	assert_float_equal(row(pair.diff, "a")->self_change.after, 0.25, 1e-9);
	assert_float_equal(row(pair.diff, "main")->total_change.after, 1, 1e-9);
	assert_int_equal(row(pair.diff, "b")->self[1].samples, 1500);
	done(&pair);
}

static void changes_are_told_from_noise_and_come_first(void **state)
{
	struct pair pair;

	compare(&pair, (unsigned[]){500, 300, 200, 3}, (unsigned[]){400, 400, 205, 0},
		DIFF_BY_SELF);
	assert_int_equal(pair.diff->significant, 2);
	assert_string_equal(pair.diff->rows[0].name, "a");
	assert_true(diff_row_changed(&pair.diff->rows[0]));
	assert_string_equal(pair.diff->rows[1].name, "b");
	assert_true(diff_row_changed(&pair.diff->rows[1]));
	assert_false(row(pair.diff, "c")->self_change.significant);
	assert_false(row(pair.diff, "d")->self_change.significant);
	assert_false(row(pair.diff, "main")->total_change.significant);
	done(&pair);
}

static void a_function_may_be_in_one_of_them_only(void **state)
{
	struct pair pair;

	compare(&pair, (unsigned[]){500, 300, 0, 0}, (unsigned[]){500, 0, 300, 0}, DIFF_BY_TOTAL);
	assert_int_equal(row(pair.diff, "b")->total[1].samples, 0);
	assert_int_equal(row(pair.diff, "c")->total[0].samples, 0);
	assert_true(row(pair.diff, "b")->total_change.significant);
	assert_true(row(pair.diff, "c")->self_change.significant);
	done(&pair);
}

static void nothing_can_be_compared_with_no_samples(void **state)
{
	struct pair pair;

	compare(&pair, (unsigned[]){0, 0, 0, 0}, (unsigned[]){5, 5, 0, 0}, DIFF_BY_SELF);
	assert_int_equal(pair.diff->significant, 0);
	assert_int_equal(pair.diff->n, 3);
	done(&pair);
}

static void text_and_json_say_the_same(void **state)
{
	char *text = NULL, *json = NULL;
	size_t text_len, json_len;
	FILE *out = open_memstream(&text, &text_len);
	struct pair pair;

	compare(&pair, (unsigned[]){500, 300, 0, 0}, (unsigned[]){500, 0, 300, 0}, DIFF_BY_SELF);
	diff_write_text(pair.diff, pair.sides, &(struct diff_style){0},
			&(struct tty_writer){.out = out});
	fclose(out);
	out = open_memstream(&json, &json_len);
	must(diff_write_json(pair.diff, pair.sides, out));
	fclose(out);
	assert_non_null(strstr(text, "result   2 of 4 functions changed"));
	assert_non_null(strstr(text, "*  b  (gone)\n"));
	assert_non_null(strstr(text, "  37.50    0.00  -37.50 "));
	assert_non_null(strstr(text, "?:? \"new\xef\xbf\xbd\", 800 samples, worth 800 draws"));
	assert_null(strchr(text, '\x1b'));
	assert_non_null(strstr(json, "\"change\": -0.375,"));
	assert_non_null(strstr(json, "\"significant\": true"));
	assert_non_null(strstr(json, "\"name\": \"b\""));
	assert_null(strchr(json, '\x1b'));
	free(text);
	free(json);
	done(&pair);
}

/* The second profile has the same functions elsewhere, and one more. */
static struct profile_name names[2][4] = {
	{{.addr = 0x1000, .name = "f"},
	 {.addr = 0x2000, .name = "g"},
	 {.addr = 0x3000, .name = "h"}},
	{{.addr = 0x1000, .name = "new"},
	 {.addr = 0x5000, .name = "f"},
	 {.addr = 0x6000, .name = "g"}},
};

static struct profile profiles[2];
static struct profile_cell cells[2][16];
static struct tree_sides sides;

static int set_up(void **state)
{
	memset(cells, 0, sizeof(cells));
	for (int i = 0; i < 2; i++) {
		profiles[i] = (struct profile){.cells = {.at = cells[i]},
					       .names = names[i],
					       .n_names = 3};
		sides.profile[i] = &profiles[i];
		if (stacks_new(&profiles[i].stacks) ||
		    symbolizer_new(NULL, &profiles[i], &sides.symbolizer[i]))
			return -1;
	}
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		symbolizer_free(sides.symbolizer[i]);
		stacks_free(profiles[i].stacks);
	}
	return 0;
}

/* So many samples of `leaf` called by `caller`, as many draws. */
static void sample(int side, uint64_t samples, uint64_t leaf, uint64_t caller)
{
	struct frame frames[] = {{.addr = leaf}, {.addr = caller}};
	struct profile *profile = &profiles[side];
	uint32_t id;
	bool whole;

	assert_null(stacks_intern(profile->stacks, frames, caller ? 2 : 1, &id, &whole));
	cells[side][id].samples += samples;
	cells[side][id].weight_ns += 10 * samples;
	profile->selected.samples += samples;
	profile->selected.weight_ns += 10 * samples;
	profile->tick_weights += 10 * (double)samples;
	profile->tick_weights_squared += 100 * (double)samples;
}

/* Finds the only node of that name. */
static uint32_t find(const struct tree_pair *pair, const char *name)
{
	uint32_t found = 0;

	for (uint32_t i = 1; i < pair->tree->n; i++)
		if (!strcmp(pair->tree->nodes[i].name, name)) {
			assert_int_equal(found, 0);
			found = i;
		}
	assert_int_not_equal(found, 0);
	return found;
}

static void assert_shares(const struct tree_pair *pair, const char *name, double before,
			  double after, bool significant)
{
	const struct tree_change *node = &pair->nodes[find(pair, name)];

	assert_true(fabs(node->before - before) < 1e-9);
	assert_true(fabs(node->after - after) < 1e-9);
	assert_int_equal(node->significant, significant);
}

static void shares_do_not_depend_on_how_many_samples_there_are(void **state)
{
	struct tree_pair pair;

	sample(0, 600, 0x2000, 0x1000);
	sample(0, 400, 0x3000, 0);
	sample(1, 60000, 0x6000, 0x5000);
	sample(1, 39900, 0x5000, 0);
	sample(1, 100, 0x1000, 0);
	assert_null(tree_pair_build(&sides, NULL, &pair));
	assert_shares(&pair, "g", 0.6, 0.6, false);
	assert_shares(&pair, "f", 0.6, 0.999, true);
	assert_shares(&pair, "h", 0.4, 0, true);
	assert_shares(&pair, "new", 0, 0.001, false);
	assert_int_equal(pair.tree->nodes[0].total.weight_ns, 2 * TREE_PAIR_WHOLE);
	assert_int_equal(pair.tree->nodes[find(&pair, "g")].total.samples, 60600);
	assert_true(fabs(pair.draws[0] - 1000) < 1e-6);
	tree_pair_free(&pair);
}

static void few_samples_mark_nothing(void **state)
{
	struct tree_pair pair;

	sample(0, 6, 0x2000, 0);
	sample(0, 4, 0x3000, 0);
	sample(1, 8, 0x6000, 0);
	sample(1, 2, 0x1000, 0);
	assert_null(tree_pair_build(&sides, NULL, &pair));
	assert_shares(&pair, "g", 0.6, 0.8, false);
	assert_shares(&pair, "h", 0.4, 0, false);
	tree_pair_free(&pair);
}

static void leaf_first_works_too(void **state)
{
	const struct tree_options reverse = {.reverse = true};
	struct tree_pair pair;

	sample(0, 100, 0x2000, 0x1000);
	sample(1, 100, 0x6000, 0x5000);
	assert_null(tree_pair_build(&sides, &reverse, &pair));
	assert_int_equal(pair.tree->n, 3);
	assert_int_equal(pair.tree->nodes[find(&pair, "f")].parent, find(&pair, "g"));
	assert_shares(&pair, "f", 1, 1, false);
	tree_pair_free(&pair);
}

static void an_empty_profile_can_be_compared(void **state)
{
	struct tree_pair pair;

	assert_null(tree_pair_build(&sides, NULL, &pair));
	assert_int_equal(pair.tree->n, 1);
	tree_pair_free(&pair);
	sample(1, 100, 0x6000, 0x5000);
	assert_null(tree_pair_build(&sides, NULL, &pair));
	assert_shares(&pair, "g", 0, 1, false);
	tree_pair_free(&pair);
}

#define WITH_PROFILES(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recordings_of_different_length_are_compared_by_shares),
		cmocka_unit_test(changes_are_told_from_noise_and_come_first),
		cmocka_unit_test(a_function_may_be_in_one_of_them_only),
		cmocka_unit_test(nothing_can_be_compared_with_no_samples),
		cmocka_unit_test(text_and_json_say_the_same),
		WITH_PROFILES(shares_do_not_depend_on_how_many_samples_there_are),
		WITH_PROFILES(few_samples_mark_nothing),
		WITH_PROFILES(leaf_first_works_too),
		WITH_PROFILES(an_empty_profile_can_be_compared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
