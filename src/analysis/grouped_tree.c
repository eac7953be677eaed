/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/grouped_tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/owned.h"
#include "profile/profile.h"
#include "symbol/names/display_name.h"

/* A key's own name, by the key, and behind these what perf calls them. */
static const struct {
	const char *name;
	enum group_key key;
} names[] = {
	[GROUP_FUNCTION] = {"function", GROUP_FUNCTION},
	[GROUP_LINE] = {"line", GROUP_LINE},
	[GROUP_FILE] = {"file", GROUP_FILE},
	[GROUP_IMAGE] = {"image", GROUP_IMAGE},
	[GROUP_VCPU] = {"vcpu", GROUP_VCPU},
	[GROUP_STATE] = {"state", GROUP_STATE},
	[GROUP_CONTAINER] = {"container", GROUP_CONTAINER},
	[GROUP_PROCESS] = {"process", GROUP_PROCESS},
	[GROUP_THREAD] = {"thread", GROUP_THREAD},
	[GROUP_KEYS] = {"sym", GROUP_FUNCTION},
	{"symbol", GROUP_FUNCTION},
	{"func", GROUP_FUNCTION},
	{"srcline", GROUP_LINE},
	{"srcfile", GROUP_FILE},
	{"dso", GROUP_IMAGE},
	{"cpu", GROUP_VCPU},
	{"pid", GROUP_PROCESS},
	{"tid", GROUP_THREAD},
	{"cgroup", GROUP_CONTAINER},
};

const char *group_key_text(enum group_key key)
{
	return names[key].name;
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

/* Is any of them said of frames, or, if not `frames`, of whole samples? */
static bool tell_of(const struct group_by *keys, bool frames)
{
	for (size_t i = 0; i < keys->n; i++)
		if (is_of_frame(keys->at[i]) == frames)
			return true;
	return false;
}

bool group_by_divide(const struct group_by *keys)
{
	return tell_of(keys, false);
}

static bool find(const char *text, size_t len, enum group_key *key)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i].name) == len && !strncmp(names[i].name, text, len)) {
			*key = names[i].key;
			return true;
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
	struct group_rows rows;
	/* The sample whose frames are being labelled. */
	uint16_t vcpu;
	uint8_t state;
	uint32_t thread;
	struct bytes text; /* a name being made */
};

/* Unknown values have a name, too: a missing column would shift the others. */
#define UNKNOWN "[unknown]"

static struct error *join(struct labeller *l, const char *text)
{
	const size_t len = strlen(text);

	TRY(bytes_reserve(&l->text, len));
	put_bytes(&l->text, text, len);
	return NULL;
}

/* The next column. */
static struct error *append(struct labeller *l, const char *text)
{
	if (l->text.len)
		TRY(join(l, "\t"));
	return join(l, text);
}

/* The image by the loaded files, or else by the recording's list. */
static struct error *image_of(const struct labeller *l, const struct stack_node *frame,
			      const char **name)
{
	const struct recorded_images *recorded = profile_images(l->rows.profile);
	const uint64_t va = frame_code(frame->addr, frame->kind);
	const bool foreign = frame->kind & FRAME_FOREIGN;
	const struct image *image =
		l->rows.images && !foreign ? images_at(l->rows.images, va) : NULL;
	const char *path = image && image->file->path ? image->file->path : NULL;

	for (size_t i = 0; i < recorded->n && !path && !foreign; i++)
		if (va >= recorded->at[i].start && va < recorded->at[i].end)
			path = recorded->at[i].path;
	return symbolizer_intern(l->rows.symbolizer, path ? path : UNKNOWN, name);
}

/* Falls back to the function where no line is known. */
static struct error *put_line(struct labeller *l, const struct location *function)
{
	char number[16];

	snprintf(number, sizeof(number), ":%u", function->line);
	TRY(append(l, function->file ? function->file : function->function));
	return function->file ? join(l, number) : NULL;
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
	FREED char *text = NULL;
	char id[16] = "";

