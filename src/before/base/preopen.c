/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/preopen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct opened {
	struct opened *next;
	int fd; /* -1: it could not be opened */
	int error;
	bool read, write;
	char path[];
};

/* Like the descriptors themselves, one list for the process. */
static struct opened *all;

static struct error *add(const char *path, struct opened **out)
{
	struct opened *one = calloc(1, sizeof(*one) + strlen(path) + 1);

	if (!one)
		return error_no_memory();
	strcpy(one->path, path);
	one->next = all;
	all = *out = one;
	return NULL;
}

static struct error *keep(const char *path, int flags)
{
	struct opened *one = NULL;
	struct error *err;

	if (!path || !*path || !strcmp(path, "-"))
		return NULL;
	err = add(path, &one);
	if (err)
		return err;
	one->fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0644);
	one->error = errno;
	one->read = (flags & O_ACCMODE) != O_WRONLY;
	one->write = (flags & O_ACCMODE) != O_RDONLY;
	return NULL;
}

struct error *ahead_adopt(const char *path, int fd)
{
	struct opened *one = NULL;
	struct error *err = add(path, &one);

	if (err) {
		close(fd);
		return err;
	}
	one->fd = fd;
	one->read = true;
	return NULL;
}

struct error *ahead_input(const char *path)
{
	return keep(path, O_RDONLY);
}

struct error *ahead_output(const char *path)
{
	return keep(path, O_WRONLY | O_CREAT);
}

struct error *ahead_output_and_input(const char *path)
{
	return keep(path, O_RDWR | O_CREAT);
}

void ahead_add(struct descriptors *set)
{
	for (const struct opened *one = all; one; one = one->next)
		descriptors_add(set, one->fd);
}

void ahead_close(void)
{
	while (all) {
		struct opened *one = all;

		all = one->next;
		if (one->fd >= 0)
			close(one->fd);
		free(one);
	}
}

static const struct opened *find(const char *path, bool to_write)
{
	for (const struct opened *one = all; one; one = one->next)
		if ((to_write ? one->write : one->read) && !strcmp(one->path, path))
			return one;
	return NULL;
}

/* Above standard error: standard streams that were closed are not to be mistaken for this. */
static int duplicate(const struct opened *one)
{
	int fd;

	errno = one->error;
	if (one->fd < 0)
		return -1;
	fd = fcntl(one->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (fd >= 0)
		lseek(fd, 0, SEEK_SET); /* pipes have no position */
	return fd;
}

int open_to_read(const char *path)
{
	const struct opened *one = find(path, false);

	return one ? duplicate(one) : open(path, O_RDONLY | O_CLOEXEC);
}

static bool is_regular(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

bool is_regular_file(const char *path)
{
	const struct opened *one = find(path, false);
	struct stat st;

	return (one ? !fstat(one->fd, &st) : !stat(path, &st)) && S_ISREG(st.st_mode);
}

int open_to_write(const char *path)
{
	const struct opened *one = find(path, true);
	int fd, error;

	if (!one)
		return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	fd = duplicate(one);
	if (fd >= 0 && is_regular(fd) && ftruncate(fd, 0)) {
		error = errno;
		close(fd);
		errno = error;
		fd = -1;
	}
	return fd;
}
