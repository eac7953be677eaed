/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "target/host/proc.h"

struct found {
	pid_t pid;
	struct target_file *at;
	uint64_t inode[PROCESS_FILES_MAX];
	size_t n;
	bool no_memory;
};

/* As the process calls it, or, where that is another file for us, through its own root. */
static char *path_of(pid_t pid, const struct proc_map *map)
{
	struct stat stat_of;
	char *path;

	if (!stat(map->path, &stat_of) && stat_of.st_ino == map->inode)
		return strdup(map->path);
	if (asprintf(&path, "/proc/%d/root%s", (int)pid, map->path) < 0)
		return NULL;
	if (!stat(path, &stat_of))
		return path;
	free(path);
	return strdup(map->path);
}

/* The first executable mapping of a file begins with the page that its code begins in. */
static bool add(void *ctx, const struct proc_map *map)
{
	struct found *found = ctx;
	char *path;

	if (!map->executable || !map->inode || *map->path != '/')
		return true;
	for (size_t i = 0; i < found->n; i++)
		if (found->inode[i] == map->inode)
			return true;
	path = path_of(found->pid, map);
	if (!path) {
		found->no_memory = true;
		return false;
	}
	found->inode[found->n] = map->inode;
	found->at[found->n++] = (struct target_file){.path = path, .address = map->start};
	return found->n < PROCESS_FILES_MAX;
}

/* The program is what reports call the image. */
static void put_first(struct found *found, uint64_t inode)
{
	for (size_t i = 1; i < found->n; i++) {
		struct target_file program = found->at[i];

		if (found->inode[i] != inode)
			continue;
		memmove(found->at + 1, found->at, i * sizeof(*found->at));
		found->at[0] = program;
		return;
	}
}

struct error *process_files(pid_t pid, struct target_file **files, size_t *n)
{
	struct found found = {.pid = pid, .at = calloc(PROCESS_FILES_MAX, sizeof(*found.at))};
	struct stat program;
	char exe[48];
	struct error *err;

	if (!found.at)
		return error_no_memory();
	err = proc_maps(pid, add, &found);
	if (!err && found.no_memory)
		err = error_no_memory();
	if (err) {
		process_files_free(found.at, found.n);
		return err;
	}
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
	if (!stat(exe, &program))
		put_first(&found, program.st_ino);
	*files = found.at;
	*n = found.n;
	return NULL;
}

void process_files_free(struct target_file *files, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free((char *)files[i].path);
	free(files);
}