	if (key == GROUP_CONTAINER && !(thread && thread->idle))
		return container_name(thread);
	if (!thread || thread->idle)
		return strdup(thread ? "[idle]" : UNKNOWN);
	put_id(key == GROUP_THREAD ? thread->tid : thread->pid, id);
	if (asprintf(&text, "%s%s%s%s%s%s", thread->kernel ? "[" : "", thread->process,
		     shared ? "/" : "", shared ? thread->name : "", thread->kernel ? "]" : "",
		     id) < 0)
		return NULL;
	return sanitize_new(text);
}

static struct error *put_thread(struct labeller *l, enum group_key key)
{
	FREED char *text = group_thread_name(l->rows.profile, l->thread, key);

	return text ? append(l, text) : error_no_memory();
}

struct error *group_outer_name(void *ctx, uint32_t thread, const char **name)
{
	const struct group_outer *outer = ctx;
	FREED char *text = group_thread_name(outer->profile, thread, outer->key);

	return text ? symbolizer_intern(outer->symbolizer, text, name) : error_no_memory();
}

static struct error *put_key(struct labeller *l, enum group_key key, const struct stack_node *frame,
			     const struct location *function)
{
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
		TRY(image_of(l, frame, &text));
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
	return append(l, text ? text : UNKNOWN);
}

/* The name of one of the functions of a frame, or of a whole sample if no key says anything of frames. */
static struct error *label(void *ctx, const struct stack_node *frame,
			   const struct location *function, const char **name)
{
	struct labeller *l = ctx;

	l->text.len = 0;
	for (size_t i = 0; i < l->rows.keys->n; i++)
		TRY(put_key(l, l->rows.keys->at[i], frame, function));
	return pool_intern(l->rows.pool, (const char *)l->text.data, l->text.len, name);
}

struct builder {
	const struct profile *profile;
	const struct grouped_tree_options *options;
	struct labeller labels;
	struct grouped_tree *out;
	uint32_t n; /* stacks */
};

static struct error *matches(const struct builder *b, uint32_t id, bool *does)
{
	const struct location *functions;
	size_t n;

	TRY(symbolizer_locate_node(b->labels.rows.symbolizer, b->profile->stacks, id, &functions,
				   &n));
	*does = false;
	for (size_t i = 0; i < n && !*does; i++)
		*does = !regexec(b->options->only, functions[i].function, 0, NULL, 0);
	return NULL;
}

/* A stack passes if one of its frames matches; parents come first. */
static struct error *find_passing(struct builder *b)
{
	bool *passes;

	if (!b->options->only)
		return NULL;
	passes = b->out->passes = calloc(b->n, sizeof(*passes));
	if (!passes)
		return error_no_memory();
	b->out->n_passes = b->n;
	for (uint32_t id = STACK_ROOT + 1; id < b->n; id++) {
		passes[id] = passes[stacks_node(b->profile->stacks, id)->parent];
		if (!passes[id])
			TRY(matches(b, id, &passes[id]));
	}
	return NULL;
}

/* Adds all samples to one node or row. */
static struct error *add_samples(struct builder *b, const struct profile_cell *all)
{
	const char *name;
	uint32_t node;

	TRY(label(&b->labels, NULL, NULL, &name));
	if (b->out->flat)
		return flat_add_cell(b->out->flat, name, all);
	TRY(tree_child(b->out->tree, 0, name, &node));
	profile_cell_add(&b->out->tree->nodes[node].self, all);
	return NULL;
}

