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
#include <zlib.h>

#include "base/owned.h"
#include "base/preopen.h"
#include "base/sandbox.h"
#include "symbol/images/code.h"
#include "symbol/kernel/kernel.h"
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
	free(file->opened);
	free(file);
}

/* The part of it that is no parsing. */
static struct error *image_file_name(const struct image_spec *spec, struct image_file *file)
{
	file->path = strdup(spec->path);
	file->given = spec->given;
	file->names = spec->names;
	file->names_only = spec->names_only;
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
	struct error *err;

	TRY(elf_code_load(file->path, &file->code));
	/* Without a table callers are found in other ways. */
	if (needs_tables(spec, file))
		error_free(cfi_load(file->path, &file->table));
	if (file->code && !spec->names_only)
		thread_layout_load(file->path, &file->threads);
	err = symbols_load(file->path, &file->symbols);
	*no_names = err;
	return err;
}

/* A packed kernel is unpacked once. */
static struct error *load_kernel(const struct image_spec *spec, struct image_file *file,
				 char *bytes, size_t len, bool *no_names)
{
	ENDED_BY(end_elf) Elf *elf = NULL;
	struct error *err;

	elf_version(EV_CURRENT);
	elf = elf_memory(bytes, len);
	TRY(elf_code_read(file->path, elf, &file->code));
	if (needs_tables(spec, file))
		error_free(cfi_elf(file->path, elf, &file->table));
	err = elf_read(file->path, elf, &file->symbols);
	*no_names = err;
	return err;
}

struct error *image_file_load(const struct image_spec *spec, struct image_file *file)
{
	const char *id = NULL;
	bool no_names = false;
	FREED char *kernel = NULL;
	struct error *err;
	size_t len;

	TRY(image_file_name(spec, file));
	TRY(kernel_image_load(spec->path, &kernel, &len));
	err = kernel ? load_kernel(spec, file, kernel, len, &no_names)
		     : load_plain(spec, file, &no_names);
	if (no_names && file->code && !spec->needs_names) {
		error_free(err);
		err = NULL;
	}
	if (err)
		return err;
	if (file->code && *file->code->build_id)
		id = file->code->build_id;
	else if (file->symbols)
		id = symbols_build_id(file->symbols);
	if (id)
		snprintf(file->build_id, sizeof(file->build_id), "%s", id);
	if (file->code && spec->names_only && !spec->keeps_code)
		elf_code_drop_pieces(file->code);
	return NULL;
}

/*
 * Forks a process without rights that reads one file: 0 there, and -1 with errno if there is none.
 * *fd: its end of a pipe there, and the other one here.
 */
static pid_t fork_reader(const char *path, int *fd)
{
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		*fd = fds[1];
		alarm(sandbox_seconds(path));
		sandbox_enter(path, fd, 1);
		return 0;
	}
	close(fds[1]);
	*fd = fds[0];
	if (child < 0)
		close(*fd);
	return child;
}

