/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "symbol/images/code.h"
#include "symbol/kernel/image.h"
#include "symbol/names/table.h"
#include "symbol/source/source.h"
#include "unwind/tables/cfi.h"

void image_file_free(struct image_file *file)
{
	if (!file)
		return;
	elf_code_free(file->code);
	unwind_table_free(file->table);
	symbols_free(file->symbols);
	free(file->path);
	free(file);
}

/* The part of it that is no parsing. */
static struct error *image_file_name(const struct image_spec *spec, struct image_file *file)
{
	file->path = strdup(spec->path);
	file->given = spec->given;
	file->names = spec->names;
	return file->path ? NULL : error_no_memory();
}

/* Not if another file with this build id has brought the unwind tables. */
static bool needs_tables(const struct image_spec *spec, const struct image_file *file)
{
	return file->code && !spec->names_only &&
	       (!spec->tables_known || strcmp(spec->tables_known, file->code->build_id) != 0);
}

static struct error *load_plain(const struct image_spec *spec, struct image_file *file,
				bool *no_names)
{
	struct error *err = elf_code_load(file->path, &file->code);

	if (err)
		return err;
	/* Without a table callers are found in other ways. */
	if (needs_tables(spec, file))
		error_free(cfi_load(file->path, &file->table));
	err = symbols_load(file->path, &file->symbols);
	*no_names = err;
	return err;
}

/* A packed kernel is unpacked once. */
static struct error *load_kernel(const struct image_spec *spec, struct image_file *file,
				 char *bytes, size_t len, bool *no_names)
{
	struct error *err;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_memory(bytes, len);
	err = elf_code_read(file->path, elf, &file->code);
	if (!err && needs_tables(spec, file))
		error_free(cfi_elf(file->path, elf, &file->table));
	if (!err) {
		err = elf_read(file->path, elf, &file->symbols);
		*no_names = err;
	}
	elf_end(elf);
	return err;
}

struct error *image_file_load(const struct image_spec *spec, struct image_file *file)
{
	const char *id = NULL;
	bool no_names = false;
	struct error *err;
	char *kernel;
	size_t len;

	err = image_file_name(spec, file);
	if (!err)
		err = kernel_image_load(spec->path, &kernel, &len);
	if (err)
		return err;
	err = kernel ? load_kernel(spec, file, kernel, len, &no_names)
		     : load_plain(spec, file, &no_names);
	free(kernel);
	if (no_names && file->code && !spec->needs_names) {
		error_free(err);
		err = NULL;
	}
	if (err)
		return err;
	if (file->code)
		id = file->code->build_id;
	if (file->code && spec->names_only && !spec->keeps_code)
		elf_code_drop_pieces(file->code);
	if ((!id || !*id) && file->symbols)
		id = symbols_build_id(file->symbols);
	if (id)
		snprintf(file->build_id, sizeof(file->build_id), "%s", id);
	return NULL;
}

/* The process's whole life. */
static void __attribute__((noreturn)) parse(const struct image_spec *spec, int fd)
{
	struct image_file file = {0};
	struct error *err;
	FILE *out;

	alarm(sandbox_seconds(spec->path));
	sandbox_enter(spec->path, &fd, 1);
	out = fdopen(fd, "w");
	if (!out)
		_exit(1);
	err = image_file_load(spec, &file);
	if (err == error_no_memory())
		err = error_new(ERR_INPUT,
				"%s: a damaged file: reading it takes too much memory for its size",
				spec->path);
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
	err = image_wire_receive(in, sandbox_memory(spec->path), file);
	fclose(in);
	return err ? err : image_file_name(spec, file);
}

struct error *image_file_load_sandboxed(const struct image_spec *spec, struct image_file *file)
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
	return sandbox_crashed(spec->path, status);
}

/* The first byte that is told. */
#define LACKS 'l'
#define HAS   'h'

/* The process's whole life. */
static void __attribute__((noreturn)) tell(const char *path, int fd)
{
	char told[1 + 2 * BUILD_ID_MAX + 1];

	alarm(sandbox_seconds(path));
	sandbox_enter(path, &fd, 1);
	*told = dwarf_file_lacks(path, told + 1) ? LACKS : HAS;
	if (write(fd, told, strlen(told)) < 0)
		_exit(1);
	_exit(0);
}

void image_file_build_id(const char *path, char *hex, bool *lacks)
{
	char told[1 + 2 * BUILD_ID_MAX + 1] = "";
	ssize_t len = 0;
	struct stat st;
	int fds[2];
	pid_t pid;

	*hex = '\0';
	*lacks = false;
	/* A pipe can be read but once, and not here. */
	if (stat(path, &st) || !S_ISREG(st.st_mode) || pipe2(fds, O_CLOEXEC))
		return;
	pid = fork();
	if (pid == 0)
		tell(path, fds[1]);
	close(fds[1]);
	/* So few bytes come at once, or never. */
	if (pid > 0)
		len = read(fds[0], told, sizeof(told) - 1);
	close(fds[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	/*
	 * The child may have been taken over, and the id becomes a part of
	 * paths and URLs: accept hex only.
	 */
	if (len < 2 || strspn(told + 1, "0123456789abcdef") != (size_t)len - 1)
		return;
	*lacks = *told == LACKS;
	strcpy(hex, told + 1);
}
