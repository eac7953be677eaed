/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/qemu/qemu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Output of QEMU 7.2 in 64-bit code, without the parts that are not read. */
static const char wide[] =
	"\nCPU#0\n"
	"RAX=0000000000000001 RBX=0000000000000002 RCX=0000000000000003 RDX=0000000000000004\n"
	"RSI=0000000000000005 RDI=0000000000000006 RBP=000000000029edf0 RSP=000000000029ede8\n"
	"R8 =0000000000000008 R9 =0000000000000009 R10=0000000000000010 R11=0000000000000011\n"
	"R12=0000000000000012 R13=0000000000000013 R14=0000000000000014 R15=ffffffff80000015\n"
	"RIP=00000000001019b9 RFL=00000006 [-----P-] CPL=3 II=0 A20=1 SMM=0 HLT=0\n"
	"ES =0000 0000000000000000 00000000 00000000\n"
	"CS =0008 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-RA]\n"
	"SS =0010 0000000000000000 ffffffff 00cf9300 DPL=0 DS   [-WA]\n"
	"CR0=80000011 CR2=0000000000000000 CR3=0000000000104000 CR4=00000020\n"
	"DR6=00000000ffff0ff0 DR7=0000000000000400\n"
	"EFER=0000000000000500\n";

static const char narrow[] = "EAX=00000001 EBX=00000002 ECX=00000003 EDX=00000004\n"
			     "ESI=00000005 EDI=00000006 EBP=00000007 ESP=00008000\n"
			     "EIP=00000200 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\n"
			     "CS =1000 00010000 0000ffff 00009b00 DPL=0 CS16 [-RA]\n"
			     "SS =1000 00010000 0000ffff 00009300 DPL=0 DS16 [-WA]\n"
			     "CR0=60000010 CR2=00000000 CR3=00000000 CR4=00000000\n"
			     "EFER=0000000000000000\n";

static void test_code_of_64_bits(void **state)
{
	struct x86_regs regs;

	assert_true(qemu_registers_text(wide, &regs));
	assert_int_equal(regs.gp[0], 1);
	assert_int_equal(regs.gp[1], 3);
	assert_int_equal(regs.gp[2], 4);
	assert_int_equal(regs.gp[3], 2);
	assert_int_equal(regs.gp[4], 0x29ede8);
	assert_int_equal(regs.gp[5], 0x29edf0);
	assert_int_equal(regs.gp[8], 8);
	assert_int_equal(regs.gp[10], 0x10);
	assert_int_equal(regs.gp[15], 0xffffffff80000015);
	assert_int_equal(regs.rip, 0x1019b9);
	assert_int_equal(regs.rflags, 6);
	assert_int_equal(regs.cr0, 0x80000011);
	assert_int_equal(regs.cr3, 0x104000);
	assert_int_equal(regs.cr4, 0x20);
	assert_int_equal(regs.efer, 0x500);
	assert_true(regs.cs_long);
	assert_false(regs.ss_short);
	assert_int_equal(regs.cpl, 3);
}

static void test_code_of_16_bits_has_bases(void **state)
{
	struct x86_regs regs;

	assert_true(qemu_registers_text(narrow, &regs));
	assert_int_equal(regs.gp[4], 0x8000);
	assert_int_equal(regs.rip, 0x200);
	assert_int_equal(regs.cs_base, 0x10000);
	assert_int_equal(regs.ss_base, 0x10000);
	assert_false(regs.cs_long);
	assert_true(regs.cs_short);
	assert_true(regs.ss_short);
	assert_int_equal(regs.cpl, 0);
}

/* Without any line of it, and cut off anywhere. */
static void test_what_is_not_whole_is_refused(void **state)
{
	const char *const needed[] = {"RAX=", "RSP=", "R8 =", "R15=", "RIP=", "RFL=", "CPL=",
				      "CS =", "SS =", "CR0=", "CR3=", "CR4=", "EFER="};
	char text[sizeof(wide)];
	struct x86_regs regs;

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		strcpy(text, wide);
		*strstr(text, needed[i]) = '?';
		assert_false(qemu_registers_text(text, &regs));
	}
	for (size_t len = 0; len < sizeof(wide) - 20; len++) {
		memcpy(text, wide, len);
		text[len] = '\0';
		assert_false(qemu_registers_text(text, &regs));
	}
}

static void test_a_name_within_another_is_not_it(void **state)
{
	struct x86_regs regs;

	assert_false(qemu_registers_text("XRAX=1 RIP", &regs));
	assert_int_equal(regs.gp[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_code_of_64_bits),
		cmocka_unit_test(test_code_of_16_bits_has_bases),
		cmocka_unit_test(test_what_is_not_whole_is_refused),
		cmocka_unit_test(test_a_name_within_another_is_not_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
