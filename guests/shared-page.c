/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three stacks by turns, of which two are halves of one page; the third lies amid other variables,
 * which are full of return addresses. serve_left, serve_right and serve_middle call work, each the
 * same number of times, and this spins. Ends after `seconds` (option, 60). Expected shares: a third each.
 */
#include "guest.h"

#define SPINS	     10000
#define HALF	     2048
#define MIDDLE_BYTES 3072
#define FILL_WORDS   512

enum { LEFT, RIGHT, MIDDLE, ROWS };

struct truth truth[ROWS] = {{"serve_left", 0, 0}, {"serve_right", 0, 0}, {"serve_middle", 0, 0}};

static uint8_t page[2 * HALF] __attribute__((aligned(4096)));
static struct {
	uintptr_t before[FILL_WORDS];
	uint8_t stack[MIDDLE_BYTES];
	uintptr_t after[FILL_WORDS];
} amid __attribute__((aligned(16)));
static uintptr_t return_address;

VISIBLE void work(void)
{
	return_address = (uintptr_t)__builtin_return_address(0);
	spin(SPINS);
}

#define SERVE(side)                     \
	VISIBLE void serve_##side(void) \
	{                               \
		work();                 \
		work();                 \
	}

SERVE(left)
SERVE(right)
SERVE(middle)

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;

	serve_left();
	for (unsigned int i = 0; i < FILL_WORDS; i++)
		amid.before[i] = amid.after[i] = return_address;
	print("shared-page: three stacks\n");
	while (clock_ns() < end) {
		TIMED(&truth[LEFT], call_on_stack(serve_left, page + HALF));
		TIMED(&truth[RIGHT], call_on_stack(serve_right, page + 2 * HALF));
		TIMED(&truth[MIDDLE], call_on_stack(serve_middle, amid.stack + MIDDLE_BYTES));
	}
	print_truth(truth, ROWS);
	return 0;
}
