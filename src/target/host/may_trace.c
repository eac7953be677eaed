/* SPDX-License-Identifier: BSD-3-Clause */

/* Why a process cannot be traced, for a person: the kernel says no more than EPERM. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/host/proc.h"
#include "target/host/threads.h"

/* Documentation/admin-guide/LSM/Yama.rst: 0 all of one's own, 1 descendants, 2 CAP_SYS_PTRACE, 3 none. */
static int yama_scope(void)
{
	FILE *in = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (!in)
		return 0;
	if (fscanf(in, "%d", &scope) != 1)
		scope = 0;
	fclose(in);
	return scope;
}

/* Are we in a user namespace that is not the machine's own (user_namespaces(7))? */
static bool in_nested_namespace(void)
{
	unsigned long inside = 0, outside = 0, n = 0;
	char text[64];

	return proc_read(getpid(), "uid_map", text, sizeof(text)) > 0 &&
	       sscanf(text, "%lu %lu %lu", &inside, &outside, &n) == 3 &&
	       (inside || outside || n != UINT32_MAX);
}

/* 1: in another user namespace than ours; 0: in ours; -1: cannot be seen. */
static int in_other_namespace(pid_t pid)
{
	char its[64], own[64];

	proc_link(pid, "ns/user", -1, its, sizeof(its));
	proc_link(getpid(), "ns/user", -1, own, sizeof(own));
	return *its && *own ? strcmp(its, own) != 0 : -1;
}

static struct error *for_lack_of_rights(pid_t pid, long uid)
{
	const int scope = yama_scope();

	if (geteuid() != 0 && uid != (long)geteuid())
		return error_new(ERR_DENIED,
				 "process %d belongs to user %ld: run uniprof as root, or as that "
				 "user",
				 (int)pid, uid);
	if (scope == 3)
		return error_new(ERR_DENIED,
				 "no process may be traced on this machine until it is rebooted "
				 "(kernel.yama.ptrace_scope is 3), not even by root");
	if (geteuid() != 0 && scope)
		return error_new(ERR_DENIED,
				 "only root may trace process %d (kernel.yama.ptrace_scope is %d): "
				 "run uniprof as root, or set it to 0",
				 (int)pid, scope);
	if (in_other_namespace(pid) == 1 || (in_other_namespace(pid) < 0 && in_nested_namespace()))
		return error_new(ERR_DENIED,
				 "process %d cannot be traced from this user namespace: run "
				 "uniprof outside of all of them, as root",
				 (int)pid);
	if (geteuid() != 0)
		return error_new(ERR_DENIED,
				 "process %d has made itself unreadable for others (set-user-ID, "
				 "or not dumpable): run uniprof as root",
				 (int)pid);
	return error_new(ERR_DENIED,
			 "process %d cannot be traced: the right to (CAP_SYS_PTRACE) is missing, "
			 "as it is in most containers; run uniprof outside, or start the "
			 "container with --cap-add=SYS_PTRACE",
			 (int)pid);
}

struct error *threads_cannot_trace(pid_t pid)
{
	const pid_t tracer = proc_tracer(pid);
	char name[32];

	if (tracer < 0)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	if (tracer) {
		proc_comm(tracer, name, sizeof(name));
		return error_new(ERR_DENIED,
				 "process %d is already traced by process %d (%s), and only one "
				 "can: end that first",
				 (int)pid, (int)tracer, *name ? name : "?");
	}
	return for_lack_of_rights(pid, proc_status(pid, "Uid", -1));
}
