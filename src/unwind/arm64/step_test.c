/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Unwinding 64-bit Arm at every instruction of real programs. Some of them sign
 * their return addresses.
 */

#include "unwind/emulated_testing.h"

#include "arch/arm/arm.h"

/* Addresses of 48 bits. */
#define CONTROL 16
enum { FP = 29, LR, SP, PC, REGISTERS };

static struct stepped stepped;

static void take_registers(struct stepped *at)
{
	assert_true(gdb_bytes(at->gdb, 0, at->r, REGISTERS * sizeof(*at->r)));
}

static uint64_t link_register(const struct stepped *at)
{
	return at->r[PC] + 4;
}

static void fill(const struct stepped *at, struct regs *regs)
{
	regs->fp = at->r[FP];
	regs->word = 8;
	regs->isa = ISA_ARM;
	regs->gp_valid = UINT32_MAX;
	regs->mmu = (struct mmu){.mode = MMU_ARM64, .control = CONTROL};
	memcpy(regs->gp, at->r, sizeof(regs->gp));
}

/* Is any return address of the program other than it looks? Then it was signed. */
static void count_signatures(struct stepped *at)
{
	const struct mmu mmu = {.mode = MMU_ARM64, .control = CONTROL};

	at->signatures += at->r[LR] != arm64_strip(&mmu, at->r[LR]);
}

static const struct machine arm64 = {.emulator = "qemu-aarch64",
				     .cpu = "max",
				     .name = "64-bit Arm",
				     .sp = SP,
				     .lr = LR,
				     .pc = PC,
				     .take_registers = take_registers,
				     .link = link_register,
				     .fill = fill,
				     .see = count_signatures};

/* With symbols, every instruction of every function has all of its callers; by tables alone, too. */
static void every_instruction_has_its_callers(void **state)
{
	const char *name = *state;
	struct way ways[] = {{.named = true},
			     {.method = UNWIND_CFI},
			     {.method = UNWIND_FP},
			     {.method = UNWIND_AUTO}};

	stepped = (struct stepped){.machine = &arm64};
	walk_through(&stepped, name, ways, 4);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ways[i].of[WHOLE] + ways[i].of[NO_RETURN], stepped.steps);
	assert_no_symbols_are_needed(&stepped, ways + 2, 2);
	assert_int_equal(stepped.signatures > 0, strstr(name, "pac") != NULL);
}

#define PROGRAM(name) \
	cmocka_unit_test_prestate(every_instruction_has_its_callers, "stepped-arm64-" name)

static int run(void)
{
	const struct CMUnitTest tests[] = {PROGRAM("fp"),	PROGRAM("nofp"),
					   PROGRAM("O0-pac"),	PROGRAM("fp-pac"),
					   PROGRAM("nofp-pac"), PROGRAM("nofp-pac83")};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_emulated(&arm64, run);
}
