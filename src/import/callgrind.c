/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Callgrind's format, of Valgrind and others: what each function used itself, by
 * line, and below each of its calls. There are no stacks in it. As gprof and
 * KCachegrind do, a function's costs are shared out among its callers in
 * proportion to what their calls used; callers are frames that are a guess. The
 * sums of functions and lines stay exact: what finds no caller stands alone.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "base/owned.h"
#include "import/importer.h"

/* Events of a file; positions of a line ("instr line"). */
#define EVENTS_MAX    64
#define POSITIONS_MAX 3

/* Stacks end at this depth, and where a part is smaller than this share of all. */
#define DEPTH_MAX  512
#define PARTS_MAX  100000u
#define VISITS_MAX 1000000u

/* What a line of a function used itself. */
struct line_cost {
	uint64_t addr; /* that stands for its code */
	uint64_t weight, samples;
	uint64_t told, samples_told; /* that stand in stacks */
	double due;		     /* as told should be, not rounded */
	uint32_t next;		     /* of the same function, number + 1; 0: none */
};

/* What a function used below its calls to another. */
struct call_cost {
	uint64_t weight;
	uint32_t callee, next; /* numbers + 1 */
};

struct function {
	uint64_t addr;
	uint64_t self, below, by_callers;
	uint32_t lines, calls; /* numbers + 1 */
	bool open;	       /* it is in the stack that is being made */
};

/* Compressed names: "(3) name", then "(3)". */
struct names {
	struct row_ids ids;
	const char **at; /* NULL: not told */
};

struct callgrind {
	struct import *import;
	struct names files, functions_named, objects;
	const char *file, *name, *object; /* of lines with costs, NULL: not known */
	const char *callee, *callee_file, *callee_object;
	const char *own_file; /* that the function is in; `file` may be another's, inlined there */
	struct row_ids function_ids, line_ids, call_ids;
	struct function *functions;
	struct line_cost *lines;
	struct call_cost *calls;
	uint64_t line[POSITIONS_MAX];
	unsigned n_positions, line_at, n_events, samples_at; /* samples_at: EVENTS_MAX: none */
	char unit[64]; /* of the first event, as the file tells it */
	bool in_call;  /* the next costs are those of a call */
	uint64_t total;
};

static bool has_line(const char *line, size_t len)
{
	static const char *const begins[] = {"version: 1", "creator: ", "positions: ", "events: "};

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (!strncmp(line, begins[i], strlen(begins[i])))
			return i || len == strlen(begins[0]);
	return false;
}

static struct error *fault(const struct callgrind *c, const char *what)
{
	return import_error(c->import->input, what);
}

/* "(3) name", "(3)" or "name" */
static struct error *read_name(struct callgrind *c, struct names *names, const char *text,
			       const char **out)
{
	uint64_t number;
	uint32_t id;
	char *end;

	number = *text == '(' ? strtoull(text + 1, &end, 10) : 0;
	if (*text != '(' || end == text + 1 || *end != ')')
		return import_text(c->import, text, strlen(text), out);
	TRY(ROW_IDS_GET(&names->ids, number, 0, &names->at, &id));
	end += 1 + strspn(end + 1, " ");
	if (*end)
		TRY(import_text(c->import, end, strlen(end), &names->at[id]));
	else if (!names->at[id])
		return fault(c, "the name of this number is missing");
	*out = names->at[id];
	return NULL;
}

static bool is_known(const char *name)
{
	return name && *name && strcmp(name, "???");
}

/* The address that stands for a function, or for a line of it. */
static struct error *number_code(struct callgrind *c, const char *name, const char *file,
				 const char *object, uint32_t line, uint64_t *addr)
{
	struct import_code code = {.addr = IMPORT_NO_ADDR,
				   .name = is_known(name) ? name : "[unknown]",
				   .file = is_known(file) ? file : NULL,
				   .line = line};
	const struct import_image image = {.path = object};

	if (!is_known(name))
		TRY(import_text(c->import, code.name, strlen(code.name), &code.name));
	if (is_known(object))
		TRY(import_image(c->import, &image, &code.image));
	return import_code(c->import, &code, addr);
}

