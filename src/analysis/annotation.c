/* SPDX-License-Identifier: BSD-3-Clause */
#include "analysis/annotation.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/owned.h"
#include "recording/stacks.h"

/* Most parts of code at all. */
#define PARTS_MAX 1024

/* A frame of the recording that is in some part, each address and kind once. */
struct hit {
	uint64_t addr;
	uint8_t kind;
	bool own;    /* the innermost function there is one that was asked for */
	bool within; /* it is not where an instruction begins, or a call ends */
	uint32_t part;
	size_t row;  /* CODE_NO_ROW: outside of the part */
	uint64_t va; /* as the part's rows */
};

struct code_frames {
	const struct frame_numbers *numbers; /* the symbolizer's */
	struct hit *hit;
	size_t n, room;
	uint32_t *hit_of; /* [numbers->n]: number + 1; 0: the frame is in no part */
};

struct builder {
	const struct annotation_options *options;
	const struct stacks *stacks;
	struct annotation *out;
	struct code_frames *frames; /* the annotation's */
	size_t parts_room;
};

static bool is_asked(const struct annotation_options *options, const char *name)
{
	for (size_t i = 0; i < options->n_names; i++)
		if (options->names[i] == name)
			return true;
	return false;
}

/* True if an address, whose functions these are, was asked for. */
static bool holds(const struct annotation_options *options, const struct hit *hit,
		  const struct location *at, size_t n)
{
	const uint64_t code = frame_code(hit->addr, hit->kind);

	if (!options->n_names)
		return code >= options->start && code < options->end;
	for (size_t i = 0; i < n; i++)
		if (is_asked(options, at[i].function))
			return true;
	return false;
}

static const struct recorded_image *recorded_at(const struct builder *b, uint64_t addr)
{
	const struct recorded_images *images = profile_images(b->options->profile);

	for (size_t i = 0; i < images->n; i++)
		if (images->at[i].path && addr >= images->at[i].start && addr < images->at[i].end)
			return &images->at[i];
	return NULL;
}

/* Describes the code that holds a frame: its addresses are those of its file. */
static void describe(const struct builder *b, const struct hit *hit, const struct location *last,
		     struct code_part *part)
{
	const struct annotation_options *options = b->options;
	const uint64_t code = frame_code(hit->addr, hit->kind);
	const bool foreign = hit->kind & FRAME_FOREIGN;
	struct symbol symbol;
	const struct image *image =
		foreign ? NULL : images_find(options->images, code, true, &symbol);
	const struct image *around = image || foreign ? image : images_at(options->images, code);
	const struct recorded_image *recorded = foreign || around ? NULL : recorded_at(b, code);

	*part = (struct code_part){.name = last->function,
				   .nameless = !last->resolved,
				   .whole = !options->n_names || is_asked(options, last->function)};
	if (around) {
		part->path = around->file->path;
		part->build_id = around->file->build_id;
		part->slide = around->slide;
		part->has_lines = true;
	}
	if (recorded) {
		part->path = recorded->path;
		part->build_id = recorded->build_id;
		part->slide = recorded->slide;
	}
	if (image && !part->nameless) {
		part->end = symbol.end - image->slide;
		part->start = symbol.start - image->slide;
	} else if (!part->nameless) {
		part->start = last->start - part->slide;
	}
	if (!options->n_names && !part->nameless &&
	    (!part->end || part->end > options->end - part->slide))
		part->end = options->end - part->slide;
}

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same(const struct code_part *a, const struct code_part *b)
{
	return is_same_text(a->path, b->path) && a->start == b->start &&
	       a->nameless == b->nameless &&
	       (a->nameless ? a->slide == b->slide : a->name == b->name);
}

static struct error *find_part(struct builder *b, struct hit *hit, const struct location *last)
{
	struct annotation *out = b->out;
	struct code_part part;

	describe(b, hit, last, &part);
	hit->va = frame_code(hit->addr, hit->kind) - part.slide;
	for (hit->part = 0; hit->part < out->n; hit->part++)
		if (is_same(&out->part[hit->part], &part))
			return NULL;
	if (out->n == PARTS_MAX)
		return error_new(ERR_INPUT, "more than %d functions are called %s", PARTS_MAX,
				 last->function);
	TRY(ARRAY_RESERVE(&out->part, &b->parts_room, out->n + 1));
	out->part[out->n++] = part;
	return NULL;
}

