/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "target/target.h"

static void test_no_news_replaces_another_and_none_is_told_twice(void **state)
{
	static const char reset[] = "the guest was reset", memory[] = "its memory has changed";
	struct target target = {0};

	(void)state;
	target_tell(&target, reset);
	target_tell(&target, memory);
	target_tell(&target, reset);
	assert_int_equal(target.news.n, 2);
	assert_ptr_equal(target.news.text[0], reset);
	assert_ptr_equal(target.news.text[1], memory);
}

#define TABLES 4u
static uint64_t physical[TABLES + 1][512]; /* top table first */

/* Physical memory, and nothing else. */
static size_t read_physical(struct target *target, const struct regs *regs, uint64_t va, void *buf,
			    size_t len)
{
	(void)target;
	if (regs->mmu.mode != MMU_OFF || va >= sizeof(physical) || len > sizeof(physical) - va)
		return 0;
	memcpy(buf, (const uint8_t *)physical + va, len);
	return len;
}

static void test_addresses_are_translated_only_where_all_page_tables_are_seen(void **state)
{
	static const struct target_ops ops = {.read = read_physical};
	const struct mmu mmu = {.mode = MMU_X86_4};
	struct target target = {.ops = &ops, .info.arch = &arch_x86_64};
	const uint64_t va = 0xffff888000123456;
	uint64_t found;

	(void)state;
	for (unsigned i = 0; i < TABLES; i++)
		physical[i][va >> (39 - 9 * i) & 511] = (i + 1) * FRAME_SIZE | 1;
	assert_false(target_translate(&target, &mmu, va, &found));
	target.follows_tables = true;
	assert_true(target_translate(&target, &mmu, va, &found));
	assert_true(found == TABLES * FRAME_SIZE + 0x456);
	assert_false(target_translate(&target, &mmu, va + FRAME_SIZE, &found));
	/* A table behind the end of memory. */
	physical[2][va >> 21 & 511] = 0x7ffffffff001;
	assert_false(target_translate(&target, &mmu, va, &found));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_news_replaces_another_and_none_is_told_twice),
		cmocka_unit_test(test_addresses_are_translated_only_where_all_page_tables_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
