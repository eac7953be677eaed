/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/preopen.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/owned.h"

/* Outputs hold addresses, names and memory of a guest: readable by the owner alone. */
#define OUTPUT_MODE 0600

/* For whoever writes to a FIFO to open it. */
#define FIFO_WAIT_MS 10000
#define FIFO_NAP_MS  10

struct opened {
	struct opened *next;
	int fd; /* -1: it could not be opened */
	int error;
	bool read, write;
	struct stat st; /* of a file that another process writes */
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

static bool is_input(const struct stat *st)
{
	for (const struct opened *one = all; one; one = one->next) {
		struct stat other;

		if (one->read && !one->write && one->fd >= 0 && !fstat(one->fd, &other) &&
		    other.st_dev == st->st_dev && other.st_ino == st->st_ino)
			return true;
	}
	return false;
}

/* False with errno: EBUSY of a file that is read as well, EWOULDBLOCK of one that another process writes. */
static bool may_write(int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return true;
	if (is_input(&st)) {
		errno = EBUSY;
		return false;
	}
	/* A file system without locks is written as it ever was. */
	return !flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK;
}

/* Closes it, and keeps errno. */
static int no_file(int fd)
{
	owned_close(&fd);
	return -1;
}

static int open_output_file(const char *path, int flags, struct stat *st)
{
	const int fd = open(path, flags | O_CREAT | O_CLOEXEC | O_NOCTTY, OUTPUT_MODE);
	int error;

	if (fd < 0 || may_write(fd))
		return fd;
	error = errno;
	if (fstat(fd, st))
		st->st_ino = 0;
	errno = error;
	return no_file(fd);
}

/* Nothing is taken out of it: tee(2) copies, and tells an empty FIFO that has a writer by EAGAIN. */
static bool has_writer(int fifo)
{
	const struct timespec nap = {.tv_nsec = FIFO_NAP_MS * 1000000};
	bool found = false;
	int copy[2];

	if (pipe2(copy, O_CLOEXEC))
		return false;
	for (int i = 0; i < FIFO_WAIT_MS / FIFO_NAP_MS && !found; i++) {
		const ssize_t copied = tee(fifo, copy[1], 1, SPLICE_F_NONBLOCK);

		found = copied > 0 || (copied < 0 && errno == EAGAIN);
		if (!found)
			nanosleep(&nap, NULL);
	}
	close(copy[0]);
	close(copy[1]);
	return found;
}

/* As open(2) for reading, without a wait for a writer to a FIFO beyond FIFO_WAIT_MS. */
static int open_bounded(const char *path)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISFIFO(st.st_mode) && !has_writer(fd))
		errno = ENODATA;
	else if (!fcntl(fd, F_SETFL, O_RDONLY))
		return fd;
	return no_file(fd);
}

static struct error *keep(const char *path, int flags)
{
	struct opened *one = NULL;

	if (!path || !*path || !strcmp(path, "-"))
		return NULL;
	TRY(add(path, &one));
	one->fd = -1;
	one->write = (flags & O_ACCMODE) != O_RDONLY;
	one->fd = one->write	       ? open_output_file(path, flags, &one->st)
		  : flags & O_NONBLOCK ? open_bounded(path)
				       : open(path, flags | O_CLOEXEC | O_NOCTTY);
	one->error = errno;
	one->read = (flags & O_ACCMODE) != O_WRONLY;
	return NULL;
}

struct error *preopen_adopt(const char *path, int fd)
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

void preopen_forget(const char *path)
{
	for (struct opened **at = &all; *at; at = &(*at)->next) {
		struct opened *one = *at;

		if (strcmp(one->path, path) != 0)
			continue;
		*at = one->next;
		close(one->fd);
		free(one);
		return;
	}
}

struct error *preopen_input(const char *path)
{
	return keep(path, O_RDONLY);
}

struct error *preopen_bounded_input(const char *path)
{
	return keep(path, O_RDONLY | O_NONBLOCK);
}

struct error *preopen_output(const char *path)
{
	return keep(path, O_WRONLY);
}

