/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Folded stacks: "root;caller;leaf 12", one line for each chain of names, in
 * bytewise order of what stands before the count. A ';' in a name becomes ':';
 * the rest of what could break the format the namer has cleaned already.
 * Samples of an empty stack are "[no stack]".
 */

#include "output/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/raw.h"
#include "analysis/tree.h"

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
};

static bool has_semicolon(const struct tree *tree)
{
	for (uint32_t i = 1; i < tree->n; i++)
		if (strchr(tree->nodes[i].name, ';'))
			return true;
	return false;
}

static struct error *replace_semicolons(struct namer *namer, const char *name, const char **out)
{
	char *copy = strdup(name);
	struct error *err;

	if (!copy)
		return error_no_memory();
	for (char *at = copy; (at = strchr(at, ';'));)
		*at = ':';
	err = namer_intern(namer, copy, out);
	free(copy);
	return err;
}

/* The same tree with other names, some of which may now be the same. */
static struct error *rename_nodes(const struct tree *from, struct namer *namer, struct tree *to)
{
	uint32_t *now = calloc(from->n, sizeof(*now));
	struct error *err = now ? NULL : error_no_memory();

	for (uint32_t i = 1; i < from->n && !err; i++) {
		const struct tree_node *node = &from->nodes[i];
		const char *name = node->name;

		if (strchr(name, ';'))
			err = replace_semicolons(namer, name, &name);
		if (!err)
			err = tree_child(to, now[node->parent], name, &now[i]);
		if (!err)
			to->nodes[now[i]].self.samples += node->self.samples;
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
		if (walk->room - walk->n < 2) {
			size_t room = 2 * walk->room + 64;
			struct step *steps = reallocarray(walk->steps, room, sizeof(*steps));

			if (!steps)
				return error_no_memory();
			walk->steps = steps;
			walk->room = room;
		}
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

/* Puts "name;" behind the path; returns the new length, 0 when memory is short. */
static size_t extend_path(struct walk *walk, size_t path, const char *name)
{
	size_t len = strlen(name);

	if (walk->path_room - path < len + 1) {
		size_t room = 2 * (path + len + 1);
		char *bytes = realloc(walk->path, room);

		if (!bytes)
			return 0;
		walk->path = bytes;
		walk->path_room = room;
	}
	memcpy(walk->path + path, name, len);
	walk->path[path + len] = ';';
	return path + len + 1;
}

static struct error *write_lines(struct walk *walk, FILE *out)
{
	struct error *err = push_children(walk, 0, 0);

	while (!err && walk->n) {
		struct step step = walk->steps[--walk->n];
		const struct tree_node *node = &walk->tree->nodes[step.node];

		if (step.below) {
			size_t path = extend_path(walk, step.path, node->name);

			err = path ? push_children(walk, step.node, path) : error_no_memory();
			continue;
		}
		fwrite(walk->path, 1, step.path, out);
		fprintf(out, "%s %" PRIu64 "\n", node->name, node->self.samples);
	}
	free(walk->steps);
	free(walk->path);
	return err;
}

/* Makes the tree what is to be printed: no ';' in names, and a node for samples without a stack. */
static struct error *prepare(struct tree **tree, struct namer *namer)
{
	struct error *err = NULL;
	struct tree *renamed;
	uint32_t node;

	if (!(*tree)->nodes[0].self.samples && !has_semicolon(*tree))
		return NULL;
	err = tree_new(&renamed);
	if (err)
		return err;
	err = rename_nodes(*tree, namer, renamed);
	if (!err && renamed->nodes[0].self.samples) {
		const char *name;

		err = namer_intern(namer, TRACE_NO_STACK, &name);
		if (!err)
			err = tree_child(renamed, 0, name, &node);
		if (!err)
			renamed->nodes[node].self.samples += renamed->nodes[0].self.samples;
	}
	if (!err)
		err = tree_sum(renamed);
	tree_free(*tree);
	*tree = renamed;
	return err;
}

static struct error *write_folded(const struct output_job *job, FILE *out)
{
	struct walk walk = {0};
	struct tree *tree;
	struct error *err;

	err = tree_build(job->profile, job->namer, &(struct tree_options){.reverse = false}, &tree);
	if (err)
		return err;
	err = prepare(&tree, job->namer);
	if (!err) {
		walk.tree = tree;
		err = write_lines(&walk, out);
	}
	tree_free(tree);
	return err;
}

const struct output_format output_folded = {.name = "folded",
					    .ending = ".folded",
					    .write = write_folded};
