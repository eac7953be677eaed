/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/callers_callees.h"

#include <stdlib.h>
#include <string.h>

/* Callers to visit, where one counts for each call of the function: some seconds. */
#define MAX_VISITS (1u << 30)

/* Names that an error lists at most. */
#define NAMES_TOLD 5

struct builder {
	const struct tree *tree;
	struct callers_callees *result;
	uint32_t *node; /* [tree->n]: the callees' nodes, for frames that the function has called */
	bool *inside;	/* [tree->n]: below the function */
	uint64_t visits;
};

/* All stacks through the outermost frame `at` came this way. */
static struct error *add_callers(struct builder *b, uint32_t at)
{
	struct tree *callers = b->result->callers;
	uint32_t node = 0;

	for (uint32_t up = b->tree->nodes[at].parent; up; up = b->tree->nodes[up].parent) {
		struct error *err;

		if (++b->visits > MAX_VISITS)
			return error_new(ERR_INPUT, "too many deep stacks to look for callers");
		err = tree_child(callers, node, b->tree->nodes[up].name, &node);
		if (err)
			return err;
		callers->nodes[node].unresolved = b->tree->nodes[up].unresolved;
		callers->nodes[node].inlined = b->tree->nodes[up].inlined;
	}
	profile_cell_add(&callers->nodes[node].self, &b->tree->nodes[at].total);
	return NULL;
}

static struct error *add_callee(struct builder *b, uint32_t at)
{
	const struct tree_node *from = &b->tree->nodes[at];
	struct tree *callees = b->result->callees;
	struct error *err = tree_child(callees, b->node[from->parent], from->name, &b->node[at]);

	if (err)
		return err;
	callees->nodes[b->node[at]].unresolved = from->unresolved;
	callees->nodes[b->node[at]].inlined = from->inlined;
	profile_cell_add(&callees->nodes[b->node[at]].self, &from->self);
	return NULL;
}

/* Parents come before their children. */
static struct error *visit(struct builder *b, uint32_t at)
{
	const struct tree_node *node = &b->tree->nodes[at];
	const bool is = node->name == b->result->name;

	if (is)
		profile_cell_add(&b->result->self, &node->self);
	b->inside[at] = is || b->inside[node->parent];
	if (b->inside[node->parent])
		return add_callee(b, at);
	if (!is)
		return NULL;
	profile_cell_add(&b->result->total, &node->total);
	profile_cell_add(&b->result->callees->nodes[0].self, &node->self);
	b->node[at] = 0;
	return add_callers(b, at);
}

struct error *callers_callees_build(const struct tree *tree, const char *name,
				    struct callers_callees *out)
{
	struct builder b = {.tree = tree, .result = out};
	struct error *err;

	*out = (struct callers_callees){.name = name};
	b.node = calloc(tree->n, sizeof(*b.node));
	b.inside = calloc(tree->n, sizeof(*b.inside));
	err = b.node && b.inside ? tree_new(&out->callers) : error_no_memory();
	if (!err)
		err = tree_new(&out->callees);
	for (uint32_t i = 1; i < tree->n && !err; i++)
		err = visit(&b, i);
	if (!err) {
		out->callers->nodes[0].name = out->callees->nodes[0].name = name;
		err = tree_sum(out->callers);
	}
	if (!err)
		err = tree_sum(out->callees);
	free(b.node);
	free(b.inside);
	if (err)
		callers_callees_free(out);
	return err;
}

void callers_callees_free(struct callers_callees *result)
{
	tree_free(result->callers);
	tree_free(result->callees);
	result->callers = result->callees = NULL;
}

/* Names that have the text in them, each once. */
struct matches {
	const char *name[NAMES_TOLD + 1];
	size_t n;
};

static void match(struct matches *matches, const char *name, const char *text)
{
	if (matches->n > NAMES_TOLD || !strstr(name, text))
		return;
	for (size_t i = 0; i < matches->n; i++)
		if (matches->name[i] == name)
			return;
	matches->name[matches->n++] = name;
}

static struct error *ambiguous(const struct matches *matches, const char *text)
{
	char names[1024] = "";
	size_t len = 0;

	for (size_t i = 0; i < matches->n && i < NAMES_TOLD && len < sizeof(names); i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.100s", i ? ", " : "",
					matches->name[i]);
	return error_new(ERR_USAGE, "\"%s\" could be %s%s: say which", text, names,
			 matches->n > NAMES_TOLD ? ", and others" : "");
}

struct error *callers_callees_find(const struct tree *tree, const char *text, const char **name)
{
	struct matches matches = {0};

	for (uint32_t i = 1; i < tree->n; i++) {
		if (!strcmp(tree->nodes[i].name, text)) {
			*name = tree->nodes[i].name;
			return NULL;
		}
		match(&matches, tree->nodes[i].name, text);
	}
	*name = matches.name[0];
	if (matches.n == 1)
		return NULL;
	return matches.n
		       ? ambiguous(&matches, text)
		       : error_new(ERR_USAGE, "no function in the samples is called \"%s\"", text);
}
