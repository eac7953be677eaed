/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/functions.h"
#include "recording/stacks.h"
#include "symbol/names/table.h"

static const char main_name[] = "main", f_name[] = "f", g_name[] = "g";

/* Adds a stack with this many samples, each of 10 ns. */
static void add_stack(struct tree *tree, const char *const *path, size_t n, uint64_t samples)
{
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++)
		assert_null(tree_child(tree, at, path[i], &at));
	tree->nodes[at].self.samples += samples;
	tree->nodes[at].self.weight_ns += 10 * samples;
}

static const struct flat_row *find(const struct flat *flat, const char *name)
{
	for (size_t i = 0; i < flat->n; i++)
		if (!strcmp(flat->rows[i].name, name))
			return &flat->rows[i];
	return NULL;
}

static struct flat *example(struct tree **tree)
{
	const char *const one[] = {main_name, f_name}, *const two[] = {main_name, g_name},
			  *const recursive[] = {main_name, f_name, g_name, f_name, f_name};
	struct flat *flat;

	assert_null(tree_new(tree));
	add_stack(*tree, one, 2, 3);
	add_stack(*tree, two, 2, 5);
	add_stack(*tree, recursive, 5, 7);
	assert_null(tree_sum(*tree));
	assert_null(flat_new(*tree, &flat));
	return flat;
}

static void self_and_total_add_up(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_int_equal(flat->n, 3);
	assert_int_equal(find(flat, "main")->self.samples, 0);
	assert_int_equal(find(flat, "main")->total.samples, 15);
	assert_int_equal(find(flat, "f")->self.samples, 10);
	assert_int_equal(find(flat, "g")->self.samples, 5);
	assert_int_equal(find(flat, "g")->total.weight_ns, 120);
	flat_free(flat);
	tree_free(tree);
}

static void recursion_counts_once_in_the_total(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_int_equal(find(flat, "f")->total.samples, 10);
	flat_free(flat);
	tree_free(tree);
}

static void rows_come_by_self_or_by_total(void **state)
{
	struct tree *tree;
	struct flat *flat = example(&tree);

	assert_string_equal(flat->rows[0].name, "f");
	flat_sort_by_total(flat);
	assert_string_equal(flat->rows[0].name, "main");
	assert_string_equal(flat->rows[2].name, "f");
	flat_free(flat);
	tree_free(tree);
}

static void an_empty_tree_has_no_rows(void **state)
{
	struct tree *tree;
	struct flat *flat;

	assert_null(tree_new(&tree));
	assert_null(tree_sum(tree));
	assert_null(flat_new(tree, &flat));
	assert_int_equal(flat->n, 0);
	flat_free(flat);
	tree_free(tree);
}

static void add_samples(struct profile *profile, const uint64_t *addrs, size_t n, uint64_t samples)
{
	struct frame frames[4];
	uint32_t stack;
	bool whole;

	for (size_t i = 0; i < n; i++)
		frames[i] = (struct frame){.addr = addrs[i], .kind = i ? FRAME_RETURN : FRAME_PC};
	assert_null(stacks_intern(profile->stacks, frames, n, &stack, &whole));
	assert_in_range(stack, 1, 15);
	profile_cell_count(&profile->cells.at[stack], samples, 10);
	profile_cell_count(&profile->selected, samples, 10);
}

struct sampled {
	struct profile_cell cells[16];
	struct profile profile;
	struct images *images;
	struct symbolizer *symbolizer;
};

static void begin(struct sampled *s)
{
	static const char symbols[] = "1000 T main\n2000 T f\n3000 T g\n4000 T rare\n5000 T end\n";
	struct symbols *table;

	*s = (struct sampled){0};
	s->profile.cells.at = s->cells;
	assert_null(nm_read("test", strdup(symbols), strlen(symbols), &table));
	assert_null(images_new(&s->images));
	assert_null(images_add_tables(s->images, "test", table, NULL));
	assert_null(stacks_new(&s->profile.stacks));
	assert_null(symbolizer_new(s->images, &s->profile, &s->symbolizer));
	add_samples(&s->profile, (const uint64_t[]){0x2004, 0x1008}, 2, 60);
	add_samples(&s->profile, (const uint64_t[]){0x3004, 0x2020, 0x1008}, 3, 39);
	add_samples(&s->profile, (const uint64_t[]){0x4004, 0x1010}, 2, 1);
}

static void end(struct sampled *s)
{
	symbolizer_free(s->symbolizer);
	images_free(s->images);
	stacks_free(s->profile.stacks);
}

static void functions_are_chosen_without_a_tree_by_what_they_hold(void **state)
{
	const char *names[4];
	struct sampled s;
	size_t n;

	begin(&s);
	assert_null(flat_choose(&s.profile, s.symbolizer, 0.02, names, 4, &n));
	assert_int_equal(n, 3);
	assert_string_equal(names[0], "f");
	assert_string_equal(names[1], "g");
	assert_string_equal(names[2], "main");
	assert_null(flat_choose(&s.profile, s.symbolizer, 0, names, 4, &n));
	assert_int_equal(n, 4);
	assert_null(flat_choose(&s.profile, s.symbolizer, 0.02, names, 1, &n));
	assert_int_equal(n, 1);
	/* A stack counts once for a function that calls itself. */
	add_samples(&s.profile, (const uint64_t[]){0x4004, 0x4010, 0x4010, 0x1010}, 4, 1);
	assert_null(flat_choose(&s.profile, s.symbolizer, 0.021, names, 4, &n));
	assert_int_equal(n, 3);
	end(&s);
}

static struct error *count_names(void *ctx, const struct stack_node *frame,
				 const struct location *function, const char **name)
{
	++*(unsigned *)ctx;
	*name = function->function;
	return NULL;
}

/* One of a thousand processes has few of all stacks. */
static void frames_without_samples_cost_no_name(void **state)
{
	struct profile_cell some[16] = {0};
	const struct profile_cells cells = {.at = some};
	unsigned named = 0;
	const struct tree_naming naming = {.name = count_names, .ctx = &named};
	struct flat *flat;
	struct sampled s;

	begin(&s);
	/* main and f of the first stack. */
	profile_cell_count(&some[2], 1, 10);
	assert_null(flat_begin(&flat));
	assert_null(flat_add(flat, &s.profile, s.symbolizer,
			     &(struct tree_options){.cells = &cells, .naming = &naming}));
	assert_int_equal(named, 2);
	assert_int_equal(find(flat, "f")->self.samples, 1);
	assert_int_equal(find(flat, "main")->total.samples, 1);
	flat_free(flat);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(self_and_total_add_up),
		cmocka_unit_test(recursion_counts_once_in_the_total),
		cmocka_unit_test(rows_come_by_self_or_by_total),
		cmocka_unit_test(an_empty_tree_has_no_rows),
		cmocka_unit_test(functions_are_chosen_without_a_tree_by_what_they_hold),
		cmocka_unit_test(frames_without_samples_cost_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
