/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/launcher.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/owned.h"
#include "base/preopen.h"
#include "target/host/proc.h"

#define DIRECTORY "uniprof-run-XXXXXX"
#define QMP_VALUE "unix:%s/qmp.sock,server=on,wait=off"

/* sockaddr_un's path is short. */
#define SOCKET_ROOM 100

#define WORDS_MAX    1024
#define COMMAND_ROOM 65536
#define CONFIG_ROOM  (256 * 1024)

static const char *program(const char *word)
{
	const char *slash = strrchr(word, '/');

	return slash ? slash + 1 : word;
}

static bool is_qemu(const char *word)
{
	const char *name = program(word);

	return (!strncmp(name, "qemu-system-", strlen("qemu-system-")) &&
		!strpbrk(name, " \t\n;&|")) ||
	       !strcmp(name, "qemu-kvm") || !strcmp(name, "kvm");
}

/* Programs that execute the rest of their command line, as the same user and in the same root. */
static bool is_wrapper(const char *word)
{
	static const char *const names[] = {"chrt",   "env",	 "exec",    "ionice",
					    "nice",   "nohup",	 "numactl", "setsid",
					    "stdbuf", "taskset", "timeout", "time"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(program(word), names[i]))
			return true;
	return false;
}

/* QEMU's options begin with one hyphen or two. */
static bool is_option(const char *word, const char *name)
{
	return *word == '-' && !strcmp(word + 1 + (word[1] == '-'), name);
}

static bool has_control_monitor(char *const *words)
{
	for (; words[0] && words[1]; words++) {
		if ((is_option(words[0], "qmp") || is_option(words[0], "qmp-pretty")) &&
		    !strncmp(words[1], "unix:", 5))
			return true;
		if (is_option(words[0], "mon") && strstr(words[1], "mode=control"))
			return true;
	}
	return false;
}

static bool lacks_socket(char *const *argv)
{
	size_t i = 0;

	if (is_wrapper(argv[0]))
		while (argv[i] && !is_qemu(argv[i]))
			i++;
	return argv[i] && is_qemu(argv[i]) && !has_control_monitor(argv + i + 1);
}

static struct error *make_directory(struct launch_command *command)
{
	const char *parent = getenv("TMPDIR");
	FREED char *path = NULL;

	if (!parent || *parent != '/' || strchr(parent, ',') ||
	    strlen(parent) + sizeof("/" DIRECTORY "/qmp.sock") > SOCKET_ROOM)
		parent = "/tmp";
	if (asprintf(&path, "%s/" DIRECTORY, parent) < 0)
		return error_no_memory();
	if (!mkdtemp(path))
		return error_errno(ERR_OUTPUT, errno,
				   "cannot make a directory for QEMU's QMP socket in %s", parent);
	command->directory = path;
	path = NULL;
	return asprintf(&command->socket, QMP_VALUE, command->directory) < 0 ? error_no_memory()
									     : NULL;
}

struct error *launch_command_new(char *const *argv, struct launch_command *out)
{
	struct error *err = NULL;
	size_t n = 0;

	*out = (struct launch_command){0};
	while (argv[n])
		n++;
	TRY(ARRAY_NEW(&out->argv, n + 3));
	memcpy(out->argv, argv, n * sizeof(*argv));
	if (lacks_socket(argv))
		err = make_directory(out);
	if (!err && out->socket) {
		out->argv[n] = (char *)"-qmp";
		out->argv[n + 1] = out->socket;
	}
	if (err) {
		if (out->directory)
			rmdir(out->directory);
		launch_command_free(out);
	}
	return err;
}

void launch_command_free(struct launch_command *command)
{
	free(command->argv);
	free(command->socket);
	free(command->directory);
	*command = (struct launch_command){0};
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t\r");
}

