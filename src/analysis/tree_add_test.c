/* SPDX-License-Identifier: BSD-3-Clause */

/* Trees without their light nodes, and rows without a tree, beside the whole tree of the same stacks. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/functions.h"
#include "analysis/tree.h"
#include "recording/stacks.h"

#define ADDRESSES 40
#define STACKS	  3000
#define DEPTH	  12

/* Each address stands for a function; every third has one inlined, every ninth two. */
static const struct source_frame inlined[][3] = {
	{{.function = "in_a"}, {.function = NULL}},
	{{.function = "in_b"}, {.function = "in_a"}, {.function = NULL}},
};

static char texts[ADDRESSES][8];
static struct profile_name names[2 * ADDRESSES];
static struct profile profile;
static struct profile_cell *cells;
static struct symbolizer *symbolizer;
static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (seed >> 33) % n;
}

/* Two addresses have the same name, so that different stacks have the same nodes. */
static void name_addresses(void)
{
	for (uint32_t i = 0; i < ADDRESSES; i++) {
		snprintf(texts[i], sizeof(texts[i]), "f%u", i / 2);
		for (uint8_t kind = 0; kind < 2; kind++)
			names[2 * i + kind] =
				(struct profile_name){.addr = 0x1000 + i,
						      .name = texts[i],
						      .kind = kind,
						      .frames = i % 9 == 0   ? inlined[1]
								: i % 3 == 0 ? inlined[0]
									     : NULL,
						      .n_frames = i % 9 == 0   ? 3
								  : i % 3 == 0 ? 2
									       : 0};
	}
}

static void add_stack(uint64_t max_weight)
{
	struct frame frames[DEPTH];
	const size_t n = draw(DEPTH + 1);
	uint32_t id;
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){.addr = 0x1000 + draw(i > 6 ? 3 : ADDRESSES),
					   .kind = i ? FRAME_RETURN : FRAME_PC};
	assert_null(stacks_intern(profile.stacks, frames, n, &id, &whole));
	cells[id].samples++;
	cells[id].weight_ns += draw(max_weight);
}

static int set_up_by(uint64_t max_weight)
{
	seed = 1;
	name_addresses();
	cells = calloc((size_t)STACKS * DEPTH, sizeof(*cells));
	profile =
		(struct profile){.cells = {.at = cells}, .names = names, .n_names = 2 * ADDRESSES};
	if (!cells || stacks_new(&profile.stacks))
		return -1;
	for (int i = 0; i < STACKS; i++)
		add_stack(max_weight);
	for (uint32_t id = 0; id < stacks_count(profile.stacks); id++)
		profile_cell_add(&profile.selected, &cells[id]);
	return symbolizer_new(NULL, &profile, &symbolizer) ? -1 : 0;
}

static int set_up(void **state)
{
	return set_up_by(1000);
}

static int set_up_without_weights(void **state)
{
	return set_up_by(1);
}

static int tear_down(void **state)
{
	symbolizer_free(symbolizer);
	stacks_free(profile.stacks);
	free(cells);
	return 0;
}

static struct tree *build(bool reverse, double share)
{
	const struct tree_options options = {.reverse = reverse, .min_share = share};
	struct tree *tree = NULL;

	assert_null(tree_build(&profile, symbolizer, &options, &tree));
	return tree;
}

static uint64_t value(const struct profile_cell *cell)
{
	return profile.selected.weight_ns ? cell->weight_ns : cell->samples;
}

static uint32_t child_of(const struct tree *tree, uint32_t node, const char *name)
{
	for (uint32_t c = tree->nodes[node].first_child; c; c = tree->nodes[c].next_sibling)
		if (!strcmp(tree->nodes[c].name, name))
			return c;
	return 0;
}

static void assert_same_cell(const struct profile_cell *a, const struct profile_cell *b)
{
	assert_int_equal(a->samples, b->samples);
	assert_int_equal(a->weight_ns, b->weight_ns);
}

