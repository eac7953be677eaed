/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for call frame information. An input that begins like an
 * ELF file is one; else the first byte says which section the rest is.
 */

#include "base/fuzz_testing.h"
#include "unwind/tables/cfi.h"
#include "unwind/tables/expression.h"

#define TEXT	 0x400000
#define TEXT_LEN 0x10000
#define SECTION	 0x500000

static bool reg(const void *ctx, unsigned n, uint64_t *value)
{
	*value = 0x1000 + 8 * n;
	return n < 17;
}

static bool load(void *ctx, uint64_t va, uint64_t *value)
{
	*value = va * 3;
	return va % 8 == 0;
}

/* Any table must be in order, and its rows must be applicable. */
static void use(const struct unwind_table *table)
{
	const struct row_env env = {
		.reg = reg, .load = load, .word = 8, .fp = 6, .sp = 7, .ra = 16};
	struct row_caller caller;

	need(table->n);
	for (uint32_t i = 0; i < table->n; i++) {
		const struct row *row = &table->row[i];
		const struct row *found = unwind_table_find(table, table->base + row->start);

		need(!i || row->start > row[-1].start);
		need(found == (row->kind == ROW_NONE ? NULL : row));
		if (row->kind == ROW_RARE)
			need((uint32_t)row->cfa_offset < table->n_rare);
		if (found && row->kind != ROW_END)
			unwind_table_step(table, row, &env, &caller);
	}
}

static void read_file(const uint8_t *data, size_t size)
{
	struct fuzz_file file = fuzz_file_new(data, size);
	struct unwind_table *table;
	struct error *err = cfi_load(file.path, &table);

	need(!err || err->kind == ERR_INPUT);
	if (!err && table)
		use(table);
	error_free(err);
	unwind_table_free(table);
	close(file.fd);
}

/* Bit 0: .eh_frame; bit 1: 32-bit code; bit 2: of Arm. */
static void read_section(const uint8_t *data, size_t size)
{
	struct cfi_text text = {TEXT, TEXT + TEXT_LEN};
	Elf_Data section = {.d_size = size - 1, .d_type = ELF_T_BYTE, .d_version = EV_CURRENT};
	static const uint16_t machines[] = {EM_X86_64, EM_386, EM_AARCH64, EM_ARM};
	struct cfi_section from = {.machine = cfa_machine(machines[*data >> 1 & 3]),
				   .ident = {0x7f, 'E', 'L', 'F'},
				   .text = &text,
				   .n_text = 1,
				   .data = &section,
				   .addr = SECTION,
				   .eh = *data & 1};
	struct table_builder *builder = NULL;
	struct unwind_table *table;

	from.ident[EI_CLASS] = *data & 2 ? ELFCLASS32 : ELFCLASS64;
	from.ident[EI_DATA] = ELFDATA2LSB;
	from.ident[EI_VERSION] = EV_CURRENT;
	/* A heap block of its own, so that ASan sees reads behind the end. */
	section.d_buf = malloc(size);
	need(section.d_buf && !table_builder_new(&builder));
	memcpy(section.d_buf, data + 1, size - 1);
	section.d_buf = realloc(section.d_buf, size - 1);
	if (section.d_buf && !cfi_section_read(&from, builder) &&
	    !table_builder_finish(builder, &table) && table) {
		use(table);
		unwind_table_free(table);
	}
	table_builder_free(builder);
	free(section.d_buf);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	if (size >= SELFMAG && !memcmp(data, ELFMAG, SELFMAG))
		read_file(data, size);
	else if (size > 1)
		read_section(data, size);
}
