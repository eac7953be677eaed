/* SPDX-License-Identifier: BSD-3-Clause */

/* Samples of a function by instruction: its code is read from the file that the recording names, or that the user gives. */

#include "cmd/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "base/array.h"
#include "base/intern.h"
#include "base/preopen.h"

/* Most code of one function that is shown, bytes; most functions of one name. */
#define CODE_SHOWN_MAX (1u << 20)
#define PARTS_MAX      1024

#define NO_PART UINT32_MAX
#define NO_ROW	SIZE_MAX

/* A frame of the recording, each address and kind once. */
struct hit {
	uint64_t addr;
	uint8_t kind;
	bool own;      /* the innermost function there is the one that was asked for */
	bool within;   /* it is not where an instruction begins, or a call ends */
	uint32_t part; /* NO_PART: other code */
	size_t row;    /* NO_ROW: outside of the part */
	uint64_t va;   /* as the part's rows */
};

struct builder {
	const struct report *report;
	const struct stacks *stacks;
	const char *name; /* of the function, a pointer of the symbolizer's */
	struct disassembler *disassembler;
	struct annotation *out;
	struct ids *ids;
	struct hit *hit; /* by the number of address and kind */
	size_t hits_room;
	uint32_t *hit_of; /* [stacks_count] */
	size_t parts_room;
};

static bool holds(const struct location *at, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (at[i].function == name)
			return true;
	return false;
}

/* The file of the recording at an address or, if not NULL, with this build id; NULL: none. */
static const struct recorded_image *recorded_file(const struct builder *b, uint64_t addr,
						  const char *build_id)
{
	const struct recorded_images *images = profile_images(b->report->loaded->profile);

	for (size_t i = 0; i < images->n; i++) {
		const struct recorded_image *one = &images->at[i];

		if (one->path && (build_id ? one->build_id && !strcmp(one->build_id, build_id)
					   : addr >= one->start && addr < one->end))
			return one;
	}
	return NULL;
}

/* Describes the function whose code holds a frame: its addresses are those of its file. */
static void describe(const struct builder *b, const struct hit *hit, const struct location *last,
		     struct code_part *part)
{
	const uint64_t code = frame_code(hit->addr, hit->kind);
	const bool foreign = hit->kind & FRAME_FOREIGN;
	struct symbol symbol;
	const struct image *image =
		foreign ? NULL : images_find(b->report->loaded->images, code, true, &symbol);
	const struct recorded_image *recorded =
		foreign || image ? NULL : recorded_file(b, code, NULL);

	*part = (struct code_part){.name = last->function,
				   .nameless = !last->resolved,
				   .whole = last->function == b->name};
	if (image) {
		part->path = image->file->path;
		part->build_id = image->file->build_id;
		part->slide = image->slide;
		part->has_lines = true;
		part->end = symbol.end - image->slide;
		part->start = symbol.start - image->slide;
		return;
	}
	if (recorded) {
		part->path = recorded->path;
		part->build_id = recorded->build_id;
		part->slide = recorded->slide;
	}
	part->start = last->resolved ? last->start - part->slide : 0;
}

static bool is_same(const struct code_part *a, const struct code_part *b)
{
	const bool same_file = a->path && b->path ? !strcmp(a->path, b->path) : a->path == b->path;

	return same_file && a->start == b->start && a->name == b->name;
}

static struct error *find_part(struct builder *b, struct hit *hit, const struct location *last)
{
	struct annotation *out = b->out;
	struct code_part part;
	struct error *err;

	describe(b, hit, last, &part);
	hit->va = frame_code(hit->addr, hit->kind) - part.slide;
	for (hit->part = 0; hit->part < out->n; hit->part++)
		if (is_same(&out->part[hit->part], &part))
			return NULL;
	if (out->n == PARTS_MAX)
		return error_new(ERR_INPUT, "more than %d functions are called %s", PARTS_MAX,
				 b->name);
	err = ARRAY_RESERVE(&out->part, &b->parts_room, out->n + 1);
	if (!err)
		out->part[out->n++] = part;
	return err;
}

