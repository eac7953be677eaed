/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/launcher.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})

static void assert_given_a_socket(char *const *argv, bool given)
{
	struct launch_command command;
	struct stat directory;
	size_t n = 0;

	assert_null(launch_command_new(argv, &command));
	for (; argv[n]; n++)
		assert_ptr_equal(command.argv[n], argv[n]);
	if (given) {
		assert_string_equal(command.argv[n], "-qmp");
		assert_non_null(strstr(command.argv[n + 1], command.directory));
		assert_null(command.argv[n + 2]);
		assert_int_equal(stat(command.directory, &directory), 0);
		assert_int_equal(directory.st_mode, S_IFDIR | 0700);
		assert_int_equal(rmdir(command.directory), 0);
	} else {
		assert_null(command.argv[n]);
		assert_null(command.directory);
	}
	launch_command_free(&command);
}

static void qemu_without_a_socket_is_given_one(void **state)
{
	assert_given_a_socket(WORDS("qemu-system-x86_64", "-kernel", "x"), true);
	assert_given_a_socket(WORDS("/usr/bin/qemu-system-aarch64"), true);
	assert_given_a_socket(WORDS("qemu-system-i386", "-qmp", "tcp::1,server=on"), true);
	assert_given_a_socket(WORDS("timeout", "9", "env", "A=1", "qemu-system-x86_64"), true);
	assert_given_a_socket(WORDS("kvm", "-m", "64"), true);
}

static void other_commands_stay_as_they_are(void **state)
{
	assert_given_a_socket(WORDS("qemu-system-x86_64", "-qmp", "unix:a,server=on"), false);
	assert_given_a_socket(WORDS("qemu-system-x86_64", "--qmp", "unix:a,server=on"), false);
	assert_given_a_socket(WORDS("qemu-system-x86_64", "-chardev",
				    "socket,id=c,path=p,server=on", "-mon",
				    "chardev=c,mode=control"),
			      false);
	assert_given_a_socket(WORDS("sh", "-c", "qemu-system-x86_64 -kernel x"), false);
	assert_given_a_socket(WORDS("sudo", "qemu-system-x86_64"), false);
	assert_given_a_socket(WORDS("env", "A=1", "true"), false);
	assert_given_a_socket(WORDS("xl", "create", "qemu-system-x86_64"), false);
}

static void assert_xl_name(const char *config, const char *const *words, const char *expected)
{
	char directory[] = "/tmp/launch-command-XXXXXX", path[64], name[64];
	size_t n = 0;
	FILE *out;

	while (words[n])
		n++;
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/web.cfg", directory);
	out = fopen(path, "w");
	assert_non_null(out);
	fputs(config, out);
	fclose(out);
	assert_int_equal(launch_xl_name(words, n, directory, name, sizeof(name)), strlen(expected));
	assert_string_equal(name, expected);
	unlink(path);
	rmdir(directory);
}

#define XL(...) ((const char *const[]){"/usr/sbin/xl", __VA_ARGS__, NULL})

static void xl_names_a_guest_by_its_file(void **state)
{
	assert_xl_name("name = \"web\"\nkernel = '/x'\n", XL("create", "web.cfg"), "web");
	assert_xl_name("kernel='a;name=\"no\"'; name='web'\n", XL("-v", "cr", "-q", "web.cfg"),
		       "web");
	assert_xl_name("# name = 'no'\n\t name\t=\t'web' # name = 'no'", XL("create", "web.cfg"),
		       "web");
	assert_xl_name("name = 'no'\nname = 'web'\n", XL("create", "-f", "web.cfg"), "web");
	assert_xl_name("name = 'web'\n", XL("create", "--defconfig=web.cfg"), "web");
}

static void xl_names_a_guest_by_its_command_line(void **state)
{
	assert_xl_name("name = 'no'", XL("create", "web.cfg", "memory=32", "name=\"web\""), "web");
	assert_xl_name("", XL("create", "/dev/null", "kernel='x';name='web'"), "web");
}

static void no_name_is_made_up(void **state)
{
	assert_xl_name("name = \"web", XL("create", "web.cfg"), "");
	assert_xl_name("name = \n", XL("create", "web.cfg"), "");
	assert_xl_name("names = 'no'\nuname = 'no'\n", XL("create", "web.cfg"), "");
	assert_xl_name("name = 'web'", XL("create", "other.cfg"), "");
	assert_xl_name("name = 'web'", XL("destroy", "web.cfg"), "");
	assert_xl_name("name = 'web'", XL("console", "web.cfg"), "");
	assert_xl_name("name = 'web'", ((const char *const[]){"xm", "create", "web.cfg", NULL}),
		       "");
	assert_xl_name("name = 'web'", ((const char *const[]){"xl", NULL}), "");
}

/* xl's daemon, as another program with its words. */
static pid_t start_daemon(const char *directory, const char *log)
{
	const int ready = open(log, O_CREAT | O_WRONLY, 0600);
	const pid_t pid = fork();

	assert_true(ready >= 0 && pid >= 0);
	if (pid == 0) {
		dup2(ready, STDOUT_FILENO);
		if (!chdir(directory))
			execl("/bin/sh", "xl", "create", "web.cfg", (char *)NULL);
		_exit(1);
	}
	close(ready);
	return pid;
}

