/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/confined_testing.h"
#include "base/privilege.h"

#define NO_FILTER 254

/* One call, as seen under the filter of a role: 0, or the errno value. */
struct attempt {
	enum seccomp_role role;
	long call, args[6];
};

static int try(const void *arg)
{
	const struct attempt *a = arg;
	const long *v = a->args;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(a->role))
		return NO_FILTER;
	return syscall(a->call, v[0], v[1], v[2], v[3], v[4], v[5]) < 0 ? errno : 0;
}

static int attempt(enum seccomp_role role, long call, long a, long b, long c, long d)
{
	const struct attempt what = {role, call, {a, b, c, d, -1, 0}};

	return in_a_child(try, &what);
}

static const enum seccomp_role roles[] = {SECCOMP_SAMPLER, SECCOMP_READER, SECCOMP_GUARD,
					  SECCOMP_TRACER, SECCOMP_PARSER};

#define N_ROLES (sizeof(roles) / sizeof(*roles))

static void nothing_can_be_executed_traced_or_loaded(void **state)
{
	const long calls[] = {SYS_execve,      SYS_execveat, SYS_ptrace, SYS_process_vm_writev,
			      SYS_init_module, SYS_bpf,	     SYS_mount,	 SYS_unshare};

	for (size_t i = 0; i < N_ROLES; i++)
		for (size_t j = 0; j < sizeof(calls) / sizeof(*calls); j++)
			assert_int_equal(attempt(roles[i], calls[j], 0, 0, 0, 0),
					 roles[i] == SECCOMP_TRACER && calls[j] == SYS_ptrace
						 ? EPERM
						 : -SIGSYS);
}

static void the_tracer_stops_threads_and_changes_nothing_in_them(void **state)
{
	const long allowed[] = {PTRACE_INTERRUPT, PTRACE_CONT, PTRACE_GETREGSET, PTRACE_DETACH};
	const long refused[] = {PTRACE_SEIZE,	 PTRACE_ATTACH,	    PTRACE_TRACEME,
				PTRACE_POKETEXT, PTRACE_POKEDATA,   PTRACE_POKEUSER,
				PTRACE_SETREGS,	 PTRACE_SETREGSET,  PTRACE_SETOPTIONS,
				PTRACE_SYSCALL,	 PTRACE_SINGLESTEP, PTRACE_KILL};

	/* ESRCH: the filter let it pass, and no traced thread has this number. */
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		assert_int_equal(attempt(SECCOMP_TRACER, SYS_ptrace, allowed[i], 1, 0, 0), ESRCH);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		assert_int_equal(attempt(SECCOMP_TRACER, SYS_ptrace, refused[i], 1, 0, 0), EPERM);
}

static void only_who_has_to_lets_threads_make_calls(void **state)
{
	const enum seccomp_role caller = SECCOMP_TRACER | SECCOMP_CALLER;
	const long allowed[] = {PTRACE_SETREGSET, PTRACE_SYSCALL, PTRACE_SETSIGMASK,
				PTRACE_INTERRUPT};
	const long refused[] = {PTRACE_SEIZE, PTRACE_ATTACH, PTRACE_POKEDATA, PTRACE_SETOPTIONS};

	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		assert_int_equal(attempt(caller, SYS_ptrace, allowed[i], 1, 0, 0), ESRCH);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		assert_int_equal(attempt(caller, SYS_ptrace, refused[i], 1, 0, 0), EPERM);
}

static void no_file_can_be_made_changed_or_removed(void **state)
{
	const long how[] = {O_WRONLY, O_RDWR, O_RDONLY | O_CREAT, O_RDONLY | O_TRUNC};
	const long name = (long)"/tmp/seccomp-test";

	for (size_t i = 0; i < N_ROLES; i++) {
		for (size_t j = 0; j < sizeof(how) / sizeof(*how); j++)
			assert_int_equal(attempt(roles[i], SYS_openat, AT_FDCWD, name, how[j],
						 0600),
					 EPERM);
		assert_int_equal(attempt(roles[i], SYS_unlink, name, 0, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_rename, name, name, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_mkdir, name, 0700, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_chmod, name, 0700, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_symlink, name, name, 0, 0), EPERM);
	}
	assert_int_equal(access((const char *)name, F_OK), -1);
}

static void files_can_be_read_except_by_the_guard(void **state)
{
	const long name = (long)"/dev/null";

	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_openat, AT_FDCWD, name, O_CLOEXEC, 0), 0);
	assert_int_equal(attempt(SECCOMP_READER, SYS_openat, AT_FDCWD, name, O_CLOEXEC, 0), 0);
	assert_int_equal(attempt(SECCOMP_GUARD, SYS_openat, AT_FDCWD, name, O_CLOEXEC, 0), EPERM);
}