/* The number of a function by its name, file and object. */
static struct error *find_function(struct callgrind *c, const char *name, const char *file,
				   const char *object, uint32_t *number)
{
	uint64_t addr;

	TRY(number_code(c, name, file, object, 0, &addr));
	TRY(ROW_IDS_GET(&c->function_ids, addr, 0, &c->functions, number));
	c->functions[*number].addr = addr;
	return NULL;
}

static void add(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum))
		*sum = UINT64_MAX;
}

static struct error *add_own(struct callgrind *c, uint32_t function, uint64_t weight,
			     uint64_t samples)
{
	const uint64_t number = c->line[c->line_at];
	struct line_cost *line;
	uint64_t addr;
	uint32_t id;

	TRY(number_code(c, c->name, c->file, c->object, number < UINT32_MAX ? (uint32_t)number : 0,
			&addr));
	TRY(ROW_IDS_GET(&c->line_ids, addr, function, &c->lines, &id));
	line = &c->lines[id];
	if (!line->addr) {
		*line = (struct line_cost){.addr = addr, .next = c->functions[function].lines};
		c->functions[function].lines = id + 1;
	}
	add(&line->weight, weight);
	add(&line->samples, samples);
	add(&c->functions[function].self, weight);
	add(&c->total, weight);
	return NULL;
}

static struct error *add_call(struct callgrind *c, uint32_t caller, uint64_t weight)
{
	uint32_t callee, id;
	struct call_cost *call;

	TRY(find_function(c, c->callee, c->callee_file ?: c->file, c->callee_object ?: c->object,
			  &callee));
	c->callee_file = c->callee_object = NULL;
	if (caller == callee)
		return NULL;
	TRY(ROW_IDS_GET(&c->call_ids, caller, callee, &c->calls, &id));
	call = &c->calls[id];
	if (!call->callee) {
		*call = (struct call_cost){.callee = callee + 1,
					   .next = c->functions[caller].calls};
		c->functions[caller].calls = id + 1;
	}
	add(&call->weight, weight);
	add(&c->functions[caller].below, weight);
	add(&c->functions[callee].by_callers, weight);
	return NULL;
}

/* A number, "+3", "-3" or "*": relative to the one before. */
static bool read_position(const char **at, uint64_t *value)
{
	const char sign = **at;
	uint64_t number;
	char *end;

	if (sign == '*') {
		++*at;
		return true;
	}
	*at += sign == '+' || sign == '-';
	if (**at < '0' || **at > '9')
		return false;
	number = strtoull(*at, &end, strncmp(*at, "0x", 2) ? 10 : 16);
	*at = end;
	*value = sign == '+' ? *value + number : sign == '-' ? *value - number : number;
	return true;
}

static struct error *read_costs(struct callgrind *c, const char *at)
{
	uint64_t costs[EVENTS_MAX] = {0};
	uint32_t function;
	char *end;

	for (unsigned i = 0; i < c->n_positions; i++) {
		if (!read_position(&at, &c->line[i]))
			return fault(c, "neither costs nor a name");
		at += strspn(at, " \t");
	}
	for (unsigned i = 0; i < c->n_events && *at; i++) {
		costs[i] = strtoull(at, &end, 10);
		if (end == at || *at == '-' || costs[i] > IMPORT_WEIGHT_MAX)
			return fault(c, "a cost is no number, or too large");
		at = end + strspn(end, " \t");
	}
	if (*at)
		return fault(c, "more costs than events");
	if (!c->name)
		return fault(c, "costs of no function");
	TRY(find_function(c, c->name, c->own_file, c->object, &function));
	if (c->in_call) {
		c->in_call = false;
		return add_call(c, function, costs[0]);
	}
	if (!costs[0])
		return NULL;
	return add_own(c, function, costs[0],
		       c->samples_at < EVENTS_MAX ? costs[c->samples_at] : 0);
}

static void read_positions(struct callgrind *c, char *words)
{
	char *rest = NULL;

	c->n_positions = 0;
	for (char *word = strtok_r(words, " ", &rest); word && c->n_positions < POSITIONS_MAX;
	     word = strtok_r(NULL, " ", &rest)) {
		if (!strcmp(word, "line"))
			c->line_at = c->n_positions;
		c->n_positions++;
	}
	memset(c->line, 0, sizeof(c->line));
}

