/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/regs.h"

#include <asm/perf_regs.h>
#include <elf.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

/* What PTRACE_GETREGSET gives for a thread in 32-bit mode (struct user_regs_struct32 in Linux). */
struct regs_32 {
	uint32_t ebx, ecx, edx, esi, edi, ebp, eax;
	uint32_t ds, es, fs, gs, orig_eax;
	uint32_t eip, cs, eflags, esp, ss;
};

union any_regs {
	struct user_regs_struct wide;
	struct regs_32 narrow;
};

/* DWARF register numbers: System V ABI x86-64, figure 3.36. */
static void from_wide(const struct user_regs_struct *from, struct regs *regs)
{
	const uint64_t by_number[] = {from->rax, from->rdx, from->rcx, from->rbx,
				      from->rsi, from->rdi, from->rbp, from->rsp,
				      from->r8,	 from->r9,  from->r10, from->r11,
				      from->r12, from->r13, from->r14, from->r15};

	regs->word = 8;
	regs->pc = from->rip;
	regs->sp = from->rsp;
	regs->fp = from->rbp;
	regs->flags = from->eflags;
	memcpy(regs->gp, by_number, sizeof(by_number));
	regs->gp_valid = 0xffff;
}

/* ... and those of the i386 psABI, table 2.14. */
static void from_narrow(const struct regs_32 *from, struct regs *regs)
{
	const uint64_t by_number[] = {from->eax, from->ecx, from->edx, from->ebx,
				      from->esp, from->ebp, from->esi, from->edi};

	regs->word = 4;
	regs->pc = from->eip;
	regs->sp = from->esp;
	regs->fp = from->ebp;
	regs->flags = from->eflags;
	memcpy(regs->gp, by_number, sizeof(by_number));
	regs->gp_valid = 0xff;
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

bool process_perf_regs_known(uint64_t abi)
{
	return abi == PERF_SAMPLE_REGS_ABI_64 || abi == PERF_SAMPLE_REGS_ABI_32;
}

/* The kernel's order is its own; of the mask, r8 follows ss. */
static uint64_t value_of(const uint64_t *values, unsigned reg)
{
	return values[reg < PERF_REG_X86_R8 ? reg : reg - PERF_REG_X86_R8 + PERF_REG_X86_SS + 1];
}

void process_perf_regs(uint64_t abi, const uint64_t values[PROCESS_PERF_REGS], struct regs *regs)
{
	static const uint8_t by_number[] = {PERF_REG_X86_AX,  PERF_REG_X86_DX,	PERF_REG_X86_CX,
					    PERF_REG_X86_BX,  PERF_REG_X86_SI,	PERF_REG_X86_DI,
					    PERF_REG_X86_BP,  PERF_REG_X86_SP,	PERF_REG_X86_R8,
					    PERF_REG_X86_R9,  PERF_REG_X86_R10, PERF_REG_X86_R11,
					    PERF_REG_X86_R12, PERF_REG_X86_R13, PERF_REG_X86_R14,
					    PERF_REG_X86_R15};
	static const uint8_t by_number_32[] = {PERF_REG_X86_AX, PERF_REG_X86_CX, PERF_REG_X86_DX,
					       PERF_REG_X86_BX, PERF_REG_X86_SP, PERF_REG_X86_BP,
					       PERF_REG_X86_SI, PERF_REG_X86_DI};
	const bool wide = abi == PERF_SAMPLE_REGS_ABI_64;
	const uint8_t *order = wide ? by_number : by_number_32;
	const unsigned n = wide ? sizeof(by_number) : sizeof(by_number_32);

	*regs = (struct regs){.word = wide ? 8 : 4,
			      .pc = value_of(values, PERF_REG_X86_IP),
			      .sp = value_of(values, PERF_REG_X86_SP),
			      .fp = value_of(values, PERF_REG_X86_BP),
			      .flags = value_of(values, PERF_REG_X86_FLAGS),
			      .gp_valid = (1u << n) - 1};
	for (unsigned i = 0; i < n; i++)
		regs->gp[i] = value_of(values, order[i]);
}
