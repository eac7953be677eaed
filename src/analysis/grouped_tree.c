/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/grouped_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "profile/profile.h"
#include "symbol/names/display_name.h"

static const char *const texts[GROUP_KEYS] = {
	[GROUP_FUNCTION] = "function", [GROUP_LINE] = "line",	  [GROUP_FILE] = "file",
	[GROUP_IMAGE] = "image",       [GROUP_VCPU] = "vcpu",	  [GROUP_STATE] = "state",
	[GROUP_PROCESS] = "process",   [GROUP_THREAD] = "thread", [GROUP_CONTAINER] = "container",
};

static const struct {
	const char *name;
	enum group_key key;
} synonyms[] = {
	{"sym", GROUP_FUNCTION},     {"symbol", GROUP_FUNCTION}, {"func", GROUP_FUNCTION},
	{"srcline", GROUP_LINE},     {"srcfile", GROUP_FILE},	 {"dso", GROUP_IMAGE},
	{"cpu", GROUP_VCPU},	     {"pid", GROUP_PROCESS},	 {"tid", GROUP_THREAD},
	{"cgroup", GROUP_CONTAINER},
};

const char *group_key_text(enum group_key key)
{
	return texts[key];
}

/* Is it said of a frame? If not, it is of a whole sample. */
static bool is_of_frame(enum group_key key)
{
	return key != GROUP_VCPU && key != GROUP_STATE && key != GROUP_PROCESS &&
	       key != GROUP_THREAD && key != GROUP_CONTAINER;
}

bool group_by_threads(const struct group_by *keys)
{
	return group_by_have(keys, GROUP_PROCESS) || group_by_have(keys, GROUP_THREAD) ||
	       group_by_have(keys, GROUP_CONTAINER);
}

bool group_by_have(const struct group_by *keys, enum group_key key)
{
	for (size_t i = 0; i < keys->n; i++)
		if (keys->at[i] == key)
			return true;
	return false;
}

bool group_by_divide(const struct group_by *keys)
{
	for (size_t i = 0; i < keys->n; i++)
		if (!is_of_frame(keys->at[i]))
			return true;
	return false;
}

static bool is(const char *name, const char *text, size_t len)
{
	return strlen(name) == len && !strncmp(name, text, len);
}

static bool find(const char *text, size_t len, enum group_key *key)
{
	for (int i = 0; i < GROUP_KEYS; i++) {
		if (is(texts[i], text, len)) {
			*key = (enum group_key)i;
			return true;
		}
	}
	for (size_t i = 0; i < sizeof(synonyms) / sizeof(*synonyms); i++) {
		if (is(synonyms[i].name, text, len)) {
			*key = synonyms[i].key;
			return true;
		}
	}
	return false;
}

