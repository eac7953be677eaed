/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Folded stacks: "root;caller;leaf 12", one line for each chain of names, in
 * bytewise order of what stands before the count. A ';' in a name becomes ':';
 * the rest of what could break the format the symbolizer has cleaned already.
 * Samples of an empty stack are "[no stack]".
 *
 * Counts are whole numbers: the samples, shared out by weight. What rounding
 * leaves over goes to the next line, so that whatever stands together, such as
 * all that one function calls, is at most one sample off.
 */

#include "format/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/tree.h"
#include "base/array.h"

/*
 * A step of the walk: the line of a node itself, or all that is below it.
 * These are two steps because other names can sort between them: "f", then
 * "f.cold", then "f;g".
 */
struct step {
	uint32_t node;
	bool below;
	size_t path; /* length of the path in front of the node's name */
};

struct walk {
	const struct tree *tree;
	struct step *steps; /* a stack, next one last */
	size_t n, room;
	char *path; /* "root;caller;" */
	size_t path_room;
	struct profile_cell written; /* of the lines so far */
	uint64_t counted;	     /* ... and the sum of their counts */
};

static bool has_semicolon(const struct tree *tree)
{
	for (uint32_t i = 1; i < tree->n; i++)
		if (strchr(tree->nodes[i].name, ';'))
			return true;
	return false;
}

static struct error *replace_semicolons(struct symbolizer *symbolizer, const char *name,
					const char **out)
{
	char *copy = strdup(name);
	struct error *err;

	if (!copy)
		return error_no_memory();
	for (char *at = copy; (at = strchr(at, ';'));)
		*at = ':';
	err = symbolizer_intern(symbolizer, copy, out);
	free(copy);
	return err;
}

/* Copies the tree with other names, some of which may now be equal. */
static struct error *rename_nodes(const struct tree *from, struct symbolizer *symbolizer,
				  struct tree *to)
{
	uint32_t *now = calloc(from->n, sizeof(*now));
	struct error *err = now ? NULL : error_no_memory();

	for (uint32_t i = 1; i < from->n && !err; i++) {
		const struct tree_node *node = &from->nodes[i];
		const char *name = node->name;

		if (strchr(name, ';'))
			err = replace_semicolons(symbolizer, name, &name);
		if (!err)
			err = tree_child(to, now[node->parent], name, &now[i]);
		if (!err)
			profile_cell_add(&to->nodes[now[i]].self, &node->self);
	}
	to->nodes[0].self = from->nodes[0].self;
	free(now);
	return err;
}

/* Bytewise, as if a ';' stood behind the name where there is something below. */
static int step_cmp(const void *left, const void *right, void *ctx)
{
	const struct tree *tree = ctx;
	const struct step *a = left, *b = right;
	const char *x = tree->nodes[a->node].name, *y = tree->nodes[b->node].name;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return (*x ? (unsigned char)*x : a->below * ';') -
	       (*y ? (unsigned char)*y : b->below * ';');
}

/* Descending, since the last step is taken first. */
static int step_cmp_down(const void *left, const void *right, void *ctx)
{
	return step_cmp(right, left, ctx);
}

static struct error *push_children(struct walk *walk, uint32_t parent, size_t path)
{
	const struct tree_node *nodes = walk->tree->nodes;
	size_t first = walk->n;

	for (uint32_t i = nodes[parent].first_child; i; i = nodes[i].next_sibling) {
		struct error *err = ARRAY_RESERVE(&walk->steps, &walk->room, walk->n + 2);

		if (err)
			return err;
		if (nodes[i].self.samples)
			walk->steps[walk->n++] = (struct step){i, false, path};
		if (nodes[i].first_child)
			walk->steps[walk->n++] = (struct step){i, true, path};
	}
	if (walk->n > first)
		qsort_r(walk->steps + first, walk->n - first, sizeof(*walk->steps), step_cmp_down,
			(void *)walk->tree);
	return NULL;
}

/* Puts "name;" behind the path, `*len` bytes of it. */
static struct error *extend_path(struct walk *walk, size_t *len, const char *name)
{
	const size_t path = *len;
	struct error *err;

	*len += strlen(name) + 1;
	err = ARRAY_RESERVE(&walk->path, &walk->path_room, *len);
	if (err)
		return err;
	memcpy(walk->path + path, name, *len - path - 1);
	walk->path[*len - 1] = ';';
	return NULL;
}

/* The count of the next line, of a node with samples of its own; 0: it weighs too little. */
static uint64_t take_count(struct walk *walk, const struct profile_cell *self)
{
	const struct profile_cell *all = &walk->tree->nodes[0].total;
	uint64_t before = walk->counted;

	profile_cell_add(&walk->written, self);
	if (all->weight_ns)
		walk->counted = (uint64_t)llround((double)walk->written.weight_ns /
						  (double)all->weight_ns * (double)all->samples);
	else
		walk->counted = walk->written.samples;
	return walk->counted - before;
}

static struct error *write_lines(struct walk *walk, FILE *out)
{
	struct error *err = push_children(walk, 0, 0);

	while (!err && walk->n) {
		struct step step = walk->steps[--walk->n];
		const struct tree_node *node = &walk->tree->nodes[step.node];
		uint64_t count;

		if (step.below) {
			err = extend_path(walk, &step.path, node->name);
			if (!err)
				err = push_children(walk, step.node, step.path);
			continue;
		}
		count = take_count(walk, &node->self);
		if (!count)
			continue;
		fwrite(walk->path, 1, step.path, out);
		fprintf(out, "%s %" PRIu64 "\n", node->name, count);
	}
	free(walk->steps);
	free(walk->path);
	return err;
}

/* Prepares the tree for printing: no ';' in names, and a node for samples without a stack. */
static struct error *prepare(struct tree **tree, struct symbolizer *symbolizer)
{
	struct error *err = NULL;
	struct tree *renamed;
	uint32_t node;

	if (!(*tree)->nodes[0].self.samples && !has_semicolon(*tree))
		return NULL;
	err = tree_new(&renamed);
	if (err)
		return err;
	err = rename_nodes(*tree, symbolizer, renamed);
	if (!err && renamed->nodes[0].self.samples) {
		const char *name;

		err = symbolizer_intern(symbolizer, RAW_NO_STACK, &name);
		if (!err)
			err = tree_child(renamed, 0, name, &node);
		if (!err)
			profile_cell_add(&renamed->nodes[node].self, &renamed->nodes[0].self);
	}
	if (!err)
		err = tree_sum(renamed);
	tree_free(*tree);
	*tree = renamed;
	return err;
}

static struct error *write_folded(const struct format_job *job, FILE *out)
{
	struct walk walk = {0};
	struct tree *tree;
	struct error *err;

	err = tree_build(job->profile, job->symbolizer, &(struct tree_options){.outer = job->outer},
			 &tree);
	if (err)
		return err;
	err = prepare(&tree, job->symbolizer);
	if (!err) {
		walk.tree = tree;
		err = write_lines(&walk, out);
	}
	tree_free(tree);
	return err;
}

const struct format format_folded = {.name = "folded", .ending = ".folded", .write = write_folded};