/* Waits for the end of such a process, and returns its status. */
static int wait_for(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* The process's whole life. */
static void __attribute__((noreturn)) parse(const struct image_spec *spec, int fd)
{
	struct image_file file = {0};
	FILE *out = fdopen(fd, "w");
	struct error *err;

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
	int fd, status;
	const pid_t child = fork_reader(spec->path, &fd);

	if (child < 0)
		return error_errno(ERR_FAILED, errno, "cannot read %s", spec->path);
	if (child == 0)
		parse(spec, fd);
	err = receive(spec, fd, file);
	status = wait_for(child);
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

	*told = dwarf_file_lacks(path, told + 1) ? LACKS : HAS;
	_exit(write(fd, told, strlen(told)) < 0);
}

void image_file_build_id(const char *path, char *hex, bool *lacks)
{
	char told[1 + 2 * BUILD_ID_MAX + 1] = "";
	struct stat st;
	pid_t child;
	ssize_t len;
	int fd;

	*hex = '\0';
	*lacks = false;
	/* A pipe can be read but once, and not here. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return;
	child = fork_reader(path, &fd);
	if (child < 0)
		return;
	if (child == 0)
		tell(path, fd);
	/* So few bytes come at once, or never. */
	len = read(fd, told, sizeof(told) - 1);
	close(fd);
	wait_for(child);
	/*
	 * The child may have been taken over, and the id becomes a part of
	 * paths and URLs: accept hex only.
	 */
	if (len < 2 || strspn(told + 1, "0123456789abcdef") != (size_t)len - 1)
		return;
	*lacks = *told == LACKS;
	strcpy(hex, told + 1);
}

bool image_file_packs_linux(const char *path)
{
	int fd, status;
	const pid_t child = fork_reader(path, &fd);

	if (child < 0)
		return false;
	if (child == 0)
		_exit(kernel_image_packs_linux(path));
	close(fd);
	status = wait_for(child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* The name under which the directory is preopened. */
#define PREOPENED "symbol-cache:"

/* The first bytes: another version writes something else. */
#define MAGIC "uniprof symbols " UNIPROF_VERSION " 4\n"

/* The largest table that is kept, bytes. */
#define FILE_MAX (1u << 29)

struct cache_head {
	char magic[60]; /* MAGIC, then zeros */
	uint32_t crc;	/* of all bytes behind it */
};

/* The directory's descriptor, or -1. */
static int open_directory(bool create)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char path[4096];

	if (base && *base == '/')
		snprintf(path, sizeof(path) - 32, "%s", base);
	else if (home && *home == '/')
		snprintf(path, sizeof(path) - 32, "%s/.cache", home);
	else
		return -1;
	if (create)
		mkdir(path, 0700);
	strcat(path, "/uniprof");
	if (create)
		mkdir(path, 0755);
	strcat(path, "/symbols");
	if (create)
		mkdir(path, 0755);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

struct error *symbol_cache_preopen(void)
{
	int fd = open_directory(false);

	return fd < 0 ? NULL : preopen_adopt(PREOPENED, fd);
}

/* Packs everything but code and unwind tables, for which only the file itself is believed. */
static char *pack(const struct image_file *file, size_t *len)
{
	struct elf_code code = *file->code;
	struct image_file few = *file;
	char *bytes = NULL;
	FILE *out = open_memstream(&bytes, len);

	if (!out)
		return NULL;
	code.piece = NULL;
	code.n = code.n_marks = 0;
	few.code = &code;
	few.table = NULL;
	few.threads = (struct thread_layout){0};
	image_wire_send(NULL, &few, out);
	if (!fclose(out))
		return bytes;
	free(bytes);
	return NULL;
}

/* Writes under another name first, so that nobody sees half of it. */
static void write_file(int directory, const char *name, const char *bytes, size_t len)
{
	struct cache_head head = {.magic = MAGIC,
				  .crc = (uint32_t)crc32(0, (const Bytef *)bytes, (uInt)len)};
	char fresh[64];
	FILE *out;
	bool good;
	int fd;

	snprintf(fresh, sizeof(fresh), ".new-%ld", (long)getpid());
	unlinkat(directory, fresh, 0);
	fd = openat(directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		return;
	good = fwrite(&head, sizeof(head), 1, out) == 1 && fwrite(bytes, len, 1, out) == 1;
	good = !fclose(out) && good;
	if (!good || renameat(directory, fresh, directory, name))
		unlinkat(directory, fresh, 0);
}

static void keep(int directory, const char *path)
{
	const struct image_spec spec = {.path = path, .names = true, .needs_names = true};
	struct image_file *file = calloc(1, sizeof(*file));
	struct error *err = file ? image_file_load_sandboxed(&spec, file) : error_no_memory();
	FREED char *bytes = NULL;
	size_t len;

	if (!err && file->symbols && file->code && *file->build_id)
		bytes = pack(file, &len);
	if (bytes && len <= FILE_MAX)
		write_file(directory, file->build_id, bytes, len);
	image_file_free(file);
	error_free(err);
}

void symbol_cache_keep(const char *path)
{
	char hex[2 * BUILD_ID_MAX + 1];
	CLOSED int directory = -1;
	bool lacks;

	image_file_build_id(path, hex, &lacks);
	if (*hex)
		directory = open_directory(true);
	if (directory >= 0 && faccessat(directory, hex, F_OK, 0))
		keep(directory, path);
}

/* Reads the whole file, if its checksum is right; the caller frees it. */
static char *read_file(const char *name, size_t *len)
{
	CLOSED const int directory = open_to_read(PREOPENED);
	int fd = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	const struct cache_head expected = {.magic = MAGIC};
	struct cache_head head;
	char *bytes = NULL;
	struct stat st;

	if (!in)
		return NULL;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= (off_t)FILE_MAX &&
	    st.st_size > (off_t)sizeof(head) && fread(&head, sizeof(head), 1, in) == 1 &&
	    !memcmp(head.magic, expected.magic, sizeof(head.magic)))
		bytes = malloc((size_t)st.st_size);
	*len = bytes ? fread(bytes, 1, (size_t)st.st_size, in) : 0;
	fclose(in);
	if (*len && crc32(0, (const Bytef *)bytes, (uInt)*len) == head.crc)
		return bytes;
	free(bytes);
	return NULL;
}

bool symbol_cache_load(const char *build_id, struct image_file *file)
{
	FREED char *bytes = NULL;
	struct error *err = NULL;
	FILE *in = NULL;
	size_t len;
	bool good;

	if (*build_id && !build_id[strspn(build_id, "0123456789abcdef")])
		bytes = read_file(build_id, &len);
	if (bytes)
		in = fmemopen(bytes, len, "r");
	if (in) {
		err = image_wire_receive(in, len, file);
		fclose(in);
	}
	good = in && !err && file->symbols && file->code && !strcmp(file->build_id, build_id);
	error_free(err);
	return good;
}
