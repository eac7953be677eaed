/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <unistd.h>

#include "base/seccomp_rules.h"

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

/* abort() signals its own process; nobody else is to be signalled. */
static int allow_abort(scmp_filter_ctx filter)
{
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
}

/* "There is no such call" makes the C library take clone, whose flags can be looked at. */
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

int seccomp_enter_with(enum seccomp_role role, bool terminal)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int rc;

	if (!filter)
		return -ENOMEM;
	/* no_new_privs is set by who calls this, also where there is no filter. */
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
