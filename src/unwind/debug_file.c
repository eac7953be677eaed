/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind/debug_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/ahead.h"

#define ROOT	     "/usr/lib/debug"
#define BUILD_ID_MAX 64 /* bytes */

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
static int try_open(const char *path, const struct wanted *wanted)
{
	return check(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), wanted);
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

static int open_by_id(const struct wanted *wanted)
{
	char path[sizeof(ROOT) + 2 * BUILD_ID_MAX + 32];

	if (wanted->id_len < 2)
		return -1;
	name_by_id(ROOT "/.build-id/", "/", ".debug", wanted, path);
	return try_open(path, wanted);
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
	return try_open(path, wanted);
}

/* The three places that a link may mean. */
static int open_by_link(const char *path, const char *link, const struct wanted *wanted)
{
	char dir[PATH_MAX];
	int fd;

	if (strchr(link, '/') || !realpath(path, dir))
		return -1;
	*strrchr(dir, '/') = '\0';
	fd = open_in("", dir, "", link, wanted);
	if (fd < 0)
		fd = open_in("", dir, ".debug/", link, wanted);
	return fd < 0 ? open_in(ROOT, dir, "", link, wanted) : fd;
}

int debug_file_open(const char *path, Elf *elf)
{
	struct wanted wanted = {0};
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);
	const char *link;
	GElf_Word crc = 0;
	int fd = -1;

	if (len > 0 && len <= BUILD_ID_MAX) {
		wanted.id = id;
		wanted.id_len = (size_t)len;
		fd = open_by_id(&wanted);
	}
	if (fd >= 0)
		return fd;
	link = dwelf_elf_gnu_debuglink(elf, &crc);
	wanted.crc = crc;
	if (link)
		fd = open_by_link(path, link, &wanted);
	return fd < 0 ? open_fetched(&wanted) : fd;
}
