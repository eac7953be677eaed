/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/preopen.h"
#include "base/privilege.h"
#include "symbol/names/display_name.h"

/* Signals within so many ns are one: timeout(1) sends its own to the program, and again to the group. */
#define ONE_SIGNAL_NS (NS_PER_S / 5)

static volatile sig_atomic_t signal_number;
static uint64_t signal_ns;

/* Messages name guests and files. */
static void put_message(char *text)
{
	char *line;

	while ((line = strsep(&text, "\n"))) {
		size_t indent = strspn(line, " ");

		fprintf(stderr, "%*s", (int)indent, "");
		sanitize_print(line + indent, stderr);
		fputc('\n', stderr);
	}
}

void cmd_say(const char *format, ...)
{
	va_list args;
	char *text;
	int rc;

	va_start(args, format);
	rc = vasprintf(&text, format, args);
	va_end(args);
	if (rc < 0) {
		fputs("uniprof: not enough memory\n", stderr);
		return;
	}
	fputs(isatty(STDERR_FILENO) ? "\r\033[Kuniprof: " : "uniprof: ", stderr);
	put_message(text);
	free(text);
}

struct error *cmd_usage_error(const struct verb *verb, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return error_new(ERR_USAGE, "%s; see uniprof %s%s--help", text, verb->name,
			 *verb->name ? " " : "");
}

/* The second signal ends the process at once; a sampler's system call filter lets it do no more than that. */
static void on_signal(int number)
{
	const uint64_t now_ns = clock_now_ns();

	if (signal_number && now_ns - signal_ns > ONE_SIGNAL_NS)
		_exit(128 + number);
	if (!signal_number)
		signal_ns = now_ns;
	signal_number = number;
}

const volatile sig_atomic_t *cmd_catch_signals(void)
{
	/* No SA_RESTART: sleeps end early. */
	struct sigaction action = {.sa_handler = on_signal};

	sigaddset(&action.sa_mask, SIGINT);
	sigaddset(&action.sa_mask, SIGTERM);
	sigaddset(&action.sa_mask, SIGHUP);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	return &signal_number;
}

int cmd_caught_signal(void)
{
	return signal_number;
}

struct error *cmd_read_text(const char *path, size_t most, char **text)
{
	CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	size_t len = 0;
	ssize_t got = 0;

	*text = fd < 0 ? NULL : malloc(most + 1);
	while (*text && len < most && (got = read(fd, *text + len, most - len)) > 0)
		len += (size_t)got;
	if (fd < 0 || got < 0)
		return error_errno(ERR_INPUT, errno, "cannot read %s", path);
	if (!*text)
		return error_no_memory();
	(*text)[len] = '\0';
	if (len == most)
		return error_new(ERR_INPUT, "%s is too large", path);
	return strlen(*text) == len ? NULL : error_new(ERR_INPUT, "%s is no text", path);
}

struct error *cmd_open_output(const char *path, FILE **out)
{
	int fd;

	if (!path || !strcmp(path, "-")) {
		*out = stdout;
		return NULL;
	}
	fd = open_to_write(path);
	*out = fd < 0 ? NULL : fdopen(fd, "w");
	return *out ? NULL : open_to_write_error(path, errno);
}

static bool is_regular(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISREG(st.st_mode);
}

/* Truncates an incomplete file that we may not remove: it must not pass for a result. */
static void empty(FILE *out)
{
	struct stat st;

	if (!fstat(fileno(out), &st) && S_ISREG(st.st_mode) && ftruncate(fileno(out), 0))
		errno = 0; /* as well as can be */
}

/* A stream remembers that it failed, not why: writing once more fails for the same reason. */
static int why_it_failed(FILE *out)
{
	clearerr(out);
	return write(fileno(out), "\n", 1) < 0 ? errno : EIO;
}

struct error *cmd_close_output(const char *path, FILE *out, struct error *err)
{
	int number = ferror(out) ? why_it_failed(out) : 0;

	if (fflush(out) && !number)
		number = errno;
	if ((number || err) && out != stdout)
		empty(out);
	if (out != stdout && fclose(out) && !number)
		number = errno;
	if (number && !err)
		err = error_errno(ERR_OUTPUT, number, "cannot write %s",
				  out == stdout ? "to standard output" : path);
	if (err && out != stdout && is_regular(path))
		unlink(path);
	return err;
}

void cmd_confine_reader(void)
{
	struct privilege got;
	char text[256];

	if (!privilege_is_special())
		return;
	privilege_drop(SECCOMP_READER, &got);
	privilege_lacks(&got, text, sizeof(text));
	if (*text)
		cmd_say("warning: %s", text);
}

/* Exit code of a shell that does not find the command (POSIX, 2.8.2). */
#define NOT_FOUND 127

