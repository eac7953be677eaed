/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/seccomp_rules.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#define XEN	SECCOMP_SAMPLER
#define TRACER	SECCOMP_TRACER
#define SAMPLER (SECCOMP_SAMPLER | SECCOMP_TRACER)
#define FILES	(SAMPLER | SECCOMP_READER)
#define ALL	(FILES | SECCOMP_GUARD)

#define ALLOW(roles, name)                      \
	{                                       \
		SCMP_SYS(name), roles, -1, 0, 0 \
	}
#define ALLOW_IF(roles, name, argument, mask, value)         \
	{                                                    \
		SCMP_SYS(name), roles, argument, mask, value \
	}

/*
 * The Xen driver's calls (include/uapi/xen/privcmd.h in Linux): 'P', a number
 * and the size of the argument, no direction.
 */
#define XEN_HYPERCALL	  _IOC(_IOC_NONE, 'P', 0, 6 * 8)
#define XEN_MMAP	  _IOC(_IOC_NONE, 'P', 2, 2 * 8)
#define XEN_MMAP_BATCH	  _IOC(_IOC_NONE, 'P', 3, 3 * 8)
#define XEN_MMAP_BATCH_V2 _IOC(_IOC_NONE, 'P', 4, 4 * 8)

/* The kernel takes 32 bits of these arguments. */
#define INT_BITS 0xffffffffu

#define READ_ONLY_BITS (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND)

/* A process of its own, as fork() makes it: shares nothing, has no namespaces of its own. */
#define FORK_BITS (~(uint64_t)(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID))

