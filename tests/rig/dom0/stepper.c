/* SPDX-License-Identifier: BSD-3-Clause */
#include "stepper.h"

#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <linux/ptrace.h>

#include "watch.h"

/* Xen's driver in Linux, include/uapi/xen/privcmd.h, and public/xen.h. */
#define PRIVCMD_HYPERCALL _IOC(_IOC_NONE, 'P', 0, 6 * 8)
#define MULTICALL	  13

/* Samples that are let pass first. */
#define WARM_UP 2

/* The instruction `syscall`. */
#define SYSCALL_BYTES 0x050f

static void go_on(pid_t pid, enum __ptrace_request how)
{
	int status, signal = 0;

	do {
		if (ptrace(how, pid, NULL, signal) || waitpid(pid, &status, __WALL) != pid)
			give_up("the traced profiler is lost");
		if (!WIFSTOPPED(status))
			give_up("the traced profiler has ended: status %#x", status);
		signal = WSTOPSIG(status);
	} while (signal != SIGTRAP && signal != (SIGTRAP | 0x80));
}

/* Goes on until a system call begins (PTRACE_SYSCALL_INFO_ENTRY) or ends (.._EXIT). */
static void to_system_call(pid_t pid, int where, struct __ptrace_syscall_info *info)
{
	do {
		go_on(pid, PTRACE_SYSCALL);
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(*info), info) < 0)
			give_up("no news about system calls");
	} while (info->op != where);
}

static bool is_sleep(const struct __ptrace_syscall_info *entry)
{
	return entry->entry.nr == SYS_clock_nanosleep;
}

static bool is_multicall(pid_t pid, const struct __ptrace_syscall_info *entry)
{
	return entry->entry.nr == SYS_ioctl && entry->entry.args[1] == PRIVCMD_HYPERCALL &&
	       ptrace(PTRACE_PEEKDATA, pid, entry->entry.args[2], NULL) == MULTICALL;
}

void stepper_to_loop(pid_t pid)
{
	struct __ptrace_syscall_info info;
	unsigned samples = 0;
	int status;
	bool sleeps;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, &status, __WALL) != pid ||
	    !WIFSTOPPED(status))
		give_up("the profiler cannot be traced");
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	do {
		to_system_call(pid, PTRACE_SYSCALL_INFO_ENTRY, &info);
		sleeps = is_sleep(&info);
		samples += is_multicall(pid, &info);
		to_system_call(pid, PTRACE_SYSCALL_INFO_EXIT, &info);
	} while (!sleeps || samples < WARM_UP);
}

bool stepper_to_stretch(pid_t pid, unsigned stretch)
{
	struct __ptrace_syscall_info info;

	for (unsigned i = 0; i < stretch; i++) {
		to_system_call(pid, PTRACE_SYSCALL_INFO_ENTRY, &info);
		if (is_sleep(&info))
			return false;
		to_system_call(pid, PTRACE_SYSCALL_INFO_EXIT, &info);
	}
	return true;
}

void stepper_to_call(pid_t pid)
{
	struct __ptrace_syscall_info info;

	to_system_call(pid, PTRACE_SYSCALL_INFO_ENTRY, &info);
}

uint64_t stepper_step(pid_t pid, uint64_t most)
{
	uint64_t steps = 0;

	while (steps < most) {
		struct user_regs_struct regs;

		ptrace(PTRACE_GETREGS, pid, NULL, &regs);
		if ((ptrace(PTRACE_PEEKTEXT, pid, regs.rip, NULL) & 0xffff) == SYSCALL_BYTES)
			break;
		go_on(pid, PTRACE_SINGLESTEP);
		steps++;
	}
	return steps;
}
