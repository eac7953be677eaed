/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/regs.h"

#include <elf.h>
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
