/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/gdb/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arm/arm.h"

#define REG(name, bits) "  <reg name=\"" name "\" bitsize=\"" bits "\" type=\"int\"/>\n"
#define NUMBERED(name, bits, number) \
	"  <reg name=\"" name "\" bitsize=\"" bits "\" regnum=\"" number "\"/>\n"

static const char x86_core[] =
	"<architecture>i386:x86-64</architecture><feature name=\"org.gnu.gdb.i386.core\">\n" REG(
		"rax", "64") REG("rbx", "64") REG("rcx", "64") REG("rdx", "64") REG("rsi", "64")
		REG("rdi", "64") REG("rbp", "64") REG("rsp", "64") REG("r8", "64") REG("r9", "64")
			REG("r10", "64") REG("r11", "64") REG("r12", "64") REG("r13", "64") REG(
				"r14", "64") REG("r15", "64") REG("rip", "64") REG("eflags", "32")
				REG("cs", "32") "<!--\n" REG("ss_base", "64")
					REG("cr0", "64") "-->\n" REG("fs_base", "64")
						REG("cr0", "64") REG("cr3", "64") REG("cr4", "64")
							REG("efer", "64") REG("gs_base", "64")
								REG("k_gs_base", "64") "</feature>";
/* In bytes, of the above. */
#define RIP_AT	  128u
#define CR0_AT	  (RIP_AT + 8 + 4 + 4 + 8)
#define GS_AT	  (CR0_AT + 4 * 8)
#define X86_BYTES (GS_AT + 2 * 8)

static const char arm_core[] = "<architecture>arm</architecture>" REG("r0", "32") REG("r1", "32")
	REG("r2", "32") REG("r3", "32") REG("r4", "32") REG("r5", "32") REG("r6", "32")
		REG("r7", "32") REG("r8", "32") REG("r9", "32") REG("r10", "32") REG("r11", "32")
			REG("r12", "32") REG("sp", "32") REG("lr", "32") REG("pc", "32")
				NUMBERED("cpsr", "32", "25");
#define CPSR_AT	  64u
#define ARM_BYTES 68u
static const char arm_system[] =
	NUMBERED("TTBR0_EL1", "32", "157") NUMBERED("TTBR1_EL1", "32", "158")
		NUMBERED("TTBCR", "32", "161") NUMBERED("SCTLR", "32", "181");

static const char riscv_core[] = "<architecture>riscv:rv64</architecture>" REG("zero", "64") REG(
	"ra", "64") REG("sp", "64") REG("gp", "64") REG("tp", "64") REG("t0", "64") REG("t1", "64")
	REG("t2", "64") REG("fp", "64") REG("s1", "64") REG("a0", "64") REG("a1", "64")
		REG("a2", "64") REG("a3", "64") REG("a4", "64") REG("a5", "64") REG("a6", "64")
			REG("a7", "64") REG("s2", "64") REG("s3", "64") REG("s4", "64")
				REG("s5", "64") REG("s6", "64") REG("s7", "64") REG("s8", "64")
					REG("s9", "64") REG("s10", "64") REG("s11", "64")
						REG("t3", "64") REG("t4", "64") REG("t5", "64")
							REG("t6", "64") REG("pc", "64");
#define RISCV_BYTES (33u * 8)
static const char riscv_system[] =
	"<reg name=\"priv\" bitsize=\"64\"/>" NUMBERED("sstatus", "64", "322")
		NUMBERED("sepc", "64", "387") NUMBERED("satp", "64", "450");

/* x0 to x30, sp, pc; cpsr. */
#define ARM64_GENERAL 33u
#define ARM64_BYTES   (ARM64_GENERAL * 8 + 4)

struct stub {
	struct gdb gdb;
	int far; /* the stub's end */
	struct gdb_layout layout;
};

