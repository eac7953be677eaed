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

#define PATH_ROOM 96

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
