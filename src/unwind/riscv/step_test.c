/* SPDX-License-Identifier: BSD-3-Clause */

/* Unwinding 64-bit RISC-V at every instruction of real programs, compressed instructions among them. */

#include "unwind/emulated_testing.h"

#include "arch/riscv/riscv.h"

enum { PC = RISCV_REGISTERS, REGISTERS };

static struct stepped stepped;

static void take_registers(struct stepped *at)
{
	assert_true(gdb_bytes(at->gdb, 0, at->r, REGISTERS * sizeof(*at->r)));
}

/* Both lowest bits set: an instruction of four bytes. */
static uint64_t link_register(const struct stepped *at)
{
	uint8_t first;

	assert_int_equal(read_emulated(at->pid, at->r[PC], &first, 1), 1);
	return at->r[PC] + ((first & 3) == 3 ? 4 : 2);
}

static void fill(const struct stepped *at, struct regs *regs)
{
	regs->fp = at->r[RISCV_S0];
	regs->word = 8;
	regs->isa = ISA_RISCV;
	regs->gp_valid = UINT32_MAX;
	memcpy(regs->gp, at->r, sizeof(regs->gp));
}

static const struct machine riscv64 = {.emulator = "qemu-riscv64",
				       .cpu = "rv64",
				       .name = "64-bit RISC-V",
				       .sp = RISCV_SP,
				       .lr = RISCV_RA,
				       .pc = PC,
				       .take_registers = take_registers,
				       .link = link_register,
				       .fill = fill};

/*
 * With symbols, every instruction of every function has all of its callers, with and without tables;
 * by tables alone, too, though those of clang do not tell how functions end.
 */
static void every_instruction_has_its_callers(void **state)
{
	struct way ways[] = {{.named = true},
			     {.named = true, .method = UNWIND_FP},
			     {.method = UNWIND_CFI},
			     {.method = UNWIND_FP},
			     {.method = UNWIND_AUTO}};

	stepped = (struct stepped){.machine = &riscv64};
	walk_through(&stepped, *state, ways, 5);
	for (int i = 0; i < 3; i++) {
		/* Half a call in _start has overwritten ra, which only its table says is no return address. */
		const unsigned long cut = i == 1 && strstr(*state, "clang");

		assert_int_equal(ways[i].of[WHOLE] + ways[i].of[NO_RETURN] + cut, stepped.steps);
		assert_int_equal(ways[i].of[TRUNCATED], cut);
	}
	assert_no_symbols_are_needed(&stepped, ways + 3, 2);
}

#define PROGRAM(name) \
	cmocka_unit_test_prestate(every_instruction_has_its_callers, "stepped-riscv64-" name)

static int run(void)
{
	const struct CMUnitTest tests[] = {PROGRAM("gcc-nofp"),	 PROGRAM("clang-nofp"),
					   PROGRAM("gcc-fp"),	 PROGRAM("clang-fp"),
					   PROGRAM("gcc-O0-fp"), PROGRAM("gcc-Os-nofp")};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_emulated(&riscv64, run);
}
