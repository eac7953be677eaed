/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

#define XEN	SECCOMP_SAMPLER
#define TRACER	SECCOMP_TRACER
#define SAMPLER (SECCOMP_SAMPLER | SECCOMP_TRACER)
#define PARENTS (SAMPLER | SECCOMP_READER) /* start processes that parse, and guards */
#define FILES	(PARENTS | SECCOMP_PARSER)
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
	/* Makes threads ask KVM for registers (target/kvm/vcpus_arm64.c). */
	ALLOW_IF(SECCOMP_CALLER, ptrace, 0, UINT64_MAX, PTRACE_SETREGSET),
	ALLOW_IF(SECCOMP_CALLER, ptrace, 0, UINT64_MAX, PTRACE_SYSCALL),
	ALLOW_IF(SECCOMP_CALLER, ptrace, 0, UINT64_MAX, PTRACE_GETSIGMASK),
	ALLOW_IF(SECCOMP_CALLER, ptrace, 0, UINT64_MAX, PTRACE_SETSIGMASK),
	ALLOW_IF(SECCOMP_CALLER, ptrace, 0, UINT64_MAX, PTRACE_GET_RSEQ_CONFIGURATION),
	/* Asks for a perf event that is open, and waits for what comes of it (target/kvm/bpf_reader.c). */
	ALLOW_IF(TRACER, ioctl, 1, INT_BITS, PERF_EVENT_IOC_REFRESH),
	ALLOW_IF(TRACER, ioctl, 1, INT_BITS, PERF_EVENT_IOC_PERIOD),
	ALLOW_IF(TRACER, ioctl, 1, INT_BITS, PERF_EVENT_IOC_ENABLE),
	ALLOW(TRACER, epoll_pwait),
	ALLOW(TRACER, epoll_wait),

	ALLOW(SAMPLER | SECCOMP_GUARD, clock_nanosleep),
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

	/* Open files: recording, trace, picture, standard streams, the pipes to the guard. */
	ALLOW(ALL, read),
	ALLOW(ALL, write),
	ALLOW(ALL, close),
	ALLOW(FILES, readv),
	ALLOW(FILES, writev),
	ALLOW(ALL, pread64),
	ALLOW(ALL, pwrite64),
	ALLOW(FILES, lseek),
	/* Brings what was written to the disk, and drops it from the cache. */
	ALLOW(FILES, sync_file_range),
	ALLOW(FILES, fadvise64),
	ALLOW(PARENTS, ftruncate),
	ALLOW(PARENTS, flock),
	ALLOW(ALL, poll),
	ALLOW(ALL, ppoll),
	/* Asks, and makes copies; signals, leases and the sizes of pipes are nobody's. */
	ALLOW_IF(FILES, fcntl, 1, INT_BITS, F_DUPFD),
	ALLOW_IF(FILES, fcntl, 1, INT_BITS, F_DUPFD_CLOEXEC),
	ALLOW_IF(FILES, fcntl, 1, INT_BITS, F_GETFD),
	ALLOW_IF(FILES, fcntl, 1, INT_BITS, F_SETFD),
	ALLOW_IF(FILES, fcntl, 1, INT_BITS, F_GETFL),
	ALLOW(FILES, dup),
	ALLOW(PARENTS, wait4),				 /* guard, pager */
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
	 * Processes that files are parsed in (base/sandbox.h), with less time and
	 * no life of their own; and a new guard, when somebody has killed the old
	 * one (target/guard.c).
	 */
	ALLOW_IF(PARENTS, clone, 0, FORK_BITS, SIGCHLD),
	ALLOW(PARENTS, fork), /* of C libraries that do not use clone */
	ALLOW(PARENTS, pipe2),
	/* Sets the time for a file before its own filter, under which nobody takes it back. */
	ALLOW(PARENTS, alarm),
	ALLOW(PARENTS, setitimer), /* of machines that have no alarm */
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
	ALLOW(SAMPLER, rt_sigtimedwait), /* stops of threads; Ctrl-Z (target/guard.c) */
	ALLOW(ALL, restart_syscall),
	ALLOW(ALL, exit),
	ALLOW(ALL, exit_group),

	/* Calls that C libraries make by themselves; none of them reaches beyond the process. */
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

