/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"

#include "paging.h"
#include "tables.h"

#define ENTRIES	    512
#define WINDOW_SLOT (WINDOW >> 30)

typedef uint64_t page_table[ENTRIES] __attribute__((aligned(4096)));

extern page_table top_table;

static page_table second_top_table;
static page_table tables_2[SPACES], tables_3[SPACES];

static uint64_t entry_for(const void *page, uint64_t bits)
{
	return (unsigned long)page | bits;
}

/* Both spaces have one number (ASID): nothing that was cached of the other one may be left. */
static void forget_translations(void)
{
	__asm__ volatile("dsb ishst\n\ttlbi vmalle1\n\tdsb nsh\n\tisb" : : : "memory");
}

void paging_init(void)
{
	__builtin_memcpy(second_top_table, top_table, sizeof(page_table));
	for (unsigned int i = 0; i < SPACES; i++)
		tables_2[i][0] = entry_for(tables_3[i], TABLE);
	top_table[WINDOW_SLOT] = entry_for(tables_2[0], TABLE);
	second_top_table[WINDOW_SLOT] = entry_for(tables_2[1], TABLE);
	forget_translations();
}

void paging_map(unsigned int space, unsigned int page, const void *frame)
{
	tables_3[space][page] = frame ? entry_for(frame, PAGE) : 0;
	forget_translations();
}

void paging_use(unsigned int space)
{
	const void *root = space ? second_top_table : top_table;

	__asm__ volatile("msr ttbr0_el1, %0\n\tisb" : : "r"(root) : "memory");
	forget_translations();
}
