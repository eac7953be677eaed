/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does what it can to hurt a profiler: each hostility lets the vCPU spin with registers, a stack,
 * page tables or code that no honest program has. They take turns of `slice` milliseconds (option,
 * 300), for `seconds` (option, 60); `only=NAME` leaves one. Nothing is known about the profile but
 * that it must come to an end, that the guest must not be held longer for it than any other, and
 * that the guest must run on.
 */
#include "hostile.h"

#include "paging.h"

#define ROUNDS 20000

uint64_t arena[ARENA_WORDS] __attribute__((aligned(4096)));

struct truth truth[] = {{"main", 1, 0}};

/* xorshift64 (Marsaglia, 2003). */
uint64_t random_word(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Registers full of one value, from the ends of all ranges. */
VISIBLE void set_ones(struct scene *scene, unsigned int turn)
{
	static const uint64_t values[] = {~0ull,
					  0,
					  1,
					  7,
					  8,
					  0xfff,
					  0xffffffff,
					  0xfffffff8,
					  0x100000000,
					  0x7ffffffffff8,
					  0x7fffffffffff,
					  0x800000000000,
					  0xffff7ffffffffff8,
					  0xffff800000000000,
					  0x8000000000000000,
					  0x7fffffffffffffff,
					  ~0ull << 3,
					  ~0ull << 12};

	for (unsigned int i = 0; i < REGISTERS; i++)
		scene->registers[i] = values[turn / 2 % (sizeof(values) / sizeof(values[0]))];
}

VISIBLE void set_random(struct scene *scene, unsigned int turn)
{
	for (unsigned int i = 0; i < REGISTERS; i++)
		scene->registers[i] = random_word() >> random_word() % 48;
}

static struct record *start_chain(struct scene *scene)
{
	struct record *first = (struct record *)(arena + 2);

	scene->registers[RSP] = (unsigned long)arena;
	scene->registers[RBP] = (unsigned long)first;
	scene->code = framed_loop;
	first->ret = (unsigned long)framed_return;
	return first;
}

/* A chain of two, whose end walks over the whole address space. */
VISIBLE void set_walk(struct scene *scene, unsigned int turn)
{
	static uint64_t next;
	struct record *record = start_chain(scene);

	next += 0x00000123456789a8ull << turn / 2 % 16;
	record[0].next = (unsigned long)&record[1];
	record[1] = (struct record){next & ~7ull, (unsigned long)linked_return};
	if (turn & 1)
		scene->registers[RBP] = next & ~7ull;
}

/* Frames that follow each other through the whole arena, and then from its beginning. */
VISIBLE void set_endless(struct scene *scene, unsigned int turn)
{
	struct record *record = start_chain(scene);

	if (turn == 0)
		for (struct record *at = record; at + 2 < (struct record *)(arena + ARENA_WORDS);
		     at++)
			*at = (struct record){(unsigned long)(at + 1),
					      (unsigned long)linked_return};
	record->ret = (unsigned long)framed_return;
}

/* Two frames that follow each other, or one that follows itself. */
VISIBLE void set_circle(struct scene *scene, unsigned int turn)
{
	struct record *record = start_chain(scene);

	record[0].next = (unsigned long)&record[1];
	record[1] = (struct record){(unsigned long)&record[turn % 2], (unsigned long)linked_return};
}

/*
 * Stacks that are all different: a chain of `depth` (option, 400) frames with one of two callers
 * each; with `variety` (option) so many different ones.
 */
VISIBLE void set_distinct(struct scene *scene, unsigned int turn)
{
	struct record *record = start_chain(scene);
	unsigned int n = (unsigned int)option_number("depth", 400);
	unsigned int variety = (unsigned int)option_number("variety", 0);

	for (unsigned int i = 0; i < n; i++) {
		bool other = variety ? turn % variety >> i % 32 & 1 : random_word() >> 63;

		record[i] = (struct record){(unsigned long)&record[i + 1],
					    (unsigned long)(other ? other_return : linked_return)};
	}
	record[0].ret = (unsigned long)framed_return;
	record[n] = (struct record){0, 0};
}

static const struct hostility hostilities[] = {
	{"ones", set_ones},	  {"random", set_random},     {"walk", set_walk},
	{"endless", set_endless}, {"circle", set_circle},     {"distinct", set_distinct},
	{"code", set_code},	  {"calls", set_calls},	      {"nowhere", set_nowhere},
	{"tables", set_tables},	  {"self-map", set_self_map}, {"hops", set_hops},
	{"brink", set_brink},	  {"top", set_top},	      {"markers", set_markers},
	{"indices", set_indices}, {"notes", set_notes},	      {"types", set_types},
	{"modules", set_modules}, {"counts", set_counts},
};

#define HOSTILITIES (sizeof(hostilities) / sizeof(hostilities[0]))

static bool named(const struct hostility *hostility)
{
	char word[32] = "only=";
	unsigned int n = 5;

	for (const char *from = hostility->name; *from && n < sizeof(word) - 1; from++)
		word[n++] = *from;
	word[n] = '\0';
	return option_given(word);
}

/* All, if the command line names none. */
static bool wanted(const struct hostility *hostility)
{
	for (unsigned int i = 0; i < HOSTILITIES; i++)
		if (named(&hostilities[i]))
			return named(hostility);
	return true;
}

VISIBLE void be_hostile(const struct hostility *hostility, uint64_t until)
{
	struct scene scene;

	for (unsigned int turn = 0; clock_ns() < until; turn++) {
		unsigned int space = turn % SPACES;

		scene = (struct scene){.code = hold_loop};
		if (turn < SPACES)
			tables_reset(space);
		hostility->set(&scene, turn);
		paging_use(space);
		hold_rounds = ROUNDS;
		hold(scene.registers, scene.code);
	}
}

int main(void)
{
	uint64_t end = clock_ns() + option_number("seconds", 60) * 1000000000ull;
	uint64_t slice = option_number("slice", 300) * 1000000ull, from = cpu_time();

	paging_init();
	while (clock_ns() < end) {
		for (unsigned int i = 0; i < HOSTILITIES; i++) {
			if (!wanted(&hostilities[i]))
				continue;
			print("hostile: %s\n", hostilities[i].name);
			be_hostile(&hostilities[i], clock_ns() + slice);
		}
	}
	paging_use(0);
	truth[0].ticks = cpu_time() - from;
	print_truth(truth, 1);
	return 0;
}
