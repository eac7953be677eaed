/* SPDX-License-Identifier: BSD-3-Clause */
#include "recorded.h"

#include <err.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int add_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct recording *recording = ctx;
	struct module module = {.bias = info->dlpi_addr, .start = UINT64_MAX};

	/* The vdso has no file. */
	if (*info->dlpi_name == 'l' || recording->n_modules == MODULES_MAX)
		return 0;
	snprintf(module.path, sizeof(module.path), "%s",
		 *info->dlpi_name ? info->dlpi_name : "/proc/self/exe");
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uint64_t start = module.bias + segment->p_vaddr, end = start + segment->p_memsz;

		if (segment->p_type == PT_GNU_EH_FRAME) {
			module.eh_frame_hdr = start;
			module.eh_frame_hdr_len = segment->p_memsz;
		}
		if (segment->p_type != PT_LOAD)
			continue;
		if (start < module.start)
			module.start = start;
		if (end > module.end)
			module.end = end;
		if (segment->p_flags & PF_X) {
			module.text = start;
			module.text_end = end;
		}
	}
	recording->module[recording->n_modules++] = module;
	return 0;
}

const struct module *module_at(const struct recording *recording, uint64_t va)
{
	for (size_t i = 0; i < recording->n_modules; i++)
		if (va >= recording->module[i].start && va < recording->module[i].end)
			return &recording->module[i];
	return NULL;
}

bool recorded_read(const struct recording *recording, const struct recorded *stack, uint64_t va,
		   void *buf, size_t len)
{
	const struct module *module;

	if (va - stack->va < stack->len && stack->len - (va - stack->va) >= len) {
		memcpy(buf, stack->bytes + (va - stack->va), len);
		return true;
	}
	module = module_at(recording, va);
	if (!module || module->end - va < len)
		return false;
	memcpy(buf, (const void *)(uintptr_t)va, len);
	return true;
}

static void take(pid_t pid, struct recorded *stack)
{
	struct user_regs_struct user;
	struct iovec to, from;
	ssize_t got;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &user))
		err(1, "registers");
	memcpy(stack->gp,
	       (const uint64_t[]){user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi,
				  user.rbp, user.rsp, user.r8, user.r9, user.r10, user.r11,
				  user.r12, user.r13, user.r14, user.r15, user.rip},
	       sizeof(stack->gp));
	/* Tables of compilers speak of words that were popped but are still there. */
	stack->va = (user.rsp & ~7ull) - RED_ZONE;
	/* As much as there is. */
	for (size_t len = STACK_BYTES; len >= 512; len -= 512) {
		to = (struct iovec){stack->bytes, len};
		from = (struct iovec){(void *)(uintptr_t)stack->va, len};
		got = process_vm_readv(pid, &to, 1, &from, 1, 0);
		if (got > 0) {
			stack->len = (size_t)got;
			return;
		}
	}
	errx(1, "the child has no stack");
}

static void stop(pid_t pid)
{
	const struct timespec nap = {.tv_nsec = 100000 + random() % 400000};
	int status;

	nanosleep(&nap, NULL);
	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid ||
	    !WIFSTOPPED(status))
		err(1, "cannot stop the child");
}

void record_stacks(struct recording *recording, size_t n)
{
	pid_t pid;

	dl_iterate_phdr(add_module, recording);
	recording->stack = calloc(n, sizeof(*recording->stack));
	recording->n = n;
	if (!recording->stack)
		err(1, "memory");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		subject();
	}
	if (pid < 0 || ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		err(1, "cannot trace a child");
	for (size_t i = 0; i < n; i++) {
		stop(pid);
		take(pid, &recording->stack[i]);
		ptrace(PTRACE_CONT, pid, NULL, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
