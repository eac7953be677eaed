/* SPDX-License-Identifier: BSD-3-Clause */
/* Guests that hold anything: random registers, stacks and code. */
#include "unwind/unwind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT   0x400000ull
#define STACK  0x7fff0000ull
#define ROUNDS 20000
#define MAX    64
/* Reads of code for one stack: a bound on what it can cost. */
#define READS_MAX 2000

static uint8_t text[8192];
static uint64_t stack[512], other[64];
static bool readable, symbols;
static unsigned reads, most_reads;

static uint64_t random_word(void)
{
	static uint64_t seed = 88172645463325252ull;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t random_address(void)
{
	switch (random_word() % 6) {
	case 0:
		return random_word();
	case 1:
	case 2:
		return TEXT + random_word() % sizeof(text);
	case 3:
		return STACK + random_word() % sizeof(stack);
	case 4:
		return STACK + (random_word() % sizeof(stack) & ~7ull);
	}
	return random_word() % 4096;
}

static size_t read_text(void *ctx, uint64_t va, void *buf, size_t len)
{
	reads++;
	if (!readable || va < TEXT || va - TEXT >= sizeof(text))
		return 0;
	if (len > sizeof(text) - (va - TEXT))
		len = sizeof(text) - (va - TEXT);
	memcpy(buf, text + (va - TEXT), len);
	return len;
}

static bool bounds(void *ctx, uint64_t va, uint64_t *start, uint64_t *end)
{
	if (!symbols)
		return false;
	*start = va & ~(uint64_t)127;
	*end = *start + (va >> 7) % 256;
	return true;
}

static void random_code(unsigned kind)
{
	static const uint8_t likely[] = {0xe8, 0x55, 0xc3, 0xc9, 0x74, 0xeb, 0x48, 0x89, 0xe5,
					 0xff, 0xd0, 0x53, 0x5b, 0x5d, 0x83, 0xec, 0x90, 0x0f};

	for (size_t i = 0; i < sizeof(text); i++) {
		if (kind == 0)
			text[i] = (uint8_t)random_word();
		else if (kind == 1)
			text[i] = likely[random_word() % sizeof(likely)];
		else /* short branches: as many paths as possible */
			text[i] = i % 2 ? (uint8_t)(random_word() % 64) : 0x74;
	}
}

static void unwind_anything(struct unwinder *unwinder)
{
	struct code code = {.read = read_text, .function = random_word() % 4 ? bounds : NULL};
	struct regs regs = {.pc = random_address(),
			    .sp = random_word() % 8 ? STACK : random_address(),
			    .fp = random_address(),
			    .gp_valid = (uint32_t)random_word(),
			    .word = random_word() % 4 ? 8 : 4};
	struct window window = {.va = regs.sp & ~(uint64_t)(regs.word - 1),
				.len = (uint32_t)(random_word() % sizeof(stack)),
				.bytes = (const uint8_t *)stack,
				.cut = random_word() % 2};
	struct window second = {.va = random_address() & ~7ull,
				.len = (uint32_t)(random_word() % sizeof(other)),
				.bytes = (const uint8_t *)other};
	struct unwind_input in = {.regs = &regs,
				  .stack = &window,
				  .other = random_word() % 4 ? NULL : &second,
				  .code = &code,
				  .unwinder = random_word() % 16 ? unwinder : NULL,
				  .max_frames = 1 + random_word() % MAX};
	struct frame frames[MAX];
	struct unwind_result out;

	readable = random_word() % 8 != 0;
	symbols = random_word() % 2;
	for (size_t i = 0; i < 64; i++) {
		stack[i] = random_address();
		other[i] = random_address();
	}
	reads = 0;
	unwind_frame_pointer(&in, frames, &out);
	assert_in_range(out.n, 1, in.max_frames);
	assert_int_equal(frames[0].addr, regs.pc);
	assert_true(out.end < UNWIND_ENDS);
	assert_true(out.want <= 2u << 20);
	assert_true(out.used <= window.len);
	if (reads > most_reads)
		most_reads = reads;
}

static void unwinding_ends_and_stays_within_its_bounds(void **state)
{
	struct unwinder *unwinder;

	assert_null(unwinder_new(&unwinder));
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i % 500 == 0)
			random_code(i / 500 % 3);
		unwind_anything(unwinder);
	}
	unwinder_free(unwinder);
	print_message("# at most %u reads of code\n", most_reads);
	assert_true(most_reads <= READS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unwinding_ends_and_stays_within_its_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
