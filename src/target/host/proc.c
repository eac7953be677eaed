/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/host/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM    96
#define COMMAND_ROOM 65536

ssize_t proc_read(pid_t pid, const char *name, char *text, size_t size)
{
	char path[PATH_ROOM];
	size_t len = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	while (len < size - 1 && (got = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = '\0';
	close(fd);
	return (ssize_t)len;
}

char *proc_words(pid_t pid, const char **end)
{
	char *words = malloc(COMMAND_ROOM);
	const ssize_t len = words ? proc_read(pid, "cmdline", words, COMMAND_ROOM) : 0;

	if (len <= 0) {
		free(words);
		return NULL;
	}
	*end = words + len;
	return words;
}

long proc_status(pid_t pid, const char *key, long otherwise)
{
	const size_t len = strlen(key);
	char text[4096], *line = text;

	if (proc_read(pid, "status", text, sizeof(text)) < 0)
		return otherwise;
	for (; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) && line[len] == ':')
			return strtol(line + len + 1, NULL, 10);
	}
	return otherwise;
}

bool proc_has_memory(pid_t pid)
{
	return proc_status(pid, "VmSize", 0) > 0;
}

void proc_comm(pid_t pid, char *name, size_t size)
{
	if (proc_read(pid, "comm", name, size) < 0)
		*name = '\0';
	name[strcspn(name, "\n")] = '\0';
}

/* "7f00-7f10 rw-p 00000000 08:01 1234   /path": the path begins at a fixed column or not at all. */
static bool parse_map(char *line, struct proc_map *map)
{
	char rights[5] = "";
	int path = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64 " %n", &map->start,
		   &map->end, rights, &map->offset, &map->inode, &path) < 5 ||
	    strlen(rights) != 4)
		return false;
	map->readable = rights[0] == 'r';
	map->writable = rights[1] == 'w';
	map->executable = rights[2] == 'x';
	map->shared = rights[3] == 's';
	map->path = line + path;
	return true;
}

struct error *proc_maps_open(pid_t pid, FILE **out)
{
	char path[PATH_ROOM];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	*out = fopen(path, "re");
	if (!*out)
		return errno == ENOENT ? error_new(ERR_GUEST, "there is no process %d", (int)pid)
				       : error_errno(ERR_DENIED, errno, "cannot read %s", path);
	return NULL;
}

void proc_maps_read(FILE *maps, bool (*each)(void *ctx, const struct proc_map *map), void *ctx)
{
	struct proc_map map;
	char *line = NULL;
	size_t room = 0;

	rewind(maps);
	while (getline(&line, &room, maps) > 0)
		if (parse_map(line, &map) && !each(ctx, &map))
			break;
	free(line);
}

struct error *proc_maps(pid_t pid, bool (*each)(void *ctx, const struct proc_map *map), void *ctx)
{
	FILE *maps;
	struct error *err = proc_maps_open(pid, &maps);

	if (err)
		return err;
	proc_maps_read(maps, each, ctx);
	fclose(maps);
	return NULL;
}

bool proc_numbers(pid_t pid, const char *name, bool (*each)(void *ctx, int number), void *ctx)
{
	char path[PATH_ROOM] = "/proc";
	const struct dirent *entry;
	DIR *dir;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	dir = opendir(path);
	if (!dir)
		return false;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
		    !each(ctx, atoi(entry->d_name)))
			break;
	closedir(dir);
	return true;
}

void proc_link(pid_t pid, const char *name, int number, char *to, size_t size)
{
	char path[PATH_ROOM];
	ssize_t len;

	if (number >= 0)
		snprintf(path, sizeof(path), "/proc/%d/%s/%d", (int)pid, name, number);
	else
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	len = readlink(path, to, size - 1);
	to[len > 0 ? len : 0] = '\0';
}

bool proc_has_program(pid_t pid)
{
	char path[PATH_ROOM], program;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return readlink(path, &program, 1) >= 0 || errno != ENOENT;
}