/* The end of a statement of xl.cfg(5): a newline or a semicolon outside of strings and comments. */
static const char *statement_end(const char *at)
{
	char quote = '\0';

	for (; *at && *at != '\n'; at++) {
		if (quote && *at == '\\' && at[1])
			at++;
		else if (quote)
			quote = *at == quote ? '\0' : quote;
		else if (*at == '"' || *at == '\'')
			quote = *at;
		else if (*at == '#')
			return at + strcspn(at, "\n");
		else if (*at == ';')
			return at;
	}
	return at;
}

/* Takes NAME from `name = "NAME"`; as with xl, the last one holds. */
static void take_assignment(const char *statement, char *name, size_t size)
{
	const char *at = skip_blanks(statement);
	char quote;
	size_t len;

	if (strncmp(at, "name", 4))
		return;
	at = skip_blanks(at + 4);
	if (*at != '=')
		return;
	at = skip_blanks(at + 1);
	quote = *at == '"' || *at == '\'' ? *at++ : '\0';
	for (len = 0; at[len] && at[len] != '\n'; len++)
		if (quote ? at[len] == quote
			  : !isalnum((unsigned char)at[len]) && !strchr("._-+", at[len]))
			break;
	if (len && len < size && (!quote || at[len] == quote))
		snprintf(name, size, "%.*s", (int)len, at);
}

static void take_config(const char *text, char *name, size_t size)
{
	while (*text) {
		const char *end = statement_end(text);

		take_assignment(text, name, size);
		text = end + (*end != '\0');
	}
}

static void read_config(const char *path, const char *directory, char *name, size_t size)
{
	char full[2 * PATH_MAX];
	ssize_t len = 0, got;
	FREED char *text = NULL;
	CLOSED int fd = -1;

	snprintf(full, sizeof(full), "%s%s%s", *path == '/' ? "" : directory,
		 *path == '/' ? "" : "/", path);
	fd = is_regular_file(full) ? open_to_read(full) : -1;
	text = fd >= 0 ? calloc(1, CONFIG_ROOM) : NULL;
	while (text && len < CONFIG_ROOM - 1 &&
	       (got = read(fd, text + len, (size_t)(CONFIG_ROOM - 1 - len))) > 0)
		len += got;
	if (text)
		take_config(text, name, size);
}

/* Commands may be shortened. */
static bool is_create(const char *word)
{
	const size_t len = strlen(word);

	return len >= 2 && !strncmp("create", word, len);
}

/* The place of "create" in a command line of xl; 0: it is another command. */
static size_t find_create(const char *const *words, size_t n)
{
	size_t i = 1;

	if (!n || strcmp(program(words[0]), "xl"))
		return 0;
	/* xl's own options come before the command. */
	while (i < n && *words[i] == '-')
		i++;
	return i < n && is_create(words[i]) ? i : 0;
}

size_t launch_xl_name(const char *const *words, size_t n, const char *directory, char *name,
		      size_t size)
{
	const size_t i = find_create(words, n);
	const char *file = NULL;

	*name = '\0';
	if (!i)
		return 0;
	for (size_t k = i + 1; k < n; k++) {
		if ((!strcmp(words[k], "-f") || !strcmp(words[k], "--defconfig")) && k + 1 < n)
			file = words[++k];
		else if (!strncmp(words[k], "--defconfig=", 12))
			file = words[k] + 12;
		else if (*words[k] != '-' && !strchr(words[k], '=') && !file)
			file = words[k];
	}
	if (file)
		read_config(file, directory, name, size);
	for (size_t k = i + 1; k < n; k++)
		if (*words[k] != '-' && strchr(words[k], '='))
			take_config(words[k], name, size);
	return strlen(name);
}

/*
 * The xl that stays behind to see the guest's end has left its directory, and
 * prints into xl-NAME.log, which is xl-NAME.log.1 once there is a newer one.
 */
