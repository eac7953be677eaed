/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"

#include "paging.h"

#define PRESENT	    0x1
#define WRITABLE    0x2
#define ENTRIES	    512
#define WINDOW_SLOT (WINDOW >> 39)

typedef uint64_t page_table[ENTRIES] __attribute__((aligned(4096)));

extern page_table page_table_4;
/* Entries of all pages of 4 KiB, in order of address. */
extern uint64_t page_tables_1[];

static page_table second_table_4;
static page_table tables_3[SPACES], tables_2[SPACES], tables_1[SPACES];

static uint64_t entry_for(const void *page)
{
	return (unsigned long)page | PRESENT | WRITABLE;
}

void paging_init(void)
{
	second_table_4[0] = page_table_4[0];
	for (unsigned int i = 0; i < SPACES; i++) {
		tables_2[i][0] = entry_for(tables_1[i]);
		tables_3[i][0] = entry_for(tables_2[i]);
	}
	page_table_4[WINDOW_SLOT] = entry_for(tables_3[0]);
	second_table_4[WINDOW_SLOT] = entry_for(tables_3[1]);
}

void paging_map(unsigned int space, unsigned int page, const void *frame)
{
	tables_1[space][page] = frame ? entry_for(frame) : 0;
	__asm__ volatile("invlpg (%0)" : : "r"(WINDOW + page * 4096ul) : "memory");
}

void paging_use(unsigned int space)
{
	const void *root = space ? second_table_4 : page_table_4;

	__asm__ volatile("movq %0, %%cr3" : : "r"(root) : "memory");
}

void paging_drop(void *page)
{
	__builtin_memset(page, 0, sizeof(page_table));
	page_tables_1[(unsigned long)page / sizeof(page_table)] = 0;
	__asm__ volatile("invlpg (%0)" : : "r"(page) : "memory");
}

static uint64_t *table(unsigned int space, enum paging_level level)
{
	switch (level) {
	case PAGING_1:
		return tables_1[space];
	case PAGING_2:
		return tables_2[space];
	case PAGING_3:
		return tables_3[space];
	default:
		return space ? second_table_4 : page_table_4;
	}
}

uint64_t paging_entry(unsigned int space, enum paging_level level)
{
	return entry_for(table(space, level));
}

bool paging_write(unsigned int space, enum paging_level level, unsigned int index, uint64_t entry)
{
	table(space, level)[index] = entry;
	return true;
}
