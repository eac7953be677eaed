/* SPDX-License-Identifier: BSD-3-Clause */
/* Arm's tables for exceptions, in ELF files made by hand: true ones and damaged ones. */
#include "unwind/tables/cfi.h"

#include <gelf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT	   0x8000u
#define TEXT_BYTES 0x100u
#define EXTAB	   0x9000u
#define EXIDX	   0xa000u
#define WORDS	   16

static uint32_t index_words[WORDS], table_words[WORDS];
static struct unwind_table *table;

/* The prel31 word at `from` that points to `to`. */
static uint32_t prel31(uint32_t from, uint32_t to)
{
	return (to - from) & 0x7fffffff;
}

static void add_section(Elf *elf, uint32_t name, uint32_t type, uint32_t addr, uint32_t flags,
			void *bytes, size_t size)
{
	Elf_Scn *scn = elf_newscn(elf);
	Elf32_Shdr *head = elf32_getshdr(scn);
	Elf_Data *data = elf_newdata(scn);

	head->sh_name = name;
	head->sh_type = type;
	head->sh_addr = addr;
	head->sh_flags = SHF_ALLOC | flags;
	*data = (Elf_Data){.d_buf = bytes,
			   .d_size = size,
			   .d_align = 4,
			   .d_type = ELF_T_BYTE,
			   .d_version = EV_CURRENT};
}

static void load(size_t entries)
{
	static char names[] = "\0.text\0.ARM.extab\0.ARM.exidx\0.shstrtab";
	static uint8_t text[TEXT_BYTES];
	int fd = memfd_create("elf", MFD_CLOEXEC);
	Elf32_Ehdr *head;
	char path[32];
	Elf *elf;

	unwind_table_free(table);
	table = NULL;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_WRITE, NULL);
	head = elf32_newehdr(elf);
	head->e_ident[EI_DATA] = ELFDATA2LSB;
	head->e_machine = EM_ARM;
	head->e_type = ET_EXEC;
	head->e_version = EV_CURRENT;
	head->e_shstrndx = 4;
	add_section(elf, 1, SHT_PROGBITS, TEXT, SHF_EXECINSTR, text, sizeof(text));
	add_section(elf, 7, SHT_PROGBITS, EXTAB, 0, table_words, sizeof(table_words));
	add_section(elf, 18, SHT_ARM_EXIDX, EXIDX, 0, index_words, entries * 8);
	add_section(elf, 29, SHT_STRTAB, 0, 0, names, sizeof(names));
	assert_true(elf_update(elf, ELF_C_WRITE) > 0);
	elf_end(elf);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_null(cfi_load(path, &table));
	close(fd);
}

static void entry(unsigned n, uint32_t function, uint32_t what)
{
	index_words[2 * n] = prel31(EXIDX + 8 * n, function);
	index_words[2 * n + 1] = what;
}

static void refer(unsigned n, uint32_t function, uint32_t at)
{
	entry(n, function, prel31(EXIDX + 8 * n + 4, at));
}

static int clear(void **state)
{
	unwind_table_free(table);
	table = NULL;
	memset(index_words, 0, sizeof(index_words));
	memset(table_words, 0, sizeof(table_words));
	return 0;
}

static void expect(uint32_t addr, int32_t cfa_offset, int16_t r4)
{
	const struct row *row = unwind_table_find(table, addr);

	assert_non_null(row);
	assert_int_equal(row->kind, ROW_BODY);
	assert_int_equal(row->cfa_offset, cfa_offset);
	assert_int_equal(table->kept[row->kept].at[0], r4);
}