bool group_by_parse(const char *text, struct group_by *keys, const char **bad)
{
	keys->n = 0;
	for (;;) {
		size_t len = strcspn(text, ",");
		enum group_key key;

		*bad = text;
		if (!find(text, len, &key) || group_by_have(keys, key))
			return false;
		keys->at[keys->n++] = key;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

/* Labels of frames: a column for each key. */

struct labeller {
	const struct profile *profile;
	struct symbolizer *symbolizer;
	const struct images *images;
	const struct group_by *keys;
	struct pool *pool;
	/* The sample whose frames are being labelled. */
	uint16_t vcpu;
	uint8_t state;
	uint32_t thread;
	/* A name being made; grows. */
	char *text;
	size_t len, room;
};

/* Unknown values have a name, too: a missing column would shift the others. */
#define UNKNOWN "[unknown]"

static void labeller_free(struct labeller *labeller)
{
	free(labeller->text);
	labeller->text = NULL;
}

static struct error *join(struct labeller *l, const char *text)
{
	size_t len = strlen(text);
	struct error *err = ARRAY_RESERVE(&l->text, &l->room, l->len + len);

	if (err)
		return err;
	memcpy(l->text + l->len, text, len);
	l->len += len;
	return NULL;
}

/* The next column. */
static struct error *append(struct labeller *l, const char *text)
{
	struct error *err = l->len ? join(l, "\t") : NULL;

	return err ? err : join(l, text);
}

/* The image by the loaded files, or else by the recording's list. */
static struct error *image_of(const struct labeller *l, const struct stack_node *frame,
			      const char **name)
{
	const struct recorded_images *recorded = profile_images(l->profile);
	const uint64_t va = frame_code(frame->addr, frame->kind);
	const bool foreign = frame->kind & FRAME_FOREIGN;
	const struct image *image = l->images && !foreign ? images_at(l->images, va) : NULL;
	const char *path = image && image->file->path ? image->file->path : NULL;

	for (size_t i = 0; i < recorded->n && !path && !foreign; i++)
		if (va >= recorded->at[i].start && va < recorded->at[i].end)
			path = recorded->at[i].path;
	return symbolizer_intern(l->symbolizer, path ? path : UNKNOWN, name);
}

/* Falls back to the function where no line is known. */
static struct error *put_line(struct labeller *l, const struct location *function)
{
	char number[16];
	struct error *err;

	snprintf(number, sizeof(number), ":%u", function->line);
	err = append(l, function->file ? function->file : function->function);
	return err || !function->file ? err : join(l, number);
}

static void put_id(uint32_t number, char id[16])
{
	if (number != RECORDED_ID_UNKNOWN)
		snprintf(id, 16, " (%" PRIu32 ")", number);
}

static char *container_name(const struct recorded_thread *thread)
{
	char name[CONTAINER_NAME_ROOM];

	if (!thread || !thread->container)
		return strdup(UNKNOWN);
	recorded_container_name(thread->container, name);
	return sanitize_new(name);
}

char *group_thread_name(const struct profile *profile, uint32_t number, enum group_key key)
{
	const struct recorded_thread *thread = number ? &profile->threads[number - 1] : NULL;
	const bool shared = thread && key == GROUP_THREAD && thread->pid != thread->tid &&
			    strcmp(thread->name, thread->process);
	char *text, *clean, id[16] = "";

	if (key == GROUP_CONTAINER && !(thread && thread->idle))
		return container_name(thread);
	if (!thread || thread->idle)
		return strdup(thread ? "[idle]" : UNKNOWN);
	put_id(key == GROUP_THREAD ? thread->tid : thread->pid, id);
	if (asprintf(&text, "%s%s%s%s%s%s", thread->kernel ? "[" : "", thread->process,
		     shared ? "/" : "", shared ? thread->name : "", thread->kernel ? "]" : "",
		     id) < 0)
		return NULL;
	clean = sanitize_new(text);
	free(text);
	return clean;
}

static struct error *put_thread(struct labeller *l, enum group_key key)
{
	char *text = group_thread_name(l->profile, l->thread, key);
	struct error *err = text ? append(l, text) : error_no_memory();

	free(text);
	return err;
}

struct error *group_outer_name(void *ctx, uint32_t thread, const char **name)
{
	const struct group_outer *outer = ctx;
	char *text = group_thread_name(outer->profile, thread, outer->key);
	struct error *err =
		text ? symbolizer_intern(outer->symbolizer, text, name) : error_no_memory();

	free(text);
	return err;
}

static struct error *put_key(struct labeller *l, enum group_key key, const struct stack_node *frame,
			     const struct location *function)
{
	struct error *err = NULL;
	const char *text = NULL;
	char number[16];

	switch (key) {
	case GROUP_FUNCTION:
		text = function->function;
		break;
	case GROUP_LINE:
		return put_line(l, function);
	case GROUP_FILE:
		text = function->file;
		break;
	case GROUP_IMAGE:
		err = image_of(l, frame, &text);
		break;
	case GROUP_VCPU:
		snprintf(number, sizeof(number), "%u", l->vcpu);
		text = l->vcpu == NO_VCPU ? "none" : number;
		break;
	case GROUP_STATE:
		text = sample_state_text(l->state);
		break;
	case GROUP_CONTAINER:
	case GROUP_PROCESS:
	case GROUP_THREAD:
		return put_thread(l, key);
	case GROUP_KEYS:
		break;
	}
	return err ? err : append(l, text ? text : UNKNOWN);
}

/* The name of one of the functions of a frame, or of a whole sample if no key says anything of frames. */
static struct error *label(void *ctx, const struct stack_node *frame,
			   const struct location *function, const char **name)
{
	struct labeller *l = ctx;
	struct error *err = NULL;

	l->len = 0;
	for (size_t i = 0; i < l->keys->n && !err; i++)
		err = put_key(l, l->keys->at[i], frame, function);
	return err ? err : pool_intern(l->pool, l->text, l->len, name);
}

struct builder {
	const struct profile *profile;
	const struct grouped_tree_options *options;
	struct labeller labels;
	struct tree *tree; /* or: */
	struct flat *flat;
	struct profile_cell total;
	uint32_t n;   /* stacks */
	bool *passes; /* [n]: the stack passes `only`; NULL: all do */
};

static struct error *matches(const struct builder *b, uint32_t id, bool *does)
{
	const struct location *functions;
	size_t n = 0;
	struct error *err = symbolizer_locate_node(b->labels.symbolizer, b->profile->stacks, id,
						   &functions, &n);

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
		b->passes[id] = b->passes[stacks_node(b->profile->stacks, id)->parent];
		if (!b->passes[id])
			err = matches(b, id, &b->passes[id]);
	}
	return err;
}

/* Adds all samples to one node or row. */
static struct error *add_samples(struct builder *b, const struct profile_cell *all)
{
	const char *name;
	uint32_t node = 0;
	struct error *err = label(&b->labels, NULL, NULL, &name);

	if (!err && b->flat)
		return flat_add_cell(b->flat, name, all);
	if (!err)
		err = tree_child(b->tree, 0, name, &node);
	if (!err)
		profile_cell_add(&b->tree->nodes[node].self, all);
	return err;
}

/* Frames whose only column is their function are named by that alone. */
static bool is_plain(const struct group_by *keys)
{
	return keys->n == 1 && keys->at[0] == GROUP_FUNCTION;
}

/* Does a key say something of frames? */
static bool tells_of_frames(const struct group_by *keys)
{
	for (size_t i = 0; i < keys->n; i++)
		if (is_of_frame(keys->at[i]))
			return true;
	return false;
}

/* Adds all stacks of samples, `all` together, that share what the keys say of whole samples. */
static struct error *add_stacks(struct builder *b, const struct profile_cells *cells,
				const struct profile_cell *all)
{
	const struct group_by *keys = &b->options->keys;
	const struct tree_naming naming = {.name = label,
					   .ctx = &b->labels,
					   .merges = !group_by_have(keys, GROUP_FUNCTION) &&
						     !group_by_have(keys, GROUP_LINE)};
	const struct profile_cell *selected = &b->profile->selected;
	struct tree_options how = {.reverse = b->options->reverse,
				   .cells = cells,
				   .naming = is_plain(keys) ? NULL : &naming,
				   .by_samples = !selected->weight_ns};

	profile_cell_add(&b->total, all);
	if (!tells_of_frames(keys))
		return add_samples(b, all);
	if (b->flat)
		return flat_add(b->flat, b->profile, b->labels.symbolizer, &how);
	/* Nodes of several classes can have the same name: only all together have a weight. */
	if (!naming.merges && !group_by_divide(keys))
		how.min_weight = tree_min_weight(selected, b->options->min_share);
	return tree_add(b->tree, b->profile, b->labels.symbolizer, NULL, &how);
}

/* An order in which all samples that the keys do not divide stand together. */
struct class_order {
	const struct group_by *keys;
	const struct recorded_thread *threads;
};

/* A process that changed its name is shown by both. */
static int by_thread(const struct class_order *order, uint32_t a, uint32_t b)
{
	const struct recorded_thread none = {.name = "", .process = "", .idle = true};
	const struct recorded_thread *left = a ? &order->threads[a - 1] : &none;
	const struct recorded_thread *right = b ? &order->threads[b - 1] : &none;
	const bool tids = group_by_have(order->keys, GROUP_THREAD);
	int result = COMPARE(!a, !b) ?: COMPARE(left->idle, right->idle);

	if (result || left->idle)
		return result;
	if (group_by_have(order->keys, GROUP_CONTAINER))
		result = strcmp(left->container ?: "", right->container ?: "");
	if (result || !(tids || group_by_have(order->keys, GROUP_PROCESS)))
		return result;
	result = COMPARE(tids ? left->tid : left->pid, tids ? right->tid : right->pid);
	result = result ?: COMPARE(left->start_ns, right->start_ns) * tids;
	result = result ?: strcmp(left->process, right->process);
	return tids && !result ? strcmp(left->name, right->name) : result;
}

static int by_class(const void *left, const void *right, void *ctx)
{
	const struct breakdown_entry *a = *(const struct breakdown_entry *const *)left;
	const struct breakdown_entry *b = *(const struct breakdown_entry *const *)right;
	const struct class_order *order = ctx;
	int result = 0;

	if (group_by_have(order->keys, GROUP_VCPU))
		result = COMPARE(a->vcpu, b->vcpu);
	if (!result && group_by_have(order->keys, GROUP_STATE))
		result = COMPARE(a->state, b->state);
	if (!result && group_by_threads(order->keys))
		result = by_thread(order, a->thread, b->thread);
	return result;
}

static struct error *add_class(struct builder *b, const struct breakdown_entry *const *class,
			       size_t n)
{
	const bool of_frames = tells_of_frames(&b->options->keys);
	struct profile_cell *cells = calloc(of_frames ? b->n : 1, sizeof(*cells)), all = {0};
	struct error *err;

	if (!cells)
		return error_no_memory();
	for (size_t i = 0; i < n; i++) {
		if (b->passes && !b->passes[class[i] -> stack])
			continue;
		profile_cell_add(&all, &class[i] -> cell);
		if (of_frames)
			profile_cell_add(&cells[class[i] -> stack], &class[i] -> cell);
	}
	b->labels.vcpu = class[0]->vcpu;
	b->labels.state = class[0]->state;
	b->labels.thread = class[0]->thread;
	err = add_stacks(b, &(struct profile_cells){.at = cells}, &all);
	free(cells);
	return err;
}

static struct error *add_classes(struct builder *b)
{
	struct class_order order = {&b->options->keys, b->profile->threads};
	size_t n = breakdown_count(b->profile->breakdown), end;
	const struct breakdown_entry **sorted = calloc(n + 1, sizeof(*sorted));
	struct error *err = sorted ? NULL : error_no_memory();

	for (size_t i = 0; i < n && !err; i++)
		sorted[i] = breakdown_at(b->profile->breakdown, i);
	if (!err)
		qsort_r(sorted, n, sizeof(*sorted), by_class, &order);
	for (size_t at = 0; at < n && !err; at = end) {
		for (end = at; end < n && !by_class(&sorted[end], &sorted[at], &order); end++)
			;
		err = add_class(b, sorted + at, end - at);
	}
	free(sorted);
	return err;
}

/* All samples, or those that pass. */
static struct error *add_all(struct builder *b)
{
	const struct profile_cells *from = &b->profile->cells;
	struct profile_cell *cells = b->passes ? calloc(b->n, sizeof(*cells)) : NULL, all = {0};
	struct error *err;

	if (b->passes && !cells)
		return error_no_memory();
	for (uint32_t id = 0; id < b->n; id++) {
		if (b->passes && !b->passes[id])
			continue;
		profile_cell_add(&all, profile_cell(from, id));
		if (cells)
			cells[id] = *profile_cell(from, id);
	}
	err = add_stacks(b, cells ? &(struct profile_cells){.at = cells} : from, &all);
	free(cells);
	return err;
}

static struct error *build(struct builder *b)
{
	struct error *err = find_passing(b);

	if (!err)
		err = group_by_divide(&b->options->keys) ? add_classes(b) : add_all(b);
	if (!err && b->tree)
		err = tree_sum(b->tree);
	if (!err && b->flat)
		flat_sort(b->flat);
	labeller_free(&b->labels);
	return err;
}

struct error *grouped_tree_build(const struct profile *profile, struct symbolizer *symbolizer,
				 const struct images *images,
				 const struct grouped_tree_options *options,
				 struct grouped_tree *out)
{
	struct builder b = {
		.profile = profile,
		.options = options,
		.n = stacks_count(profile->stacks),
		.labels = {.profile = profile,
			   .symbolizer = symbolizer,
			   .images = images,
			   .keys = &options->keys},
	};
	struct error *err;

	*out = (struct grouped_tree){0};
	err = pool_new(&out->pool);
	b.labels.pool = out->pool;
	if (!err)
		err = options->flat ? flat_begin(&out->flat) : tree_new(&out->tree);
	b.tree = out->tree;
	b.flat = out->flat;
	if (!err)
		err = build(&b);
	out->total = b.total;
	out->passes = b.passes;
	out->n_passes = b.passes ? b.n : 0;
	if (err)
		grouped_tree_free(out);
	return err;
}

void grouped_tree_free(struct grouped_tree *grouped)
{
	tree_free(grouped->tree);
	flat_free(grouped->flat);
	pool_free(grouped->pool);
	free(grouped->passes);
	*grouped = (struct grouped_tree){0};
}

/* True if all samples of a stack are in one row; else the row depends on nothing but vCPU, state and thread. */
static bool is_by_frames(const struct group_by *keys)
{
	return !group_by_divide(keys);
}

struct error *group_sample_name(const struct group_rows *rows, const struct tick_entry *entry,
				const char **name)
{
	struct labeller labels = {.profile = rows->profile,
				  .symbolizer = rows->symbolizer,
				  .images = rows->images,
				  .keys = rows->keys,
				  .pool = rows->pool,
				  .vcpu = (uint16_t)entry->vcpu,
				  .state = entry->state,
				  .thread = entry->thread};
	const struct stacks *stacks = rows->profile->stacks;
	const struct location *functions = NULL;
	size_t n = 0;
	struct error *err = NULL;

	*name = NULL;
	if (entry->stack != STACK_ROOT)
		err = symbolizer_locate_node(rows->symbolizer, stacks, entry->stack, &functions,
					     &n);
	if (err || (!n && is_by_frames(rows->keys)))
		return err;
	if (is_plain(rows->keys)) {
		*name = functions[0].function;
		return NULL;
	}
	err = label(&labels, stacks_node(stacks, entry->stack), functions, name);
	labeller_free(&labels);
	return err;
}

const char *grouped_tree_column(const char *name, size_t i, size_t *len)
{
	for (; i; i--) {
		name += strcspn(name, "\t");
		name += *name == '\t';
	}
	*len = strcspn(name, "\t");
	return name;
}