/* Adds the frame of this number, if it is in code that was asked for. */
static struct error *add_hit(struct builder *b, uint32_t frame)
{
	struct code_frames *frames = b->frames;
	const uint32_t id = frames->numbers->node[frame];
	const struct stack_node *node = stacks_node(b->stacks, id);
	struct hit hit = {.addr = node->addr, .kind = node->kind, .row = CODE_NO_ROW};
	const struct location *at;
	size_t n;

	TRY(symbolizer_locate_node(b->options->symbolizer, b->stacks, id, &at, &n));
	if (!holds(b->options, &hit, at, n))
		return NULL;
	hit.own = !b->options->n_names || is_asked(b->options, at->function);
	TRY(find_part(b, &hit, &at[n - 1]));
	TRY(ARRAY_RESERVE(&frames->hit, &frames->room, frames->n + 1));
	frames->hit[frames->n++] = hit;
	frames->hit_of[frame] = (uint32_t)frames->n;
	return NULL;
}

static struct error *find_hits(struct builder *b)
{
	struct code_frames *frames = b->frames;

	TRY(symbolizer_prepare_stacks(b->options->symbolizer, b->stacks));
	frames->numbers = symbolizer_frames(b->options->symbolizer);
	TRY(ARRAY_NEW(&frames->hit_of, frames->numbers->n + (size_t)1));
	for (uint32_t i = 0; i < frames->numbers->n; i++)
		TRY(add_hit(b, i));
	return NULL;
}

/* NULL: the frame of this node of the stacks is in no part. */
static const struct hit *hit_at(const struct code_frames *frames, uint32_t stack)
{
	const uint32_t number = frames->hit_of[frames->numbers->of_node[stack]];

	return number ? &frames->hit[number - 1] : NULL;
}

static int by_va(const void *left, const void *right)
{
	const struct code_hit *a = left, *b = right;

	return COMPARE(a->va, b->va);
}

/* Instructions begin where the function does, not where a range that was asked for does. */
static void drop_before(struct code_part *part, uint64_t va)
{
	size_t n = 0;

	while (n < part->n && part->row[n].line.va + part->row[n].line.len <= va)
		n++;
	memmove(part->row, part->row + n, (part->n - n) * sizeof(*part->row));
	part->n -= n;
}

static struct error *read_part(struct builder *b, uint32_t p)
{
	const struct code_reader reader = {.images = b->out->images,
					   .disassembler = b->options->disassembler,
					   .recorded = profile_images(b->options->profile)};
	FREED struct code_hit *hits = NULL;
	struct code_part *part = &b->out->part[p];
	size_t n = 0;

	TRY(ARRAY_NEW(&hits, b->frames->n + 1));
	for (size_t i = 0; i < b->frames->n; i++)
		if (b->frames->hit[i].part == p)
			hits[n++] = (struct code_hit){b->frames->hit[i].va,
						      b->frames->hit[i].kind & FRAME_RETURN};
	if (n)
		qsort(hits, n, sizeof(*hits), by_va);
	TRY(code_part_read(&reader, hits, n, part));
	if (part->n && !b->options->n_names && b->options->start > part->slide)
		drop_before(part, b->options->start - part->slide);
	return NULL;
}

static int by_address(const void *left, const void *right)
{
	const struct code_row *a = left, *b = right;

	return COMPARE(a->line.va, b->line.va);
}

/* The row whose bytes hold the address; of rows without code, the one with it. */
static size_t row_at(const struct code_part *part, uint64_t va)
{
	const size_t behind = ARRAY_UPTO(part->row, part->n, line.va, va);
	const struct code_row *row = behind ? &part->row[behind - 1] : NULL;

	return row && va - row->line.va < (row->line.len ?: 1u) ? behind - 1 : CODE_NO_ROW;
}

/* Where code was not read, the sampled addresses are all there is. */
static struct error *add_sampled(struct builder *b, uint32_t p)
{
	struct code_part *part = &b->out->part[p];
	const size_t read = part->n;
	size_t kept = 0;

	for (size_t i = 0; i < b->frames->n; i++) {
		const struct hit *hit = &b->frames->hit[i];
		const struct code_part read_only = {.row = part->row, .n = read};

		if (hit->part != p || (read && row_at(&read_only, hit->va) != CODE_NO_ROW))
			continue;
		TRY(code_part_add_row(part, &(struct code_line){.va = hit->va}));
		part->row[part->n - 1].addr = hit->addr;
		part->row[part->n - 1].kind = hit->kind;
	}
	if (part->n)
		qsort(part->row, part->n, sizeof(*part->row), by_address);
	for (size_t i = 0; i < part->n; i++)
		if (!kept || part->row[i].line.va != part->row[kept - 1].line.va)
			part->row[kept++] = part->row[i];
	part->n = kept;
	return NULL;
}