/* The node is in both; so is each child that is heavy enough, and nothing else. */
static size_t compare(const struct tree *whole, uint32_t a, const struct tree *heavy, uint32_t b,
		      double share)
{
	struct profile_cell left = {0};
	uint32_t left_out = 0;
	size_t n = 1;

	assert_same_cell(&whole->nodes[a].total, &heavy->nodes[b].total);
	assert_same_cell(&whole->nodes[a].self, &heavy->nodes[b].self);
	assert_int_equal(whole->nodes[a].inlined, heavy->nodes[b].inlined);
	for (uint32_t c = whole->nodes[a].first_child; c; c = whole->nodes[c].next_sibling) {
		const uint32_t same = child_of(heavy, b, whole->nodes[c].name);
		const double weight = (double)value(&whole->nodes[c].total);

		assert_int_equal(same != 0, weight >= tree_min_weight(&profile.selected, share));
		if (same) {
			n += compare(whole, c, heavy, same, share);
		} else {
			left_out += weight > 0;
			profile_cell_add(&left, &whole->nodes[c].total);
		}
	}
	assert_int_equal(tree_rest(heavy, b).n, left_out);
	assert_same_cell(&(struct profile_cell){tree_rest(heavy, b).cell.samples,
						tree_rest(heavy, b).cell.weight_ns, 0},
			 &left);
	return n;
}

static void light_nodes_are_left_out_and_the_others_are_as_in_the_whole_tree(void **state)
{
	static const double shares[] = {0.3, 0.05, 0.01, 0.001, 0.00001};

	for (int reverse = 0; reverse < 2; reverse++) {
		struct tree *whole = build(reverse, 0);

		for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
			struct tree *heavy = build(reverse, shares[i]);

			assert_int_equal(compare(whole, 0, heavy, 0, shares[i]), heavy->n);
			tree_free(heavy);
		}
		tree_free(whole);
	}
}

static void names_that_were_found_ahead_give_the_same_trees(void **state)
{
	struct tree *before = build(false, 0), *after;

	assert_null(symbolizer_prepare_stacks(symbolizer, profile.stacks));
	after = build(false, 0);
	assert_int_equal(compare(before, 0, after, 0, 0), after->n);
	tree_free(before);
	tree_free(after);
}

static void rows_without_a_tree_are_those_of_the_tree(void **state)
{
	struct tree *whole = build(false, 0);
	struct flat *expected, *flat;

	assert_null(flat_new(whole, &expected));
	assert_null(flat_begin(&flat));
	assert_null(flat_add(flat, &profile, symbolizer, NULL));
	flat_sort(flat);
	assert_int_equal(flat->n, expected->n);
	for (size_t i = 0; i < flat->n; i++) {
		assert_string_equal(flat->rows[i].name, expected->rows[i].name);
		assert_same_cell(&flat->rows[i].self, &expected->rows[i].self);
		assert_same_cell(&flat->rows[i].total, &expected->rows[i].total);
	}
	flat_free(flat);
	flat_free(expected);
	tree_free(whole);
}

static void nodes_that_are_retained_are_found_again(void **state)
{
	static char text[1000][8];
	uint32_t now[1000], found, parent = 0;
	struct tree *tree;

	assert_null(tree_new(&tree));
	assert_null(tree_child(tree, 0, "parent", &parent));
	for (int i = 0; i < 1000; i++) {
		snprintf(text[i], sizeof(text[i]), "c%d", i);
		assert_null(tree_child(tree, i % 2 ? parent : 0, text[i], &found));
		now[i] = i % 3 == 0;
	}
	tree_retain(tree, 2, now);
	assert_int_equal(tree->n, 2 + 334);
	for (int i = 0; i < 1000; i++) {
		const uint32_t n = tree->n;

		assert_null(tree_child(tree, i % 2 ? parent : 0, text[i], &found));
		assert_int_equal(tree->n, n + (i % 3 != 0));
		assert_int_equal(found, i % 3 ? n : now[i]);
	}
	tree_free(tree);
}

