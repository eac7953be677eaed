/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/kernel/kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "symbol/kernel/kernel_fixture.h"

static struct kallsyms *find(struct kernel *kernel)
{
	const struct guest_memory memory = {.ctx = kernel, .read = read_kernel};
	struct kallsyms *kallsyms;

	assert_null(kallsyms_find(&memory, START, START + SIZE, &kallsyms));
	return kallsyms;
}

static void check(struct kernel *kernel)
{
	struct kallsyms *kallsyms = find(kernel);
	struct symbols *symbols;
	struct symbol symbol;
	uint64_t at, end;

	assert_non_null(kallsyms);
	assert_true(kallsyms_range(kallsyms, "function_5", &at, &end));
	assert_int_equal(at, address(5));
	assert_int_equal(end, address(6));
	assert_false(kallsyms_range(kallsyms, "function_2500", &at, &end));
	assert_true(kallsyms_address(kallsyms, "function_2499", &at));
	assert_int_equal(at, address(2499));
	assert_true(kallsyms_address(kallsyms, "function_5", &at));
	assert_int_equal(at, address(5));
	assert_false(kallsyms_address(kallsyms, "function_2500", &at));
	assert_null(kallsyms_symbols(kallsyms, "kernel", &symbols));
	assert_true(symbols_find(symbols, address(1234) + 15, &symbol));
	assert_string_equal(symbol.name, "function_1234");
	assert_true(symbols_find(symbols, address(3), &symbol));
	assert_int_equal(strlen(symbol.name), strlen("function_3") + 198);
	symbols_free(symbols);
	kallsyms_free(kallsyms);
	free(kernel);
}

static void is_found_as_linux_5_10_has_it(void **state)
{
	check(kernel_make(LINUX_5_10, true));
	check(kernel_make(LINUX_5_10, false));
}

static void is_found_as_linux_6_2_has_it(void **state)
{
	check(kernel_make(LINUX_6_2, true));
}

static void is_found_as_linux_6_12_has_it(void **state)
{
	check(kernel_make(LINUX_6_12, true));
	check(kernel_make(LINUX_6_12, false));
}

static void is_found_as_linux_7_2_has_it(void **state)
{
	check(kernel_make(LINUX_7_2, false));
}

static void addresses_are_those_of_one_kernel(void **state)
{
	struct kernel *kernel = kernel_make(LINUX_7_2, false);
	/* The offset of the last name, behind which the sequence begins. */
	const size_t last = kernel->at - 3 * NAMES - 4, at = last & ~(size_t)3;

	assert_int_equal(kernel->at % 8, 3 * NAMES % 8);
	memset(kernel->bytes + at, 0x7f, 4);
	assert_null(find(kernel));
	free(kernel);
}

static void is_found_where_memory_has_holes_in_front(void **state)
{
	struct kernel *kernel = kernel_make(LINUX_5_10, true);

	kernel->missing = 4096;
	check(kernel);
}

static void data_is_no_function(void **state)
{
	struct kernel *kernel = kernel_make(LINUX_6_12, false);
	struct kallsyms *kallsyms = find(kernel);
	struct symbols *symbols;
	struct symbol symbol;

	assert_null(kallsyms_symbols(kallsyms, "kernel", &symbols));
	if (symbols_find(symbols, address(5), &symbol))
		assert_string_not_equal(symbol.name, "function_5");
	symbols_free(symbols);
	kallsyms_free(kallsyms);
	free(kernel);
}

static void a_table_that_contradicts_itself_is_none(void **state)
{
	const struct {
		size_t at, to; /* byte that is changed */
	} changes[] = {{0, 7}, {4, 1}, {9, 1}};

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		struct kernel *kernel = kernel_make(LINUX_6_12, true);

		kernel->bytes[kernel->markers + changes[i].at] ^= (uint8_t)changes[i].to;
		assert_null(find(kernel));
		free(kernel);
	}
}

/* Steps that a search may spend (capture/image_locator.h). */
#define STEPS (1ull << 26)

static void a_table_is_found_in_a_few_steps(void **state)
{
	for (enum layout layout = LINUX_5_10; layout <= LINUX_7_2; layout++) {
		struct kernel *kernel = kernel_make(layout, true);
		struct budget budget = {.left = STEPS};
		const struct guest_memory memory = {.ctx = kernel,
						    .read = read_kernel,
						    .budget = &budget};
		struct kallsyms *kallsyms;

		assert_null(kallsyms_find(&memory, START, START + SIZE, &kallsyms));
		assert_non_null(kallsyms);
		assert_true(STEPS - budget.left < STEPS / 100);
		kallsyms_free(kallsyms);
		free(kernel);
	}
}

/* Memory full of bytes that may be a part of a table, again and again. */
struct flood {
	uint8_t page[4096];	/* is everywhere, */
	uint8_t last[4 * 4096]; /* but for the tokens and their index in the end */
	size_t last_len;
	uint64_t read; /* bytes */
};

