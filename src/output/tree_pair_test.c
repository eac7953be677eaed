/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/tree_pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/stacks.h"

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
		profiles[i] = (struct profile){.cells = cells[i], .names = names[i], .n_names = 3};
		sides.profile[i] = &profiles[i];
		if (stacks_new(&profiles[i].stacks) ||
		    namer_new(NULL, &profiles[i], &sides.namer[i]))
			return -1;
	}
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		namer_free(sides.namer[i]);
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

/* The node of that name, which is in the tree once. */
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
	static const struct CMUnitTest tests[] = {
		WITH_PROFILES(shares_do_not_depend_on_how_many_samples_there_are),
		WITH_PROFILES(few_samples_mark_nothing),
		WITH_PROFILES(leaf_first_works_too),
		WITH_PROFILES(an_empty_profile_can_be_compared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
