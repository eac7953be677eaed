/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/process.h"

#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "arch/arm/arm.h"

/*
 * PTRACE_GETREGSET of a thread in AArch64 state, and in AArch32 state, where the
 * host may have no other (struct user_pt_regs, compat_user_regs in Linux).
 */
struct arm_user_64 {
	uint64_t x[31], sp, pc, pstate;
};

struct arm_user_32 {
	uint32_t r[16], cpsr, orig_r0;
};

union any_regs {
	struct arm_user_64 wide;
	struct arm_user_32 narrow;
};

/* DWARF register numbers (AADWARF64, AADWARF32) are the processor's own. */
enum { R7 = 7, R11 = 11, R13 = 13, R15 = 15, X29 = 29, SP64 = 31 };

static void from_wide(const struct arm_user_64 *from, struct regs *regs)
{
	regs->word = 8;
	regs->pc = from->pc;
	regs->sp = from->sp;
	regs->fp = from->x[X29];
	regs->flags = from->pstate;
	for (unsigned i = 0; i < SP64; i++)
		regs->gp[i] = from->x[i];
	regs->gp[SP64] = from->sp;
	regs->gp_valid = UINT32_MAX;
}

static void from_narrow(const struct arm_user_32 *from, struct regs *regs)
{
	regs->word = 4;
	regs->pc = from->r[R15];
	regs->sp = from->r[R13];
	regs->fp = from->r[from->cpsr & ARM_PSTATE_T ? R7 : R11];
	regs->flags = from->cpsr;
	for (unsigned i = 0; i <= R15; i++)
		regs->gp[i] = from->r[i];
	regs->gp_valid = 0xffff;
}

bool process_regs(pid_t tid, struct regs *regs)
{
	union any_regs any;
	struct iovec io = {&any, sizeof(any)};

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io))
		return false;
	memset(regs, 0, sizeof(*regs));
	regs->isa = ISA_ARM;
	if (io.iov_len == sizeof(any.narrow))
		from_narrow(&any.narrow, regs);
	else
		from_wide(&any.wide, regs);
	return true;
}

/* Registers in perf events differ between processors: those of this one are not supported. */
const uint64_t process_perf_mask = 0;

bool process_perf_regs(uint64_t abi, const uint64_t values[PROCESS_PERF_REGS], struct regs *regs)
{
	return false;
}
