/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "arch/x86_regs.h"
#include "target/gdb/layout.h"

/* CS and SS tell their descriptors' privilege in their low bits (SDM vol. 3, 3.4.2). */
#define RPL 3u

#define EFER_LMA (1ull << 10)

/* Is always set (SDM vol. 3, 2.5): that it is shows that the layout is right. */
#define CR0_ET (1ull << 4)

enum { RIP, EFLAGS, CS, CR0, CR3, CR4, GP, GP_NARROW = 8, GP_WIDE = 16 };
enum { EFER_WIDE = GP + GP_WIDE, EFER_NARROW = GP + GP_NARROW };

static const char *const wide[] = {"rip", "eflags", "cs",  "cr0", "cr3", "cr4", "rax",	"rcx",
				   "rdx", "rbx",    "rsp", "rbp", "rsi", "rdi", "r8",	"r9",
				   "r10", "r11",    "r12", "r13", "r14", "r15", "efer", NULL};
static const char *const narrow[] = {"eip", "eflags", "cs",  "cr0", "cr3", "cr4", "eax",  "ecx",
				     "edx", "ebx",    "esp", "ebp", "esi", "edi", "efer", NULL};

static bool take(const uint64_t *value, size_t gp, uint64_t efer, bool code_of_64, struct regs *to)
{
	struct x86_regs regs = {.rip = value[RIP],
				.rflags = value[EFLAGS],
				.cr0 = value[CR0],
				.cr3 = value[CR3],
				.cr4 = value[CR4],
				.efer = efer,
				.cpl = value[CS] & RPL};

	/*
	 * The stub does not tell descriptors. In long mode it gives registers of 32
	 * bits to code of 32 bits; flat segments are taken for granted there.
	 */
	regs.cs_long = efer & EFER_LMA && code_of_64;
	memcpy(regs.gp, value + GP, gp * sizeof(*value));
	x86_regs_take(&regs, to);
	return value[CR0] & CR0_ET;
}

static bool take_wide(const uint64_t *value, struct regs *to)
{
	return take(value, GP_WIDE, value[EFER_WIDE], true, to);
}

static bool take_narrow(const uint64_t *value, struct regs *to)
{
	return take(value, GP_NARROW, value[EFER_NARROW], false, to);
}

const struct gdb_machine gdb_x86_64 = {
	.name = "i386:x86-64",
	.arch = &arch_x86_64,
	.registers = wide,
	.needed = GP + GP_WIDE,
	.take = take_wide,
};

/* Its recordings are those of a processor that could do more. */
const struct gdb_machine gdb_i386 = {
	.name = "i386",
	.arch = &arch_x86_64,
	.registers = narrow,
	.needed = GP + GP_NARROW,
	.take = take_narrow,
};
