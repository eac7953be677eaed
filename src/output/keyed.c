/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/keyed.h"

#include <stdlib.h>
#include <string.h>

#include "output/keyed_label.h"
#include "profile/parts.h"

/* As in tree_build.c: frames to visit for a leaf-first tree. */
#define MAX_VISITS (1u << 30)

struct builder {
	const struct profile *profile;
	const struct keyed_options *options;
	struct labeller labels;
	struct tree *tree;
	uint32_t n;	/* stacks */
	bool *passes;	/* [n]: the stack passes `only`; NULL: all do */
	uint32_t *node; /* [n]: of the tree, by stack */
	bool *used;	/* [n] */
	bool of_frames; /* any key is */
	bool merges;	/* frames that follow one another with the same name */
	uint64_t visits;
};

static void add_self(struct tree *tree, uint32_t node, const struct profile_cell *cell)
{
	tree->nodes[node].self.samples += cell->samples;
	tree->nodes[node].self.weight_ns += cell->weight_ns;
}

static bool selected(const struct builder *b, const struct profile_cell *cells, uint32_t id)
{
	return cells[id].samples && (!b->passes || b->passes[id]);
}

static struct error *matches(const struct builder *b, const struct stack_node *frame, bool *does)
{
	const struct location *functions;
	size_t n = 0;
	struct error *err = namer_locate(b->labels.namer, frame->addr, frame->kind, &functions, &n);

	*does = false;
	for (size_t i = 0; i < n && !err && !*does; i++)
		*does = !regexec(b->options->only, functions[i].function, 0, NULL, 0);
	return err;
}

/* A stack passes if one of its frames matches; parents come first. */
static struct error *find_passing(struct builder *b)
{
	struct error *err = NULL;

	if (!b->options->only)
		return NULL;
	b->passes = calloc(b->n, sizeof(*b->passes));
	if (!b->passes)
		return error_no_memory();
	for (uint32_t id = STACK_ROOT + 1; id < b->n && !err; id++) {
		const struct stack_node *frame = stacks_node(b->profile->stacks, id);

		b->passes[id] = b->passes[frame->parent];
		if (!b->passes[id])
			err = matches(b, frame, &b->passes[id]);
	}
	return err;
}

/* Moves *at to its child of this name, which is new if there was none. */
static struct error *add_child(struct builder *b, const char *name, uint32_t *at)
{
	if (b->merges && *at && b->tree->nodes[*at].name == name)
		return NULL;
	return tree_child(b->tree, *at, name, at);
}

static struct error *add_function(struct builder *b, const struct stack_node *frame,
				  const struct location *function, uint32_t *at)
{
	const uint32_t before = b->tree->n;
	struct tree_node *node;
	const char *name;
	struct error *err = label_of_function(&b->labels, frame, function, &name);

	if (!err)
		err = add_child(b, name, at);
	if (err)
		return err;
	node = &b->tree->nodes[*at];
	node->unresolved = !function->resolved;
	node->inlined = function->inlined && (*at >= before || node->inlined);
	return NULL;
}

/* Adds a frame below *at, with what was inlined there, and moves *at to its innermost node. */
static struct error *add_frame(struct builder *b, uint32_t id, uint32_t *at)
{
	const struct stack_node *frame = stacks_node(b->profile->stacks, id);
	const struct location *functions;
	size_t n = 0;
	struct error *err = namer_locate(b->labels.namer, frame->addr, frame->kind, &functions, &n);

	for (size_t i = 0; i < n && !err; i++)
		err = add_function(b, frame, &functions[b->options->reverse ? i : n - 1 - i], at);
	return err;
}

static struct error *add_forward(struct builder *b, const struct profile_cell *cells)
{
	struct error *err = NULL;

	memset(b->used, 0, b->n * sizeof(*b->used));
	b->node[STACK_ROOT] = 0;
	for (uint32_t id = b->n - 1; id > STACK_ROOT; id--) {
		b->used[id] |= selected(b, cells, id);
		if (b->used[id])
			b->used[stacks_node(b->profile->stacks, id)->parent] = true;
	}
	for (uint32_t id = STACK_ROOT + 1; id < b->n && !err; id++) {
		if (!b->used[id])
			continue;
		b->node[id] = b->node[stacks_node(b->profile->stacks, id)->parent];
		err = add_frame(b, id, &b->node[id]);
		if (!err && selected(b, cells, id))
			add_self(b->tree, b->node[id], &cells[id]);
	}
	return err;
}

static struct error *add_reverse(struct builder *b, const struct profile_cell *cells)
{
	struct error *err = NULL;

	for (uint32_t leaf = STACK_ROOT + 1; leaf < b->n && !err; leaf++) {
		uint32_t id = leaf, node = 0;

		if (!selected(b, cells, leaf))
			continue;
		for (; !err && id != STACK_ROOT; id = stacks_node(b->profile->stacks, id)->parent) {
			if (++b->visits > MAX_VISITS)
				return error_new(ERR_INPUT,
						 "too many deep stacks to show leaf first");
			err = add_frame(b, id, &node);
		}
		if (!err)
			add_self(b->tree, node, &cells[leaf]);
	}
	return err;
}