#define FLOOD_SIZE (64u << 20)

static size_t read_flood(void *ctx, uint64_t va, void *buf, size_t len)
{
	struct flood *flood = ctx;
	size_t at = va - START, end = FLOOD_SIZE - flood->last_len;

	if (at >= FLOOD_SIZE)
		return 0;
	len = len < FLOOD_SIZE - at ? len : FLOOD_SIZE - at;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = at + i < end ? flood->page[(at + i) % sizeof(flood->page)]
						   : flood->last[at + i - end];
	flood->read += len;
	return len;
}

/* 256 tokens of one character and their index, 1 KiB. */
static void put_index(uint8_t *bytes)
{
	for (unsigned i = 0; i < 256; i++) {
		const uint16_t offset = (uint16_t)(2 * i);

		memcpy(bytes + 2 * i, "a", 2);
		memcpy(bytes + 512 + 2 * i, &offset, 2);
	}
}

/* The search spends all its steps, reads no more than these allow, and finds nothing. */
static void check_flood(struct flood *flood)
{
	struct budget budget = {.left = STEPS};
	const struct guest_memory memory = {.ctx = flood, .read = read_flood, .budget = &budget};
	struct kallsyms *kallsyms;

	assert_null(kallsyms_find(&memory, START, START + FLOOD_SIZE, &kallsyms));
	assert_null(kallsyms);
	assert_true(budget.exhausted);
	assert_true(flood->read / 4096 * GUEST_MEMORY_PAGE_STEPS <= STEPS);
	free(flood);
}

static struct flood *new_flood(void)
{
	struct flood *flood = calloc(1, sizeof(*flood));

	assert_non_null(flood);
	return flood;
}

/* Every 32 bytes begin markers, and every 8 bytes may be the number of names. */
static void a_flood_of_markers_ends_with_the_budget(void **state)
{
	struct flood *flood = new_flood();

	for (uint32_t i = 0; i < sizeof(flood->page) / 4; i++) {
		const uint32_t word = i % 8 * 512;

		memcpy(flood->page + 4 * i, &word, 4);
	}
	put_index(flood->last);
	flood->last_len = 1024;
	check_flood(flood);
}

/* Names that fit all markers but the last. */
static void a_flood_of_names_ends_with_the_budget(void **state)
{
	struct flood *flood = new_flood();
	const uint32_t n = 4096;

	memset(flood->page, 1, sizeof(flood->page));
	for (size_t i = 0; i < sizeof(flood->page); i += 1024) {
		memcpy(flood->page + i, &n, 4);
		memset(flood->page + i + 4, 0, 4);
	}
	for (uint32_t i = 0; i < 2048; i++) {
		const uint32_t marker = 512 * (i % 16);

		memcpy(flood->last + 4 * i, &marker, 4);
	}
	put_index(flood->last + 8192);
	flood->last_len = 8192 + 1024;
	check_flood(flood);
}

static void a_flood_of_indices_ends_with_the_budget(void **state)
{
	struct flood *flood = new_flood();

	for (size_t i = 0; i < sizeof(flood->page); i += 1024)
		put_index(flood->page + i);
	check_flood(flood);
}

static void damage_of_every_kind_is_survived(void **state)
{
	struct kernel *kernel = kernel_make(LINUX_6_12, true);
	size_t end = kernel->at;

	srand(1);
	for (int i = 0; i < 300; i++) {
		size_t at = HEAD + (size_t)rand() % (end - HEAD);
		uint8_t was = kernel->bytes[at];
		struct kallsyms *kallsyms;
		struct symbols *symbols = NULL;

		kernel->bytes[at] ^= (uint8_t)(1 + rand() % 255);
		kallsyms = find(kernel);
		if (kallsyms)
			error_free(kallsyms_symbols(kallsyms, "kernel", &symbols));
		symbols_free(symbols);
		kallsyms_free(kallsyms);
		kernel->bytes[at] = was;
	}
	free(kernel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_found_as_linux_5_10_has_it),
		cmocka_unit_test(is_found_as_linux_6_2_has_it),
		cmocka_unit_test(is_found_as_linux_6_12_has_it),
		cmocka_unit_test(is_found_as_linux_7_2_has_it),
		cmocka_unit_test(addresses_are_those_of_one_kernel),
		cmocka_unit_test(is_found_where_memory_has_holes_in_front),
		cmocka_unit_test(data_is_no_function),
		cmocka_unit_test(a_table_that_contradicts_itself_is_none),
		cmocka_unit_test(a_table_is_found_in_a_few_steps),
		cmocka_unit_test(a_flood_of_markers_ends_with_the_budget),
		cmocka_unit_test(a_flood_of_names_ends_with_the_budget),
		cmocka_unit_test(a_flood_of_indices_ends_with_the_budget),
		cmocka_unit_test(damage_of_every_kind_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
