/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/qemu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tree[] =
	"FlatView #0\n"
	" AS \"I/O\", root: io\n"
	" Root memory region: io\n"
	"  0000000000000000-0000000000000fff (prio 0, ram): not-memory\n"
	"\n"
	"FlatView #1\n"
	" AS \"memory\", root: system\n"
	" AS \"cpu-memory-0\", root: system\n"
	" Root memory region: system\n"
	"  0000000000000000-00000000000bffff (prio 0, ram): pc.ram\n"
	"  00000000000c0000-00000000000cafff (prio 0, rom): pc.ram @00000000000c0000\n"
	"  00000000000cb000-00000000000cb7ff (prio 0, ram): no whole frames\n"
	"  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic\n"
	"  0000000100000000-000000013fffffff (prio 0, ram): pc.ram @00000000c0000000 KVM\n"
	"\n"
	"FlatView #2\n"
	" AS \"cpu-smm-0\", root: memory\n"
	"  0000000000000000-00000000000fffff (prio 0, ram): other\n";

static void ranges_of_memory_are_found_in_the_address_space_of_that_name(void **state)
{
	struct ram_slot slot[8];

	assert_int_equal(qemu_mtree_ranges(tree, slot, 8), 3);
	assert_int_equal(slot[0].gpa, 0);
	assert_int_equal(slot[0].size, 0xc0000);
	assert_int_equal(slot[1].gpa, 0xc0000);
	assert_int_equal(slot[2].gpa, 0x100000000);
	assert_int_equal(slot[2].size, 0x40000000);
	/* No more than there is room for. */
	assert_int_equal(qemu_mtree_ranges(tree, slot, 1), 3);
}

static void any_text_does_no_harm(void **state)
{
	const char *texts[] = {"",
			       "\n",
			       "FlatView",
			       "FlatView #1\n AS \"memory\"",
			       "FlatView #1\n AS \"memory\"\n  ffff-0 (prio 0, ram)",
			       "FlatView #1\n AS \"memory\"\n  0-ffffffffffffffff (prio 0, ram)",
			       "FlatView #1\n AS \"memory\"\n  0-fff (prio x, ram)"};
	struct ram_slot slot[1];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(qemu_mtree_ranges(texts[i], slot, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_of_memory_are_found_in_the_address_space_of_that_name),
		cmocka_unit_test(any_text_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
