/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/cfi.h"

#include <stdlib.h>

#include "base/array.h"
#include "unwind/arm32/insn.h"
#include "unwind/tables/expression.h"

/* A byte that names four registers has nothing above them. */
#define FOUR 0x0fu

struct running {
	struct dwarf_bytes in;
	uint8_t base;  /* the register that counts as the stack pointer, */
	int64_t sp;    /* bytes from it */
	uint16_t from; /* bit n: register n is at at[n], bytes from `base` */
	int64_t at[ARM_REGISTERS];
	bool finished;
};

static bool pop(struct running *run, unsigned list)
{
	for (unsigned reg = 0; reg < ARM_REGISTERS; reg++) {
		if (!(list >> reg & 1))
			continue;
		run->from |= (uint16_t)(1u << reg);
		run->at[reg] = run->sp;
		run->sp += 4;
	}
	/* A stack pointer that is loaded from the stack fits into no row. */
	return !(list >> ARM_SP & 1);
}

static bool skip(struct running *run, int64_t bytes)
{
	run->sp += bytes;
	return run->sp >= -FRAME_MAX && run->sp <= FRAME_MAX;
}

static bool next_byte(struct running *run, unsigned *byte)
{
	if (run->in.at == run->in.end)
		return false;
	*byte = *run->in.at++;
	return true;
}

/* Makes another register the stack pointer: only before anything was popped. */
static bool take_for_sp(struct running *run, unsigned reg)
{
	if (reg == ARM_SP || reg == ARM_PC || run->from)
		return false;
	run->base = (uint8_t)reg;
	run->sp = 0;
	return true;
}

static bool skip_much(struct running *run)
{
	uint64_t words;

	return dwarf_uleb(&run->in, &words) && words <= FRAME_MAX &&
	       skip(run, 0x204 + (int64_t)words * 4);
}

/* 1011xxxx */
static bool various(struct running *run, unsigned op)
{
	unsigned byte;

	switch (op) {
	case 0xb0:
		run->finished = true;
		return true;
	case 0xb1:
		return next_byte(run, &byte) && byte && byte <= FOUR && pop(run, byte);
	case 0xb2:
		return skip_much(run);
	case 0xb3: /* d registers as FSTMFDX has stored them */
		return next_byte(run, &byte) && skip(run, (byte & 15) * 8 + 12);
	case 0xb4: /* the return address's authentication code */
		return skip(run, 4);
	case 0xb5: /* it was made with this stack pointer */
		return true;
	}
	return op >= 0xb8 && skip(run, (op & 7) * 8 + 12);
}

/* 11xxxxxx: registers for vectors */
static bool vectors(struct running *run, unsigned op)
{
	unsigned byte;

	if (op <= 0xc5 || (op >= 0xd0 && op <= 0xd7))
		return skip(run, (op & 7) * 8 + 8);
	if (op > 0xc9 || !next_byte(run, &byte))
		return false;
	if (op != 0xc7)
		return skip(run, (byte & 15) * 8 + 8);
	return byte && byte <= FOUR && skip(run, 4 * __builtin_popcount(byte));
}

static bool apply(struct running *run, unsigned op)
{
	unsigned list;

	switch (op >> 4) {
	case 0x8:
		if (!next_byte(run, &list))
			return false;
		list |= (op & 15) << 8;
		return list && pop(run, list << 4);
	case 0x9:
		return take_for_sp(run, op & 15);
	case 0xa:
		list = ((2u << (op & 7)) - 1) << 4;
		return pop(run, op & 8 ? list | 1u << ARM_LR : list);
	case 0xb:
		return various(run, op);
	default:
		if (op >= 0xc0)
			return vectors(run, op);
		return skip(run, op & 0x40 ? -(int64_t)(op & 0x3f) * 4 - 4
					   : (int64_t)(op & 0x3f) * 4 + 4);
	}
}

