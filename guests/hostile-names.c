/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Floods of bytes that a search may take for a Linux kernel's tables. The arena repeats through all
 * of the gigabyte where such kernels are, and the vCPU executes there.
 */
#include "hostile.h"

#include "paging.h"

#define ENTRIES	    512
#define TOP_SLOT    511
#define KERNEL_SLOT 510
/* In the midst, so that there is as much in front of it as behind it. */
#define HELD	    0x100000ul
#define INDEX_BYTES 1024

static void map_kernel(unsigned int space)
{
	for (unsigned int i = 0; i < ENTRIES; i++) {
		paging_map(space, i, arena + i * (ARENA_WORDS / ENTRIES));
		paging_write(space, PAGING_2, i, paging_entry(space, PAGING_1));
	}
	paging_write(space, PAGING_3, KERNEL_SLOT, paging_entry(space, PAGING_2));
	paging_write(space, PAGING_4, TOP_SLOT, paging_entry(space, PAGING_3));
}

void execute_there(struct scene *scene, unsigned int turn)
{
	if (turn < SPACES)
		map_kernel(turn % SPACES);
	put_loop((uint8_t *)arena + HELD);
	scene->code = (const void *)(KERNEL + HELD);
}

/* The token table of kallsyms: 256 tokens of a letter each, then the offset of each. */
static void put_index(uint8_t *at)
{
	uint16_t *index = (uint16_t *)(at + INDEX_BYTES / 2);

	for (unsigned int i = 0; i < 256; i++) {
		at[2 * i] = 'a';
		at[2 * i + 1] = 0;
		index[i] = (uint16_t)(2 * i);
	}
}

/* Each 32 bytes begin the markers of a table, and each 8 bytes may be how many names it has. */
VISIBLE void set_markers(struct scene *scene, unsigned int turn)
{
	uint32_t *words = (uint32_t *)arena;

	for (unsigned int i = 0; i < ARENA_BYTES / 4 && turn < SPACES; i++)
		words[i] = i % 8 * 512;
	if (turn < SPACES)
		put_index((uint8_t *)arena + ARENA_BYTES - INDEX_BYTES);
	execute_there(scene, turn);
}

/* Fills the arena with tokens and indices, each of which may be the end of a table. */
VISIBLE void set_indices(struct scene *scene, unsigned int turn)
{
	for (unsigned int at = 0; at < ARENA_BYTES && turn < SPACES; at += INDEX_BYTES)
		put_index((uint8_t *)arena + at);
	execute_there(scene, turn);
}

/* Notes that are nearly those of build ids. */
VISIBLE void set_notes(struct scene *scene, unsigned int turn)
{
	for (unsigned int i = 0; i + 1 < ARENA_WORDS && turn < SPACES; i += 2) {
		arena[i] = 20ull << 32 | 4;
		arena[i + 1] = (uint64_t)('G' | 'N' << 8 | 'V' << 16) << 32 | 3;
	}
	execute_there(scene, turn);
}