static struct error *add_samples(struct builder *b, const struct profile_cell *cells)
{
	const char *name;
	uint32_t node = 0;
	struct error *err = label_of_sample(&b->labels, &name);

	if (!err)
		err = add_child(b, name, &node);
	for (uint32_t id = STACK_ROOT; id < b->n && !err; id++)
		if (selected(b, cells, id))
			add_self(b->tree, node, &cells[id]);
	return err;
}

/* All stacks of samples that share what the keys say of whole samples. */
static struct error *add_stacks(struct builder *b, const struct profile_cell *cells)
{
	if (!b->of_frames)
		return add_samples(b, cells);
	if (selected(b, cells, STACK_ROOT))
		add_self(b->tree, 0, &cells[STACK_ROOT]);
	return b->options->reverse ? add_reverse(b, cells) : add_forward(b, cells);
}

/* The same number for all parts that the keys do not tell apart. */
static uint32_t class_of(const struct keys *keys, const struct profile_part *part)
{
	uint32_t class = keys_have(keys, KEY_VCPU) ? (uint32_t)part->vcpu * VCPU_STATES : 0;

	return class + (keys_have(keys, KEY_STATE) ? part->state : 0u);
}

struct classed {
	uint32_t class;
	const struct profile_part *part;
};

static int by_class(const void *a, const void *b)
{
	const struct classed *x = a, *y = b;

	return (x->class > y->class) - (x->class < y->class);
}

static struct error *add_class(struct builder *b, const struct classed *parts, size_t n)
{
	struct profile_cell *cells = calloc(b->n, sizeof(*cells));
	struct error *err;

	if (!cells)
		return error_no_memory();
	for (size_t i = 0; i < n; i++) {
		struct profile_cell *cell = &cells[parts[i].part->stack];

		cell->samples += parts[i].part->cell.samples;
		cell->weight_ns += parts[i].part->cell.weight_ns;
	}
	b->labels.vcpu = parts->part->vcpu;
	b->labels.state = parts->part->state;
	err = add_stacks(b, cells);
	free(cells);
	return err;
}

static struct error *add_classes(struct builder *b)
{
	size_t n = parts_count(b->profile->parts), end;
	struct classed *parts = calloc(n ? n : 1, sizeof(*parts));
	struct error *err = parts ? NULL : error_no_memory();

	for (size_t i = 0; i < n && !err; i++) {
		parts[i].part = parts_at(b->profile->parts, i);
		parts[i].class = class_of(&b->options->keys, parts[i].part);
	}
	if (!err)
		qsort(parts, n, sizeof(*parts), by_class);
	for (size_t at = 0; at < n && !err; at = end) {
		for (end = at; end < n && parts[end].class == parts[at].class; end++)
			;
		err = add_class(b, parts + at, end - at);
	}
	free(parts);
	return err;
}

static struct error *build(struct builder *b)
{
	const struct keys *keys = &b->options->keys;
	struct error *err;

	for (size_t i = 0; i < keys->n; i++)
		b->of_frames |= key_is_of_frame(keys->at[i]);
	b->merges = !keys_have(keys, KEY_FUNCTION) && !keys_have(keys, KEY_LINE);
	b->node = calloc(b->n, sizeof(*b->node));
	b->used = calloc(b->n, sizeof(*b->used));
	err = b->node && b->used ? find_passing(b) : error_no_memory();
	if (!err)
		err = keys_divide(keys) ? add_classes(b) : add_stacks(b, b->profile->cells);
	if (!err)
		err = tree_sum(b->tree);
	free(b->node);
	free(b->used);
	free(b->passes);
	labeller_free(&b->labels);
	return err;
}

struct error *keyed_build(const struct profile *profile, struct namer *namer,
			  const struct images *images, const struct keyed_options *options,
			  struct keyed *out)
{
	struct builder b = {
		.profile = profile,
		.options = options,
		.n = stacks_count(profile->stacks),
		.labels = {.profile = profile,
			   .namer = namer,
			   .images = images,
			   .keys = &options->keys},
	};
	struct error *err;

	*out = (struct keyed){0};
	err = pool_new(&out->pool);
	b.labels.pool = out->pool;
	if (!err)
		err = tree_new(&out->tree);
	b.tree = out->tree;
	if (!err)
		err = build(&b);
	if (err)
		keyed_free(out);
	return err;
}

void keyed_free(struct keyed *keyed)
{
	tree_free(keyed->tree);
	pool_free(keyed->pool);
	*keyed = (struct keyed){0};
}

const char *keyed_column(const char *name, size_t i, size_t *len)
{
	for (; i; i--) {
		name += strcspn(name, "\t");
		name += *name == '\t';
	}
	*len = strcspn(name, "\t");
	return name;
}