static size_t take_log_name(pid_t pid, char *name, size_t size)
{
	char path[PATH_MAX];
	const char *from, *to;

	proc_link(pid, "fd", STDOUT_FILENO, path, sizeof(path));
	from = program(path);
	to = strstr(from, ".log");
	if (strncmp(from, "xl-", 3) || !to || (size_t)(to - from - 3) >= size)
		return 0;
	while (strstr(to + 1, ".log"))
		to = strstr(to + 1, ".log");
	snprintf(name, size, "%.*s", (int)(to - from - 3), from + 3);
	return strlen(name);
}

size_t launch_xl_name_of(pid_t pid, char *name, size_t size)
{
	FREED char *text = malloc(COMMAND_ROOM);
	char directory[PATH_MAX];
	ssize_t len = text ? proc_read(pid, "cmdline", text, COMMAND_ROOM) : 0;
	const char *words[WORDS_MAX];
	size_t n = 0, found = 0;

	for (const char *word = text; len > 0 && word < text + len && n < WORDS_MAX;
	     word += strlen(word) + 1)
		words[n++] = word;
	if (find_create(words, n))
		found = take_log_name(pid, name, size);
	if (found)
		return found;
	proc_link(pid, "cwd", -1, directory, sizeof(directory));
	return launch_xl_name(words, n, directory, name, size);
}

/* The status that shells give for a command that cannot be executed. */
#define CANNOT_EXECUTE 127

/* Generations between the command and a guest; a longer way up is no way. */
#define GENERATIONS_MAX 1000

/* A launcher that somebody has stopped is not waited for. */
#define END_MS 2000

/* Written by the launcher when the command has ended, and when all have; by a child that is no command yet. */
struct launch_report {
	enum launch_state state;
	int status;	    /* of the command, as of wait(2) */
	int cannot_execute; /* errno of execve(2), or 0 */
};

struct launcher {
	pid_t pid;
	int hold;    /* the launcher ends when this is closed */
	int reports; /* of the launcher */
	struct launch_report last;
	const char *name; /* of the command: its first word */
};

/* The launcher's own side. */
struct supervisor {
	int hold, reports, children;
	pid_t command;
	const char *directory;
	struct launch_report last;
};

static void execute(char *const *command, int reports)
{
	struct launch_report failed = {.state = LAUNCH_ENDED};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	execvp(command[0], command);
	failed.cannot_execute = errno;
	(void)!write(reports, &failed, sizeof(failed));
	_exit(CANNOT_EXECUTE);
}

static void report(struct supervisor *own, enum launch_state state)
{
	if (own->last.state >= state)
		return;
	own->last.state = state;
	(void)!write(own->reports, &own->last, sizeof(own->last));
}

static void collect_children(struct supervisor *own)
{
	struct signalfd_siginfo info;
	pid_t pid;
	int status;

	(void)!read(own->children, &info, sizeof(info));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != own->command)
			continue;
		own->last.status = status;
		report(own, LAUNCH_ENDED);
	}
	if (pid < 0 && errno == ECHILD)
		report(own, LAUNCH_EMPTY);
}

static void remove_directory(const char *path)
{
	DIR *directory = path ? opendir(path) : NULL;
	const struct dirent *entry;

	if (!directory)
		return;
	while ((entry = readdir(directory)))
		unlinkat(dirfd(directory), entry->d_name, 0);
	closedir(directory);
	rmdir(path);
}

/* Terminals signal all of a job: whether the guest ends by that is its own affair. */
static void ignore_signals(void)
{
	static const int ignored[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGPIPE};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
}

/* Closes descriptors: a reader of our output must not have to wait for the launcher. */
static void let_descriptors_go(const struct supervisor *own)
{
	struct descriptors keep = {0};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		dup2(null, fd);
		descriptors_add(&keep, fd);
	}
	descriptors_add(&keep, own->hold);
	descriptors_add(&keep, own->reports);
	descriptors_add(&keep, own->children);
	descriptors_close_others(&keep);
}

