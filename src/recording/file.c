/* SPDX-License-Identifier: BSD-3-Clause */
#include "recording/format.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"

static struct error *create_error(const char *path, int errnum)
{
	const char *slash = strrchr(path, '/');

	if (!*path)
		return error_new(ERR_OUTPUT, "no name was given for the recording");
	if (errnum == EISDIR)
		return error_new(ERR_OUTPUT, "cannot write to %s: it is a directory, name a file",
				 path);
	if (errnum == ENOENT && slash)
		return error_new(ERR_OUTPUT, "cannot create %s: is there a directory %.*s?", path,
				 (int)(slash - path), path);
	if (errnum == EBUSY || errnum == EWOULDBLOCK)
		return open_to_write_error(path, errnum);
	return error_errno(ERR_OUTPUT, errnum, "cannot create %s", path);
}

static struct error *set(struct recording_file *file, int fd, const char *name)
{
	file->fd = fd;
	file->name = strdup(name);
	if (file->name)
		return NULL;
	close(fd);
	return error_no_memory();
}

/* A descriptor of its own for a standard file: closing it returns the file system's last errors. */
static int duplicate(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

struct error *recording_file_create(const char *path, struct recording_file *out)
{
	const bool standard = strcmp(path, "-") == 0;
	int fd;

	if (standard && isatty(STDOUT_FILENO))
		return error_new(ERR_OUTPUT, "a recording is not for a terminal: send "
					     "standard output to a file or a pipe");
	fd = standard ? duplicate(STDOUT_FILENO) : open_to_write(path);
	if (fd < 0 && standard)
		return error_errno(ERR_OUTPUT, errno, "cannot write to standard output");
	if (fd < 0)
		return create_error(path, errno);
	return set(out, fd, standard ? "standard output" : path);
}

struct error *recording_file_open(const char *path, struct recording_file *out)
{
	const bool standard = strcmp(path, "-") == 0;
	const char *name = standard ? "standard input" : path;
	const int fd = standard ? duplicate(STDIN_FILENO) : open_to_read(path);

	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "cannot read %s", name);
	return set(out, fd, name);
}

/* Waits until a failed call may be tried again; false: the error is a real one. */
static bool may_retry(int fd, short events)
{
	struct pollfd ready = {.fd = fd, .events = events};

	if (errno == EINTR)
		return true;
	if (errno != EAGAIN)
		return false;
	return poll(&ready, 1, -1) > 0 || errno == EINTR;
}

static struct error *write_error(const struct recording_file *file, int errnum)
{
	switch (errnum) {
	case ENOSPC:
		return error_new(ERR_OUTPUT, "cannot write to %s: no space is left on the device",
				 file->name);
	case EPIPE:
		return error_new(ERR_OUTPUT, "cannot write to %s: nobody reads it any more",
				 file->name);
	default:
		return error_errno(ERR_OUTPUT, errnum, "cannot write to %s", file->name);
	}
}

struct error *recording_file_write(struct recording_file *file, const void *data, size_t len)
{
	const char *at = data;
	size_t most = len;

	while (len > 0) {
		ssize_t done = write(file->fd, at, len < most ? len : most);

		if (done < 0 && may_retry(file->fd, POLLOUT))
			continue;
		/* A socket of packets: how large one may be is known only by trying. */
		if (done < 0 && errno == EMSGSIZE && most > 1) {
			most /= 2;
			continue;
		}
		if (done < 0)
			return write_error(file, errno);
		at += done;
		len -= (size_t)done;
	}
	return NULL;
}

struct error *recording_file_read(struct recording_file *file, void *data, size_t len, size_t *got)
{
	ssize_t done;

	do
		done = read(file->fd, data, len);
	while (done < 0 && may_retry(file->fd, POLLIN));
	if (done < 0)
		return error_errno(ERR_INPUT, errno, "cannot read %s", file->name);
	*got = (size_t)done;
	return NULL;
}

struct error *recording_file_close(struct recording_file *file)
{
	struct error *err = NULL;

	/* After EINTR Linux has closed the descriptor all the same. */
	if (close(file->fd) && errno != EINTR)
		err = write_error(file, errno);
	free(file->name);
	return err;
}

uint64_t recording_file_size(const struct recording_file *file)
{
	struct stat st;

	return !fstat(file->fd, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}
