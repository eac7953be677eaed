/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/image_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symbol/sandbox.h"
#include "symbol/image_file.h"
#include "symbol/image_wire.h"

/* The process's whole life. */
static void __attribute__((noreturn)) parse(const struct image_spec *spec, int fd)
{
	struct image_file file = {0};
	struct error *err;
	FILE *out;

	apart_begin(&fd, 1);
	out = fdopen(fd, "w");
	if (!out)
		_exit(1);
	err = image_file_load(spec, &file);
	image_wire_send(err, &file, out);
	_exit(fclose(out) != 0);
}

static struct error *receive(const struct image_spec *spec, int fd, struct image_file *file)
{
	FILE *in = fdopen(fd, "r");
	struct error *err;

	if (!in) {
		close(fd);
		return error_no_memory();
	}
	err = image_wire_receive(in, file);
	fclose(in);
	return err ? err : image_file_name(spec, file);
}

static struct error *crashed(const char *path, int status)
{
	if (WIFSIGNALED(status))
		return error_new(ERR_INPUT,
				 "%s: a damaged file: what reads it was ended by signal %d (%s)",
				 path, WTERMSIG(status), strsignal(WTERMSIG(status)));
	return error_new(ERR_FAILED, "%s: what reads it has failed", path);
}

struct error *image_apart_load(const struct image_spec *spec, struct image_file *file)
{
	struct error *err;
	int fds[2], status = 0;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC))
		return error_errno(ERR_FAILED, errno, "cannot read %s", spec->path);
	child = fork();
	if (child == 0)
		parse(spec, fds[1]);
	close(fds[1]);
	if (child < 0) {
		err = error_errno(ERR_FAILED, errno, "cannot read %s", spec->path);
		close(fds[0]);
		return err;
	}
	err = receive(spec, fds[0], file);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!status)
		return err;
	error_free(err);
	return crashed(spec->path, status);
}
