/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/privilege.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Debian's base-passwd, the kernel's overflowuid: the user and the group that own nothing. */
#define NOBODY 65534

const char privilege_feature[] = "gives up root";

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

/* What root can do with its rights and the sampler does later (sample/priority.c). */
static void allow_priority(void)
{
	const rlim_t lowest = (rlim_t)sched_get_priority_min(SCHED_FIFO);
	const struct rlimit priority = {lowest, lowest};
	const struct rlimit memory = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_RTPRIO, &priority);
	setrlimit(RLIMIT_MEMLOCK, &memory);
}

void privilege_drop(enum seccomp_role role, struct privilege *got)
{
	const struct rlimit no_core = {0, 0};

	*got = (struct privilege){0};
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
	else
		got->filter_error = -seccomp_enter(role);
}