static struct error *add_hit(struct builder *b, uint32_t id, const struct stack_node *node)
{
	const struct location *at;
	size_t n;
	struct hit *hit;
	struct error *err = ARRAY_RESERVE(&b->hit, &b->hits_room, id + (size_t)1);

	if (err)
		return err;
	hit = &b->hit[id];
	*hit = (struct hit){.addr = node->addr, .kind = node->kind, .part = NO_PART, .row = NO_ROW};
	err = symbolizer_locate(b->report->loaded->symbolizer, node->addr, node->kind, &at, &n);
	if (err || !holds(at, n, b->name))
		return err;
	hit->own = at->function == b->name;
	return find_part(b, hit, &at[n - 1]);
}

static struct error *find_hits(struct builder *b)
{
	const uint32_t n = stacks_count(b->stacks);
	struct error *err = ids_new(&b->ids);

	b->hit_of = calloc(n, sizeof(*b->hit_of));
	if (!err && !b->hit_of)
		err = error_no_memory();
	for (uint32_t i = 1; i < n && !err; i++) {
		const struct stack_node *node = stacks_node(b->stacks, i);
		bool added;

		err = ids_get(b->ids, node->addr, node->kind, &b->hit_of[i], &added);
		if (!err && added)
			err = add_hit(b, b->hit_of[i], node);
	}
	return err;
}

/* Keeps the first sentence on what a part lacks. */
static void PRINTF_LIKE(2, 3) lacks(struct code_part *part, const char *format, ...)
{
	va_list args;

	if (part->lacks)
		return;
	va_start(args, format);
	if (vasprintf(&part->lacks, format, args) < 0)
		part->lacks = NULL;
	va_end(args);
}

/* Loads the file unless it is there already; *file is NULL if it cannot be used, and the part says why. */
static struct error *load_file(struct builder *b, struct code_part *part, const char *path,
			       const struct image_file **file)
{
	struct images *images = b->out->images;
	const struct image_spec spec = {.path = path, .names = true};
	struct error *err = NULL;
	size_t i;

	*file = NULL;
	for (i = 0; i < images_files(images) && strcmp(images_file(images, i)->path, path); i++)
		;
	if (i == images_files(images)) {
		if (!is_regular_file(path)) {
			lacks(part,
			      "%s is not here, or not to be read without root's rights: -s FILE "
			      "gives it",
			      path);
			return NULL;
		}
		err = images_load(images, &spec, &i);
	}
	if (err) {
		lacks(part, "%s: -s FILE gives another", err->text);
		error_free(err);
		return NULL;
	}
	*file = images_file(images, i);
	if (part->build_id && *part->build_id && strcmp((*file)->build_id, part->build_id)) {
		lacks(part, "%s has changed since (build id %s, and %s ran): -s FILE gives the one",
		      path, *(*file)->build_id ? (*file)->build_id : "none", part->build_id);
		*file = NULL;
	} else if (!(*file)->code) {
		lacks(part, "%s is a table of symbols, without code: -s FILE gives the ELF file",
		      path);
		*file = NULL;
	}
	return *file ? images_map(images, i, part->slide, false) : NULL;
}

/* The last sampled address of a part. */
static uint64_t last_hit(const struct builder *b, uint32_t p)
{
	uint64_t last = b->out->part[p].start;

	for (uint32_t i = 0; i < ids_count(b->ids); i++)
		if (b->hit[i].part == p && b->hit[i].va > last)
			last = b->hit[i].va;
	return last;
}