static const char *program(void)
{
	const char *own = getenv("UNIPROF_PAGER"), *general = getenv("PAGER");

	return own ? own : general ? general : "less";
}

/* False when the writer has ended without output. */
static bool wait_for_text(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	while (poll(&poll_fd, 1, -1) < 0)
		if (errno != EINTR)
			return false;
	return poll_fd.revents & POLLIN;
}

static void become_pager(int fd, const char *command)
{
	if (!wait_for_text(fd))
		_exit(0);
	if (dup2(fd, STDIN_FILENO) < 0)
		_exit(NOT_FOUND);
	close(fd);
	/* Options of less, as git and perf set them: end if one page is enough, colours, keep the text. */
	setenv("LESS", "FRX", 0);
	setenv("LESSCHARSET", "utf-8", 0);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(NOT_FOUND);
}

pid_t pager_start(void)
{
	const char *command = program();
	int ends[2];
	pid_t pid;

	if (!isatty(STDOUT_FILENO) || !*command || !strcmp(command, "cat") || pipe(ends))
		return 0;
	pid = fork();
	if (!pid) {
		close(ends[1]);
		become_pager(ends[0], command);
	}
	if (pid > 0) {
		dup2(ends[1], STDOUT_FILENO);
		/*
		 * Leaving the pager early is no error: writes fail with EPIPE,
		 * and we end in order.
		 */
		signal(SIGPIPE, SIG_IGN);
	}
	close(ends[0]);
	close(ends[1]);
	return pid > 0 ? pid : 0;
}

struct error *pager_finish(pid_t pager, struct error *err)
{
	int status = 0;

	if (!pager)
		return err;
	/* Ctrl-C is the pager's now. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	fclose(stdout);
	while (waitpid(pager, &status, 0) < 0 && errno == EINTR)
		;
	if (err && err->kind == ERR_OUTPUT) {
		error_free(err);
		err = NULL;
	}
	if (!err && WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
		err = error_new(ERR_FAILED, "the pager \"%s\" cannot be run (try --no-pager)",
				program());
	return err;
}

/* Nobody wonders about less. */
#define PATIENCE_NS NS_PER_S

/* Lines are this far apart. */
#define PERIOD_NS (NS_PER_S / 5)

static void put_left(uint64_t seconds, char *text, size_t size)
{
	if (seconds >= 3600)
		snprintf(text, size, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
			 seconds / 60 % 60);
	else if (seconds >= 60)
		snprintf(text, size, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
	else
		snprintf(text, size, "%" PRIu64 " s", seconds);
}

static void put_line(struct progress_line *display, uint64_t done, uint64_t all, uint64_t now_ns)
{
	const size_t size = sizeof(display->text);
	char *line = display->text;
	double part = all ? (double)(done < all ? done : all) / (double)all : 0;
	double elapsed = (double)(now_ns - display->began_ns) / 1e9;
	char left[64];

	if (!all) {
		snprintf(line, size, "%s: %s, %.1f MiB", display->who, display->what,
			 (double)done / (1 << 20));
		return;
	}
	/* Rounded up: the last second is not "0 s". */
	put_left(part > 0 ? (uint64_t)(elapsed * (1 - part) / part) + 1 : 0, left, sizeof(left));
	snprintf(line, size, "%s: %s, %.0f %%%s%s%s", display->who, display->what, 100 * part,
		 part > 0.01 ? ", " : "", part > 0.01 ? left : "", part > 0.01 ? " left" : "");
}

void progress_line_update(struct progress_line *display, const char *what, uint64_t done,
			  uint64_t all, uint64_t now_ns)
{
	*display->text = '\0';
	if (!display->first_ns)
		display->first_ns = now_ns;
	if (!display->what || strcmp(display->what, what))
		display->began_ns = now_ns;
	display->what = what;
	if (now_ns - display->first_ns < PATIENCE_NS ||
	    (display->told_ns && now_ns - display->told_ns < PERIOD_NS))
		return;
	display->told_ns = now_ns;
	put_line(display, done, all, now_ns);
}

static void at(struct progress_sink *progress, const char *what, uint64_t done, uint64_t all)
{
	struct progress_line *display = (struct progress_line *)progress;

	if (!display->terminal)
		return;
	if (what)
		progress_line_update(display, what, done, all, clock_now_ns());
	if (what && *display->text)
		fprintf(stderr, "\r\033[K%s", display->text);
	else if (!what && display->visible)
		fputs("\r\033[K", stderr);
	display->visible = what && (*display->text || display->visible);
	fflush(stderr);
}

void progress_line_init(struct progress_line *display, const char *who)
{
	*display = (struct progress_line){.progress = {.at = at},
					  .who = who,
					  .terminal = isatty(STDERR_FILENO)};
}