static void nobody_can_be_talked_to_or_signalled(void **state)
{
	for (size_t i = 0; i < N_ROLES; i++) {
		assert_int_equal(attempt(roles[i], SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_kill, getpid(), 0, 0, 0), EPERM);
		assert_int_equal(attempt(roles[i], SYS_tgkill, getpid(), getpid(), 0, 0), EPERM);
	}
}

static void no_memory_becomes_code(void **state)
{
	const long rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

	for (size_t i = 0; i < N_ROLES; i++) {
		assert_int_equal(attempt(roles[i], SYS_mmap, 0, 4096, rw, anonymous), 0);
		assert_int_equal(attempt(roles[i], SYS_mmap, 0, 4096, rw | PROT_EXEC, anonymous),
				 EPERM);
		assert_int_equal(attempt(roles[i], SYS_mprotect, 0, 0, PROT_READ | PROT_EXEC, 0),
				 EPERM);
	}
}

static void devices_are_asked_for_xens_calls_only(void **state)
{
	const long hypercall = _IOC(_IOC_NONE, 'P', 0, 48);

	/* ENOTTY: the filter let it pass, and the open file is no such device. */
	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_ioctl, 0, hypercall, 0, 0), ENOTTY);
	assert_int_equal(attempt(SECCOMP_GUARD, SYS_ioctl, 0, hypercall, 0, 0), ENOTTY);
	assert_int_equal(attempt(SECCOMP_READER, SYS_ioctl, 0, hypercall, 0, 0), EPERM);
	assert_int_equal(attempt(SECCOMP_TRACER, SYS_ioctl, 0, hypercall, 0, 0), EPERM);
	assert_int_equal(attempt(SECCOMP_READER, SYS_ioctl, 0, TIOCSTI, 0, 0), EPERM);
	assert_int_equal(attempt(SECCOMP_GUARD, SYS_ioctl, 0, TIOCSTI, 0, 0), EPERM);
}

/* On a terminal of its own, open as standard error or only there to be opened. */
static int type_into_the_terminal(const void *arg)
{
	const bool *as_stderr = arg;
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
	const char typed = '!';

	if (master < 0 || grantpt(master) || unlockpt(master) || setsid() < 0)
		return NO_FILTER;
	slave = open(ptsname(master), O_RDWR);
	if (slave < 0 || dup2(*as_stderr ? slave : master, STDERR_FILENO) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(SECCOMP_SAMPLER))
		return NO_FILTER;
	return ioctl(slave, TIOCSTI, &typed) ? errno : 0;
}

static void nothing_is_typed_into_a_terminal(void **state)
{
	const bool as_stderr[] = {true, false};

	assert_int_equal(in_a_child(type_into_the_terminal, &as_stderr[0]), EPERM);
	assert_int_equal(in_a_child(type_into_the_terminal, &as_stderr[1]), EPERM);
}

static int without_terminal(const void *arg)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter_with(SECCOMP_SAMPLER, false))
		return NO_FILTER;
	return ioctl(-1, TIOCSTI, "!") ? errno : 0;
}

static void where_there_is_no_terminal_the_samplers_calls_pass_unseen(void **state)
{
	assert_int_equal(in_a_child(without_terminal, NULL), EBADF);
}

static int fork_one(const void *arg)
{
	const enum seccomp_role *role = arg;
	pid_t child;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(*role))
		return NO_FILTER;
	child = fork();
	if (child == 0)
		_exit(0);
	return child > 0 ? 0 : errno;
}

static void a_guard_and_a_parser_start_no_processes(void **state)
{
	assert_int_equal(in_a_child(fork_one, &roles[0]), 0);
	assert_int_equal(in_a_child(fork_one, &roles[1]), 0);
	assert_int_equal(in_a_child(fork_one, &roles[2]), EPERM);
	assert_int_equal(in_a_child(fork_one, &roles[4]), EPERM);
	assert_int_equal(attempt(SECCOMP_PARSER, SYS_pipe2, 0, 0, 0, 0), EPERM);
}

static void descriptors_are_asked_and_copied_only(void **state)
{
	const long allowed[] = {F_GETFD, F_GETFL, F_DUPFD_CLOEXEC};
	const long refused[] = {F_SETFL,  F_SETOWN,	F_SETSIG,   F_SETLEASE,
				F_NOTIFY, F_SETPIPE_SZ, F_ADD_SEALS};

	for (size_t i = 0; i < N_ROLES; i++) {
		const bool may = roles[i] != SECCOMP_GUARD;

		for (size_t j = 0; j < sizeof(allowed) / sizeof(*allowed); j++)
			assert_int_equal(attempt(roles[i], SYS_fcntl, 2, allowed[j], 0, 0),
					 may ? 0 : EPERM);
		for (size_t j = 0; j < sizeof(refused) / sizeof(*refused); j++)
			assert_int_equal(attempt(roles[i], SYS_fcntl, 2, refused[j], 0, 0), EPERM);
	}
}

