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
#define ROWS   256
/* Reads of code for one stack: a bound on its cost. */
#define READS_MAX 2000

static uint8_t text[8192];
static uint64_t stack[512], other[64];
static struct row row[ROWS];
static struct unwind_table table;
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

/* Tables that say anything at all, but in order. */
static void random_tables(void)
{
	static uint8_t expressions[64];
	static struct row_rare rare[16];
	uint32_t start = 0;

	for (size_t i = 0; i < sizeof(expressions); i++)
		expressions[i] = (uint8_t)random_word();
	for (size_t i = 0; i < 16; i++) {
		struct row_rule *rule = &rare[i].cfa;

		for (int j = 0; j < 4; j++)
			rule[j] = (struct row_rule){.how = (uint8_t)(random_word() % 8),
						    .reg = (uint8_t)(random_word() % 20),
						    .len = (uint16_t)(random_word() % 32),
						    .offset = (uint32_t)(random_word() % 32),
						    .value = (int64_t)(random_word() % 512) - 256};
		rare[i].trap = random_word() % 2;
	}
	for (size_t i = 0; i < ROWS; i++) {
		start += 1 + (uint32_t)(random_word() % 64);
		row[i] = (struct row){.start = start,
				      .cfa_offset = (int32_t)(random_word() % 256) - 64,
				      .ra_at = (int16_t)(random_word() % 64 - 32),
				      .fp_at = (int16_t)(random_word() % 64 - 32),
				      .sp_at = random_word() % 2 ? ROW_SAME : (int16_t)16,
				      .cfa_reg = (uint8_t)(random_word() % 18),
				      .kind = random_word() % 5,
				      .base = random_word() % 4};
		if (row[i].kind == ROW_RARE)
			row[i].cfa_offset = (int32_t)(random_word() % 16);
		else if (random_word() % 2)
			row[i].cfa_reg = random_word() % 2 ? 7 : 6;
	}
	table = (struct unwind_table){.base = TEXT,
				      .n = ROWS,
				      .row = row,
				      .n_rare = 16,
				      .rare = rare,
				      .n_expressions = sizeof(expressions),
				      .expressions = expressions};
}

static const struct unwind_table *any_table(void *ctx, uint64_t va, uint64_t *slide)
{
	*slide = 0;
	return &table;
}

static void unwind_anything(struct unwinder *unwinder, enum unwind_method method)
{
	struct code code = {.read = read_text,
			    .function = random_word() % 4 ? bounds : NULL,
			    .table = random_word() % 4 ? any_table : NULL};
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
				  .others = &second,
				  .n_others = random_word() % 4 == 0,
				  .code = &code,
				  .unwinder = random_word() % 16 ? unwinder : NULL,
				  .anew = random_word() % 4 == 0,
				  .max_frames = 1 + random_word() % MAX,
				  .method = method};
	struct frame frames[MAX];
	struct unwind_result out;

	readable = random_word() % 8 != 0;
	symbols = random_word() % 2;
	for (size_t i = 0; i < 64; i++) {
		stack[i] = random_address();
		other[i] = random_address();
	}
	/* And once more, with a stack of which only the lowest words have changed. */
	for (unsigned again = 0; again < 2; again++) {
		reads = 0;
		stack[random_word() % 4] = random_address();
		unwind_stack(&in, frames, &out);
		assert_in_range(out.n, 1, in.max_frames);
		assert_int_equal(frames[0].addr, regs.pc);
		assert_true(out.end < UNWIND_ENDS);
		assert_true(out.want <= 2u << 20);
		assert_true(out.used <= window.len);
		assert_true(out.common <= out.n);
		if (reads > most_reads)
			most_reads = reads;
	}
}

static void unwinding_ends_and_stays_within_its_bounds(void **state)
{
	struct unwinder *unwinder[UNWIND_METHODS];

	for (int i = 0; i < UNWIND_METHODS; i++) {
		assert_null(unwinder_new(&unwinder[i]));
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		enum unwind_method method = i % 2 ? UNWIND_AUTO : i / 2 % UNWIND_METHODS;

		if (i % 500 == 0) {
			random_code(i / 500 % 3);
			random_tables();
		}
		unwind_anything(unwinder[method], method);
	}
	for (int i = 0; i < UNWIND_METHODS; i++) {
		unwinder_free(unwinder[i]);
	}
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