const struct seccomp_rule seccomp_allowed[] = {
	/* Samples, waits for deadlines, and asks the time where the vDSO cannot tell it. */
	ALLOW_IF(XEN | SECCOMP_GUARD, ioctl, 1, INT_BITS, XEN_HYPERCALL),
	ALLOW_IF(XEN, ioctl, 1, INT_BITS, XEN_MMAP),
	ALLOW_IF(XEN, ioctl, 1, INT_BITS, XEN_MMAP_BATCH),
	ALLOW_IF(XEN, ioctl, 1, INT_BITS, XEN_MMAP_BATCH_V2),

	/*
	 * Stops threads that were seized before, and reads their registers.
	 * Registers and memory cannot be written, nor other processes seized.
	 */
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_INTERRUPT),
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_CONT),
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_LISTEN),
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_DETACH),
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_GETREGSET),
	ALLOW_IF(TRACER, ptrace, 0, UINT64_MAX, PTRACE_GETEVENTMSG),
	ALLOW(TRACER, rt_sigtimedwait),
	/* Asks for a perf event that is open, and waits for what comes of it (target/kvm/unpaused.c). */
	ALLOW_IF(TRACER, ioctl, 1, INT_BITS, PERF_EVENT_IOC_REFRESH),
	ALLOW(TRACER, epoll_wait),

	ALLOW(SAMPLER, clock_nanosleep),
	ALLOW(SAMPLER, nanosleep),
	ALLOW(ALL, clock_gettime),
	ALLOW(ALL, gettimeofday),
	ALLOW(ALL, time),

	/* Sampling at the lowest real-time priority, and in memory that is not paged out. */
	ALLOW(SAMPLER, sched_setscheduler),
	ALLOW(SAMPLER, sched_getscheduler),
	ALLOW(SAMPLER, sched_getparam),
	ALLOW(SAMPLER, sched_get_priority_min),
	ALLOW(SAMPLER | SECCOMP_GUARD, mlockall),
	ALLOW(SAMPLER, munlockall),
	ALLOW(SAMPLER | SECCOMP_GUARD, mlock),
	ALLOW(SAMPLER | SECCOMP_GUARD, munlock),

	/* Memory that holds no code: the heap, buffers, foreign frames, files. */
	ALLOW_IF(ALL, mmap, 2, PROT_EXEC, 0),
	ALLOW_IF(ALL, mprotect, 2, PROT_EXEC, 0),
	ALLOW(ALL, munmap),
	ALLOW(ALL, mremap),
	ALLOW(ALL, madvise),
	ALLOW(ALL, brk),

	/* What is open: recording, trace, picture, standard streams, the pipes to the guard. */
	ALLOW(ALL, read),
	ALLOW(ALL, write),
	ALLOW(ALL, close),
	ALLOW(FILES, readv),
	ALLOW(FILES, writev),
	ALLOW(FILES, pread64),
	ALLOW(ALL, pwrite64),
	ALLOW(FILES, lseek),
	ALLOW(FILES, ftruncate),
	ALLOW(FILES, poll),
	ALLOW(FILES, ppoll),
	ALLOW(FILES, fcntl),
	ALLOW(FILES, dup),
	ALLOW(FILES, wait4),				 /* guard, pager */
	ALLOW_IF(FILES, ioctl, 1, INT_BITS, TCGETS),	 /* isatty() */
	ALLOW_IF(FILES, ioctl, 1, INT_BITS, TIOCGWINSZ), /* how wide is it? */
	ALLOW_IF(SECCOMP_SCREEN, ioctl, 1, INT_BITS, TCSETS),
	ALLOW_IF(SECCOMP_SCREEN, ioctl, 1, INT_BITS, TCSETSW),

	/* Files to read: separate debug files are only known once the image has been read. */
	ALLOW_IF(FILES, openat, 2, READ_ONLY_BITS, O_RDONLY),
	ALLOW_IF(FILES, open, 1, READ_ONLY_BITS, O_RDONLY),
	ALLOW(FILES, access),
	ALLOW(FILES, faccessat),
	ALLOW(FILES, faccessat2),
	ALLOW(ALL, fstat),
	ALLOW(ALL, newfstatat), /* fstat() of glibc from 2.33 on */
	ALLOW(FILES, stat),
	ALLOW(FILES, lstat),
	ALLOW(FILES, statx),
	ALLOW(FILES, readlink),
	ALLOW(FILES, readlinkat),
	ALLOW(FILES, getdents64),
	ALLOW(FILES, getcwd),

	/*
	 * Processes that files are parsed in (symbol/apart.h), with less time and
	 * no life of their own; and a new guard, when somebody has killed the old
	 * one (target/guard.c).
	 */
	ALLOW_IF(FILES, clone, 0, FORK_BITS, SIGCHLD),
	ALLOW(FILES, fork), /* of C libraries that do not use clone */
	ALLOW(FILES, pipe2),
	ALLOW_IF(FILES, prctl, 0, INT_BITS, PR_SET_PDEATHSIG),
	ALLOW_IF(FILES, prlimit64, 0, INT_BITS, 0), /* its own; what is hard cannot be raised */
	ALLOW(SAMPLER, setsid),
	ALLOW(ALL, seccomp), /* filters only add up */
	ALLOW_IF(ALL, prctl, 0, INT_BITS, PR_SET_NAME),
	ALLOW_IF(ALL, prctl, 0, INT_BITS, PR_SET_NO_NEW_PRIVS),
	ALLOW_IF(ALL, prctl, 0, INT_BITS, PR_SET_SECCOMP),
	ALLOW_IF(ALL, prctl, 0, INT_BITS, PR_GET_SECCOMP),
	ALLOW_IF(ALL, prlimit64, 2, UINT64_MAX, 0), /* sysconf(): asks, sets nothing */

	/* Signals, and the end. */
	ALLOW(ALL, rt_sigaction),
	ALLOW(ALL, rt_sigprocmask),
	ALLOW(ALL, rt_sigreturn),
	ALLOW(ALL, sigaltstack),
	ALLOW(ALL, restart_syscall),
	ALLOW(ALL, exit),
	ALLOW(ALL, exit_group),

	/* What C libraries do by themselves; none of it reaches beyond the process. */
	ALLOW(ALL, futex),
	ALLOW(ALL, getrandom),
	ALLOW(ALL, set_robust_list),
	ALLOW(ALL, rseq),
	ALLOW(ALL, getpid),
	ALLOW(ALL, getppid),
	ALLOW(ALL, gettid),
	ALLOW(ALL, getuid),
	ALLOW(ALL, geteuid),
	ALLOW(ALL, getgid),
	ALLOW(ALL, getegid),
	ALLOW(ALL, capget),
	ALLOW(ALL, uname),
	ALLOW(FILES, sysinfo), /* qsort(): how much memory is there? */
	ALLOW(FILES, sched_getaffinity),
	ALLOW(ALL, sched_yield),
};

const size_t seccomp_n_allowed = sizeof(seccomp_allowed) / sizeof(*seccomp_allowed);

const int seccomp_fatal[] = {
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(keyctl),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(reboot),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
};

const size_t seccomp_n_fatal = sizeof(seccomp_fatal) / sizeof(*seccomp_fatal);