static void assert_log_name(const char *log, const char *expected)
{
	char directory[] = "/tmp/launch-command-XXXXXX", script[64], path[96], name[64];
	struct stat printed = {0};
	pid_t pid;
	FILE *out;

	assert_non_null(mkdtemp(directory));
	snprintf(script, sizeof(script), "%s/create", directory);
	snprintf(path, sizeof(path), "%s/%s", directory, log);
	out = fopen(script, "w");
	assert_non_null(out);
	fputs("cd /; echo ready; while :; do sleep 1; done\n", out);
	fclose(out);
	pid = start_daemon(directory, path);
	while (!printed.st_size)
		assert_int_equal(stat(path, &printed), 0);
	assert_int_equal(launch_xl_name_of(pid, name, sizeof(name)), strlen(expected));
	assert_string_equal(name, expected);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(script);
	unlink(path);
	rmdir(directory);
}

static void xl_that_stays_behind_names_its_guest_by_its_log(void **state)
{
	assert_log_name("xl-web.log", "web");
	assert_log_name("xl-web.log.2", "web");
	assert_log_name("xl-a.log-b.log", "a.log-b");
	assert_log_name("web.log", "");
}

#define SHELL(text) ((char *[]){(char *)"sh", (char *)"-c", (char *)(text), NULL})

#define STEP_NS (5 * 1000000ull)

static struct launcher *started(char *const *command, const char *directory)
{
	struct launcher *launcher = NULL;

	assert_null(launcher_start(command, directory, &launcher));
	return launcher;
}

/* Waits until it stands so, or has failed. */
static struct error *await(struct launcher *launcher, enum launch_state wanted)
{
	enum launch_state state;
	struct error *err;

	while (!(err = launcher_state(launcher, &state)) && state < wanted)
		clock_sleep_until(clock_now_ns() + STEP_NS);
	return err;
}

/* Reads a process id that the command wrote to a pipe. */
static pid_t told_pid(int from)
{
	char text[32] = "";

	assert_true(read(from, text, sizeof(text) - 1) > 0);
	return (pid_t)atoi(text);
}

static void a_daemon_is_the_commands(void **state)
{
	int told[2];
	char command[160];
	struct launcher *launcher;
	pid_t daemon;

	assert_int_equal(pipe(told), 0);
	snprintf(command, sizeof(command), "setsid sh -c 'sleep 1000 & echo $! >&%d' & wait",
		 told[1]);
	launcher = started(SHELL(command), NULL);
	daemon = told_pid(told[0]);
	assert_null(await(launcher, LAUNCH_ENDED));
	assert_true(launcher_owns(launcher, daemon));
	kill(daemon, SIGKILL);
	assert_null(await(launcher, LAUNCH_EMPTY));
	launcher_free(launcher);
	close(told[0]);
	close(told[1]);
}

static void others_are_not_the_commands(void **state)
{
	pid_t own = fork(), command;
	struct launcher *launcher;
	char text[64];
	int told[2];

	if (own == 0) {
		pause();
		_exit(0);
	}
	assert_int_equal(pipe(told), 0);
	snprintf(text, sizeof(text), "echo $$ >&%d; exec sleep 1000", told[1]);
	launcher = started(SHELL(text), NULL);
	command = told_pid(told[0]);
	assert_true(launcher_owns(launcher, command));
	assert_false(launcher_owns(launcher, own));
	assert_false(launcher_owns(launcher, getpid()));
	assert_false(launcher_owns(launcher, getppid()));
	assert_false(launcher_owns(launcher, 1));
	kill(own, SIGKILL);
	waitpid(own, NULL, 0);
	kill(command, SIGKILL);
	launcher_free(launcher);
	close(told[0]);
	close(told[1]);
}

static void assert_fails(char *const *command, const char *why)
{
	struct launcher *launcher = started(command, NULL);
	struct error *err = await(launcher, LAUNCH_EMPTY);

	assert_non_null(err);
	assert_non_null(strstr(err->text, why));
	error_free(err);
	launcher_free(launcher);
}

static void a_command_that_fails_is_told(void **state)
{
	assert_fails(SHELL("exit 3"), "sh failed with status 3");
	assert_fails(SHELL("kill -9 $$"), "sh was ended by signal 9");
	assert_fails((char *[]){(char *)"/nowhere/command", NULL},
		     "cannot execute /nowhere/command: No such file");
}

static void its_directory_goes_with_it(void **state)
{
	char directory[] = "/tmp/launcher-XXXXXX", path[64];
	struct launcher *launcher;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/qmp.sock", directory);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	launcher = started(SHELL("true"), directory);
	assert_null(await(launcher, LAUNCH_EMPTY));
	assert_int_equal(access(path, F_OK), 0);
	launcher_free(launcher);
	assert_int_not_equal(access(directory, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qemu_without_a_socket_is_given_one),
		cmocka_unit_test(other_commands_stay_as_they_are),
		cmocka_unit_test(xl_names_a_guest_by_its_file),
		cmocka_unit_test(xl_names_a_guest_by_its_command_line),
		cmocka_unit_test(no_name_is_made_up),
		cmocka_unit_test(xl_that_stays_behind_names_its_guest_by_its_log),
		cmocka_unit_test(a_daemon_is_the_commands),
		cmocka_unit_test(others_are_not_the_commands),
		cmocka_unit_test(a_command_that_fails_is_told),
		cmocka_unit_test(its_directory_goes_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