static void supervise(struct supervisor *own, char *const *command)
{
	struct pollfd events[2] = {{.events = POLLIN}, {.events = POLLIN}};
	sigset_t child;

	prctl(PR_SET_NAME, "guest-launcher");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	own->children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	own->command = fork();
	if (own->command == 0)
		execute(command, own->reports);
	if (own->command < 0)
		own->last.status = W_EXITCODE(CANNOT_EXECUTE, 0);
	ignore_signals();
	let_descriptors_go(own);
	events[0].fd = own->hold;
	events[1].fd = own->children;
	collect_children(own);
	while (poll(events, 2, -1) < 0 || !events[0].revents)
		collect_children(own);
	remove_directory(own->directory);
	_exit(0);
}

static void close_pair(const int *pair)
{
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
}

struct error *launcher_start(char *const *command, const char *directory, struct launcher **out)
{
	FREED struct launcher *launcher = calloc(1, sizeof(*launcher));
	int hold[2] = {-1, -1}, reports[2] = {-1, -1};
	struct supervisor own = {.directory = directory};

	if (!launcher) {
		remove_directory(directory);
		return error_no_memory();
	}
	launcher->name = command[0];
	launcher->pid = -1;
	if (!pipe2(hold, O_CLOEXEC) && !pipe2(reports, O_CLOEXEC | O_NONBLOCK))
		launcher->pid = fork();
	if (launcher->pid < 0) {
		struct error *err =
			error_errno(ERR_FAILED, errno, "cannot start %s", launcher->name);

		close_pair(hold);
		close_pair(reports);
		remove_directory(directory);
		return err;
	}
	own.hold = hold[0];
	own.reports = reports[1];
	if (launcher->pid == 0) {
		close(hold[1]);
		supervise(&own, command);
	}
	close(hold[0]);
	close(reports[1]);
	launcher->hold = hold[1];
	launcher->reports = reports[0];
	*out = launcher;
	launcher = NULL;
	return NULL;
}

void launcher_free(struct launcher *launcher)
{
	struct pollfd end;

	if (!launcher)
		return;
	close(launcher->hold);
	end = (struct pollfd){.fd = launcher->reports};
	(void)poll(&end, 1, END_MS);
	close(launcher->reports);
	free(launcher);
}

struct error *launcher_state(struct launcher *launcher, enum launch_state *state)
{
	const int *status = &launcher->last.status;
	struct launch_report next;
	ssize_t got;

	while ((got = read(launcher->reports, &next, sizeof(next))) == (ssize_t)sizeof(next)) {
		next.cannot_execute |= launcher->last.cannot_execute;
		launcher->last = next;
	}
	*state = launcher->last.state;
	if (launcher->last.cannot_execute && !access(launcher->name, F_OK))
		return error_new(ERR_FAILED,
				 "cannot execute %s: %s; an image is started by its monitor's "
				 "command: `uniprof run -- qemu-system-x86_64 -kernel %s`",
				 launcher->name, strerror(launcher->last.cannot_execute),
				 launcher->name);
	if (launcher->last.cannot_execute)
		return error_errno(ERR_FAILED, launcher->last.cannot_execute, "cannot execute %s",
				   launcher->name);
	if (got == 0)
		return error_new(ERR_FAILED, "the process that started %s was killed",
				 launcher->name);
	if (*state == LAUNCH_RUNS || (WIFEXITED(*status) && WEXITSTATUS(*status) == 0))
		return NULL;
	if (WIFEXITED(*status))
		return error_new(ERR_FAILED, "%s failed with status %d", launcher->name,
				 WEXITSTATUS(*status));
	return error_new(ERR_FAILED, "%s was ended by signal %d", launcher->name,
			 WTERMSIG(*status));
}

bool launcher_owns(const struct launcher *launcher, pid_t pid)
{
	for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
		pid = (pid_t)proc_status(pid, "PPid", 0);
		if (pid == launcher->pid)
			return true;
	}
	return false;
}
