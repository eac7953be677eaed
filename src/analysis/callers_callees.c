/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/callers_callees.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "symbol/names/display_name.h"

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

/* Names of the tree, each once: an error lists those that match. */
struct matches {
	const char *text;
	regex_t regex;
	bool is_regex;	  /* names need only match the expression */
	struct ids *seen; /* names by pointer */
	struct short_names *shorts;
	const char *name[NAMES_TOLD + 1];
	size_t n;
};

static bool has(const struct matches *matches, const char *name)
{
	return matches->is_regex ? !regexec(&matches->regex, name, 0, NULL, 0)
				 : strstr(name, matches->text) != NULL;
}

/* True if the name is the text, or its short form is. */
static bool is_match(struct matches *matches, const char *name)
{
	char *text = name_shorten(name, false);
	const bool same = !strcmp(name, matches->text) || (text && !strcmp(text, matches->text));
	const bool part = has(matches, name) || (text && has(matches, text));

	free(text);
	if (part && matches->n <= NAMES_TOLD)
		matches->name[matches->n++] = name;
	return same;
}

/* Two names that differ in what short forms leave out are told whole. */
static struct error *ambiguous(struct matches *matches)
{
	struct error *err = NULL;
	char names[2048] = "";
	size_t len = 0;

	for (size_t i = 0; i < matches->n && !err; i++)
		err = short_names_add(matches->shorts, matches->name[i], strlen(matches->name[i]));
	for (size_t i = 0; i < matches->n && i < NAMES_TOLD && !err && len < sizeof(names); i++) {
		size_t bytes = strlen(matches->name[i]);
		const char *name = short_names_get(matches->shorts, matches->name[i], &bytes);

		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.300s", i ? ", " : "",
					name);
	}
	return err ? err
		   : error_new(ERR_USAGE, "\"%s\" could be %s%s: say which", matches->text, names,
			       matches->n > NAMES_TOLD ? ", and others" : "");
}

/* *name is NULL if there is none. */
static struct error *find(const struct tree *tree, struct matches *matches, const char **name)
{
	const char *same = NULL;
	size_t n_same = 0;

	*name = NULL;
	for (uint32_t i = 1; i < tree->n; i++) {
		const char *one = tree->nodes[i].name;
		uint32_t id;
		bool added;
		struct error *err = ids_get(matches->seen, (uintptr_t)one, 0, &id, &added);

		if (err)
			return err;
		if (added && !strcmp(one, matches->text)) {
			*name = one;
			return NULL;
		}
		if (added && is_match(matches, one)) {
			same = one;
			n_same++;
		}
	}
	*name = n_same == 1 ? same : matches->name[0];
	return n_same == 1 || matches->n <= 1 ? NULL : ambiguous(matches);
}

static struct error *find_by(const struct tree *tree, struct matches *matches, const char **name)
{
	struct error *err = ids_new(&matches->seen);

	if (!err)
		err = short_names_new(&matches->shorts);
	if (!err)
		err = find(tree, matches, name);
	ids_free(matches->seen);
	short_names_free(matches->shorts);
	return err;
}

struct error *callers_callees_find(const struct tree *tree, const char *text, const char **name)
{
	struct matches matches = {.text = text};
	struct error *err = find_by(tree, &matches, name);

	/* Names have characters in them that an expression understands otherwise. */
	if (!err && !*name && !regcomp(&matches.regex, text, REG_EXTENDED | REG_NOSUB)) {
		matches.is_regex = true;
		err = find_by(tree, &matches, name);
		regfree(&matches.regex);
	}
	if (err || *name)
		return err;
	return error_new(ERR_USAGE, "no function in the samples is called \"%s\"", text);
}