static int begin(void **state)
{
	struct stub *stub = calloc(1, sizeof(*stub));
	int ends[2];

	if (!stub || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	stub->gdb.fd = ends[0];
	stub->far = ends[1];
	*state = stub;
	return 0;
}

static int end(void **state)
{
	struct stub *stub = *state;

	close(stub->gdb.fd);
	close(stub->far);
	free(stub);
	return 0;
}

/* The stub's answer: these bytes in hex. In one piece: many small ones fill the socket. */
static void answers(const struct stub *stub, const uint8_t *bytes, size_t len)
{
	char hex[2 * ARM64_BYTES + 1];

	assert_true(2 * len < sizeof(hex));
	for (size_t i = 0; i < len; i++)
		sprintf(hex + 2 * i, "%02x", bytes[i]);
	dprintf(stub->far, "$%.*s#00", (int)(2 * len), hex);
}

static void describe(struct stub *stub, const char *first, const char *second, size_t together)
{
	gdb_layout_add(&stub->layout, first);
	gdb_layout_add(&stub->layout, second);
	stub->layout.together = together;
}

/* Each byte of the answer to "g" is its own cursor. */
static void fill(uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)i;
}

static void of_x86_all_are_in_one_answer(void **state)
{
	struct stub *stub = *state;
	uint8_t bytes[X86_BYTES];
	struct regs regs;

	describe(stub, x86_core, "", X86_BYTES);
	gdb_batch_begin(&stub->gdb);
	gdb_layout_request(&stub->layout, &stub->gdb);
	assert_int_equal(stub->gdb.acknowledged, 1);
	fill(bytes, X86_BYTES);
	/* CR0.ET; EFER.LMA. */
	bytes[CR0_AT] = 0x10;
	bytes[CR0_AT + 24 + 1] = 0x04;
	answers(stub, bytes, X86_BYTES);
	assert_true(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
	assert_int_equal(regs.word, 8);
	assert_int_equal(regs.pc, 0x8786858483828180ull);
	assert_int_equal(regs.sp, 0x3f3e3d3c3b3a3938ull);
	assert_int_equal(regs.flags, 0x8b8a8988);
	assert_int_equal(regs.own[0], 0xbfbebdbcbbbab9b8ull);
	assert_int_equal(regs.own[1], 0xc7c6c5c4c3c2c1c0ull);
}

static void of_arm_some_are_asked_for_one_by_one(void **state)
{
	static const uint8_t system[][4] = {{1, 0xc5}, {0, 0x40}, {0, 0x80}, {2}};
	struct stub *stub = *state;
	uint8_t bytes[ARM_BYTES];
	struct regs regs;

	describe(stub, arm_core, arm_system, ARM_BYTES);
	gdb_batch_begin(&stub->gdb);
	gdb_layout_request(&stub->layout, &stub->gdb);
	assert_int_equal(stub->gdb.acknowledged, 1 + sizeof(system) / sizeof(*system));
	assert_non_null(memmem(stub->gdb.batch, stub->gdb.batch_len, "$pb5#", 5));
	fill(bytes, ARM_BYTES);
	/* Supervisor mode. */
	bytes[CPSR_AT] = 0x13;
	answers(stub, bytes, ARM_BYTES);
	for (size_t i = 0; i < sizeof(system) / sizeof(*system); i++)
		answers(stub, system[i], sizeof(system[i]));
	assert_true(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
	assert_int_equal(regs.word, 4);
	assert_int_equal(regs.gp[3], 0x0f0e0d0c);
	assert_int_equal(regs.pc, 0x3f3e3d3c);
	assert_int_equal(regs.mmu.mode, MMU_ARM_SHORT);
	assert_int_equal(regs.mmu.root, 0x4000);
	assert_int_equal(regs.mmu.root_high, 0x8000);
	assert_int_equal(regs.mmu.control, 2);
}

static void of_arm64_the_kernels_own_data_are_asked_for_where_threads_are_wanted(void **state)
{
	/* In the order in which they are taken. */
	static const char *const names[] = {"SCTLR", "TTBR0_EL1", "TTBR1_EL1", "TCR_EL1",
					    "TPIDR_EL1"};
	static const uint8_t system[][8] = {
		{1}, {0, 0x40}, {0, 0x80}, {16}, {0x10, 0, 0, 0, 0, 0, 0xff, 0xff}};
	char core[2048] = "<architecture>aarch64</architecture>", more[1024] = "";
	struct stub *stub = *state;
	uint8_t bytes[ARM64_BYTES];
	struct regs regs;

	for (unsigned i = 0; i < 31; i++)
		snprintf(core + strlen(core), 64, "<reg name=\"x%u\" bitsize=\"64\"/>", i);
	strcat(core, REG("sp", "64") REG("pc", "64") REG("cpsr", "32"));
	for (unsigned i = 0; i < 5; i++)
		snprintf(more + strlen(more), 96, "<reg name=\"%s\" bitsize=\"64\" regnum=\"%u\"/>",
			 names[i], 100 + i);
	describe(stub, core, more, ARM64_BYTES);
	gdb_batch_begin(&stub->gdb);
	fill(bytes, ARM64_BYTES);
	/* EL1, with its own stack pointer. */
	memset(bytes + ARM64_GENERAL * 8, 0, 4);
	bytes[ARM64_GENERAL * 8] = 5;
	for (unsigned asked = 4; asked <= 5; asked++) {
		stub->layout.threads = asked == 5;
		gdb_layout_request(&stub->layout, &stub->gdb);
		answers(stub, bytes, ARM64_BYTES);
		for (unsigned i = 0; i < asked; i++)
			answers(stub, system[i], sizeof(system[i]));
		assert_true(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
		assert_false(regs.user);
		assert_true(regs.own[0] == (asked == 5 ? 0xffff000000000010ull : 0));
		assert_true(regs.own[1] == regs.own[0]);
	}
}

static void of_arm64_what_was_interrupted_is_asked_for_where_interrupts_are_masked(void **state)
{
	static const uint8_t trap[][8] = {{0x10, 0, 0, 0, 0, 0, 0xff, 0xff}, {5}};
	char core[2048] = "<architecture>aarch64</architecture>";
	struct stub *stub = *state;
	struct regs regs = {.flags = 5};

	for (unsigned i = 0; i < 31; i++)
		snprintf(core + strlen(core), 64, "<reg name=\"x%u\" bitsize=\"64\"/>", i);
	describe(stub, core, NUMBERED("ELR_EL1", "64", "100"), ARM64_BYTES);
	regs.flags |= ARM_PSTATE_I;
	assert_false(gdb_layout_wants_trap(&stub->layout, &regs));
	describe(stub, "", NUMBERED("SPSR_EL1", "64", "101"), ARM64_BYTES);
	assert_true(gdb_layout_wants_trap(&stub->layout, &regs));
	regs.user = true;
	assert_false(gdb_layout_wants_trap(&stub->layout, &regs));
	regs = (struct regs){.flags = 5};
	assert_false(gdb_layout_wants_trap(&stub->layout, &regs));
	gdb_batch_begin(&stub->gdb);
	gdb_layout_request_trap(&stub->layout, &stub->gdb);
	assert_int_equal(stub->gdb.acknowledged, 2);
	for (unsigned i = 0; i < 2; i++)
		answers(stub, trap[i], sizeof(trap[i]));
	assert_true(gdb_layout_take_trap(&stub->layout, &stub->gdb, &regs));
	assert_true(regs.has_elr);
	assert_true(regs.elr == 0xffff000000000010ull);
	assert_int_equal(regs.spsr, 5);
}

static void of_riscv_the_supervisors_are_asked_for_one_by_one(void **state)
{
	/* In the order in which they are taken: satp, priv, sepc, sstatus. */
	static const uint8_t system[][8] = {{0x45, 3, 0, 0, 0, 0, 0, 0x80}, {1}, {0x10}, {0, 1}};
	struct stub *stub = *state;
	uint8_t bytes[RISCV_BYTES];
	struct regs regs;

	describe(stub, riscv_core, riscv_system, RISCV_BYTES);
	gdb_batch_begin(&stub->gdb);
	gdb_layout_request(&stub->layout, &stub->gdb);
	assert_int_equal(stub->gdb.acknowledged, 1 + sizeof(system) / sizeof(*system));
	assert_non_null(memmem(stub->gdb.batch, stub->gdb.batch_len, "$p1c2#", 6));
	/* The next number, as none is told. */
	assert_non_null(memmem(stub->gdb.batch, stub->gdb.batch_len, "$p21#", 5));
	for (int zero = 1; zero >= 0; zero--) {
		fill(bytes, RISCV_BYTES);
		memset(bytes, !zero, 8);
		answers(stub, bytes, RISCV_BYTES);
		for (size_t i = 0; i < sizeof(system) / sizeof(*system); i++)
			answers(stub, system[i], sizeof(system[i]));
		assert_int_equal(gdb_layout_take(&stub->layout, &stub->gdb, &regs), zero);
		gdb_layout_request(&stub->layout, &stub->gdb);
	}
	assert_int_equal(regs.isa, ISA_RISCV);
	assert_int_equal(regs.gp[1], 0x0f0e0d0c0b0a0908);
	assert_int_equal(regs.sp, 0x1716151413121110);
	assert_int_equal(regs.pc, 0x0706050403020100);
	assert_int_equal(regs.mmu.mode, MMU_RISCV_39);
	assert_int_equal(regs.mmu.root, 0x345000);
	assert_int_equal(regs.elr, 0x10);
	assert_int_equal(regs.spsr, 0x100);
}

static void an_answer_that_is_too_short_or_cannot_be_is_none(void **state)
{
	struct stub *stub = *state;
	uint8_t bytes[X86_BYTES] = {0};
	struct regs regs;

	describe(stub, x86_core, "", X86_BYTES);
	gdb_batch_begin(&stub->gdb);
	for (int i = 0; i < 3; i++)
		gdb_layout_request(&stub->layout, &stub->gdb);
	/* CR0.ET is never 0. */
	answers(stub, bytes, X86_BYTES);
	assert_false(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
	bytes[CR0_AT] = 0x10;
	answers(stub, bytes, X86_BYTES - 1);
	assert_false(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
	answers(stub, bytes, X86_BYTES);
	assert_true(gdb_layout_take(&stub->layout, &stub->gdb, &regs));
}

static void any_text_does_no_harm(void **state)
{
	const char *texts[] = {"",
			       "<",
			       "<!--",
			       "<architecture>",
			       "<reg ",
			       "<reg name=\"rip\"",
			       "<reg name=\"rip\" bitsize=\"99999999999\"/>",
			       "<reg name=\"rip\" bitsize=\"-8\"/>",
			       "<reg name=\"rip\" bitsize=\"64\" regnum=\"-8\"/>",
			       "<reg name=\"\" bitsize=\"64\"/>",
			       "<reg name=\"a name that is longer than any\" bitsize=\"64\"/>",
			       "<reg bitsize=\"\" name=\"/>"};
	struct gdb_layout layout = {0};

	gdb_layout_add(&layout, "<architecture>i386:x86-64</architecture>");
	assert_non_null(layout.machine);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		layout.next_byte = 8;
		layout.next_number = 0;
		gdb_layout_add(&layout, texts[i]);
		assert_in_range(layout.next_byte, 8, GDB_PACKET_MAX);
	}
	assert_int_equal(layout.at[0].size, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(of_x86_all_are_in_one_answer, begin, end),
		cmocka_unit_test_setup_teardown(of_arm_some_are_asked_for_one_by_one, begin, end),
		cmocka_unit_test_setup_teardown(
			of_arm64_the_kernels_own_data_are_asked_for_where_threads_are_wanted, begin,
			end),
		cmocka_unit_test_setup_teardown(
			of_arm64_what_was_interrupted_is_asked_for_where_interrupts_are_masked,
			begin, end),
		cmocka_unit_test_setup_teardown(of_riscv_the_supervisors_are_asked_for_one_by_one,
						begin, end),
		cmocka_unit_test_setup_teardown(an_answer_that_is_too_short_or_cannot_be_is_none,
						begin, end),
		cmocka_unit_test(any_text_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