static struct error *assign_rows(struct builder *b)
{
	for (size_t i = 0; i < b->frames->n; i++) {
		struct hit *hit = &b->frames->hit[i];
		struct code_part *part = &b->out->part[hit->part];
		struct code_row *row;

		hit->row = row_at(part, hit->va);
		if (hit->row == CODE_NO_ROW)
			continue;
		row = &part->row[hit->row];
		hit->within =
			row->line.len &&
			(hit->kind & FRAME_RETURN ? hit->va + 1 != row->line.va + row->line.len
						  : hit->va != row->line.va);
		/* Lines that the recording carries, where the file has none. */
		if (!row->at || !row->at->file)
			TRY(symbolizer_locate(b->options->symbolizer, hit->addr, hit->kind,
					      &row->at, &row->n_at));
	}
	return NULL;
}

static struct error *find_lines(struct builder *b, struct code_part *part)
{
	struct symbolizer *symbolizer = part->has_lines ? b->options->symbolizer : b->out->lines;
	FREED struct frame *frames = NULL;

	TRY(ARRAY_NEW(&frames, part->n + 1));
	for (size_t i = 0; i < part->n; i++)
		frames[i] = (struct frame){.addr = part->row[i].addr, .kind = part->row[i].kind};
	TRY(symbolizer_prepare(symbolizer, frames, part->n));
	for (size_t i = 0; i < part->n; i++)
		TRY(symbolizer_locate(symbolizer, frames[i].addr, frames[i].kind, &part->row[i].at,
				      &part->row[i].n_at));
	return NULL;
}

/* Counts one stack: at its leaf as self, and once at each instruction that it passes through. */
static void count(struct builder *b, uint32_t leaf)
{
	const struct profile_cell *cell = profile_cell(&b->options->profile->cells, leaf);

	for (uint32_t i = leaf; i; i = stacks_node(b->stacks, i)->parent) {
		const struct hit *hit = hit_at(b->frames, i);
		struct code_part *part;
		struct code_row *row;

		if (!hit)
			continue;
		part = &b->out->part[hit->part];
		row = hit->row == CODE_NO_ROW ? NULL : &part->row[hit->row];
		if (part->last != leaf)
			profile_cell_add(&part->total, cell);
		part->last = leaf;
		if (row && row->last != leaf)
			profile_cell_add(&row->total, cell);
		if (row)
			row->last = leaf;
		if (i != leaf)
			continue;
		profile_cell_add(&part->self, cell);
		if (hit->own)
			profile_cell_add(&part->own, cell);
		if (row)
			profile_cell_add(&row->self, cell);
		if (!row || hit->within)
			part->misplaced += cell->samples;
	}
}

static struct error *count_all(struct builder *b)
{
	const uint32_t n = stacks_count(b->stacks);
	FREED bool *inside = NULL;

	TRY(ARRAY_NEW(&inside, n));
	for (uint32_t i = 1; i < n; i++) {
		inside[i] = inside[stacks_node(b->stacks, i)->parent] || hit_at(b->frames, i);
		if (inside[i] && profile_cell(&b->options->profile->cells, i)->samples)
			count(b, i);
	}
	return NULL;
}

static int by_self(const void *left, const void *right)
{
	const struct code_part *a = left, *b = right;

	return COMPARE(b->self.weight_ns, a->self.weight_ns) ?: COMPARE(a->start, b->start);
}

static struct error *sort_parts(struct builder *b)
{
	struct annotation *out = b->out;
	FREED uint32_t *now = NULL;

	TRY(ARRAY_NEW(&now, out->n + 1));
	for (uint32_t p = 0; p < out->n; p++)
		out->part[p].last = p;
	if (out->n)
		qsort(out->part, out->n, sizeof(*out->part), by_self);
	for (uint32_t p = 0; p < out->n; p++)
		now[out->part[p].last] = p;
	for (size_t i = 0; i < b->frames->n; i++)
		b->frames->hit[i].part = now[b->frames->hit[i].part];
	return NULL;
}