/* The first event counts; what we call "Samples" is their number. */
static void read_events(struct callgrind *c, char *words)
{
	char *rest = NULL;

	c->n_events = 0;
	c->samples_at = EVENTS_MAX;
	for (char *word = strtok_r(words, " ", &rest); word && c->n_events < EVENTS_MAX;
	     word = strtok_r(NULL, " ", &rest)) {
		if (!c->n_events && !*c->import->unit)
			snprintf(c->import->unit, sizeof(c->import->unit), "%s", word);
		else if (!strcmp(word, "Samples"))
			c->samples_at = c->n_events;
		c->n_events++;
	}
}

/* "event: Weight : nanoseconds", before the line with all events. */
static void read_event(struct callgrind *c, const char *text)
{
	const char *colon = strstr(text, " : ");

	if (!*c->unit && colon && !strncmp(text, "Weight ", 7))
		snprintf(c->unit, sizeof(c->unit), "%s", colon + 3);
}

static struct error *read_assignment(struct callgrind *c, const char *key, const char *value)
{
	const struct {
		const char *key;
		struct names *names;
		const char **to;
	} known[] = {{"fl", &c->files, &c->file},
		     {"fi", &c->files, &c->file},
		     {"fe", &c->files, &c->file},
		     {"cfi", &c->files, &c->callee_file},
		     {"cfl", &c->files, &c->callee_file},
		     {"fn", &c->functions_named, &c->name},
		     {"cfn", &c->functions_named, &c->callee},
		     {"ob", &c->objects, &c->object},
		     {"cob", &c->objects, &c->callee_object}};

	if (!strcmp(key, "fn"))
		c->own_file = c->file;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(key, known[i].key))
			return read_name(c, known[i].names, value, known[i].to);
	if (!strcmp(key, "calls"))
		c->in_call = true;
	if (c->in_call && !c->callee)
		return fault(c, "a call of no function");
	return NULL; /* jumps, and what later versions may have */
}

static struct error *read_line(void *ctx, char *line, size_t len)
{
	struct callgrind *c = ctx;
	const size_t key = strspn(line, "abcdefghijklmnopqrstuvwxyz");
	char *value = line + key + 1;

	if (!*line || *line == '#')
		return NULL;
	if (key && line[key] == '=') {
		line[key] = '\0';
		return read_assignment(c, line, value);
	}
	if (key && line[key] == ':') {
		value += strspn(value, " ");
		if (!strncmp(line, "positions:", 10))
			read_positions(c, value);
		else if (!strncmp(line, "events:", 7))
			read_events(c, value);
		else if (!strncmp(line, "event:", 6))
			read_event(c, value);
		return NULL;
	}
	return read_costs(c, line + strspn(line, " \t"));
}

/* A function that is being visited, with the part of it that is. */
struct visit {
	uint32_t function;
	uint32_t callers, stack; /* without it, and with it as a caller */
	uint32_t call;		 /* the next one, number + 1 */
	double share;
};

struct tree {
	struct callgrind *c;
	struct visit at[DEPTH_MAX];
	size_t depth;
	double least; /* smaller parts are not made */
	uint64_t visits_left;
};

static struct error *tell_part(struct callgrind *c, uint32_t callers, struct line_cost *line,
			       uint64_t weight)
{
	struct import_sample sample = {.times = 1};
	const double due = (double)line->samples * (line->due / (double)line->weight);

	TRY(import_frame(c->import, callers, line->addr, FRAME_PC, &sample.stack));
	if (due > (double)line->samples_told + 1)
		sample.times = (uint64_t)due - line->samples_told;
	line->told += weight;
	line->samples_told += sample.times;
	return import_samples(c->import, sample, weight);
}

/* The part of the function's own costs that its callers stand for. */
static struct error *tell_own(struct tree *tree, const struct visit *visit)
{
	struct callgrind *c = tree->c;

	for (uint32_t i = c->functions[visit->function].lines; i; i = c->lines[i - 1].next) {
		struct line_cost *line = &c->lines[i - 1];
		const double part = (double)line->weight * visit->share;
		uint64_t due;

		if (part < tree->least)
			continue;
		line->due += part;
		due = (uint64_t)(line->due + 0.5);
		due = due < line->weight ? due : line->weight;
		if (due > line->told)
			TRY(tell_part(c, visit->callers, line, due - line->told));
	}
	return NULL;
}

