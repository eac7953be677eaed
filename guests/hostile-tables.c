/* SPDX-License-Identifier: BSD-3-Clause */
/* Page tables that no honest guest has, as far as Xen lets a PV guest have them. */
#include "hostile.h"

#include "paging.h"

#define ENTRIES	  512
#define PRESENT	  0x1
#define WRITABLE  0x2
#define LARGE	  0x80
#define PAGE_SIZE 4096ul
/* Slots of the top table that stay out of the way of the image and of Xen. */
#define WILD_SLOT  2
#define WILD_SLOTS 200
#define SELF_SLOT  300
#define TOP_SLOT   511
#define LOCAL_APIC 0xfee00000ull
#define IO_APIC	   0xfec00000ull

void tables_reset(unsigned int space)
{
	for (unsigned int i = WILD_SLOT; i < WILD_SLOT + WILD_SLOTS; i++)
		paging_write(space, PAGING_4, i, 0);
	paging_write(space, PAGING_4, SELF_SLOT, 0);
	paging_write(space, PAGING_4, TOP_SLOT, 0);
	for (unsigned int i = 0; i < ENTRIES; i++) {
		paging_write(space, PAGING_3, i, i ? 0 : paging_entry(space, PAGING_2));
		paging_write(space, PAGING_2, i, i ? 0 : paging_entry(space, PAGING_1));
		paging_write(space, PAGING_1, i, 0);
	}
}

static uint64_t wild_entry(unsigned int space)
{
	uint64_t word = random_word();

	switch (word % 8) {
	case 0:
		return random_word() | PRESENT;
	case 1:
		return random_word() | PRESENT | LARGE;
	case 2:
		return LOCAL_APIC | PRESENT | WRITABLE;
	case 3:
		return IO_APIC | PRESENT | WRITABLE;
	case 4:
		return random_word() >> 36 << 12 | PRESENT;
	case 5:
		return random_word() >> 50 << 12 | PRESENT;
	}
	return paging_entry(space, PAGING_1 + word / 8 % 4);
}

/* One entry more, at any level, that leads anywhere; the stack is behind it. */
VISIBLE void set_tables(struct scene *scene, unsigned int turn)
{
	unsigned int space = turn % SPACES, level = PAGING_1 + random_word() % 4;
	uint64_t va = WINDOW + random_word() % 0x10000;
	unsigned int index = (unsigned int)(random_word() % ENTRIES);

	if (turn % 128 < SPACES)
		tables_reset(space);
	if (level == PAGING_4) {
		index = WILD_SLOT + index % WILD_SLOTS;
		va -= WINDOW;
	}
	paging_write(space, level, index, wild_entry(space));
	va += (uint64_t)index << (12 + 9 * (level - 1));
	scene->registers[RSP] = va & ~7ull;
	scene->registers[RBP] = va + random_word() % 0x4000;
	if (turn & 2)
		scene->code = framed_loop;
}

/* Tables that are their own entries: the walk comes by the same table up to four times. */
VISIBLE void set_self_map(struct scene *scene, unsigned int turn)
{
	unsigned int space = turn % SPACES;
	uint64_t self = SELF_SLOT, high = ~0ull << 48, va;

	paging_write(space, PAGING_4, SELF_SLOT, paging_entry(space, PAGING_4));
	paging_write(space, PAGING_3, 1, paging_entry(space, PAGING_3));
	paging_write(space, PAGING_2, 1, paging_entry(space, PAGING_2));
	if (turn & 2)
		va = high | self << 39 | self << 30 | self << 21 |
		     (random_word() & 1 ? self : 0) << 12;
	else
		va = WINDOW | 1ull << 30 | 1ull << 21 | 1ull << 12;
	scene->registers[RSP] = va | (random_word() & 0xff8);
	scene->registers[RBP] = va | (random_word() & 0xff8);
	if (turn & 4)
		scene->code = framed_loop;
}

/* One page that is mapped all over the window: a chain of frames that are always far away. */
VISIBLE void set_hops(struct scene *scene, unsigned int turn)
{
	struct record *record = (struct record *)(arena + 2);
	unsigned int space = turn % SPACES;

	for (unsigned int i = 0; i < ENTRIES && turn < SPACES; i++) {
		paging_write(space, PAGING_3, i, paging_entry(space, PAGING_2));
		paging_write(space, PAGING_2, i, paging_entry(space, PAGING_1));
		paging_map(space, i, arena);
	}
	for (unsigned int i = 0; i < 250; i++) {
		uint64_t page = random_word() % (1ull << 27), other = random_word() % 250;

		record[i] = (struct record){WINDOW + page * PAGE_SIZE + 16 + 16 * other,
					    (unsigned long)linked_return};
	}
	record[0].ret = (unsigned long)framed_return;
	scene->registers[RSP] = (unsigned long)arena;
	scene->registers[RBP] = (unsigned long)record;
	scene->code = framed_loop;
}

static uint64_t near_the_end(void)
{
	static const uint8_t distances[] = {0, 1, 4, 7, 8, 12, 15, 16, 17, 24, 40, 64};

	return distances[random_word() % sizeof(distances)];
}

static void fill_page(void)
{
	for (unsigned int i = 0; i < PAGE_SIZE / 8; i++)
		arena[i] = i & 1 ? (unsigned long)linked_return : random_word();
}

/* Stacks that end where the guest has no more memory, between two pages or in the midst of a word. */
VISIBLE void set_brink(struct scene *scene, unsigned int turn)
{
	unsigned int space = turn % SPACES;
	uint64_t end = WINDOW + (turn / 2 % 2 + 1) * PAGE_SIZE;

	fill_page();
	paging_map(space, 0, arena);
	paging_map(space, 1, arena);
	scene->registers[RSP] = end - near_the_end();
	scene->registers[RBP] = end - near_the_end();
	if (turn & 4)
		scene->code = framed_loop;
}

/* Stacks that end at the end of the address space, behind which address 0 follows. */
VISIBLE void set_top(struct scene *scene, unsigned int turn)
{
	unsigned int space = turn % SPACES;

	fill_page();
	paging_write(space, PAGING_4, TOP_SLOT, paging_entry(space, PAGING_3));
	paging_write(space, PAGING_3, ENTRIES - 1, paging_entry(space, PAGING_2));
	paging_write(space, PAGING_2, ENTRIES - 1, paging_entry(space, PAGING_1));
	paging_map(space, WINDOW_PAGES - 1, arena);
	scene->registers[RSP] = 0 - near_the_end();
	scene->registers[RBP] = 0 - near_the_end();
	if (turn & 4)
		scene->code = framed_loop;
}
