/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/process.h"

#include <asm/perf_regs.h>
#include <elf.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

/* PTRACE_GETREGSET of a thread in 32-bit mode (struct user_regs_struct32 in Linux). */
struct x86_user_32 {
	uint32_t ebx, ecx, edx, esi, edi, ebp, eax;
	uint32_t ds, es, fs, gs, orig_eax;
	uint32_t eip, cs, eflags, esp, ss;
};

union any_regs {
	struct user_regs_struct wide;
	struct x86_user_32 narrow;
};

/* `gp` by DWARF register number: System V ABI x86-64, figure 3.36; i386 psABI, table 2.14. */
static void set_general(struct regs *regs, unsigned word, const uint64_t *gp)
{
	const unsigned n = word == 8 ? 16 : 8;

	regs->word = (uint8_t)word;
	memcpy(regs->gp, gp, n * sizeof(*gp));
	regs->gp_valid = (1u << n) - 1;
	regs->fp = gp[word == 8 ? 6 : 5];
	regs->sp = gp[word == 8 ? 7 : 4];
}

static void from_wide(const struct user_regs_struct *from, struct regs *regs)
{
	const uint64_t gp[] = {from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
			       from->rbp, from->rsp, from->r8,	from->r9,  from->r10, from->r11,
			       from->r12, from->r13, from->r14, from->r15};

	set_general(regs, 8, gp);
	regs->pc = from->rip;
	regs->flags = from->eflags;
}

static void from_narrow(const struct x86_user_32 *from, struct regs *regs)
{
	const uint64_t gp[] = {from->eax, from->ecx, from->edx, from->ebx,
			       from->esp, from->ebp, from->esi, from->edi};

	set_general(regs, 4, gp);
	regs->pc = from->eip;
	regs->flags = from->eflags;
}

bool process_regs(pid_t tid, struct regs *regs)
{
	union any_regs any;
	struct iovec io = {&any, sizeof(any)};

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io))
		return false;
	memset(regs, 0, sizeof(*regs));
	if (io.iov_len == sizeof(any.narrow))
		from_narrow(&any.narrow, regs);
	else
		from_wide(&any.wide, regs);
	return true;
}

/* PERF_REG_X86_...: all but segments other than cs and ss. */
const uint64_t process_perf_mask = 0xff0fff;

/* The kernel's order is its own; of the mask, r8 follows ss. */
static uint64_t value_of(const uint64_t *values, unsigned reg)
{
	return values[reg < PERF_REG_X86_R8 ? reg : reg - PERF_REG_X86_R8 + PERF_REG_X86_SS + 1];
}

bool process_perf_regs(uint64_t abi, const uint64_t values[PROCESS_PERF_REGS], struct regs *regs)
{
	static const uint8_t order[][16] = {
		{PERF_REG_X86_AX, PERF_REG_X86_DX, PERF_REG_X86_CX, PERF_REG_X86_BX,
		 PERF_REG_X86_SI, PERF_REG_X86_DI, PERF_REG_X86_BP, PERF_REG_X86_SP,
		 PERF_REG_X86_R8, PERF_REG_X86_R9, PERF_REG_X86_R10, PERF_REG_X86_R11,
		 PERF_REG_X86_R12, PERF_REG_X86_R13, PERF_REG_X86_R14, PERF_REG_X86_R15},
		{PERF_REG_X86_AX, PERF_REG_X86_CX, PERF_REG_X86_DX, PERF_REG_X86_BX,
		 PERF_REG_X86_SP, PERF_REG_X86_BP, PERF_REG_X86_SI, PERF_REG_X86_DI}};
	const bool wide = abi == PERF_SAMPLE_REGS_ABI_64;
	uint64_t gp[16];

	if (!wide && abi != PERF_SAMPLE_REGS_ABI_32)
		return false;
	for (unsigned i = 0; i < 16; i++)
		gp[i] = value_of(values, order[!wide][i]);
	memset(regs, 0, sizeof(*regs));
	set_general(regs, wide ? 8 : 4, gp);
	regs->pc = value_of(values, PERF_REG_X86_IP);
	regs->flags = value_of(values, PERF_REG_X86_FLAGS);
	return true;
}