static void every_model_of_entry_is_read(void **state)
{
	entry(0, TEXT, 0x80a8b0b0);	   /* push {r4, lr}, in the index itself */
	refer(1, TEXT + 0x20, EXTAB);	   /* the short model, in the table */
	refer(2, TEXT + 0x40, EXTAB + 4);  /* the long form, with an additional word */
	refer(3, TEXT + 0x60, EXTAB + 12); /* with a personality routine of its own */
	entry(4, TEXT + 0x80, 1);	   /* outermost */
	entry(5, TEXT + 0xa0, 0x80a8b0b0); /* the same as another */
	entry(6, TEXT + 0xc0, 0x80a8b0b0);
	table_words[0] = 0x8001a8b0;
	table_words[1] = 0x81010303;
	table_words[2] = 0xa8b0b0b0;
	table_words[3] = prel31(EXTAB + 12, TEXT);
	table_words[4] = 0x0002a8b0;
	load(7);
	expect(TEXT, 8, -8);
	expect(TEXT + 0x1e, 8, -8);
	expect(TEXT + 0x20, 8 + 8, -8);
	expect(TEXT + 0x40, 16 + 16 + 8, -8);
	expect(TEXT + 0x60, 12 + 8, -8);
	assert_int_equal(unwind_table_find(table, TEXT + 0x80)->kind, ROW_END);
	expect(TEXT + 0xc0, 8, -8);
	/* They say where functions start, even of two alike. */
	assert_int_equal(table->base + unwind_table_find(table, TEXT + 0xd0)->start, TEXT + 0xc0);
	assert_true(unwind_table_find(table, TEXT + 0xd0)->begins);
	expect(TEXT + TEXT_BYTES - 2, 8, -8);
	assert_null(unwind_table_find(table, TEXT + TEXT_BYTES));
}

static void what_is_damaged_has_no_row(void **state)
{
	entry(0, TEXT, 0x80a8b0b0);
	refer(1, TEXT + 0x20, EXTAB + 0x800);			      /* in no section */
	refer(2, TEXT + 0x40, EXTAB + 4 * WORDS - 4);		      /* cut off */
	refer(3, TEXT + 0x60, EXTAB + 2);			      /* not aligned */
	entry(4, TEXT + 0x80, 0x83a8b0b0);			      /* no such model */
	index_words[10] = prel31(EXIDX + 40, TEXT + 0xa0) | 1u << 31; /* no address */
	entry(6, 0x4000, 0x80a8b0b0);				      /* in no code */
	table_words[WORDS - 1] = 0x81ffb0b0;
	load(7);
	expect(TEXT, 8, -8);
	for (uint32_t addr = TEXT + 0x20; addr < TEXT + 0xa0; addr += 0x20)
		assert_null(unwind_table_find(table, addr));
	assert_null(unwind_table_find(table, 0x4000));
}

static void code_of_which_nothing_is_said_is_not_outermost(void **state)
{
	entry(0, TEXT, 1);
	entry(1, TEXT + 0x20, 1);
	load(2);
	assert_true(!table || !unwind_table_find(table, TEXT));
}

static void any_bytes_can_be_read(void **state)
{
	uint32_t seed = 1;

	for (int i = 0; i < 2000; i++) {
		for (unsigned word = 0; word < WORDS; word++) {
			seed = seed * 1664525 + 1013904223;
			table_words[word] = seed;
			if (word % 2)
				entry(word / 2, TEXT + (seed >> 8) % (2 * TEXT_BYTES),
				      seed >> 28 ? seed >> 20 & 0xff : seed);
			if (word % 2 && !(seed >> 30))
				refer(word / 2, TEXT + word * 8, EXTAB + (seed >> 16) % 64);
		}
		load(WORDS / 2);
		for (uint32_t n = 0; table && n < table->n; n++)
			assert_true(table->row[n].kind != ROW_BODY ||
				    table->row[n].kept < table->n_kept);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_model_of_entry_is_read, clear, clear),
		cmocka_unit_test_setup_teardown(what_is_damaged_has_no_row, clear, clear),
		cmocka_unit_test_setup_teardown(code_of_which_nothing_is_said_is_not_outermost,
						clear, clear),
		cmocka_unit_test_setup_teardown(any_bytes_can_be_read, clear, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
