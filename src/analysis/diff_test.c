/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "view/diff.h"
#include "format/export_fixture.h"

/* A profile with all that stands on it. */
struct one {
	struct export_fixture fixture;
	struct profile *profile;
	struct namer *namer;
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
	must(namer_new(NULL, one->profile, &one->namer));
	must(tree_build(one->profile, one->namer, NULL, &one->tree));
	must(flat_new(one->tree, &one->flat));
}

static void drop(struct one *one)
{
	flat_free(one->flat);
	tree_free(one->tree);
	namer_free(one->namer);
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
	must(diff_write_text(pair.diff, pair.sides, 0, out));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recordings_of_different_length_are_compared_by_shares),
		cmocka_unit_test(changes_are_told_from_noise_and_come_first),
		cmocka_unit_test(a_function_may_be_in_one_of_them_only),
		cmocka_unit_test(nothing_can_be_compared_with_no_samples),
		cmocka_unit_test(text_and_json_say_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