static void the_time_for_a_file_can_be_set_and_not_be_taken_back(void **state)
{
	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_setitimer, 0, 0, 0, 0), 0);
	assert_int_equal(attempt(SECCOMP_TRACER, SYS_setitimer, 0, 0, 0, 0), 0);
	assert_int_equal(attempt(SECCOMP_READER, SYS_setitimer, 0, 0, 0, 0), 0);
	assert_int_equal(attempt(SECCOMP_PARSER, SYS_setitimer, 0, 0, 0, 0), EPERM);
}

static void namespaces_and_threads_are_not_started(void **state)
{
	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0),
			 EPERM);
	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_clone, CLONE_VM | SIGCHLD, 0, 0, 0), EPERM);
	assert_int_equal(attempt(SECCOMP_SAMPLER, SYS_clone3, 0, 0, 0, 0), ENOSYS);
}

/* System calls that the C library makes for us, under the names that they have in this release. */
static int do_ordinary_work(const void *arg)
{
	const enum seccomp_role *role = arg;
	FILE *out = tmpfile();
	struct timespec now;
	char *memory;

	if (!out || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(*role))
		return NO_FILTER;
	memory = malloc(64 << 20);
	if (!memory || !(memory = realloc(memory, 128 << 20)))
		return 1;
	memory[100 << 20] = 1;
	free(memory);
	if (clock_gettime(CLOCK_MONOTONIC, &now) || clock_gettime(CLOCK_REALTIME, &now))
		return 2;
	if (fprintf(out, "%d", isatty(1)) < 1 || fflush(out) || fseek(out, 0, SEEK_SET) ||
	    fgetc(out) == EOF || fclose(out))
		return 3;
	out = fopen("/proc/self/status", "re");
	return out && fgetc(out) == 'N' && !fclose(out) ? 0 : 4;
}

static void ordinary_work_goes_on(void **state)
{
	assert_int_equal(in_a_child(do_ordinary_work, &roles[0]), 0);
	assert_int_equal(in_a_child(do_ordinary_work, &roles[1]), 0);
	assert_int_equal(in_a_child(do_ordinary_work, &roles[4]), 0);
}

static int end_by_abort(const void *arg)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(SECCOMP_SAMPLER))
		return NO_FILTER;
	abort();
}

static void abort_still_ends_it(void **state)
{
	assert_int_equal(in_a_child(end_by_abort, NULL), -SIGABRT);
}

static void each_rule_serves_somebody(void **state)
{
	for (size_t i = 0; i < seccomp_n_allowed; i++)
		assert_true(seccomp_allowed[i].roles);
	for (size_t i = 0; i < seccomp_n_fatal; i++)
		for (size_t j = 0; j < seccomp_n_allowed; j++)
			assert_true(
				seccomp_fatal[i] != seccomp_allowed[j].call ||
				!(seccomp_allowed[j].roles & ~(SECCOMP_TRACER | SECCOMP_CALLER)));
}

static int enter(const void *arg)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_enter(SECCOMP_SAMPLER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_can_be_executed_traced_or_loaded),
		cmocka_unit_test(the_tracer_stops_threads_and_changes_nothing_in_them),
		cmocka_unit_test(only_who_has_to_lets_threads_make_calls),
		cmocka_unit_test(no_file_can_be_made_changed_or_removed),
		cmocka_unit_test(files_can_be_read_except_by_the_guard),
		cmocka_unit_test(nobody_can_be_talked_to_or_signalled),
		cmocka_unit_test(no_memory_becomes_code),
		cmocka_unit_test(devices_are_asked_for_xens_calls_only),
		cmocka_unit_test(nothing_is_typed_into_a_terminal),
		cmocka_unit_test(where_there_is_no_terminal_the_samplers_calls_pass_unseen),
		cmocka_unit_test(a_guard_and_a_parser_start_no_processes),
		cmocka_unit_test(descriptors_are_asked_and_copied_only),
		cmocka_unit_test(the_time_for_a_file_can_be_set_and_not_be_taken_back),
		cmocka_unit_test(namespaces_and_threads_are_not_started),
		cmocka_unit_test(ordinary_work_goes_on),
		cmocka_unit_test(abort_still_ends_it),
		cmocka_unit_test(each_rule_serves_somebody),
	};

	if (in_a_child(enter, NULL)) {
		printf("1..0 # SKIP this kernel or container lets no filter be set\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