/* Offset of a register's slot from the CFA; false: no row can hold it. */
static bool slot_of(const struct running *run, unsigned reg, int16_t *at)
{
	const int64_t offset = run->at[reg] - run->sp;

	*at = ROW_SAME;
	if (!(run->from >> reg & 1))
		return true;
	*at = (int16_t)offset;
	return offset > ROW_LOST && offset <= INT16_MAX;
}

bool ehabi_compile(const uint8_t *ops, size_t n, struct row *row, struct row_kept *kept)
{
	struct running run = {.in = {ops, ops + n}, .base = ARM_SP};
	bool good = true;
	unsigned op;

	while (good && !run.finished && next_byte(&run, &op))
		good = apply(&run, op);
	*row = (struct row){.kind = ROW_BODY,
			    .base = ROW_PLUS,
			    .cfa_reg = run.base,
			    .cfa_offset = (int32_t)run.sp,
			    .sp_at = ROW_SAME};
	for (unsigned i = 0; i < ROW_KEPT; i++)
		good = good && slot_of(&run, ROW_KEPT_FIRST + i, &kept->at[i]);
	return good && slot_of(&run, run.from >> ARM_PC & 1 ? ARM_PC : ARM_LR, &row->ra_at);
}

#define ENTRY	   8u /* bytes */
#define CANTUNWIND 1u
#define COMPACT	   0x80000000u

/* The bytes of one function's instructions, at most: those of two words, and 255 words more. */
#define OPS_MAX (8 + 255 * 4)

/* A section as it is in memory. */
struct part {
	uint64_t addr, size;
	const uint8_t *bytes;
	bool index;
};

struct reading {
	struct part *part;
	size_t n, last; /* position of the last word */
	const struct cfi_section *file;
	unsigned rank;
	struct table_builder *builder;
};

static struct error *read_parts(Elf *elf, struct reading *reading)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t n;

	if (elf_getshdrnum(elf, &n))
		return NULL;
	TRY(ARRAY_NEW(&reading->part, n + 1));
	while ((scn = elf_nextscn(elf, scn)) && reading->n < n) {
		const Elf_Data *data;

		if (!gelf_getshdr(scn, &shdr) || !(shdr.sh_flags & SHF_ALLOC) ||
		    shdr.sh_flags & SHF_COMPRESSED || shdr.sh_type == SHT_NOBITS)
			continue;
		data = elf_rawdata(scn, NULL);
		if (data && data->d_buf && shdr.sh_addr <= UINT32_MAX)
			reading->part[reading->n++] =
				(struct part){shdr.sh_addr, data->d_size, data->d_buf,
					      shdr.sh_type == SHT_ARM_EXIDX};
	}
	return NULL;
}

static bool word_in(const struct part *part, uint64_t va, uint32_t *word)
{
	const uint64_t offset = va - part->addr;
	const uint8_t *at;

	if (offset >= part->size || part->size - offset < 4)
		return false;
	at = part->bytes + offset;
	*word = (uint32_t)(at[0] | at[1] << 8 | at[2] << 16) | (uint32_t)at[3] << 24;
	return true;
}

static bool word_at(struct reading *reading, uint64_t va, uint32_t *word)
{
	if (reading->last < reading->n && word_in(&reading->part[reading->last], va, word))
		return true;
	for (reading->last = 0; reading->last < reading->n; reading->last++)
		if (word_in(&reading->part[reading->last], va, word))
			return true;
	return false;
}

/* Target of a prel31 word at `here`: a signed offset in its lower 31 bits. */
static uint64_t pointed(uint64_t here, uint32_t word)
{
	return (uint32_t)((uint32_t)here + ((word & 0x7fffffff) ^ 0x40000000) - 0x40000000);
}

struct ops {
	uint8_t byte[OPS_MAX];
	size_t n;
};

/* The lowest `n` bytes of a word, the highest of them first. */
static void add(struct ops *ops, uint32_t word, unsigned n)
{
	while (n--)
		ops->byte[ops->n++] = (uint8_t)(word >> 8 * n);
}

static bool add_words(struct reading *reading, uint64_t va, unsigned n, struct ops *ops)
{
	uint32_t word;

	for (unsigned i = 0; i < n; i++, va += 4) {
		if (!word_at(reading, va, &word))
			return false;
		add(ops, word, 4);
	}
	return true;
}

