/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REG(name, bits) "  <reg name=\"" name "\" bitsize=\"" bits "\" type=\"int\"/>\n"

static const char core[] = "<feature name=\"org.gnu.gdb.i386.core\">\n" REG("rax", "64")
	REG("rbx", "64") REG("rcx", "64") REG("rdx", "64") REG("rsi", "64") REG("rdi", "64")
		REG("rbp", "64") REG("rsp", "64") REG("rip", "64") REG("eflags", "32")
			REG("cs", "32") REG("ss", "32") "<!--\n" REG("ss_base", "64")
				REG("cr0", "64") "-->\n" REG("fs_base", "64") REG("cr0", "64")
					REG("cr3", "64") REG("cr4", "64") REG("efer", "64")
						REG("st0", "80") REG("fctrl", "32") "</feature>";

/* The answer to "g": each register holds its own place. */
static void answer(struct gdb *gdb, const struct gdb_layout *layout, size_t len)
{
	memset(gdb->packet, '0', sizeof(gdb->packet));
	gdb->len = 2 * len;
	for (size_t i = 0; i < len; i++) {
		const char digits[] = "0123456789abcdef";

		gdb->packet[2 * i] = digits[i >> 4 & 15];
		gdb->packet[2 * i + 1] = digits[i & 15];
	}
	/* CR0.ET */
	gdb->packet[2 * layout->cr0.at] = '1';
}

static void registers_follow_each_other_and_comments_do_not_count(void **state)
{
	struct gdb_layout layout = {0};

	assert_int_equal(gdb_layout_add(&layout, core, 0), 9 * 8 + 3 * 4 + 8 + 4 * 8 + 10 + 4);
	assert_int_equal(layout.gp[3].at, 8);
	assert_int_equal(layout.gp[4].at, 7 * 8);
	assert_int_equal(layout.rip.at, 64);
	assert_int_equal(layout.eflags.size, 4);
	assert_int_equal(layout.cr0.at, 9 * 8 + 3 * 4 + 8);
	assert_int_equal(layout.efer.at, layout.cr0.at + 24);
	assert_int_equal(layout.gp[8].size, 0);
}

static void values_are_taken_from_their_places(void **state)
{
	static struct gdb gdb;
	struct gdb_layout layout = {0};
	struct x86_regs regs;
	size_t len = gdb_layout_add(&layout, core, 0);

	answer(&gdb, &layout, len);
	assert_true(gdb_layout_take(&gdb, &layout, &regs));
	assert_int_equal(regs.gp[3], 0x0f0e0d0c0b0a0908ull);
	assert_int_equal(regs.rip, 0x4746454443424140ull);
	assert_int_equal(regs.rflags, 0x4b4a4948);
	/* No such register: zero. */
	assert_int_equal(regs.gp[15], 0);
}

static void an_answer_that_is_too_short_or_cannot_be_is_none(void **state)
{
	static struct gdb gdb;
	struct gdb_layout layout = {0};
	struct x86_regs regs;
	size_t len = gdb_layout_add(&layout, core, 0);

	answer(&gdb, &layout, layout.efer.at + 7u);
	assert_false(gdb_layout_take(&gdb, &layout, &regs));
	answer(&gdb, &layout, len);
	gdb.packet[2 * layout.cr0.at] = '0';
	gdb.packet[2 * layout.cr0.at + 1] = '1';
	assert_false(gdb_layout_take(&gdb, &layout, &regs));
	answer(&gdb, &layout, len);
	gdb.packet[3] = 'x';
	assert_false(gdb_layout_take(&gdb, &layout, &regs));
}

static void any_text_does_no_harm(void **state)
{
	const char *texts[] = {"",
			       "<",
			       "<!--",
			       "<reg ",
			       "<reg name=\"rip\"",
			       "<reg name=\"rip\" bitsize=\"99999999999\"/>",
			       "<reg name=\"rip\" bitsize=\"-8\"/>",
			       "<reg name=\"a name that is longer than any\" bitsize=\"64\"/>",
			       "<reg bitsize=\"\" name=\"/>"};
	struct gdb_layout layout = {0};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_in_range(gdb_layout_add(&layout, texts[i], 8), 8, GDB_PACKET_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_follow_each_other_and_comments_do_not_count),
		cmocka_unit_test(values_are_taken_from_their_places),
		cmocka_unit_test(an_answer_that_is_too_short_or_cannot_be_is_none),
		cmocka_unit_test(any_text_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