static void find_end(const struct builder *b, const struct image_file *file, uint32_t p)
{
	struct code_part *part = &b->out->part[p];
	struct symbol symbol;

	if (!part->end && file->symbols && symbols_find(file->symbols, part->start, &symbol) &&
	    symbol.start == part->start)
		part->end = symbol.end;
	if (!part->end) {
		lacks(part,
		      "%s does not say where the function ends: its code is shown up to the last "
		      "sample; -s FILE gives one with symbols",
		      file->path);
		part->guessed = true;
		part->end = last_hit(b, p) + CODE_LINE_BYTES;
	}
	if (part->end - part->start > CODE_SHOWN_MAX) {
		lacks(part, "only the first %u bytes of its code are shown", CODE_SHOWN_MAX);
		part->end = part->start + CODE_SHOWN_MAX;
	}
}

/* Reads the part's code, `len` bytes, as far as it is there; the caller frees *bytes. */
static struct error *read_code(const struct image_file *file, struct code_part *part,
			       uint8_t **bytes, size_t *len)
{
	const size_t whole = (size_t)(part->end - part->start);

	*bytes = malloc(whole + 1);
	if (!*bytes)
		return error_no_memory();
	*len = elf_code_copy(file->code, part->start, *bytes, whole);
	if (!*len)
		lacks(part,
		      "%s has no code there, only what debuggers need: -s FILE gives the one "
		      "that ran",
		      file->path);
	return NULL;
}

static struct error *add_row(struct code_part *part, const struct code_line *line)
{
	struct error *err = ARRAY_RESERVE(&part->row, &part->room, part->n + 1);

	if (!err)
		part->row[part->n++] = (struct code_row){.line = *line,
							 .addr = line->va + part->slide,
							 .kind = FRAME_PC};
	return err;
}

/* Bytes that are no instruction that the library knows. */
static struct code_line unknown_line(const struct arch *arch, const struct window *code)
{
	const uint32_t unit = arch->isa == ISA_X86 ? 1 : arch->isa == ISA_RISCV ? 2 : 4;
	struct code_line line = {.va = code->va,
				 .len = (uint8_t)(code->len < unit ? code->len : unit)};

	memcpy(line.bytes, code->bytes, line.len);
	strcpy(line.text, "(unknown)");
	return line;
}

#define LINES_AT_ONCE 256

static struct error *add_instructions(struct builder *b, struct code_part *part,
				      const struct arch *arch, const uint8_t *bytes, size_t len)
{
	const struct regs regs = {.isa = arch->isa, .word = arch->word};
	struct code_line *lines = calloc(LINES_AT_ONCE, sizeof(*lines));
	struct error *err = lines ? NULL : error_no_memory();
	bool known = false;

	for (size_t at = 0; at < len && !err;) {
		const struct window code = {.va = part->start + at,
					    .len = (uint32_t)(len - at),
					    .bytes = bytes + at};
		size_t n = disassemble(b->disassembler, &regs, &code, lines, LINES_AT_ONCE);

		known |= n > 0;
		if (!n) {
			lines[0] = unknown_line(arch, &code);
			n = 1;
		}
		for (size_t i = 0; i < n && !err; i++) {
			err = add_row(part, &lines[i]);
			at += lines[i].len;
		}
	}
	free(lines);
	if (!known) {
		part->n = 0;
		lacks(part, "the libcapstone here does not know the instructions of %s",
		      arch->name);
	}
	return err;
}

/* The processor, if its instructions can be shown. */
static const struct arch *known_arch(struct code_part *part, const struct image_file *file)
{
	const struct arch *arch = arch_by_machine(file->code->machine);

	part->patched = file->code->patched;
	if (arch && (arch->isa != ISA_ARM || arch->word == 8))
		return arch;
	lacks(part,
	      arch ? "instructions of 32-bit Arm are not shown: %s does not tell which are Thumb's"
		   : "%s is of a processor whose instructions are not known",
	      file->path);
	return NULL;
}

