/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spins on a stack in a page of 4 KiB, of 2 MiB and of 1 GiB, by turns, in a function that is named
 * after the page. Each stack's virtual address has nothing in common with its physical one but the
 * offset in its page. Ends after `seconds` (option, 60). Expected shares: a third each. The page of
 * 1 GiB is the `gib`th (option, 1); its turns come once there is memory.
 */
#include "guest.h"

#define SPINS	 300000
#define PRESENT	 0x1
#define WRITABLE 0x2
#define LARGE	 0x80
#define GIB	 0x40000000ull
#define MIB	 0x100000ull

/* One slot of the top level, whose first gigabytes are mapped by pages of one kind each. */
#define SLOT	    0x100
#define SLOT_BASE   0xffff800000000000ull
#define VIRTUAL_1G  (SLOT_BASE + 0 * GIB)
#define VIRTUAL_2M  (SLOT_BASE + 1 * GIB)
#define VIRTUAL_4K  (SLOT_BASE + 2 * GIB)
#define PHYSICAL_2M (40 * MIB)
#define PHYSICAL_4K (51 * MIB)
/* Offsets of the stacks' ends in their large pages: all bits of an offset matter. */
#define TOP_IN_1G      (26 * MIB + 0xa7000)
#define TOP_IN_2M      0x1b5000
#define STACK_4K_PAGES 4

enum { MAIN, ON_4K, ON_2M, ON_1G, ROWS };

struct truth truth[ROWS] = {{"main", 1, 0},
			    {"spin_on_4k", 0, 0},
			    {"spin_on_2m", 0, 0},
			    {"spin_on_1g", 0, 0}};

extern uint64_t page_table_4[512];
static uint64_t table_3[512] __attribute__((aligned(4096)));
static uint64_t table_2_of_2m[512] __attribute__((aligned(4096)));
static uint64_t table_2_of_4k[512] __attribute__((aligned(4096)));
static uint64_t table_1[512] __attribute__((aligned(4096)));

VISIBLE void spin_on_4k(void)
{
	spin(SPINS);
}

VISIBLE void spin_on_2m(void)
{
	spin(SPINS);
}

VISIBLE void spin_on_1g(void)
{
	spin(SPINS);
}

static uint64_t table_entry(const uint64_t *table)
{
	return (unsigned long)table | PRESENT | WRITABLE;
}

static void map_stacks(void)
{
	table_3[0] = option_number("gib", 1) * GIB | PRESENT | WRITABLE | LARGE;
	table_2_of_2m[0] = PHYSICAL_2M | PRESENT | WRITABLE | LARGE;
	table_3[1] = table_entry(table_2_of_2m);
	/* In reverse, so that no two pages of the stack are neighbours the same way round. */
	for (unsigned int i = 0; i < STACK_4K_PAGES; i++)
		table_1[i] = (PHYSICAL_4K - i * 4096ull) | PRESENT | WRITABLE;
	table_2_of_4k[0] = table_entry(table_1);
	table_3[2] = table_entry(table_2_of_4k);
	page_table_4[SLOT] = table_entry(table_3);
}

/* Addresses without memory do not read as written. */
static bool is_memory(volatile uint64_t *at)
{
	*at = GIB;
	return *at == GIB;
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	map_stacks();
	print("large-pages: stacks in pages of 4 KiB, 2 MiB and 1 GiB\n");
	while (clock_ns() < end) {
		TIMED(&truth[ON_4K],
		      call_on_stack(spin_on_4k, (void *)(VIRTUAL_4K + STACK_4K_PAGES * 4096)));
		TIMED(&truth[ON_2M], call_on_stack(spin_on_2m, (void *)(VIRTUAL_2M + TOP_IN_2M)));
		if (is_memory((uint64_t *)(VIRTUAL_1G + TOP_IN_1G)))
			TIMED(&truth[ON_1G],
			      call_on_stack(spin_on_1g, (void *)(VIRTUAL_1G + TOP_IN_1G)));
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
