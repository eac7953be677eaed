/* SPDX-License-Identifier: BSD-3-Clause */
#include "target/process/process.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owned.h"
#include "base/preopen.h"
#include "target/host/proc.h"

/* Tables of Unikraft's linker script for registrations of its libraries. */
#define UNIKRAFT_SECTION ".uk_"

/* OCaml's symbols begin with "caml" and the module: this one is in every MirageOS unikernel. */
#define MIRAGE_SYMBOL "camlMirage_runtime"

/* Solo5's tender for guests that are processes has the guest in its own address space. */
#define SPT_NAME "solo5-spt"

static bool names_mirage(Elf_Scn *section)
{
	const Elf_Data *data = elf_rawdata(section, NULL);

	return data && data->d_buf &&
	       memmem(data->d_buf, data->d_size, MIRAGE_SYMBOL, strlen(MIRAGE_SYMBOL));
}

static const char *type_of_file(Elf *elf)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_kind(elf) != ELF_K_ELF || elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr head;
		const char *name =
			gelf_getshdr(section, &head) ? elf_strptr(elf, names, head.sh_name) : NULL;

		if (name && !strncmp(name, UNIKRAFT_SECTION, strlen(UNIKRAFT_SECTION)))
			return "linuxu";
		if (name && !strcmp(name, ".strtab") && names_mirage(section))
			return "mirage";
	}
	return NULL;
}

/* Our own processes need not be looked into again and again. */
static bool is_our_program(int fd)
{
	struct stat own, other;

	return !stat("/proc/self/exe", &own) && !fstat(fd, &other) && own.st_dev == other.st_dev &&
	       own.st_ino == other.st_ino;
}

const char *process_unikernel(pid_t pid)
{
	CLOSED int fd = -1;
	const char *type;
	char name[32];
	Elf *elf;

	proc_comm(pid, name, sizeof(name));
	if (!strncmp(name, SPT_NAME, strlen(SPT_NAME)) && proc_has_memory(pid))
		return "spt";
	fd = proc_open(pid, "exe", O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	elf_version(EV_CURRENT);
	elf = is_our_program(fd) ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	type = elf ? type_of_file(elf) : NULL;
	elf_end(elf);
	return type;
}

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
static bool add_file(void *ctx, const struct proc_map *map)
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

/* Puts the program first: reports call the first file the image. */
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
	err = proc_maps(pid, add_file, &found);
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

/* The number that it has for itself, in a PID namespace of its own. */
static pid_t inner_pid(pid_t pid)
{
	char text[4096] = "", *line, *last;

	(void)proc_read(pid, "status", text, sizeof(text));
	line = strstr(text, "\nNSpid:");
	if (!line)
		return pid;
	line[1 + strcspn(line + 1, "\n")] = '\0';
	last = strrchr(line, '\t');
	return last ? (pid_t)atoi(last + 1) : pid;
}

/* Written by the process itself, or by root: others may put files into its /tmp. */
static bool is_its_own(pid_t pid, int fd)
{
	struct stat process, file;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return !stat(path, &process) && !fstat(fd, &file) && S_ISREG(file.st_mode) &&
	       (file.st_uid == process.st_uid || file.st_uid == 0);
}

struct error *process_jit_names(pid_t pid, char **path)
{
	int fd;

	if (asprintf(path, "/proc/%d/root/tmp/perf-%d.map", (int)pid, (int)inner_pid(pid)) < 0) {
		*path = NULL;
		return error_no_memory();
	}
	fd = open(*path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && is_its_own(pid, fd))
		return preopen_adopt(*path, fd);
	if (fd >= 0)
		close(fd);
	free(*path);
	*path = NULL;
	return NULL;
}
