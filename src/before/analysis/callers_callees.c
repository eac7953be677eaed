/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/callers_callees.h"

#include <stdlib.h>
#include <string.h>

/* Callers to visit, where one counts for each place that it calls the function in: some seconds. */
#define MAX_VISITS (1u << 30)

/* How many names an error tells. */
#define NAMES_TOLD 5

struct builder {
	const struct tree *tree;
	struct around *around;
	uint32_t *node; /* [tree->n]: of the callees, for what the function has called */
	bool *inside;	/* [tree->n]: below the function */
	uint64_t visits;
};

static void add(struct profile_cell *to, const struct profile_cell *from)
{
	to->samples += from->samples;
	to->weight_ns += from->weight_ns;
}

/* All stacks through the outermost frame `at` came this way. */
static struct error *add_callers(struct builder *b, uint32_t at)
{
	struct tree *callers = b->around->callers;
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
	add(&callers->nodes[node].self, &b->tree->nodes[at].total);
	return NULL;
}

static struct error *add_callee(struct builder *b, uint32_t at)
{
	const struct tree_node *from = &b->tree->nodes[at];
	struct tree *callees = b->around->callees;
	struct error *err = tree_child(callees, b->node[from->parent], from->name, &b->node[at]);

	if (err)
		return err;
	callees->nodes[b->node[at]].unresolved = from->unresolved;
	callees->nodes[b->node[at]].inlined = from->inlined;
	add(&callees->nodes[b->node[at]].self, &from->self);
	return NULL;
}

/* Parents come before their children. */
static struct error *visit(struct builder *b, uint32_t at)
{
	const struct tree_node *node = &b->tree->nodes[at];
	const bool is = node->name == b->around->name;

	if (is)
		add(&b->around->self, &node->self);
	b->inside[at] = is || b->inside[node->parent];
	if (b->inside[node->parent])
		return add_callee(b, at);
	if (!is)
		return NULL;
	add(&b->around->total, &node->total);
	add(&b->around->callees->nodes[0].self, &node->self);
	b->node[at] = 0;
	return add_callers(b, at);
}

struct error *around_build(const struct tree *tree, const char *name, struct around *out)
{
	struct builder b = {.tree = tree, .around = out};
	struct error *err;

	*out = (struct around){.name = name};
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
		around_free(out);
	return err;
}

void around_free(struct around *around)
{
	tree_free(around->callers);
	tree_free(around->callees);
	around->callers = around->callees = NULL;
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

static struct error *several(const struct matches *matches, const char *text)
{
	char names[1024] = "";
	size_t len = 0;

	for (size_t i = 0; i < matches->n && i < NAMES_TOLD && len < sizeof(names); i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.100s", i ? ", " : "",
					matches->name[i]);
	return error_new(ERR_USAGE, "\"%s\" could be %s%s: say which", text, names,
			 matches->n > NAMES_TOLD ? ", and others" : "");
}

struct error *around_find(const struct tree *tree, const char *text, const char **name)
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
		       ? several(&matches, text)
		       : error_new(ERR_USAGE, "no function in the samples is called \"%s\"", text);
}