struct error *preopen_output_and_input(const char *path)
{
	return keep(path, O_RDWR);
}

void preopen_add(struct descriptors *set)
{
	for (const struct opened *one = all; one; one = one->next)
		descriptors_add(set, one->fd);
}

void preopen_close(void)
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

bool preopen_has_input(const char *path)
{
	return find(path, false);
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

bool is_regular_file(const char *path)
{
	const struct opened *one = find(path, false);
	struct stat st;

	return (one ? !fstat(one->fd, &st) : !stat(path, &st)) && S_ISREG(st.st_mode);
}

int open_to_write(const char *path)
{
	const struct opened *one = find(path, true);
	struct stat st;
	const int fd = one ? duplicate(one) : open_output_file(path, O_WRONLY, &st);

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && ftruncate(fd, 0))
		return no_file(fd);
	return fd;
}

/* The process that holds the lock, by proc_locks(5); 0: it cannot be told. */
static int writer_of(const char *path)
{
	FILE *locks = fopen("/proc/locks", "re");
	const struct opened *one = find(path, true);
	char line[256], kind[16], mode[16];
	struct stat st = {0};
	int pid = 0;

	if (one)
		st = one->st;
	else if (stat(path, &st))
		st.st_ino = 0;
	while (locks && !pid && fgets(line, sizeof(line), locks)) {
		unsigned major, minor;
		uint64_t inode;
		int holder;

		if (sscanf(line, "%*s %15s %*s %15s %d %x:%x:%" SCNu64, kind, mode, &holder, &major,
			   &minor, &inode) == 6 &&
		    !strcmp(kind, "FLOCK") && inode == st.st_ino && major == major(st.st_dev) &&
		    minor == minor(st.st_dev))
			pid = holder;
	}
	if (locks)
		fclose(locks);
	return pid;
}

struct error *open_to_write_error(const char *path, int error)
{
	int pid;

	if (error == EBUSY)
		return error_new(ERR_OUTPUT,
				 "cannot write %s: it is what is read, too; name another file",
				 path);
	if (error != EWOULDBLOCK)
		return error_errno(ERR_OUTPUT, error, "cannot write %s", path);
	pid = writer_of(path);
	return pid ? error_new(ERR_OUTPUT,
			       "cannot write %s: process %d is writing it; name another file", path,
			       pid)
		   : error_new(ERR_OUTPUT,
			       "cannot write %s: another process is writing it; name another file",
			       path);
}

#define BITS 64

static bool holds(const struct descriptors *set, int fd)
{
	return set->bits[fd / BITS] >> (fd % BITS) & 1;
}

void descriptors_add(struct descriptors *set, int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS_MAX)
		set->bits[fd / BITS] |= UINT64_C(1) << (fd % BITS);
}

/* Mostly 1024. */
static int limit(void)
{
	long most = sysconf(_SC_OPEN_MAX);

	return most > 0 && most < DESCRIPTORS_MAX ? (int)most : DESCRIPTORS_MAX;
}

void descriptors_collect(struct descriptors *set)
{
	int most = limit();

	memset(set, 0, sizeof(*set));
	for (int fd = 0; fd < most; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			descriptors_add(set, fd);
}

void descriptors_subtract(struct descriptors *set, const struct descriptors *others)
{
	for (int i = 0; i < DESCRIPTORS_MAX / BITS; i++)
		set->bits[i] &= ~others->bits[i];
}

void descriptors_close_others(const struct descriptors *keep)
{
	int most = limit();

	for (int fd = 0; fd < most; fd++)
		if (!holds(keep, fd))
			close(fd);
}

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
	bool itself; /* the end of the way is no link */
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
	if (S_ISLNK(st.st_mode) && !(walk->itself && !*walk->rest))
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

static int open_below(const char *path, bool itself)
{
	struct walk walk = {.dir = {-1}, .itself = itself};
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

int sysroot_open(const char *path)
{
	return open_below(path, false);
}

int sysroot_open_itself(const char *path)
{
	return open_below(path, true);
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
