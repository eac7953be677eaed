/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libFuzzer target for ORC. The first byte of the input says how: bit 0, the
 * layout; bit 1, as sections of an ELF file. The rest is the rules, ten bytes
 * each: how far its address is behind that of the one before, and the rule.
 */

#include <gelf.h>

#include "base/fuzz_testing.h"
#include "unwind/tables/elf_sections_testing.h"
#include "unwind/tables/cfi.h"

#define TABLE 0xffffffff82c00000ull
#define RULES 1024u

struct made {
	uint8_t addresses[RULES * ORC_ADDRESS_SIZE], rules[RULES * ORC_RULE_SIZE];
	size_t n;
};

static void make(struct fuzz_input *in, struct made *made)
{
	int64_t at = (int64_t)0x1000 - (int64_t)(TABLE & 0xffff);

	for (made->n = 0; made->n < RULES && fuzz_left(in); made->n++) {
		const uint64_t rule = fuzz_number(in, ORC_RULE_SIZE);
		int32_t offset;

		/* Rarely backwards, which no table does. */
		at += (int32_t)fuzz_number(in, 2) - 1;
		offset = (int32_t)(at - (int64_t)(ORC_ADDRESS_SIZE * made->n));
		memcpy(made->addresses + ORC_ADDRESS_SIZE * made->n, &offset, sizeof(offset));
		memcpy(made->rules + ORC_RULE_SIZE * made->n, &rule, ORC_RULE_SIZE);
	}
}

static void use(struct unwind_table *table, size_t rules)
{
	need(!table || (table->n && table->n <= rules + 1));
	for (uint32_t i = 0; table && i < table->n; i++) {
		const struct row *row = &table->row[i];
		const struct row *found = unwind_table_find(table, table->base + row->start);

		need(!i || row->start > row[-1].start);
		need(found == (row->kind == ROW_NONE ? NULL : row));
		need(row->kind != ROW_RARE || (uint32_t)row->cfa_offset < table->n_rare);
	}
	unwind_table_free(table);
}

static void read_elf(const struct made *made, unsigned how)
{
	const struct elf_section sections[] = {
		{".orc_unwind_ip", SHT_PROGBITS, TABLE, made->addresses,
		 ORC_ADDRESS_SIZE * made->n},
		{".orc_unwind", SHT_PROGBITS, TABLE + 0x100000, made->rules,
		 ORC_RULE_SIZE * made->n - (how >> 2 & 7)},
		{".orc_header", SHT_PROGBITS, TABLE + 0x200000, made->rules, how & 1 ? 8 : 0},
	};
	const int fd = elf_sections_write(sections, sizeof(sections) / sizeof(*sections),
					  ELFCLASS64, how & 0x20 ? EM_AARCH64 : EM_X86_64);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	struct unwind_table *table;

	done(orc_table_elf(elf, &table));
	use(table, made->n);
	elf_end(elf);
	close(fd);
}

static void fuzz_one(const uint8_t *data, size_t size)
{
	static struct made made;
	struct fuzz_input in = {data, data + size};
	const unsigned how = (unsigned)fuzz_number(&in, 1);
	struct orc_tables tables;
	struct unwind_table *table;

	make(&in, &made);
	if (how & 2 && made.n >= 2) {
		read_elf(&made, how);
		return;
	}
	tables = (struct orc_tables){.va = TABLE,
				     .addresses =
					     fuzz_copy(made.addresses, ORC_ADDRESS_SIZE * made.n),
				     .rules = fuzz_copy(made.rules, ORC_RULE_SIZE * made.n),
				     .n = made.n,
				     .layout = how & 1 ? ORC_LINUX_6_4 : ORC_LINUX_4_14};
	done(orc_table(&tables, &table));
	use(table, made.n);
	free((void *)tables.addresses);
	free((void *)tables.rules);
}