/* Adds the code of a file, if it has it; else the part says what it lacks. */
static struct error *add_code_of(struct builder *b, uint32_t p, const char *path)
{
	struct code_part *part = &b->out->part[p];
	const struct arch *arch = NULL;
	const struct image_file *file;
	uint8_t *bytes = NULL;
	size_t len = 0;
	struct error *err = load_file(b, part, path, &file);

	if (!err && file)
		arch = known_arch(part, file);
	if (!err && arch) {
		find_end(b, file, p);
		err = read_code(file, part, &bytes, &len);
	}
	if (!err && len)
		err = add_instructions(b, part, arch, bytes, len);
	while (part->guessed && part->n > 1 && part->row[part->n - 1].line.va > last_hit(b, p))
		part->n--;
	free(bytes);
	return err;
}

static struct error *add_code(struct builder *b, uint32_t p)
{
	struct code_part *part = &b->out->part[p];
	const struct recorded_image *other = NULL;
	struct error *err;

	if (!b->disassembler)
		lacks(part, "instructions need libcapstone, which is not here");
	else if (part->nameless)
		lacks(part, "code without a name: its functions are not known; -s FILE gives one "
			    "with symbols");
	else if (!part->path)
		lacks(part,
		      "the recording names no file for this code: -s FILE@0xADDRESS gives it");
	if (part->lacks)
		return NULL;
	err = add_code_of(b, p, part->path);
	/* A file with debugging information alone stands for the one that ran. */
	if (!err && !part->n && part->build_id && *part->build_id)
		other = recorded_file(b, 0, part->build_id);
	if (!other || !strcmp(other->path, part->path))
		return err;
	free(part->lacks);
	part->lacks = NULL;
	return add_code_of(b, p, other->path);
}

static int by_address(const void *left, const void *right)
{
	const struct code_row *a = left, *b = right;

	return (a->line.va > b->line.va) - (a->line.va < b->line.va);
}

/* Without code, the sampled addresses are all there is. */
static struct error *add_sampled(struct builder *b, uint32_t p)
{
	struct code_part *part = &b->out->part[p];
	struct error *err = NULL;
	size_t kept = 0;

	for (uint32_t i = 0; i < ids_count(b->ids) && !err; i++) {
		const struct hit *hit = &b->hit[i];

		if (hit->part != p)
			continue;
		err = add_row(part, &(struct code_line){.va = hit->va});
		if (!err) {
			part->row[part->n - 1].addr = hit->addr;
			part->row[part->n - 1].kind = hit->kind;
		}
	}
	if (part->n)
		qsort(part->row, part->n, sizeof(*part->row), by_address);
	for (size_t i = 0; i < part->n; i++)
		if (!kept || part->row[i].line.va != part->row[kept - 1].line.va)
			part->row[kept++] = part->row[i];
	part->n = kept;
	return err;
}

/* The row whose bytes hold the address; of rows without code, the one with it. */
static size_t row_at(const struct code_part *part, uint64_t va)
{
	size_t low = 0, high = part->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (part->row[middle].line.va <= va)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return NO_ROW;
	return va - part->row[low - 1].line.va < (part->row[low - 1].line.len ?: 1u) ? low - 1
										     : NO_ROW;
}

static struct error *assign_rows(struct builder *b)
{
	struct error *err = NULL;

	for (uint32_t i = 0; i < ids_count(b->ids) && !err; i++) {
		struct hit *hit = &b->hit[i];
		struct code_part *part = hit->part == NO_PART ? NULL : &b->out->part[hit->part];
		struct code_row *row;

		hit->row = part ? row_at(part, hit->va) : NO_ROW;
		if (hit->row == NO_ROW)
			continue;
		row = &part->row[hit->row];
		hit->within =
			row->line.len &&
			(hit->kind & FRAME_RETURN ? hit->va + 1 != row->line.va + row->line.len
						  : hit->va != row->line.va);
		/* Lines that the recording carries, where the file has none. */
		if (!row->at || !row->at->file)
			err = symbolizer_locate(b->report->loaded->symbolizer, hit->addr, hit->kind,
						&row->at, &row->n_at);
	}
	return err;
}

