/* SPDX-License-Identifier: BSD-3-Clause */

/* The code of a part: its file is loaded in a sandbox, and its bytes become rows. */

#include "analysis/annotation.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arm/arm.h"
#include "base/array.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "symbol/names/symbolizer.h"

/* Most code of one part that is shown, bytes. */
#define CODE_SHOWN_MAX (1u << 20)

/* Code without a name: samples that are no farther apart are in one stretch. */
#define STRETCH_GAP 64

#define LINES_AT_ONCE 256

/* Code of one file, as it is turned into rows. */
struct code_bytes {
	struct disassembler *disassembler;
	const struct elf_code *code;
	const struct arch *arch;
	bool known; /* the library knows an instruction of it */
};

/* Keeps the first sentence on what a part lacks. */
static void PRINTF_LIKE(2, 3) part_lacks(struct code_part *part, const char *format, ...)
{
	va_list args;

	if (part->lacks)
		return;
	va_start(args, format);
	if (vasprintf(&part->lacks, format, args) < 0)
		part->lacks = NULL;
	va_end(args);
}

struct error *code_part_add_row(struct code_part *part, const struct code_line *line)
{
	TRY(ARRAY_RESERVE(&part->row, &part->room, part->n + 1));
	part->row[part->n++] =
		(struct code_row){.line = *line, .addr = line->va + part->slide, .kind = FRAME_PC};
	return NULL;
}

/* Loads the file unless it is there already; *file is NULL if it cannot be used, and the part says why. */
static struct error *load_file(struct images *images, struct code_part *part, const char *path,
			       const struct image_file **file)
{
	const struct image_spec spec = {.path = path, .names = true};
	struct error *err = NULL;
	size_t i;

	*file = NULL;
	for (i = 0; i < images_files(images) && strcmp(images_file(images, i)->path, path); i++)
		;
	if (i == images_files(images)) {
		if (!is_regular_file(path)) {
			part_lacks(part,
				   "%s is not here, or not to be read without root's rights: "
				   "-s FILE gives it",
				   path);
			return NULL;
		}
		err = images_load(images, &spec, &i);
	}
	if (err) {
		part_lacks(part, "%s: -s FILE gives another", err->text);
		error_free(err);
		return NULL;
	}
	*file = images_file(images, i);
	if (part->build_id && *part->build_id && strcmp((*file)->build_id, part->build_id)) {
		part_lacks(part,
			   "%s has changed since (build id %s, and %s ran): -s FILE gives the one",
			   path, *(*file)->build_id ? (*file)->build_id : "none", part->build_id);
		*file = NULL;
	} else if (!(*file)->code) {
		part_lacks(part,
			   "%s is a table of symbols, without code: -s FILE gives the ELF file",
			   path);
		*file = NULL;
	}
	return *file ? images_map(images, i, part->slide, false) : NULL;
}

static void find_end(const struct image_file *file, uint64_t last_hit, struct code_part *part)
{
	struct symbol symbol;

	if (!part->end && file->symbols && symbols_find(file->symbols, part->start, &symbol) &&
	    symbol.start == part->start)
		part->end = symbol.end;
	if (!part->end) {
		part_lacks(part,
			   "%s does not say where the function ends: its code is shown up to "
			   "the last sample; -s FILE gives one with symbols",
			   file->path);
		part->guessed = true;
		part->end = last_hit + CODE_LINE_BYTES;
	}
	if (part->end - part->start > CODE_SHOWN_MAX) {
		part_lacks(part, "only the first %u bytes of its code are shown", CODE_SHOWN_MAX);
		part->end = part->start + CODE_SHOWN_MAX;
	}
}

/* Bytes to pass over where no instruction is known. */
static uint32_t unit_of(const struct arch *arch, uint64_t va, const struct code_mark *mark)
{
	if (arch->isa == ISA_X86)
		return 1;
	return arch->isa == ISA_RISCV || va % 4 || (mark && mark->kind == CODE_THUMB) ? 2 : 4;
}