pid_t proc_parse_pid(const char *text)
{
	char *end;
	long value;

	if (*text < '1' || *text > '9')
		return 0;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || *end || value > INT_MAX ? 0 : (pid_t)value;
}

pid_t proc_group(pid_t tid)
{
	return (pid_t)proc_status(tid, "Tgid", 0);
}

static bool take_tracer(void *ctx, int tid)
{
	pid_t *tracer = ctx;
	const long found = proc_status(tid, "TracerPid", 0);

	*tracer = found && found != getpid() ? (pid_t)found : 0;
	return !*tracer;
}

pid_t proc_tracer(pid_t pid)
{
	pid_t tracer = 0;

	return proc_numbers(pid, "task", take_tracer, &tracer) ? tracer : -1;
}

/* Documentation/admin-guide/LSM/Yama.rst: 0 all of one's own, 1 descendants, 2 CAP_SYS_PTRACE, 3 none. */
static int yama_scope(void)
{
	FILE *in = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (!in)
		return 0;
	if (fscanf(in, "%d", &scope) != 1)
		scope = 0;
	fclose(in);
	return scope;
}

/* True in a user namespace that is not the machine's own (user_namespaces(7)). */
static bool in_nested_namespace(void)
{
	unsigned long inside = 0, outside = 0, n = 0;
	char text[64];

	return proc_read(getpid(), "uid_map", text, sizeof(text)) > 0 &&
	       sscanf(text, "%lu %lu %lu", &inside, &outside, &n) == 3 &&
	       (inside || outside || n != UINT32_MAX);
}

/* 1: the process is in another user namespace than ours; 0: in ours; -1: unknown. */
static int in_other_namespace(pid_t pid)
{
	char its[64], own[64];

	proc_link(pid, "ns/user", -1, its, sizeof(its));
	proc_link(getpid(), "ns/user", -1, own, sizeof(own));
	return *its && *own ? strcmp(its, own) != 0 : -1;
}

static struct error *for_lack_of_rights(pid_t pid, long uid)
{
	const int scope = yama_scope();

	if (geteuid() != 0 && uid != (long)geteuid())
		return error_new(ERR_DENIED,
				 "process %d belongs to user %ld: run uniprof as root, or as that "
				 "user",
				 (int)pid, uid);
	if (scope == 3)
		return error_new(ERR_DENIED,
				 "no process may be traced on this machine until it is rebooted "
				 "(kernel.yama.ptrace_scope is 3), not even by root");
	if (geteuid() != 0 && scope)
		return error_new(ERR_DENIED,
				 "only root may trace process %d (kernel.yama.ptrace_scope is %d): "
				 "run uniprof as root, or set it to 0",
				 (int)pid, scope);
	if (in_other_namespace(pid) == 1 || (in_other_namespace(pid) < 0 && in_nested_namespace()))
		return error_new(ERR_DENIED,
				 "process %d cannot be traced from this user namespace: run "
				 "uniprof outside of all of them, as root",
				 (int)pid);
	if (geteuid() != 0)
		return error_new(ERR_DENIED,
				 "process %d has made itself unreadable for others (set-user-ID, "
				 "or not dumpable): run uniprof as root",
				 (int)pid);
	return error_new(ERR_DENIED,
			 "process %d cannot be traced: the right to (CAP_SYS_PTRACE) is missing, "
			 "as it is in most containers; run uniprof outside, or start the "
			 "container with --cap-add=SYS_PTRACE",
			 (int)pid);
}

struct error *proc_cannot_trace(pid_t pid)
{
	const pid_t tracer = proc_tracer(pid);
	char name[32];

	if (tracer < 0)
		return error_new(ERR_GUEST, "there is no process %d", (int)pid);
	if (tracer) {
		proc_comm(tracer, name, sizeof(name));
		return error_new(ERR_DENIED,
				 "process %d is already traced by process %d (%s), and only one "
				 "can: end that first",
				 (int)pid, (int)tracer, *name ? name : "?");
	}
	return for_lack_of_rights(pid, proc_status(pid, "Uid", -1));
}
