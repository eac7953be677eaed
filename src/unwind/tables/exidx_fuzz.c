/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for 32-bit Arm's exception tables. The first byte of the
 * input says how: the rest is the instructions for one function; or the words
 * of the index, each of them preceded by what it is, and behind them the table.
 */

#include <gelf.h>

#include "base/fuzz_testing.h"
#include "unwind/tables/elf_sections_testing.h"
#include "unwind/tables/cfi.h"

#define TEXT	   0x8000u
#define TEXT_BYTES 0x1000u
#define EXTAB	   0x9000u
#define EXIDX	   0xa000u
#define WORDS	   512u

static void check_row(const struct row *row, const struct row_kept *kept)
{
	need(row->kind == ROW_BODY && row->base == ROW_PLUS);
	for (unsigned i = 0; i < ROW_KEPT; i++)
		need(kept->at[i] == ROW_SAME || kept->at[i] > ROW_LOST);
}

static void compile(const uint8_t *data, size_t size)
{
	uint8_t *ops = fuzz_copy(data, size);
	struct row_kept kept;
	struct row row;

	if (ehabi_compile(ops, size, &row, &kept))
		check_row(&row, &kept);
	free(ops);
}

static uint32_t prel31(uint32_t from, uint32_t to)
{
	return (to - from) & 0x7fffffff;
}

/* An entry: a function some bytes behind the last, and instructions, a reference, or any words. */
static void make_entry(struct fuzz_input *in, uint32_t i, uint32_t *text, uint32_t word[2])
{
	const unsigned kind = (unsigned)fuzz_number(in, 1);

	*text += (uint32_t)fuzz_number(in, 1) - (kind & 0x80 ? 16 : 0);
	word[0] = prel31(EXIDX + 8 * i, TEXT + *text);
	switch (kind & 3) {
	case 0:
		word[1] = 0x80000000 | (uint32_t)fuzz_number(in, 3);
		break;
	case 1:
		word[1] = prel31(EXIDX + 8 * i + 4, EXTAB + 4 * (uint32_t)fuzz_number(in, 1));
		break;
	case 2:
		word[1] = 1;
		break;
	default:
		word[0] = (uint32_t)fuzz_number(in, 4);
		word[1] = (uint32_t)fuzz_number(in, 4);
	}
}

static void use(struct unwind_table *table)
{
	for (uint32_t i = 0; table && i < table->n; i++) {
		need(!i || table->row[i].start > table->row[i - 1].start);
		need(table->row[i].kind != ROW_BODY || table->row[i].kept < table->n_kept);
	}
	unwind_table_free(table);
}

static void read_elf(struct fuzz_input *in, unsigned entries)
{
	static uint32_t index[WORDS], table[256];
	struct cfi_text code = {TEXT, TEXT + TEXT_BYTES};
	const struct cfi_section file = {.text = &code, .n_text = 1};
	struct table_builder *builder;
	struct unwind_table *made;
	uint32_t text = 0;
	size_t len;
	Elf *elf;
	int fd;

	for (uint32_t i = 0; i < entries; i++)
		make_entry(in, i, &text, &index[2 * i]);
	len = fuzz_left(in) < sizeof(table) ? fuzz_left(in) : sizeof(table);
	if (len)
		memcpy(table, in->at, len);
	fd = elf_sections_write(
		(const struct elf_section[]){
			{".ARM.extab", SHT_PROGBITS, EXTAB, table, len},
			{".ARM.exidx", SHT_ARM_EXIDX, EXIDX, index, 8 * (size_t)entries},
		},
		2, ELFCLASS32, EM_ARM);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	done(table_builder_new(&builder));
	done(exidx_read(elf, &file, 0, builder));
	done(table_builder_finish(builder, &made));
	use(made);
	table_builder_free(builder);
	elf_end(elf);
	close(fd);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);

	if (how)
		read_elf(&in, how);
	else
		compile(in.at, fuzz_left(&in));
}