/* Frames whose only column is their function are named by that alone. */
static bool is_plain(const struct group_by *keys)
{
	return keys->n == 1 && keys->at[0] == GROUP_FUNCTION;
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
	struct tree_options how = {.reverse = b->options->reverse,
				   .cells = cells,
				   .naming = is_plain(keys) ? NULL : &naming};

	profile_cell_add(&b->out->total, all);
	if (!tell_of(keys, true))
		return add_samples(b, all);
	if (b->out->flat)
		return flat_add(b->out->flat, b->profile, b->labels.rows.symbolizer, &how);
	/* Nodes of several classes can have the same name: only all together have a weight. */
	if (!naming.merges && !group_by_divide(keys))
		how.min_share = b->options->min_share;
	return tree_add(b->out->tree, b->profile, b->labels.rows.symbolizer, NULL, &how);
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
	const bool of_frames = tell_of(&b->options->keys, true);
	FREED struct profile_cell *cells = NULL;
	struct profile_cell all = {0};

	TRY(ARRAY_NEW(&cells, of_frames ? b->n : 1));
	for (size_t i = 0; i < n; i++) {
		if (b->out->passes && !b->out->passes[class[i] -> stack])
			continue;
		profile_cell_add(&all, &class[i] -> cell);
		if (of_frames)
			profile_cell_add(&cells[class[i] -> stack], &class[i] -> cell);
	}
	b->labels.vcpu = class[0]->vcpu;
	b->labels.state = class[0]->state;
	b->labels.thread = class[0]->thread;
	return add_stacks(b, &(struct profile_cells){.at = cells}, &all);
}

static struct error *add_classes(struct builder *b)
{
	struct class_order order = {&b->options->keys, b->profile->threads};
	size_t n = breakdown_count(b->profile->breakdown), end;
	FREED const struct breakdown_entry **sorted = calloc(n + 1, sizeof(*sorted));

	if (!sorted)
		return error_no_memory();
	for (size_t i = 0; i < n; i++)
		sorted[i] = breakdown_at(b->profile->breakdown, i);
	qsort_r(sorted, n, sizeof(*sorted), by_class, &order);
	for (size_t at = 0; at < n; at = end) {
		for (end = at; end < n && !by_class(&sorted[end], &sorted[at], &order); end++)
			;
		TRY(add_class(b, sorted + at, end - at));
	}
	return NULL;
}

/* All samples, or those that pass. */
static struct error *add_all(struct builder *b)
{
	const struct profile_cells *from = &b->profile->cells;
	const bool *passes = b->out->passes;
	FREED struct profile_cell *cells = passes ? calloc(b->n, sizeof(*cells)) : NULL;
	struct profile_cell all = {0};

	if (passes && !cells)
		return error_no_memory();
	for (uint32_t id = 0; id < b->n; id++) {
		if (passes && !passes[id])
			continue;
		profile_cell_add(&all, profile_cell(from, id));
		if (cells)
			cells[id] = *profile_cell(from, id);
	}
	return add_stacks(b, cells ? &(struct profile_cells){.at = cells} : from, &all);
}

static struct error *build(struct builder *b)
{
	struct grouped_tree *out = b->out;

	TRY(pool_new(&out->pool));
	b->labels.rows.pool = out->pool;
	TRY(b->options->flat ? flat_begin(&out->flat) : tree_new(&out->tree));
	TRY(find_passing(b));
	TRY(group_by_divide(&b->options->keys) ? add_classes(b) : add_all(b));
	if (out->tree)
		return tree_sum(out->tree);
	flat_sort(out->flat);
	return NULL;
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
		.labels.rows = {.profile = profile,
				.symbolizer = symbolizer,
				.images = images,
				.keys = &options->keys},
		.out = out,
	};
	struct error *err;

	*out = (struct grouped_tree){0};
	err = build(&b);
	bytes_free(&b.labels.text);
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

struct error *group_sample_name(const struct group_rows *rows, const struct tick_entry *entry,
				const char **name)
{
	struct labeller labels = {.rows = *rows,
				  .vcpu = (uint16_t)entry->vcpu,
				  .state = entry->state,
				  .thread = entry->thread};
	const struct stacks *stacks = rows->profile->stacks;
	const struct location *functions = NULL;
	struct error *err;
	size_t n = 0;

	*name = NULL;
	if (entry->stack != STACK_ROOT)
		TRY(symbolizer_locate_node(rows->symbolizer, stacks, entry->stack, &functions, &n));
	/* A row of whole samples depends on nothing but vCPU, state and thread. */
	if (!n && !group_by_divide(rows->keys))
		return NULL;
	if (is_plain(rows->keys)) {
		*name = functions[0].function;
		return NULL;
	}
	err = label(&labels, stacks_node(stacks, entry->stack), functions, name);
	bytes_free(&labels.text);
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
