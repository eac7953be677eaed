/* SPDX-License-Identifier: BSD-3-Clause */
#include "cmd/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"
#include "symbol/names/display_name.h"

static volatile sig_atomic_t signal_number;

/* Messages name guests and files. */
static void put_message(char *text)
{
	char *line;

	while ((line = strsep(&text, "\n"))) {
		size_t indent = strspn(line, " ");

		fprintf(stderr, "%*s", (int)indent, "");
		put_clean(line + indent, stderr);
		fputc('\n', stderr);
	}
}

void say(const char *format, ...)
{
	va_list args;
	char *text;
	int rc;

	va_start(args, format);
	rc = vasprintf(&text, format, args);
	va_end(args);
	if (rc < 0)
		return;
	fputs(isatty(STDERR_FILENO) ? "\r\033[Kuniprof: " : "uniprof: ", stderr);
	put_message(text);
	free(text);
}

struct error *usage_error(const struct verb *verb, const char *format, ...)
{
	struct error *detail, *err;
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	detail = error_new(ERR_USAGE, "%s", text);
	err = error_new(ERR_USAGE, "%s; see uniprof %s%s--help", detail->text, verb->name,
			*verb->name ? " " : "");
	error_free(detail);
	return err;
}

static void on_signal(int number)
{
	signal_number = number;
}

const volatile sig_atomic_t *catch_signals(void)
{
	/* SA_RESETHAND: the second one is not ours any more. No SA_RESTART: sleeps end early. */
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	return &signal_number;
}

int caught_signal(void)
{
	return signal_number;
}

struct error *open_output(const char *path, FILE **out)
{
	int fd;

	if (!strcmp(path, "-")) {
		*out = stdout;
		return NULL;
	}
	fd = open_to_write(path);
	*out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!*out)
		return error_errno(ERR_OUTPUT, errno, "cannot write %s", path);
	return NULL;
}

static bool is_regular(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISREG(st.st_mode);
}

/* Without the right to remove it, what is incomplete must not look like a result either. */
static void empty(FILE *out)
{
	struct stat st;

	if (!fstat(fileno(out), &st) && S_ISREG(st.st_mode) && ftruncate(fileno(out), 0))
		errno = 0; /* as well as can be */
}

struct error *close_output(const char *path, FILE *out, struct error *err)
{
	bool failed = ferror(out);
	int number = errno;

	if (fflush(out) && !failed) {
		failed = true;
		number = errno;
	}
	if ((failed || err) && out != stdout)
		empty(out);
	if (out != stdout && fclose(out) && !failed) {
		failed = true;
		number = errno;
	}
	if (failed && !err)
		err = error_errno(ERR_OUTPUT, number, "cannot write %s",
				  out == stdout ? "to standard output" : path);
	if (err && out != stdout && is_regular(path))
		unlink(path);
	return err;
}
