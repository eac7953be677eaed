/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/regs.h"

#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "arch/arm_regs.h"

/* DWARF register numbers (AADWARF32) are the processor's own. */
enum { R7 = 7, R11 = 11, R13 = 13, R15 = 15, CPSR = 16 };

bool process_regs(pid_t tid, struct regs *regs)
{
	struct user_regs from;
	struct iovec io = {&from, sizeof(from)};

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io))
		return false;
	memset(regs, 0, sizeof(*regs));
	regs->isa = ISA_ARM;
	regs->word = 4;
	regs->pc = from.uregs[R15];
	regs->sp = from.uregs[R13];
	regs->flags = from.uregs[CPSR];
	regs->fp = from.uregs[regs->flags & ARM_PSTATE_T ? R7 : R11];
	for (unsigned i = 0; i <= R15; i++)
		regs->gp[i] = from.uregs[i];
	regs->gp_valid = 0xffff;
	return true;
}
