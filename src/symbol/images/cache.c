/* SPDX-License-Identifier: BSD-3-Clause */
#include "symbol/images/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/preopen.h"
#include "symbol/images/file.h"

/* The name under which the directory is preopened. */
#define PREOPENED "symbol-cache:"

/* The first bytes: another version writes something else. */
#define MAGIC "uniprof symbols " UNIPROF_VERSION " 3\n"

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
	char *bytes = NULL;
	size_t len;

	if (!err && file->symbols && file->code && *file->build_id)
		bytes = pack(file, &len);
	if (bytes && len <= FILE_MAX)
		write_file(directory, file->build_id, bytes, len);
	free(bytes);
	image_file_free(file);
	error_free(err);
}

void symbol_cache_keep(const char *path)
{
	char hex[2 * BUILD_ID_MAX + 1];
	int directory;
	bool lacks;

	image_file_build_id(path, hex, &lacks);
	directory = *hex ? open_directory(true) : -1;
	if (directory < 0)
		return;
	if (faccessat(directory, hex, F_OK, 0))
		keep(directory, path);
	close(directory);
}

/* Reads the whole file, if its checksum is right; the caller frees it. */
static char *read_file(const char *name, size_t *len)
{
	int directory = open_to_read(PREOPENED);
	int fd = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	const struct cache_head expected = {.magic = MAGIC};
	struct cache_head head;
	char *bytes = NULL;
	struct stat st;

	if (directory >= 0)
		close(directory);
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
	struct error *err = NULL;
	char *bytes = NULL;
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
	free(bytes);
	good = in && !err && file->symbols && file->code && !strcmp(file->build_id, build_id);
	error_free(err);
	return good;
}