/* More than rules for a process take (about 200 KiB). */
#define ROOM_BYTES (1u << 20)

const char seccomp_feature[] = "filters system calls";

/* libseccomp's level from which on a whole process can be ended, not only a thread (Linux 4.14). */
#define API_KILL_PROCESS 3

static int allow(scmp_filter_ctx filter, const struct seccomp_rule *rule)
{
	struct scmp_arg_cmp compare;

	if (rule->argument < 0)
		return seccomp_rule_add(filter, SCMP_ACT_ALLOW, rule->call, 0);
	compare = (struct scmp_arg_cmp){.arg = (unsigned)rule->argument,
					.op = SCMP_CMP_MASKED_EQ,
					.datum_a = rule->mask,
					.datum_b = rule->value};
	return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rule->call, 1, &compare);
}

/* abort() signals its own process; signalling others is not allowed. */
static int allow_abort(scmp_filter_ctx filter)
{
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
}

/* The guard lets a stopped profiler, its parent, go on, and asks it to stop later (target/guard.c). */
static int allow_watch(scmp_filter_ctx filter)
{
	const struct scmp_arg_cmp parent = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getppid(), 0);
	int rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(kill), 2, parent,
				  SCMP_A1(SCMP_CMP_EQ, SIGCONT, 0));

	return rc ? rc
		  : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(kill), 2, parent,
				     SCMP_A1(SCMP_CMP_EQ, SIGTSTP, 0));
}

/* ENOSYS makes the C library use clone(), whose flags a filter can check. */
static int hide_clone3(scmp_filter_ctx filter)
{
	return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static bool is_allowed_to(enum seccomp_role role, int call)
{
	for (size_t i = 0; i < seccomp_n_allowed; i++)
		if (seccomp_allowed[i].call == call && seccomp_allowed[i].roles & (int)role)
			return true;
	return false;
}

static int fill(scmp_filter_ctx filter, enum seccomp_role role, bool terminal)
{
	const bool any_ioctl = role == SECCOMP_SAMPLER && !terminal;
	uint32_t fatal =
		seccomp_api_get() >= API_KILL_PROCESS ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_KILL;
	int rc = allow_abort(filter);

	if (!rc && role == SECCOMP_GUARD)
		rc = allow_watch(filter);
	if (!rc)
		rc = hide_clone3(filter);
	if (!rc && any_ioctl)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 0);
	for (size_t i = 0; i < seccomp_n_allowed && !rc; i++) {
		const struct seccomp_rule *rule = &seccomp_allowed[i];

		if (!(rule->roles & (int)role) || (any_ioctl && rule->call == SCMP_SYS(ioctl)))
			continue;
		rc = allow(filter, rule);
	}
	for (size_t i = 0; i < seccomp_n_fatal && !rc; i++)
		if (!is_allowed_to(role, seccomp_fatal[i]))
			rc = seccomp_rule_add(filter, fatal, seccomp_fatal[i], 0);
	return rc;
}

/* TIOCSTI works on the controlling terminal; a session without one may take one that is open. */
static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno != ENXIO || isatty(STDIN_FILENO) || isatty(STDOUT_FILENO) ||
	       isatty(STDERR_FILENO);
}

int seccomp_enter(enum seccomp_role role)
{
	return seccomp_enter_with(role, has_terminal());
}

/* libseccomp crashes when memory runs out while rules are added: there is enough, or it is not begun. */
static bool has_room(void)
{
	void *volatile room = malloc(ROOM_BYTES);

	free(room);
	return room;
}

int seccomp_enter_with(enum seccomp_role role, bool terminal)
{
	scmp_filter_ctx filter = has_room() ? seccomp_init(SCMP_ACT_ERRNO(EPERM)) : NULL;
	int rc;

	if (!filter)
		return -ENOMEM;
	/* The caller sets no_new_privs, also when there is no filter. */
	rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
	/* A search instead of a list: each system call of the sampling loop passes this. */
	if (!rc)
		(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!rc)
		rc = fill(filter, role, terminal);
	if (!rc)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	return rc;
}