/* Bytes that are no instruction that the library knows, or data among the code. */
static struct code_line unknown_line(const struct arch *arch, const struct window *code,
				     const struct code_mark *mark)
{
	const bool is_data = mark && mark->kind == CODE_DATA;
	const uint32_t unit = unit_of(arch, code->va, mark);
	struct code_line line = {.va = code->va,
				 .len = (uint8_t)(code->len < unit ? code->len : unit)};

	memcpy(line.bytes, code->bytes, line.len);
	strcpy(line.text, is_data ? "(data)" : "(unknown)");
	return line;
}

/* Disassembles a stretch of one kind; at least one line comes of it. */
static size_t next_lines(struct code_bytes *from, const struct window *code,
			 const struct code_mark *mark, struct code_line *lines, size_t room)
{
	const bool thumb = mark && mark->kind == CODE_THUMB;
	const struct regs regs = {.isa = from->arch->isa,
				  .word = from->arch->word,
				  .flags = thumb ? ARM_PSTATE_T : 0};
	size_t n = 0;

	if (!mark || mark->kind != CODE_DATA)
		n = disassemble(from->disassembler, &regs, code, lines, room);
	from->known |= n > 0;
	if (n)
		return n;
	lines[0] = unknown_line(from->arch, code, mark);
	return 1;
}

/* Adds rows of the code from `va` to `end`, as far as the file has it; `most` rows. */
static struct error *add_instructions(struct code_bytes *from, struct code_part *part, uint64_t va,
				      uint64_t end, size_t most)
{
	const size_t whole = (size_t)(end - va);
	FREED struct code_line *lines = calloc(LINES_AT_ONCE, sizeof(*lines));
	FREED uint8_t *bytes = malloc(whole + 1);
	size_t len;

	if (!lines || !bytes)
		return error_no_memory();
	len = elf_code_copy(from->code, va, bytes, whole);
	for (size_t at = 0; at < len && most;) {
		const struct code_mark *mark = elf_code_mark(from->code, va + at);
		const uint64_t next = elf_code_next_mark(from->code, va + at);
		const size_t left = next - (va + at) < len - at ? next - (va + at) : len - at;
		const struct window code = {.va = va + at,
					    .len = (uint32_t)left,
					    .bytes = bytes + at};
		const size_t room = most < LINES_AT_ONCE ? most : LINES_AT_ONCE;
		const size_t n = next_lines(from, &code, mark, lines, room);

		most -= n;
		for (size_t i = 0; i < n; i++) {
			TRY(code_part_add_row(part, &lines[i]));
			at += lines[i].len;
		}
	}
	return NULL;
}

/* The processor, if its instructions can be shown. */
static const struct arch *known_arch(struct code_part *part, const struct image_file *file)
{
	const struct arch *arch = arch_by_machine(file->code->machine);

	part->patched = file->code->patched;
	if (arch && (arch->isa != ISA_ARM || arch->word == 8 || file->code->n_marks))
		return arch;
	part_lacks(part,
		   arch ? "instructions of 32-bit Arm need mapping symbols ($a, $t), which "
			  "tell Thumb's from others, and %s has none: -s FILE gives the one "
			  "before it was stripped"
			: "%s is of a processor whose instructions are not known",
		   file->path);
	return NULL;
}

/* Where the call before a return address begins; 0: no instruction there is one. */
static uint64_t call_before(struct code_bytes *from, uint64_t after)
{
	static const uint8_t lengths[] = {5, 4, 2, 3, 6, 7};

	for (size_t i = 0; i < sizeof(lengths) && lengths[i] < after; i++) {
		const uint64_t va = after - lengths[i];
		uint8_t bytes[8];
		const struct window code = {.va = va, .len = lengths[i], .bytes = bytes};
		struct code_line line;

		if (from->arch->isa != ISA_X86 && lengths[i] != 4 && lengths[i] != 2)
			continue;
		if (elf_code_copy(from->code, va, bytes, lengths[i]) != lengths[i])
			continue;
		(void)next_lines(from, &code, elf_code_mark(from->code, va), &line, 1);
		if (line.len == lengths[i] &&
		    (!strncmp(line.text, "call", 4) || !strncmp(line.text, "bl", 2)))
			return va;
	}
	return 0;
}

static int by_value(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return COMPARE(*a, *b);
}