static struct error *build(struct builder *b)
{
	struct annotation *out = b->out;

	TRY(images_new(&out->images));
	images_sandbox(out->images);
	images_names_and_code(out->images);
	TRY(symbolizer_new(out->images, b->options->profile, &out->lines));
	symbolizer_set(out->lines, &b->options->naming);
	TRY(find_hits(b));
	for (uint32_t p = 0; p < out->n; p++) {
		TRY(read_part(b, p));
		if (!out->part[p].n || out->part[p].nameless)
			TRY(add_sampled(b, p));
		TRY(find_lines(b, &out->part[p]));
	}
	TRY(assign_rows(b));
	TRY(count_all(b));
	return sort_parts(b);
}

struct error *annotation_build(const struct annotation_options *options, struct annotation *out)
{
	struct builder b = {.options = options, .stacks = options->profile->stacks, .out = out};

	*out = (struct annotation){.recorded = options->symbolizer};
	out->frames = b.frames = calloc(1, sizeof(*b.frames));
	if (!b.frames)
		return error_no_memory();
	return build(&b);
}

bool annotation_place(const struct annotation *annotation, uint32_t stack, struct code_place *out)
{
	const struct hit *hit = stack ? hit_at(annotation->frames, stack) : NULL;

	if (!hit)
		return false;
	*out = (struct code_place){.part = hit->part,
				   .row = hit->row,
				   .misplaced = hit->row == CODE_NO_ROW || hit->within};
	return true;
}

void annotation_free(struct annotation *annotation)
{
	for (size_t i = 0; i < annotation->n; i++) {
		free(annotation->part[i].row);
		free(annotation->part[i].lacks);
	}
	free(annotation->part);
	if (annotation->frames) {
		free(annotation->frames->hit);
		free(annotation->frames->hit_of);
	}
	free(annotation->frames);
	symbolizer_free(annotation->lines);
	images_free(annotation->images);
	*annotation = (struct annotation){0};
}

static bool parse_hex(const char **text, uint64_t *value)
{
	size_t digits;

	if (strncmp(*text, "0x", 2) != 0)
		return false;
	digits = strspn(*text + 2, "0123456789abcdefABCDEF");
	if (!digits || digits > 16)
		return false;
	*value = strtoull(*text, NULL, 16);
	*text += 2 + digits;
	return true;
}

bool annotation_parse_range(const char *text, uint64_t *start, uint64_t *end)
{
	*end = 0;
	if (!parse_hex(&text, start))
		return false;
	if (!*text)
		return true;
	return *text++ == '-' && parse_hex(&text, end) && !*text && *end > *start;
}

struct error *annotation_around(struct annotation_options *options, uint64_t address,
				const char **name)
{
	const struct location *at;
	size_t n;

	TRY(symbolizer_locate(options->symbolizer, address, FRAME_PC, &at, &n));
	if (at[n - 1].resolved) {
		*name = at[n - 1].function;
		options->names = name;
		options->n_names = 1;
		return NULL;
	}
	options->start = address > ANNOTATION_AROUND ? address - ANNOTATION_AROUND : 0;
	options->end =
		address < UINT64_MAX - ANNOTATION_AROUND ? address + ANNOTATION_AROUND : UINT64_MAX;
	return NULL;
}

const char *annotation_target(const struct annotation *annotation, const struct code_part *part,
			      const struct code_row *row)
{
	struct symbolizer *symbolizer = part->has_lines ? annotation->recorded : annotation->lines;
	struct named named;
	struct error *err;

	if (!row->line.target ||
	    (!part->nameless && row->line.target - part->start < part->end - part->start))
		return NULL;
	err = symbolizer_name(symbolizer, row->line.target + part->slide, FRAME_PC, &named);
	if (!err && named.resolved && !named.offset)
		return named.name;
	error_free(err);
	return NULL;
}

/* Their texts may belong to two symbolizers. */
bool code_rows_same_lines(const struct code_row *a, const struct code_row *b)
{
	if (a->n_at != b->n_at)
		return false;
	for (size_t i = 0; i < a->n_at; i++)
		if (a->at[i].line != b->at[i].line || !is_same_text(a->at[i].file, b->at[i].file) ||
		    !is_same_text(a->at[i].function, b->at[i].function))
			return false;
	return true;
}

bool code_rows_gap(const struct code_row *a, const struct code_row *b)
{
	return a->line.len && a->line.va + a->line.len != b->line.va;
}
