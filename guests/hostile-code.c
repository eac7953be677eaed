/* SPDX-License-Identifier: BSD-3-Clause */
/* Code that is hard to follow, and stacks full of words that look like return addresses. */
#include "hostile.h"

#include "paging.h"

#define CELL_BYTES  16
#define CALL_BYTES  5
#define CALL	    0xe8
#define JUMP_IF	    0x74
#define CALLS_BYTES (ARENA_BYTES - 0x10000)
/* Bytes of the called functions, in front of the code that holds the vCPU. */
#define MAZE_BYTES  0x8000
#define STACK_WORDS 0x1000

static uint8_t *const bytes = (uint8_t *)arena;

const void *put_loop(uint8_t *at)
{
	for (const uint8_t *from = hold_loop; from < hold_loop_end; from++)
		at[from - hold_loop] = *from;
	return at;
}

/* In the last words of the arena. */
static uint64_t *use_stack(struct scene *scene)
{
	uint64_t *stack = arena + ARENA_WORDS - STACK_WORDS;

	scene->registers[RSP] = (unsigned long)stack;
	scene->registers[RBP] = (unsigned long)(stack + random_word() % STACK_WORDS);
	return stack;
}

/* Bytes from which any code can be made. */
static uint8_t likely_byte(void)
{
	static const uint8_t likely[] = {0xe8, 0x55, 0xc3, 0xc9, 0x74, 0xeb, 0x48, 0x89, 0xe5,
					 0xff, 0xd0, 0x53, 0x5b, 0x5d, 0x83, 0xec, 0x90, 0x0f};

	return likely[random_word() % sizeof(likely)];
}

/* Return addresses into random code, into its data and into the middle of instructions. */
VISIBLE void set_code(struct scene *scene, unsigned int turn)
{
	uint8_t *around = bytes + random_word() % (CALLS_BYTES - 0x1000);
	uint64_t *stack = use_stack(scene);

	for (unsigned int i = 0; i < 0x1000; i++)
		around[i] = turn & 1 ? (uint8_t)random_word() : likely_byte();
	for (unsigned int i = 0; i < 512; i++)
		stack[i] = (unsigned long)around + random_word() % 0x1000;
	scene->code = put_loop(around + 0x800);
}

static void put_call(uint8_t *at, const uint8_t *target)
{
	uint32_t distance = (uint32_t)(target - at - CALL_BYTES);

	at[0] = CALL;
	for (unsigned int i = 0; i < 4; i++)
		at[i + 1] = (uint8_t)(distance >> 8 * i);
}

/* Calls all over the arena into a maze of branches, which may lead to where the vCPU is held. */
static void build_maze(uint8_t *held)
{
	for (uint8_t *at = bytes; at < bytes + CALLS_BYTES; at += CELL_BYTES)
		put_call(at, held - random_word() % MAZE_BYTES);
	for (uint8_t *at = held - MAZE_BYTES; at < held; at += 2) {
		at[0] = JUMP_IF;
		at[1] = (uint8_t)random_word();
	}
}

/* A stack on which each word is a return address behind a call of the maze, on many pages. */
VISIBLE void set_calls(struct scene *scene, unsigned int turn)
{
	uint8_t *held = bytes + CALLS_BYTES / 2;
	uint64_t *stack = use_stack(scene);

	if (turn == 0)
		build_maze(held);
	for (unsigned int i = 0; i < STACK_WORDS; i++)
		stack[i] = (unsigned long)bytes +
			   random_word() % (CALLS_BYTES / CELL_BYTES) * CELL_BYTES + CALL_BYTES;
	scene->code = put_loop(held);
}

/* Return addresses behind page tables that do not exist: other ones in each turn. */
VISIBLE void set_nowhere(struct scene *scene, unsigned int turn)
{
	unsigned int space = turn % SPACES;
	uint64_t *stack = use_stack(scene);

	paging_map(space, 0, arena);
	scene->code = (const void *)WINDOW;
	put_loop(bytes);
	for (unsigned int i = 1; i < 512; i++) {
		paging_write(space, PAGING_2, i, random_word() >> 24 << 12 | 7);
		stack[i] = WINDOW + (uint64_t)i * 0x200000 + random_word() % 0x200000;
	}
}