static struct error *find_lines(struct builder *b, struct code_part *part)
{
	struct symbolizer *symbolizer =
		part->has_lines ? b->report->loaded->symbolizer : b->out->lines;
	struct frame *frames = calloc(part->n + 1, sizeof(*frames));
	struct error *err = frames ? NULL : error_no_memory();

	for (size_t i = 0; i < part->n && !err; i++)
		frames[i] = (struct frame){.addr = part->row[i].addr, .kind = part->row[i].kind};
	if (!err)
		err = symbolizer_prepare(symbolizer, frames, part->n);
	for (size_t i = 0; i < part->n && !err; i++)
		err = symbolizer_locate(symbolizer, frames[i].addr, frames[i].kind,
					&part->row[i].at, &part->row[i].n_at);
	free(frames);
	return err;
}

/* Counts one stack: at its leaf as self, and once at each instruction that it passes through. */
static void count(struct builder *b, uint32_t leaf)
{
	const struct profile_cell *cell = profile_cell(&b->report->loaded->profile->cells, leaf);

	for (uint32_t i = leaf; i; i = stacks_node(b->stacks, i)->parent) {
		const struct hit *hit = &b->hit[b->hit_of[i]];
		struct code_part *part = hit->part == NO_PART ? NULL : &b->out->part[hit->part];
		struct code_row *row = hit->row == NO_ROW ? NULL : &part->row[hit->row];

		if (!part)
			continue;
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
	bool *inside = calloc(n, sizeof(*inside));

	if (!inside)
		return error_no_memory();
	for (uint32_t i = 1; i < n; i++) {
		inside[i] = inside[stacks_node(b->stacks, i)->parent] ||
			    b->hit[b->hit_of[i]].part != NO_PART;
		if (inside[i] && profile_cell(&b->report->loaded->profile->cells, i)->samples)
			count(b, i);
	}
	free(inside);
	return NULL;
}

static int by_self(const void *left, const void *right)
{
	const struct code_part *a = left, *b = right;

	if (a->self.weight_ns != b->self.weight_ns)
		return a->self.weight_ns < b->self.weight_ns ? 1 : -1;
	return (a->start > b->start) - (a->start < b->start);
}

static struct error *build(struct builder *b)
{
	struct annotation *out = b->out;
	struct error *err = images_new(&out->images);

	if (err)
		return err;
	images_sandbox(out->images);
	images_names_and_code(out->images);
	err = symbolizer_new(out->images, b->report->loaded->profile, &out->lines);
	if (!err)
		symbolizer_set(out->lines, &b->report->options->load.naming);
	if (!err)
		err = find_hits(b);
	for (uint32_t p = 0; p < out->n && !err; p++) {
		err = add_code(b, p);
		if (!err && !out->part[p].n)
			err = add_sampled(b, p);
		if (!err)
			err = find_lines(b, &out->part[p]);
	}
	if (!err)
		err = assign_rows(b);
	if (!err)
		err = count_all(b);
	if (!err && out->n)
		qsort(out->part, out->n, sizeof(*out->part), by_self);
	return err;
}

struct error *annotation_build(const struct report *report, struct disassembler *disassembler,
			       struct annotation *out)
{
	struct builder b = {.report = report,
			    .stacks = report->loaded->profile->stacks,
			    .disassembler = disassembler,
			    .out = out};
	const char *name;
	struct error *err =
		callers_callees_find(report->grouped.tree, report->options->function, &name);

	*out = (struct annotation){0};
	if (!err)
		err = symbolizer_intern(report->loaded->symbolizer, name, &b.name);
	if (!err)
		err = build(&b);
	out->name = b.name;
	ids_free(b.ids);
	free(b.hit);
	free(b.hit_of);
	return err;
}