#define WITH_STACKS(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static uint64_t heaviest_child(const struct tree *tree, uint32_t parent)
{
	uint64_t most = 0;

	for (uint32_t child = tree->nodes[parent].first_child; child;
	     child = tree->nodes[child].next_sibling)
		if (tree->nodes[child].total.weight_ns > most)
			most = tree->nodes[child].total.weight_ns;
	return most;
}

/* Follows a path of `picks`, which ends at `last`, in the whole tree of the same stacks; returns its end there. */
static uint32_t expect_heaviest(const struct tree *whole, const struct tree *picks, uint32_t last)
{
	uint32_t parent, child;

	if (!last)
		return 0;
	parent = expect_heaviest(whole, picks, picks->nodes[last].parent);
	child = child_of(whole, parent, picks->nodes[last].name);
	assert_true(child);
	assert_true(whole->nodes[child].total.weight_ns == heaviest_child(whole, parent));
	assert_true(!parent ||
		    whole->nodes[child].total.weight_ns >= whole->nodes[parent].self.weight_ns);
	assert_int_equal(whole->nodes[child].inlined, picks->nodes[last].inlined);
	return child;
}

static void a_picked_path_has_the_heaviest_child_of_each_function(void **state)
{
	const uint32_t n = stacks_count(profile.stacks);
	struct tree_picker *picker;
	struct tree *picks, *whole;

	assert_null(tree_new(&picks));
	assert_null(tree_picker_new(&profile, symbolizer, DEPTH * 3, &picker));
	for (unsigned i = 0; i < 50; i++) {
		struct profile_cells some = {.at = calloc(n, sizeof(*some.at))};
		const struct tree_options options = {.cells = &some};
		uint32_t last = 0, end;

		assert_non_null(some.at);
		for (unsigned k = 0; k <= i; k++) {
			const uint32_t id = (uint32_t)draw(n);
			const uint64_t weight = 1 + draw(1000);

			profile_cell_count(&some.at[id], 1, weight);
			assert_null(tree_picker_add(picker, id, weight));
		}
		assert_null(tree_build(&profile, symbolizer, &options, &whole));
		assert_null(tree_picker_take(picker, picks, &last));
		end = expect_heaviest(whole, picks, last);
		assert_true(heaviest_child(whole, end) < whole->nodes[end].self.weight_ns ||
			    !heaviest_child(whole, end));
		tree_free(whole);
		free(some.at);
	}
	tree_picker_free(picker);
	tree_free(picks);
}

static void a_picked_path_is_no_longer_than_asked_for(void **state)
{
	struct tree_picker *picker;
	struct tree *picks;
	uint32_t last = 0;

	assert_null(tree_new(&picks));
	assert_null(tree_picker_new(&profile, symbolizer, 2, &picker));
	for (uint32_t id = 1; id < stacks_count(profile.stacks); id++)
		assert_null(tree_picker_add(picker, id, 1));
	assert_null(tree_picker_take(picker, picks, &last));
	assert_int_equal(picks->n, 3);
	assert_int_equal(last, 2);
	tree_picker_free(picker);
	tree_free(picks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_STACKS(light_nodes_are_left_out_and_the_others_are_as_in_the_whole_tree),
		{"... and without weights by samples",
		 light_nodes_are_left_out_and_the_others_are_as_in_the_whole_tree,
		 set_up_without_weights, tear_down, NULL},
		WITH_STACKS(names_that_were_found_ahead_give_the_same_trees),
		WITH_STACKS(rows_without_a_tree_are_those_of_the_tree),
		WITH_STACKS(a_picked_path_has_the_heaviest_child_of_each_function),
		WITH_STACKS(a_picked_path_is_no_longer_than_asked_for),
		cmocka_unit_test(nodes_that_are_retained_are_found_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
