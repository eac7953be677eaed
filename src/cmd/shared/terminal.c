/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/shared/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

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

void pager_start(struct pager *pager)
{
	const char *command = program();
	int ends[2];

	pager->pid = 0;
	if (!isatty(STDOUT_FILENO) || !*command || !strcmp(command, "cat") || pipe(ends))
		return;
	pager->pid = fork();
	if (!pager->pid) {
		close(ends[1]);
		become_pager(ends[0], command);
	}
	if (pager->pid > 0) {
		dup2(ends[1], STDOUT_FILENO);
		/*
		 * Leaving the pager early is no error: writes fail with EPIPE,
		 * and we end in order.
		 */
		signal(SIGPIPE, SIG_IGN);
	} else {
		pager->pid = 0;
	}
	close(ends[0]);
	close(ends[1]);
}

struct error *pager_finish(struct pager *pager, struct error *err)
{
	int status = 0;

	if (!pager->pid)
		return err;
	/* Ctrl-C is the pager's now. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	fclose(stdout);
	while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
		;
	pager->pid = 0;
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