/* Where sampled instructions begin, sorted; returns how many. */
static size_t find_beginnings(struct code_bytes *from, const struct code_hit *hits, size_t n_hits,
			      uint64_t *at)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < n_hits; i++) {
		const uint64_t va =
			hits[i].is_call ? call_before(from, hits[i].va + 1) : hits[i].va;

		if (va)
			at[n++] = va;
	}
	if (n)
		qsort(at, n, sizeof(*at), by_value);
	for (size_t i = 0; i < n; i++)
		if (!kept || at[i] != at[kept - 1])
			at[kept++] = at[i];
	return kept;
}

/*
 * Code without a name: nobody says where it begins, but where samples are, an
 * instruction begins. From each of them on it is shown up to the next one.
 */
static struct error *add_stretches(struct code_bytes *from, const struct code_hit *hits,
				   size_t n_hits, struct code_part *part)
{
	FREED uint64_t *at = NULL;
	uint64_t shown = 0;
	size_t n;

	TRY(ARRAY_NEW(&at, n_hits + 1));
	n = find_beginnings(from, hits, n_hits, at);
	for (size_t i = 0; i < n; i++) {
		const bool is_last = i + 1 == n || at[i + 1] - at[i] > STRETCH_GAP;
		const uint64_t end = is_last ? at[i] + CODE_LINE_BYTES : at[i + 1];

		shown += end - at[i];
		if (shown > CODE_SHOWN_MAX) {
			part_lacks(part, "only %u bytes of its code are shown", CODE_SHOWN_MAX);
			break;
		}
		TRY(add_instructions(from, part, at[i], end, is_last ? 1 : SIZE_MAX));
	}
	return NULL;
}

static struct error *add_function(struct code_bytes *from, const struct image_file *file,
				  uint64_t last_hit, struct code_part *part)
{
	find_end(file, last_hit, part);
	TRY(add_instructions(from, part, part->start, part->end, SIZE_MAX));
	while (part->guessed && part->n > 1 && part->row[part->n - 1].line.va > last_hit)
		part->n--;
	return NULL;
}

/* Adds the code of a file, if it has it; else the part says what it lacks. */
static struct error *add_code_of(const struct code_reader *reader, const char *path,
				 const struct code_hit *hits, size_t n_hits, struct code_part *part)
{
	struct code_bytes from = {.disassembler = reader->disassembler};
	const uint64_t last_hit = n_hits ? hits[n_hits - 1].va : part->start;
	const struct image_file *file;

	TRY(load_file(reader->images, part, path, &file));
	if (!file)
		return NULL;
	from.code = file->code;
	from.arch = known_arch(part, file);
	if (!from.arch)
		return NULL;
	TRY(part->nameless ? add_stretches(&from, hits, n_hits, part)
			   : add_function(&from, file, last_hit, part));
	if (!part->n)
		part_lacks(part,
			   "%s has no code there, only what debuggers need: -s FILE gives the "
			   "one that ran",
			   file->path);
	else if (!from.known)
		part_lacks(part, "the libcapstone here does not know the instructions of %s",
			   from.arch->name);
	part->n = from.known ? part->n : 0;
	return NULL;
}

struct error *code_part_read(const struct code_reader *reader, const struct code_hit *hits,
			     size_t n_hits, struct code_part *part)
{
	const struct recorded_image *other = NULL;

	/* All of such a function are its lines. */
	if (is_stand_in(part->start))
		return NULL;
	if (!reader->disassembler)
		part_lacks(part, "instructions need libcapstone, which is not here");
	else if (!part->path)
		part_lacks(part,
			   "the recording names no file for this code: -s FILE@0xADDRESS gives it");
	if (part->lacks)
		return NULL;
	TRY(add_code_of(reader, part->path, hits, n_hits, part));
	if (part->n || !part->build_id || !*part->build_id)
		return NULL;
	/* A file with debugging information alone stands for the one that ran. */
	for (size_t i = 0; i < reader->recorded->n && !other; i++) {
		const struct recorded_image *one = &reader->recorded->at[i];

		if (one->path && one->build_id && !strcmp(one->build_id, part->build_id))
			other = one;
	}
	if (!other || !strcmp(other->path, part->path))
		return NULL;
	free(part->lacks);
	part->lacks = NULL;
	return add_code_of(reader, other->path, hits, n_hits, part);
}
