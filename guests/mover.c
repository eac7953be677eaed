/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves its stack and swaps its page tables before each piece of work: work_1 to work_4 take turns
 * in two address spaces, on stacks of one page each that appear at another virtual address every
 * time and are gone afterwards. work_N calls burn_N and nothing else, and leaves its last frames
 * behind in its own page: a stack that is read through an old translation shows another work's
 * frames, and an edge that does not exist. Ends after `seconds` (option, 60). Expected shares: 0.25
 * each, but for what the moving costs.
 */
#include "guest.h"
#include "paging.h"

#define WORKS	  4
#define SPINS	  300000
#define PAGE_SIZE 4096
/* Odd, so that the window's pages all get their turn, and far apart. */
#define PAGE_STEP 167

enum { MAIN, WORK_1, ROWS = WORK_1 + WORKS };

struct truth truth[ROWS] = {
	{"main", 1, 0}, {"work_1", 0, 0}, {"work_2", 0, 0}, {"work_3", 0, 0}, {"work_4", 0, 0}};

static uint8_t stacks[WORKS][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));

#define WORK(number)                     \
	VISIBLE void burn_##number(void) \
	{                                \
		spin(SPINS);             \
	}                                \
	VISIBLE void work_##number(void) \
	{                                \
		burn_##number();         \
	}

WORK(1)
WORK(2)
WORK(3)
WORK(4)

int main(void)
{
	static void (*const works[WORKS])(void) = {work_1, work_2, work_3, work_4};
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t from = cpu_time();

	paging_init();
	print("mover: %lu stacks in %lu address spaces\n", (unsigned long)WORKS,
	      (unsigned long)SPACES);
	for (unsigned int turn = 0; clock_ns() < end; turn++) {
		unsigned int work = turn % WORKS, space = turn / 2 % SPACES;
		unsigned int page = turn * PAGE_STEP % WINDOW_PAGES;

		paging_map(space, page, stacks[work]);
		paging_use(space);
		TIMED(&truth[WORK_1 + work],
		      call_on_stack(works[work], (void *)(WINDOW + (page + 1ul) * PAGE_SIZE)));
		paging_map(space, page, NULL);
	}
	truth[MAIN].ticks = cpu_time() - from;
	print_truth(truth, ROWS);
	return 0;
}
