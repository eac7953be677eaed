/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/preopen.h"

/* The name under which the directory is preopened, and what the names of its files begin with. */
#define SYSROOT "sysroot:"

/* Links of one path (path_resolution(7)), and directories that are open at once. */
#define LINKS_MAX 40u
#define DEPTH_MAX 64u

struct error *sysroot_preopen(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(ERR_INPUT, errno,
				   "%s: cannot open the directory of the guest's files", dir);
	return preopen_adopt(SYSROOT, fd);
}

bool sysroot_is_given(void)
{
	return preopen_has_input(SYSROOT);
}

/*
 * A walk along a path, as openat2(2) with RESOLVE_IN_ROOT has it: one call for each
 * directory, which a filter of system calls can tell to be for reading.
 */
struct walk {
	int dir[DEPTH_MAX]; /* the root, and those below it up to where the walk is */
	unsigned n;
	unsigned links;
	char rest[2 * PATH_MAX];
};

static void go_up_to(struct walk *walk, unsigned n)
{
	while (walk->n > n)
		close(walk->dir[--walk->n]);
}

/* Takes the next name off the rest; false: there is none, or it is too long. */
static bool take_name(struct walk *walk, char name[NAME_MAX + 1])
{
	const size_t slashes = strspn(walk->rest, "/"), len = strcspn(walk->rest + slashes, "/");

	if (!len || len > NAME_MAX)
		return false;
	memcpy(name, walk->rest + slashes, len);
	name[len] = '\0';
	memmove(walk->rest, walk->rest + slashes + len, strlen(walk->rest + slashes + len) + 1);
	return true;
}

/* Puts a link's text before the rest. */
static bool follow(struct walk *walk, int link)
{
	char text[2 * PATH_MAX];
	const ssize_t len = readlinkat(link, "", text, PATH_MAX - 1);

	close(link);
	if (len <= 0 || ++walk->links > LINKS_MAX ||
	    (size_t)snprintf(text + len, sizeof(text) - (size_t)len, "%s", walk->rest) >=
		    sizeof(text) - (size_t)len)
		return false;
	if (*text == '/')
		go_up_to(walk, 1);
	strcpy(walk->rest, text);
	return true;
}

/* Opens what was looked at, and nothing that has come in its place since. */
static int open_file(int dir, const char *name, const struct stat *seen)
{
	const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_dev == seen->st_dev &&
		       st.st_ino == seen->st_ino))
		return fd;
	close(fd);
	return -1;
}

/* One step; *file: the end of the way, or -1. False: the way ends. */
static bool step(struct walk *walk, int *file)
{
	char name[NAME_MAX + 1];
	struct stat st;
	int fd;

	if (!take_name(walk, name))
		return false;
	if (!strcmp(name, "."))
		return true;
	if (!strcmp(name, "..")) {
		go_up_to(walk, walk->n > 1 ? walk->n - 1 : 1);
		return true;
	}
	fd = openat(walk->dir[walk->n - 1], name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &st))
		st.st_mode = 0;
	if (S_ISLNK(st.st_mode))
		return follow(walk, fd);
	if (S_ISDIR(st.st_mode) && walk->n < DEPTH_MAX) {
		walk->dir[walk->n++] = fd;
		return true;
	}
	close(fd);
	if (S_ISREG(st.st_mode) && !*walk->rest)
		*file = open_file(walk->dir[walk->n - 1], name, &st);
	return false;
}

int sysroot_open(const char *path)
{
	struct walk walk = {.dir = {-1}};
	int file = -1, error;

	errno = ENOENT;
	if (*path != '/' || strlen(path) >= PATH_MAX || !sysroot_is_given())
		return -1;
	walk.dir[0] = open_to_read(SYSROOT);
	if (walk.dir[0] < 0)
		return -1;
	walk.n = 1;
	strcpy(walk.rest, path);
	errno = ENOENT;
	while (step(&walk, &file))
		;
	error = errno;
	go_up_to(&walk, 0);
	errno = error;
	return file;
}

struct error *sysroot_adopt(const char *path, char **name)
{
	struct error *err = NULL;
	char *text;
	int fd, error;

	*name = NULL;
	if (asprintf(&text, SYSROOT "%s", path) < 0)
		return error_no_memory();
	if (!preopen_has_input(text)) {
		fd = sysroot_open(path);
		err = fd < 0 ? NULL : preopen_adopt(text, fd);
	}
	if (!err && preopen_has_input(text)) {
		*name = text;
		return NULL;
	}
	error = errno;
	free(text);
	errno = error;
	return err;
}
