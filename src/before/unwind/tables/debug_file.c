/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/tables/debug_file.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/preopen.h"

#define ROOT	     "/usr/lib/debug"
#define BUILD_ID_MAX 64 /* bytes */

/* The name under which the user's directory is opened ahead. */
#define AHEAD "debug-dir:"

struct wanted {
	const uint8_t *id; /* build id; NULL: none */
	size_t id_len;
	uint32_t crc;
};

static bool has_id(int fd, const struct wanted *wanted)
{
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	const void *id;
	bool same;

	same = elf && dwelf_elf_gnu_build_id(elf, &id) == (ssize_t)wanted->id_len &&
	       !memcmp(id, wanted->id, wanted->id_len);
	elf_end(elf);
	return same;
}

static bool has_crc(int fd, const struct wanted *wanted)
{
	static const size_t size = 65536;
	uint8_t *bytes = malloc(size);
	uLong crc = crc32(0, NULL, 0);
	ssize_t n = 0;

	while (bytes && (n = read(fd, bytes, size)) > 0)
		crc = crc32(crc, bytes, (uInt)n);
	free(bytes);
	return bytes && n == 0 && crc == wanted->crc;
}

static int check(int fd, const struct wanted *wanted)
{
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) &&
	    (wanted->id ? has_id(fd, wanted) : has_crc(fd, wanted)))
		return fd;
	close(fd);
	return -1;
}

/* Never a device or a pipe, which could be waited for for ever. */
static int try_open(int dir, const char *path, const struct wanted *wanted)
{
	return check(openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), wanted);
}

/* PREFIX ID[0] MIDDLE ID[1..] END, in hex. */
static void name_by_id(const char *prefix, const char *middle, const char *end,
		       const struct wanted *wanted, char *name)
{
	name += sprintf(name, "%s%02x%s", prefix, wanted->id[0], middle);
	for (size_t i = 1; i < wanted->id_len; i++)
		name += sprintf(name, "%02x", wanted->id[i]);
	strcpy(name, end);
}

static int open_by_id(const char *prefix, int dir, const struct wanted *wanted)
{
	char path[sizeof(ROOT) + 2 * BUILD_ID_MAX + 32];

	if (wanted->id_len < 2)
		return -1;
	name_by_id(prefix, "/", ".debug", wanted, path);
	return try_open(dir, path, wanted);
}

static int open_fetched(const struct wanted *wanted)
{
	char name[sizeof(DEBUG_FILE_FETCHED) + 2 * BUILD_ID_MAX];

	if (!wanted->id)
		return -1;
	name_by_id(DEBUG_FILE_FETCHED, "", "", wanted, name);
	return check(open_to_read(name), wanted);
}

static int open_in(const char *root, const char *dir, const char *sub, const char *name,
		   const struct wanted *wanted)
{
	char path[2 * PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s%s/%s%s", root, dir, sub, name) >= sizeof(path))
		return -1;
	return try_open(AT_FDCWD, path, wanted);
}

/* The three places that a link may mean. */
static int open_by_link(const char *dir, const char *link, const struct wanted *wanted)
{
	int fd = open_in("", dir, "", link, wanted);

	if (fd < 0)
		fd = open_in("", dir, ".debug/", link, wanted);
	return fd < 0 ? open_in(ROOT, dir, "", link, wanted) : fd;
}

/* Below the user's directory, as below /usr/lib/debug, or the bare name. */
static int open_given(const char *dir, const char *link, const struct wanted *wanted)
{
	int given = open_to_read(AHEAD), fd;
	char path[2 * PATH_MAX];

	if (given < 0)
		return -1;
	fd = open_by_id(".build-id/", given, wanted);
	if (fd < 0 && link) {
		snprintf(path, sizeof(path), "%s/%s", dir, link);
		fd = try_open(given, path + 1, wanted);
	}
	if (fd < 0 && link)
		fd = try_open(given, link, wanted);
	close(given);
	return fd;
}

struct error *debug_file_ahead(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the directory of debug files",
				   dir);
	return ahead_adopt(AHEAD, fd);
}

/* The name that the file itself has for what was taken out, and where the file is. */
static const char *link_of(const char *path, Elf *elf, char *dir, struct wanted *wanted)
{
	GElf_Word crc = 0;
	const char *link = dwelf_elf_gnu_debuglink(elf, &crc);

	if (!link || !*link || strlen(link) > NAME_MAX || strchr(link, '/') || !realpath(path, dir))
		return NULL;
	wanted->crc = crc;
	*strrchr(dir, '/') = '\0';
	return link;
}

int debug_file_open(const char *path, Elf *elf)
{
	struct wanted wanted = {0};
	char dir[PATH_MAX] = "";
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);
	const char *link = link_of(path, elf, dir, &wanted);
	int fd;

	if (len > 0 && len <= BUILD_ID_MAX) {
		wanted.id = id;
		wanted.id_len = (size_t)len;
	}
	if (!link && !wanted.id)
		return -1;
	fd = open_given(dir, link, &wanted);
	if (fd < 0)
		fd = open_by_id(ROOT "/.build-id/", AT_FDCWD, &wanted);
	if (fd < 0 && link)
		fd = open_by_link(dir, link, &wanted);
	return fd < 0 ? open_fetched(&wanted) : fd;
}
