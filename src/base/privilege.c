/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/privilege.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* User and group that own nothing (Debian's base-passwd, the kernel's overflowuid). */
#define NOBODY 65534

/* The build says so: sanitizers need rights and system calls that are given up otherwise. */
#ifdef UNIPROF_KEEP_RIGHTS
#define KEEP_RIGHTS true
#else
#define KEEP_RIGHTS false
#endif

const char *const privilege_feature =
	KEEP_RIGHTS ? "keeps its rights (built with sanitizers)" : "gives up root";

/* Two sets of 32 capabilities each (capset(2)). */
struct caps {
	struct __user_cap_data_struct half[_LINUX_CAPABILITY_U32S_3];
};

static int get_caps(struct caps *caps)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &head, caps->half) ? errno : 0;
}

static bool has_caps(void)
{
	struct caps caps;

	if (get_caps(&caps))
		return false;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		if (caps.half[i].permitted)
			return true;
	return false;
}

bool privilege_is_special(void)
{
	return geteuid() == 0 || has_caps();
}

static int drop_caps(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct caps none = {0};

	/* Giving up root has taken them along, as a rule. */
	if (!has_caps())
		return 0;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none.half))
		return errno;
	return has_caps() ? EPERM : 0;
}

static int drop_root(void)
{
	if (geteuid() != 0 && getuid() != 0)
		return 0;
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return errno;
	/* Whatever made them answer 0: it must not be possible to go back. */
	return setuid(0) == 0 || geteuid() == 0 ? EPERM : 0;
}

/* Raises limits while we are root: the sampler needs them after the drop (capture/sampler.c). */
static void allow_priority(void)
{
	const rlim_t lowest = (rlim_t)sched_get_priority_min(SCHED_FIFO);
	const struct rlimit priority = {lowest, lowest};
	const struct rlimit memory = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_RTPRIO, &priority);
	setrlimit(RLIMIT_MEMLOCK, &memory);
}

bool privilege_lock_memory(void)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return false;
	if (limit.rlim_cur != RLIM_INFINITY && setrlimit(RLIMIT_MEMLOCK, &none))
		return false;
	return mlockall(MCL_CURRENT) == 0;
}

void privilege_drop(enum seccomp_role role, struct privilege *got)
{
	const struct rlimit no_core = {0, 0};

	*got = (struct privilege){.uid = geteuid(), .kept = KEEP_RIGHTS};
	if (KEEP_RIGHTS)
		return;
	if (role & (SECCOMP_SAMPLER | SECCOMP_TRACER) && privilege_is_special())
		allow_priority();
	setrlimit(RLIMIT_CORE, &no_core);
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	got->user_error = drop_root();
	got->caps_error = drop_caps();
	got->uid = geteuid();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		got->filter_error = errno;
	else if (role != SECCOMP_UNFILTERED)
		got->filter_error = -seccomp_enter(role);
}

void privilege_describe(const struct privilege *got, char *text, size_t size)
{
	if (got->kept)
		snprintf(text, size, "all rights are kept");
	else
		snprintf(text, size, "goes on as user %u, %s, %s", (unsigned)got->uid,
			 got->caps_error ? "with capabilities" : "without capabilities",
			 got->filter_error ? "system calls are not filtered"
					   : "system calls are filtered");
}

/* Appends a clause. */
static void add(char *text, size_t size, const char *what, int error)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%s: %s", len ? "; " : "", what, strerror(error));
}

void privilege_lacks(const struct privilege *got, char *text, size_t size)
{
	*text = '\0';
	if (got->kept)
		return;
	if (got->user_error)
		add(text, size, "root's rights could not be given up", got->user_error);
	if (got->caps_error)
		add(text, size, "capabilities could not be given up", got->caps_error);
	if (got->filter_error)
		add(text, size, "system calls could not be filtered", got->filter_error);
}
