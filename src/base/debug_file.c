/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/debug_file.h"

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
#include "base/sandbox.h"

/* Fewer bytes than this could be the same by chance. */
#define LEAST 32u

Elf_Scn *elf_find_section(Elf *elf, const char *wanted, GElf_Shdr *shdr)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;

		if (!gelf_getshdr(scn, shdr) || shdr->sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(elf, names, shdr->sh_name);
		if (name && !strcmp(name, wanted))
			return scn;
	}
	return NULL;
}

/* File offset of these addresses; false if they are not loaded from the file as a whole. */
static bool find_loaded(Elf *elf, uint64_t va, uint64_t len, int64_t *offset)
{
	size_t n;

	if (elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_LOAD ||
		    va < phdr.p_vaddr || va - phdr.p_vaddr > phdr.p_filesz ||
		    len > phdr.p_filesz - (va - phdr.p_vaddr) || phdr.p_offset > INT64_MAX / 2)
			continue;
		*offset = (int64_t)(phdr.p_offset + (va - phdr.p_vaddr));
		return true;
	}
	return false;
}

static bool is_same(Elf *stripped, Elf_Scn *section, const GElf_Shdr *shdr)
{
	const Elf_Data *own = elf_rawdata(section, NULL), *other;
	int64_t offset;

	if (!own || !own->d_buf || own->d_size != shdr->sh_size ||
	    !find_loaded(stripped, shdr->sh_addr, shdr->sh_size, &offset))
		return false;
	other = elf_getdata_rawchunk(stripped, offset, own->d_size, ELF_T_BYTE);
	return other && other->d_size == own->d_size &&
	       !memcmp(other->d_buf, own->d_buf, own->d_size);
}

/*
 * Is `stripped` made of `full`? Every section of code of `full` must be in what
 * `stripped` loads, at the same addresses and byte by byte. For files without a
 * build id, and whatever the class of the ELF files: loaders that take files of
 * 32 bits only are given 64-bit code in such a file. False if there is no code
 * to compare, as in a file of debug information alone.
 */
static bool same_code(Elf *stripped, Elf *full)
{
	Elf_Scn *section = NULL;
	uint64_t compared = 0;
	GElf_Shdr shdr;

	while ((section = elf_nextscn(full, section))) {
		if (!gelf_getshdr(section, &shdr))
			return false;
		if (!(shdr.sh_flags & SHF_ALLOC) || !(shdr.sh_flags & SHF_EXECINSTR) ||
		    !shdr.sh_size)
			continue;
		if (shdr.sh_type != SHT_PROGBITS || !is_same(stripped, section, &shdr))
			return false;
		compared += shdr.sh_size;
	}
	return compared >= LEAST;
}

#define ROOT	     "/usr/lib/debug"
#define BUILD_ID_MAX 64 /* bytes */

/* The name under which the user's directory is preopened. */
#define GIVEN_DIR "debug-dir:"

struct wanted {
	const uint8_t *id; /* build id; NULL: none */
	size_t id_len;
	uint32_t crc;
	Elf *stripped;
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

static bool has_code(int fd, const struct wanted *wanted)
{
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	const bool same = elf && same_code(wanted->stripped, elf);

	elf_end(elf);
	return same;
}

static int check_by(int fd, const struct wanted *wanted,
		    bool (*without_id)(int fd, const struct wanted *wanted))
{
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) &&
	    (wanted->id ? has_id(fd, wanted) : without_id(fd, wanted))) {
		sandbox_raise(fd);
		return fd;
	}
	close(fd);
	return -1;
}

static int check(int fd, const struct wanted *wanted)
{
	return check_by(fd, wanted, has_crc);
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

/* Where the guest itself has it. */
static int open_in_sysroot(const struct wanted *wanted)
{
	char path[sizeof(ROOT) + 2 * BUILD_ID_MAX + 32];

	if (!wanted->id || wanted->id_len < 2)
		return -1;
	name_by_id(ROOT "/.build-id/", "/", ".debug", wanted, path);
	return check(sysroot_open(path), wanted);
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

/* The three paths that a link may mean. */
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
	int given = open_to_read(GIVEN_DIR), fd;
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

/* The n-th name that the kernel in a compressed image may have. */
static bool name_kernel(const char *path, int dir, unsigned n, char *name, size_t size)
{
	static const char packed[] = "vmlinuz", built[] = "bzImage";
	const char *base = path + dir;
	const bool is_packed = !strncmp(base, packed, strlen(packed));
	const char *version = is_packed ? base + strlen(packed) : "";

	if (is_packed && n == 0)
		snprintf(name, size, "%.*svmlinux%s", dir, path, version);
	else if (is_packed && n == 1)
		snprintf(name, size, "%.*svmlinux", dir, path);
	else if (is_packed && n == 2)
		snprintf(name, size, ROOT "/boot/vmlinux%s", version);
	else if (!strcmp(base, built) && n == 0)
		/* arch/x86/boot/bzImage of a tree that was built */
		snprintf(name, size, "%.*s../../../vmlinux", dir, path);
	else
		return false;
	return true;
}

/* The n-th name that a build may have given to the debug file of `path`; false: no more names. */
static bool name_beside(const char *path, unsigned n, char *name, size_t size)
{
	static const struct {
		const char *sub, *end;
	} names[] = {{"", ".dbg"},
		     {"", ".debug"},
		     {".debug/", ""},
		     {".debug/", ".debug"},
		     {".debug/", ".dbg"}};
	const unsigned n_names = sizeof(names) / sizeof(*names);
	const char *slash = strrchr(path, '/');
	const int dir = slash ? (int)(slash + 1 - path) : 0;

	if (n >= n_names)
		return name_kernel(path, dir, n - n_names, name, size);
	snprintf(name, size, "%.*s%s%s%s", dir, path, names[n].sub, path + dir, names[n].end);
	return true;
}

/* Beside the file under the name that was given for it, where it may have been preopened. */
static int open_beside(const char *path, const struct wanted *wanted)
{
	char name[2 * PATH_MAX];
	int fd = -1;

	for (unsigned i = 0; fd < 0 && name_beside(path, i, name, sizeof(name)); i++)
		if (is_regular_file(name))
			fd = check_by(open_to_read(name), wanted, has_code);
	return fd;
}

struct error *debug_file_preopen_beside(const char *path)
{
	char name[2 * PATH_MAX];

	for (unsigned i = 0; name_beside(path, i, name, sizeof(name)); i++)
		if (is_regular_file(name))
			TRY(preopen_input(name));
	return NULL;
}

struct error *debug_file_preopen(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(ERR_INPUT, errno, "%s: cannot open the directory of debug files",
				   dir);
	return preopen_adopt(GIVEN_DIR, fd);
}

/* Name of the debug file in the file's .gnu_debuglink, and the file's directory. */
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
	struct wanted wanted = {.stripped = elf};
	char dir[PATH_MAX] = "";
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);
	const char *link = link_of(path, elf, dir, &wanted);
	int fd;

	if (len > 0 && len <= BUILD_ID_MAX) {
		wanted.id = id;
		wanted.id_len = (size_t)len;
	}
	fd = link || wanted.id ? open_given(dir, link, &wanted) : -1;
	if (fd < 0 && wanted.id)
		fd = open_by_id(ROOT "/.build-id/", AT_FDCWD, &wanted);
	if (fd < 0 && link)
		fd = open_by_link(dir, link, &wanted);
	if (fd < 0)
		fd = open_beside(path, &wanted);
	if (fd < 0)
		fd = open_in_sysroot(&wanted);
	return fd < 0 ? open_fetched(&wanted) : fd;
}