/* The compact model (6.3): by one of the three personality routines of the ABI itself. */
static bool read_compact(struct reading *reading, uint64_t va, uint32_t word, bool more,
			 struct ops *ops)
{
	switch (word >> 24 & 0x7f) {
	case 0:
		add(ops, word, 3);
		return true;
	case 1:
	case 2:
		add(ops, word, 2);
		return more && add_words(reading, va + 4, word >> 16 & 0xff, ops);
	}
	return false;
}

/*
 * Behind a language's own personality routine its own data follow; all known
 * ones have the instructions first, as compact as above.
 */
static bool read_table(struct reading *reading, uint64_t va, struct ops *ops)
{
	uint32_t word;

	if (va & 3 || !word_at(reading, va, &word))
		return false;
	if (word & COMPACT)
		return read_compact(reading, va, word, true, ops);
	if (!word_at(reading, va + 4, &word))
		return false;
	add(ops, word, 3);
	return add_words(reading, va + 8, word >> 24, ops);
}

static struct error *compile(struct reading *reading, uint64_t here, uint32_t word, struct row *row)
{
	struct ops ops = {.n = 0};
	struct row_kept kept;

	if (word != CANTUNWIND &&
	    (word & COMPACT ? read_compact(reading, 0, word, false, &ops)
			    : read_table(reading, pointed(here, word), &ops)) &&
	    ehabi_compile(ops.byte, ops.n, row, &kept))
		return table_builder_keep(reading->builder, &kept, row);
	*row = (struct row){.kind = word == CANTUNWIND ? ROW_END : ROW_NONE};
	return NULL;
}

/* Up to the next function that is named, or the end of its section. */
static uint64_t end_of(const struct reading *reading, uint64_t start, uint64_t next)
{
	for (size_t i = 0; i < reading->file->n_text; i++) {
		const struct cfi_text *text = &reading->file->text[i];

		if (start >= text->start && start < text->end)
			return next > start && next < text->end ? next : text->end;
	}
	return start;
}

static struct error *read_entry(struct reading *reading, const struct part *part, uint64_t va)
{
	uint32_t first, second, next;
	uint64_t start, end = 0;
	struct error *err;
	struct row row;

	if (!word_in(part, va, &first) || !word_in(part, va + 4, &second) || first & COMPACT)
		return NULL;
	start = pointed(va, first) & ~1ull;
	if (word_in(part, va + ENTRY, &next))
		end = pointed(va + ENTRY, next) & ~1ull;
	/* Two for the same place: that behind counts. */
	if (end == start)
		return NULL;
	end = end_of(reading, start, end);
	if (end == start)
		return NULL;
	err = compile(reading, va + 4, second, &row);
	row.begins = row.kind != ROW_NONE;
	if (!err)
		err = table_builder_begin(reading->builder, start, end, reading->rank);
	return err ? err : table_builder_put(reading->builder, start, &row);
}

/* Without any tables, clang marks all code as cantunwind, which does not mean outermost. */
static bool has_tables(const struct part *part)
{
	uint32_t word;

	for (uint64_t at = 4; word_in(part, part->addr + at, &word); at += ENTRY)
		if (word != CANTUNWIND)
			return true;
	return false;
}

static struct error *read_index(struct reading *reading, const struct part *part)
{
	if (!has_tables(part))
		return NULL;
	for (uint64_t at = 0; at < part->size; at += ENTRY)
		TRY(read_entry(reading, part, part->addr + at));
	return NULL;
}

struct error *exidx_read(Elf *elf, const struct cfi_section *file, unsigned rank,
			 struct table_builder *builder)
{
	struct reading reading = {.file = file, .rank = rank, .builder = builder};
	struct error *err = read_parts(elf, &reading);

	for (size_t i = 0; !err && i < reading.n; i++)
		if (reading.part[i].index)
			err = read_index(&reading, &reading.part[i]);
	free(reading.part);
	return err;
}