static double inclusive(const struct function *function)
{
	const double all = (double)function->self + (double)function->below;

	/* Calls of itself by way of others. */
	return all > (double)function->by_callers ? all : (double)function->by_callers;
}

static struct error *enter(struct tree *tree, uint32_t function, uint32_t callers, double weight)
{
	struct callgrind *c = tree->c;
	struct visit *visit = &tree->at[tree->depth];
	const struct frame frame = {.addr = c->functions[function].addr, .trust = TRUST_GUESS};

	tree->visits_left--;
	*visit = (struct visit){.function = function,
				.callers = callers,
				.call = c->functions[function].calls,
				.share = weight / inclusive(&c->functions[function])};
	TRY(tell_own(tree, visit));
	if (visit->call)
		TRY(stacks_child(c->import->stacks, callers, &frame, &visit->stack));
	c->functions[function].open = true;
	tree->depth++;
	return NULL;
}

/* One call of the innermost function, or its end. */
static struct error *advance(struct tree *tree)
{
	struct callgrind *c = tree->c;
	struct visit *visit = &tree->at[tree->depth - 1];
	const struct call_cost *call;
	uint32_t callee;
	double weight;

	if (!visit->call) {
		c->functions[visit->function].open = false;
		tree->depth--;
		return NULL;
	}
	call = &c->calls[visit->call - 1];
	callee = call->callee - 1;
	weight = (double)call->weight * visit->share;
	visit->call = call->next;
	if (weight < tree->least || c->functions[callee].open || tree->depth == DEPTH_MAX ||
	    !tree->visits_left)
		return NULL;
	return enter(tree, callee, visit->stack, weight);
}

static struct error *tell_tree(struct callgrind *c)
{
	struct tree tree = {.c = c,
			    .least = (double)c->total / PARTS_MAX,
			    .visits_left = VISITS_MAX};
	const uint32_t n = row_ids_count(&c->function_ids);

	for (uint32_t i = 0; i < n; i++) {
		const struct function *function = &c->functions[i];
		const double weight = inclusive(function) - (double)function->by_callers;

		if (weight > 0 && tree.visits_left)
			TRY(enter(&tree, i, STACK_ROOT, weight));
		while (tree.depth)
			TRY(advance(&tree));
	}
	return NULL;
}

/* What was too small, or had no callers but itself. */
static struct error *tell_rest(struct callgrind *c)
{
	const uint32_t n = row_ids_count(&c->line_ids);

	for (uint32_t i = 0; i < n; i++) {
		struct line_cost *line = &c->lines[i];

		line->due = (double)line->weight;
		if (line->told < line->weight)
			TRY(tell_part(c, STACK_ROOT, line, line->weight - line->told));
	}
	return NULL;
}

static struct error *read_all(struct callgrind *c)
{
	struct import *import = c->import;

	TRY(import_lines(import->input, read_line, c));
	if (!strcmp(import->unit, "Weight") && *c->unit)
		memcpy(import->unit, c->unit, sizeof(c->unit));
	if (!strcmp(import->unit, "nanoseconds"))
		*import->unit = '\0';
	return c->n_events ? NULL : import_damaged(import, "it does not say which events it has");
}

static void callgrind_free(struct callgrind *c)
{
	struct names *const names[] = {&c->files, &c->functions_named, &c->objects};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ids_free(names[i]->ids.ids);
		free(names[i]->at);
	}
	ids_free(c->function_ids.ids);
	ids_free(c->line_ids.ids);
	ids_free(c->call_ids.ids);
	free(c->functions);
	free(c->lines);
	free(c->calls);
}

static struct error *read_callgrind(struct import *import)
{
	ENDED_BY(callgrind_free)
	struct callgrind c = {.import = import, .n_positions = 1, .samples_at = EVENTS_MAX};

	import->timeless = true;
	strcpy(import->host, "callgrind; callers are an estimate");
	TRY(read_all(&c));
	TRY(tell_tree(&c));
	return tell_rest(&c);
}

const struct importer import_callgrind = {.name = "callgrind",
					  .title = "callgrind's files",
					  .has_line = has_line,
					  .read = read_callgrind};
